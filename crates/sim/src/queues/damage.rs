//! What must never happen to a queue.

use std::fmt;

use super::history::{Message, SessionId};
use crate::declared::QueueNumber;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueDamage {
    /// A record was settled, which its consumer was told is durable, and handed out again.
    CameAgain {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// What is in it.
        message: Message,
        /// In which leadership it was settled.
        settled_in: u64,
        /// In which it came again; a lower one is that of a leader who did not know that there was another.
        handed_in: u64,
    },
    /// A record was handed out in one leadership while somebody had it.
    WithTwo {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// Who had it.
        first: SessionId,
        /// Who got it.
        second: SessionId,
    },
    /// First deliveries are not in the order of the log.
    NotInOrder {
        /// Where.
        queue: QueueNumber,
        /// To whom.
        session: SessionId,
        /// Which record.
        offset: i64,
        /// Which came before it.
        after: i64,
    },
    /// A record came as if for the first time, although a leader must have known that it may have been handed out.
    NotMarked {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
    },
    /// A publisher's messages do not stand in the log as it sent them.
    PublisherNotInOrder {
        /// Where.
        queue: QueueNumber,
        /// The message that stands before an earlier one.
        message: Message,
    },
    /// Records that came back together were not handed out again in their order, or others before them.
    ReturnsNotInOrder {
        /// Where.
        queue: QueueNumber,
        /// To whom.
        session: SessionId,
        /// What had to come.
        expected: i64,
        /// What came.
        found: i64,
    },
    /// Fewer failures or returns are told than are known to be counted.
    CountFell {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// Failures and returns that were durable.
        counted: (u16, u16),
        /// Those that were told.
        told: (u16, u16),
    },
    /// More are told than there can have been.
    CountTooHigh {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// Failures and returns that there can have been.
        most: (u16, u16),
        /// Those that were told.
        told: (u16, u16),
    },
    /// A record was handed out although it had failed too often.
    TooOften {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// How often it had failed.
        failures: u16,
    },
    /// A parked record came before its time.
    TooEarly {
        /// Where.
        queue: QueueNumber,
        /// Which.
        message: Message,
        /// By how much, in milliseconds.
        by_ms: i64,
    },
    /// A parked record arrived at two places of one queue.
    ReleasedTwice {
        /// Where.
        queue: QueueNumber,
        /// Which.
        message: Message,
    },
    /// A parked record never came.
    NeverReleased {
        /// Where it should have come.
        queue: QueueNumber,
        /// Which.
        message: Message,
    },
    /// A parked record came although it had been taken back.
    ReleasedThoughCancelled {
        /// Where.
        queue: QueueNumber,
        /// Which.
        message: Message,
    },
    /// One sending of a message is in the log twice.
    StoredTwice {
        /// Where.
        queue: QueueNumber,
        /// Which.
        message: Message,
    },
    /// Two messages of one business key are in the log, although the first was known when the second came.
    KeyTwice {
        /// Where.
        queue: QueueNumber,
        /// Which key.
        key: u32,
        /// Which was first.
        first: Message,
        /// Which came nevertheless.
        second: Message,
    },
    /// A message was acknowledged, or a record handed out, and nobody accepted it in the end.
    Lost {
        /// Where.
        queue: QueueNumber,
        /// Which.
        message: Message,
    },
    /// A record was rejected and did not come to where the dead go.
    NotBuried {
        /// Where it was rejected.
        queue: QueueNumber,
        /// Which.
        message: Message,
    },
    /// A record that nobody sent, or not there.
    Unexpected {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// What is in it.
        message: Message,
    },
    /// Two messages were handed out from one place.
    Changed {
        /// Where.
        queue: QueueNumber,
        /// Which record.
        offset: i64,
        /// What was in it before.
        was: Message,
        /// What is in it now.
        is: Message,
    },
    /// A node has a record no more that was not settled: it was trimmed, or left out when a segment was written anew.
    GoneUnsettled {
        /// Which node.
        node: usize,
        /// Of which topic.
        topic: String,
        /// Which record.
        offset: i64,
    },
    /// The replicas do not hold the same in the end.
    NotAlike {
        /// In what they differ.
        what: String,
    },
    /// Users are not as those who changed them were told.
    UsersDiffer {
        /// How.
        what: String,
    },
    /// A replica stopped.
    Stopped {
        /// Which node.
        node: usize,
        /// Why.
        why: String,
    },
    /// The queues were not empty in the end.
    NotDrained {
        /// What was being waited for.
        what: String,
    },
}

impl fmt::Display for QueueDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
