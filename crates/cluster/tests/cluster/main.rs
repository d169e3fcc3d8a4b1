//! Whole nodes over simulated disks, in one thread and by a clock that only moves when all wait.

mod alone;
mod limits;
mod snapshots;
mod support;
mod temporary;
mod threads;
mod three;
