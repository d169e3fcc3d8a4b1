//! Whole replicas on a simulated disk: what is applied can be read, however it has moved between memory
//! and files, and a crash at any moment loses nothing that the journal brings again.

mod checkpoints;
mod crashes;
mod faults;
mod identical;
mod mending;
mod observers;
mod reads;
mod retirement;
mod snapshots;
mod support;
mod threads;
