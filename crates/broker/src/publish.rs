//! Publishing one batch to one partition.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_model::{Offset, TimestampMs};

use crate::broker::Broker;
use crate::errors::{PublishError, Unavailable};
use crate::read::PartitionRef;

/// When the producer wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Never. The front drops the [`Publishing`]; the batch is appended all the same.
    None,
    /// By the leader; here the same as `All`: nothing is acknowledged before it is durable.
    Leader,
    /// By a majority.
    All,
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Offset of its first record; -1 on a topic with durability `async`.
    pub base_offset: Offset,
    /// The timestamp that its records were given, on a topic with LogAppendTime; otherwise -1.
    pub append_time: TimestampMs,
    /// First offset that the partition still has; -1 on a topic with durability `async`.
    pub log_start: Offset,
    /// Epoch of the leadership in which it was appended; -1 on a topic with durability `async`.
    pub leader_epoch: i32,
    /// Whether the batch was there already and this is where the first copy went.
    pub duplicate: bool,
}

/// A batch on its way: resolves when it is durable and applied. Dropping it does not take it back.
#[derive(Debug)]
#[must_use = "without awaiting it nobody knows whether the batch is durable"]
pub struct Publishing {
    result: Option<Result<Published, PublishError>>,
}

impl Future for Publishing {
    type Output = Result<Published, PublishError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.result.take().unwrap_or(Err(Unavailable::ShuttingDown.into())))
    }
}

impl Broker {
    /// Checks one batch and puts it in its partition's line. Returns as soon as it stands there:
    /// the order in which these calls return is the order of the appends, so a connection awaits
    /// one before it makes the next, and keeps the [`Publishing`] to await later.
    ///
    /// Awaiting takes longer than a moment only while more is on its way to the disk than may wait;
    /// a front that awaits it before it reads on passes that pressure to the client.
    ///
    /// `batch` must be exactly one record batch. Its bytes are kept, not copied.
    pub async fn publish(
        &self,
        partition: &PartitionRef,
        batch: Bytes,
        acks: Acks,
    ) -> Result<Publishing, PublishError> {
        let _ = (partition, batch, acks);
        Err(Unavailable::Starting.into())
    }
}
