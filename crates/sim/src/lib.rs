//! Whole clusters in one thread, under a simulated network, disk and clock, replayable by seed.

mod clients;
mod ledger;
mod net;
mod node;
mod run;
mod scenario;

pub use ledger::{BatchName, Contents, Damage, Ledger, Partition, Value};
pub use run::{Options, Report, run};
