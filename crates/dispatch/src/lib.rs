//! Who gets which record next.
//!
//! A [`Dispatcher`] is the memory that the leader of a queue has beside the replicated state: which records are
//! leased to whom, which consumers have credit, and what comes next. It does no I/O and reads no clock. Its driver
//! feeds it records and time, carries its [`Delivery`]s to the consumers, and proposes its [`LaneChanges`] as
//! commands. A new leader makes a new one from what is replicated: what was leased is handed out again.
//!
//! What is deliberately absent: the content of records that are leased (a record that comes back is read again),
//! and anything for a record that waits and was never looked at.

mod consumers;
mod dispatcher;
mod lane;
mod resting;
mod sizes;
mod types;

pub use consumers::Gate;
pub use dispatcher::Dispatcher;
pub use resting::{Rest, Rests};
pub use types::{
    ConsumerId, Dead, Delivery, Got, LaneChanges, LaneNumber, LaneStart, NewConsumer, Options, OwnerId,
    Place, SubscribeError, UnknownLease, Waiting, Want,
};
