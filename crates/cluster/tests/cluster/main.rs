//! Whole nodes over simulated disks, in one thread and by a clock that only moves when all wait; and calls between nodes
//! over real connections.

mod alone;
mod formation;
mod incarnations;
mod limits;
mod mending;
mod network;
mod relay;
mod returning;
mod snapshots;
mod support;
mod tcp;
mod temporary;
mod threads;
mod three;
mod three_tcp;
