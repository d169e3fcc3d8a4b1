//! Whole clusters in one thread, under a simulated network, disk and clock, replayable by seed.
//!
//! Three nodes with the real replicas and the real broker serve clients of streams and of queues while faults strike,
//! and come to rest in a calm phase. What clients were told is held against what there is: by [`Ledger`] for streams, by
//! [`check`] for queues.

mod asks;
mod clients;
mod declared;
mod ledger;
mod net;
mod node;
mod queues;
mod run;
mod scenario;
mod watch;
mod wrong;

pub use ledger::{BatchName, Contents, Damage, Ledger, Partition, Value};
pub use queues::{Event, Figures, Handed, Happening, History, Message, QueueDamage, Settling, check};
pub use run::{Options, Report, run};
pub use wrong::Wrong;
