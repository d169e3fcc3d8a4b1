//! What the tests of several crates share. Nothing that is shipped depends on it.
//!
//! * [`allocations`]: an allocator that counts.
//! * [`transcript`]: files of input with what comes of it written below.

pub mod allocations;
pub mod transcript;
