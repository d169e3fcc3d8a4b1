//! Stored files, read without a server and without being changed.
//!
//! * [`segments`]: where segment files are, and their batches one by one.
//! * [`dump`](dump()): prints them.
//! * [`verify`](verify()): checks them, and the journal.

mod dump;
mod segments;
mod verify;

pub use dump::{DumpOptions, dump};
pub use verify::verify;
