//! What goes in and comes out.

use std::fmt;
use std::sync::Arc;

use weir_model::subscription::{DeadReason, Marks, Settlement};
use weir_model::{Offset, TimestampMs};

use crate::consumers::Gate;
use crate::resting::Rest;

/// One of the partitions that a queue consists of. A queue without priorities has one, of number 0; of several, the
/// one with the highest number comes first.
pub type LaneNumber = u8;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which lane.
    pub lane: LaneNumber,
    /// At which offset.
    pub offset: Offset,
}

/// Whoever holds leases and settles them: a channel of a session. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// A consumer, within its dispatcher. Never used again for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u64);

/// What a dispatcher must know of a record.
pub trait Waiting {
    /// About how much memory it takes.
    fn bytes(&self) -> usize;

    /// From when on nobody may have it any more.
    fn expires_at(&self) -> Option<TimestampMs>;

    /// Whether it has expired as soon as it is there, and is only for whoever waits for it already.
    fn is_for_now(&self) -> bool {
        false
    }
}

/// How a queue behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Records that came back are handed out in the order in which they came back. Otherwise each has its
    /// original position again.
    pub returns_in_turn: bool,
    /// A record whose delivery failed more often than this is dead.
    pub failures_max: Option<u16>,
    /// Records that came back rest before they are handed out again.
    pub rest: Option<Rest>,
    /// Only one consumer gets records, until it is gone.
    pub single_active: bool,
    /// Somebody publishes dead records elsewhere. Otherwise they are settled at once.
    pub dead_letters: bool,
    /// Records leased or resting at a time, over all consumers. It also bounds what can come back.
    pub leased_max: usize,
    /// Records are sized, so that it is known how many bytes wait. See [`crate::Dispatcher::wants_sizes`].
    pub sized: bool,
    /// Bytes of records that are read ahead.
    pub window_bytes: usize,
    /// Records that are read ahead.
    pub window_records: usize,
    /// The first consumer's number. Whoever tells consumers of several dispatchers apart by it leaves room between them.
    pub first_consumer: ConsumerId,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            returns_in_turn: false,
            failures_max: None,
            rest: None,
            single_active: false,
            dead_letters: false,
            leased_max: 1_000_000,
            sized: false,
            window_bytes: 1 << 20,
            window_records: 4_096,
            first_consumer: ConsumerId::default(),
        }
    }
}

/// A lane as the replicated state has it when a leadership begins.
#[derive(Clone, Debug, Default)]
pub struct LaneStart {
    /// Everything below is settled.
    pub head: Offset,
    /// The log's end.
    pub end: Offset,
    /// Records below this offset may have been handed out by earlier leaders.
    pub handed_out: Offset,
    /// Runs of settled records above the head, rising.
    pub settled: Vec<(Offset, Offset)>,
    /// Runs of records that came back or are dead, rising, none of them settled.
    pub marked: Vec<(Offset, Offset, Marks)>,
}

/// Who wants records.
#[derive(Clone)]
pub struct NewConsumer {
    /// Whose leases they will be.
    pub owner: OwnerId,
    /// Records that it takes before it settles any; none takes what there is.
    pub credit: Option<u32>,
    /// Consumers of a higher priority come first, as long as they take records.
    pub priority: i32,
    /// Nobody else may consume.
    pub exclusive: bool,
    /// Records are settled as they are handed out.
    pub settled: bool,
    /// Asked each time before it gets one.
    pub gate: Option<Arc<dyn Gate>>,
}

impl fmt::Debug for NewConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewConsumer")
            .field("owner", &self.owner)
            .field("credit", &self.credit)
            .field("priority", &self.priority)
            .field("exclusive", &self.exclusive)
            .field("settled", &self.settled)
            .finish_non_exhaustive()
    }
}

/// Why somebody may not consume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// Somebody consumes exclusively.
    #[error("somebody consumes exclusively")]
    Exclusive,
    /// It wants to be alone and is not.
    #[error("there are other consumers")]
    NotAlone,
    /// The queue has as many as it may.
    #[error("there are {limit} consumers, which is the most")]
    TooMany {
        /// The bound.
        limit: usize,
    },
}

/// The owner does not have such a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no record at {0:?} is leased to this owner")]
pub struct UnknownLease(pub Place);

/// A record on its way to a consumer, leased to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<R> {
    /// To whom; none if it was asked for.
    pub consumer: Option<ConsumerId>,
    /// Whose lease it is.
    pub owner: OwnerId,
    /// Which record.
    pub place: Place,
    /// The record.
    pub record: R,
    /// Whether it may have been handed out before.
    pub redelivered: bool,
    /// What is noted of it.
    pub marks: Marks,
}

/// What asking for one record comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got<R> {
    /// It is there.
    Record(Delivery<R>),
    /// It must be read first. Ask again then.
    Wanted(Want),
    /// Nothing waits.
    Empty,
}

/// What the dispatcher needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Records of a lane from an offset on.
    From(Place),
    /// One record that came back.
    One(Place),
}

/// A record that nobody may have any more, for somebody who publishes it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Which record.
    pub place: Place,
    /// Why.
    pub reason: DeadReason,
    /// What is noted of it.
    pub marks: Marks,
}

/// What is to be proposed for a lane, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneChanges {
    /// Records below this offset have been handed out; 0 if that is not news.
    pub handed_out: Offset,
    /// What became of which records.
    pub settlements: Vec<Settlement>,
}

impl LaneChanges {
    /// Whether there is nothing to propose.
    pub fn is_empty(&self) -> bool {
        self.handed_out == 0 && self.settlements.is_empty()
    }
}
