//! The node's one journal, driven for all its shards.
//!
//! * [`queue`]: what waits to be written, in the order in which it came.
//! * [`driver`]: takes all that waits, writes it, syncs once, and tells those who waited.
//! * [`records`]: what the shards' records mean.

pub(crate) mod driver;
pub(crate) mod queue;
pub(crate) mod records;
