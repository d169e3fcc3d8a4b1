//! Queues: topics whose records are handed out one by one and settled one by one.
//!
//! A queue that somebody uses has an actor on the node that leads it: a task with the queue's
//! [`weir_dispatch::Dispatcher`], which reads records, hands them to consumers, and proposes what was settled. It
//! ends with the leadership, and when nobody has used it for a while. What must outlive it is in the shard's state, and what
//! sessions have at that moment each node remembers for its own (`holdings`, `handing_over`).

mod actor;
mod browse;
mod bury;
mod deaths;
mod handing_over;
mod handle;
mod holdings;
mod messages;
mod reading;
mod record;
mod redrive;
mod registry;
mod room;
mod settling;
mod sink;

pub use browse::{BROWSED_MAX, Browsed, QueueContents};
pub use bury::Cemetery;
pub use deaths::{DEATHS_HEADER, Death, Deaths, FurtherKeys, KEYS_HEADER, keys_header};
pub use handle::{GetError, QueueFigures, QueueGone, QueueRef};
pub use messages::MessageReader;
pub use record::QueueRecord;
pub use redrive::{REDRIVEN_MAX, Redrive, RedriveError, Redriven};
pub use room::{Limits, Overflow};
pub use sink::{QueueDeliveries, QueueDelivery};
pub use weir_dispatch::{ConsumerId, LaneNumber, OwnerId, Place, SubscribeError};

pub(crate) use handle::{Ask, Replies};
pub(crate) use holdings::{Holding, Lasting, Unsure};
pub(crate) use record::{EXPIRES_HEADER, Ttl, read_records};
pub(crate) use registry::{NOBODY, OwnerSource, Queues};
pub(crate) use room::{Reservation, Room};
pub(crate) use sink::{Sink, UNTAKEN_BYTES_MAX, UNTAKEN_MAX, bytes_of, sink_with};

use std::time::Duration;

use weir_dispatch::Rest;
use weir_model::TimestampMs;

/// How a queue behaves, as its declaration says.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Records that came back come first, in the order in which they came back; otherwise each has its original
    /// position again.
    pub returns_in_turn: bool,
    /// A record whose delivery failed more often than this is dead.
    pub failures_max: Option<u16>,
    /// Records that came back rest before they are handed out again.
    pub rest: Option<Rest>,
    /// Only one consumer gets records, until it is gone.
    pub single_active: bool,
    /// Records wait at most this long, in milliseconds.
    pub ttl_ms: Option<TimestampMs>,
    /// How much may wait.
    pub limits: Limits,
    /// Records leased at a time, over all consumers.
    pub leased_max: usize,
    /// Where dead records go; without that they are settled at once.
    pub cemetery: Option<Cemetery>,
    /// The queue itself ends when nobody has used it for this long.
    pub expires: Option<Duration>,
    /// The actor ends when nobody has used the queue for this long.
    pub idle: Duration,
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions {
            returns_in_turn: false,
            failures_max: None,
            rest: None,
            single_active: false,
            ttl_ms: None,
            limits: Limits::default(),
            leased_max: 1_000_000,
            cemetery: None,
            expires: None,
            idle: Duration::from_secs(60),
        }
    }
}
