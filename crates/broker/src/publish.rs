//! Publishing one batch to one partition. The batch goes through untouched: it is looked at, counted
//! and handed to its shard in the buffer that it arrived in.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;
use weir_cluster::{PendingOutcome, PendingQueued, ProposeError};
use weir_model::batch::{BatchHeader, TimestampType, verify_batch, with_append_time};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::queue::QueueKind;
use weir_model::settings::{Durability, PartitionSettings};
use weir_model::{Offset, TimestampMs, TopicId};

use crate::broker::Broker;
use crate::errors::{PublishError, Unavailable};
use crate::opening::records_of;
use crate::read::PartitionRef;

/// A larger batch for a queue is looked into by a thread that may take its time.
const OPENED_HERE_BYTES_MAX: usize = 128 << 10;

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
#[must_use = "without awaiting it nobody knows whether the batch is durable"]
pub struct Publishing {
    pending: Pending,
    append_time: TimestampMs,
    began: Instant,
    seconds: Histogram,
}

/// What is waited for, by the topic's durability.
enum Pending {
    Applied(PendingOutcome),
    Queued(PendingQueued),
}

impl fmt::Debug for Publishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publishing").field("append_time", &self.append_time).finish_non_exhaustive()
    }
}

impl Future for Publishing {
    type Output = Result<Published, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let append_time = self.append_time;
        let result = match &mut self.pending {
            Pending::Applied(pending) => match ready!(Pin::new(pending).poll(context)) {
                Ok(Outcome::Appended(appended)) => Ok(Published {
                    base_offset: appended.base_offset,
                    append_time,
                    log_start: appended.log_start,
                    leader_epoch: appended.leader_epoch,
                    duplicate: appended.duplicate,
                }),
                Ok(Outcome::Refused(refusal)) => Err(refusal.into()),
                Ok(other) => Err(PublishError::Refused(format!("an append came to {other:?}"))),
                Err(error) => Err(not_taken(error)),
            },
            // It stands in the journal's line, which is all that this durability promises.
            Pending::Queued(pending) => match ready!(Pin::new(pending).poll(context)) {
                Ok(()) => Ok(Published {
                    base_offset: -1,
                    append_time,
                    log_start: -1,
                    leader_epoch: -1,
                    duplicate: false,
                }),
                Err(error) => Err(not_taken(error)),
            },
        };
        self.seconds.observe(self.began.elapsed().as_secs_f64());
        Poll::Ready(result)
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
        let began = Instant::now();
        // Clients of this kind of batch go to the leader themselves.
        partition.ready()?;
        let settings = partition.settings();
        let header = check(&batch, settings)?;
        if self.is_queue(partition.topic_id()) {
            self.check_records(header, batch.clone()).await?;
        }
        let (batch, append_time) = match settings.timestamp_type {
            TimestampType::CreateTime => (batch, -1),
            TimestampType::LogAppendTime => {
                let now = self.clock.now_ms();
                (with_append_time(&batch, now), now)
            }
        };
        let shard = partition.handle();
        // Whoever leads is told to the client, who goes there.
        partition.ready()?;
        let command = Command::Append { partition: partition.id(), batch };
        let permit = shard.admit(command.approximate_bytes()).await.map_err(not_taken)?;
        let pending = match (acks, settings.durability) {
            (Acks::None, _) | (_, Durability::Sync) => {
                Pending::Applied(shard.submit_admitted(permit, command).map_err(not_taken)?)
            }
            (_, Durability::Async) => {
                Pending::Queued(shard.submit_async_admitted(permit, command).map_err(not_taken)?)
            }
        };
        Ok(Publishing { pending, append_time, began, seconds: self.metrics.publish_seconds.clone() })
    }
}

impl Broker {
    /// Whether records of the topic are handed out one by one.
    fn is_queue(&self, topic: TopicId) -> bool {
        let queue = self.meta().ok().and_then(|meta| meta.view().catalog().queue(topic).cloned());
        queue.is_some_and(|queue| queue.kind != QueueKind::Stream)
    }

    /// Whether every record can be read: one that cannot would hold up those behind it for ever.
    async fn check_records(&self, header: BatchHeader, batch: Bytes) -> Result<(), PublishError> {
        let is_large = batch.len() > OPENED_HERE_BYTES_MAX;
        let look = move || records_of(&header, &batch)?.try_for_each(|record| record.map(drop));
        let looked = match is_large {
            false => look(),
            // It fails only when the runtime is going down.
            true => self.blocking().run(look).await.unwrap_or_else(|error| Err(error.to_string())),
        };
        looked.map_err(PublishError::Unopenable)
    }
}

/// Whether these bytes are one batch that the topic takes.
fn check(batch: &Bytes, settings: &PartitionSettings) -> Result<BatchHeader, PublishError> {
    // Before the checksum: what is too large is not worth it.
    let claimed = BatchHeader::parse(batch)?;
    let (bytes, max) = (claimed.total_bytes(), settings.max_message_bytes as usize);
    if bytes > max {
        return Err(PublishError::TooLarge { bytes, max });
    }
    if bytes < batch.len() {
        return Err(PublishError::NotOneBatch { bytes: batch.len() - bytes });
    }
    let header = verify_batch(batch)?;
    if header.is_control() {
        return Err(PublishError::Control);
    }
    if header.is_transactional() {
        return Err(PublishError::Transactional);
    }
    if header.timestamp_type() == TimestampType::LogAppendTime
        && settings.timestamp_type == TimestampType::CreateTime
    {
        return Err(PublishError::TimestampType);
    }
    Ok(header)
}

/// Why a shard did not take a batch.
pub(crate) fn not_taken(error: ProposeError) -> PublishError {
    match error {
        ProposeError::TooLarge { bytes, bytes_max } => PublishError::TooLarge { bytes, max: bytes_max },
        error => Unavailable::from(error).into(),
    }
}

impl From<Refusal> for PublishError {
    fn from(refusal: Refusal) -> PublishError {
        match refusal {
            Refusal::UnknownPartition(_) => PublishError::UnknownPartition,
            Refusal::OutOfOrderSequence { producer_id, expected, got } => {
                PublishError::OutOfOrderSequence { producer_id, expected, got }
            }
            Refusal::StaleProducerEpoch { producer_id, current, got } => {
                PublishError::StaleProducerEpoch { producer_id, current, got }
            }
            other => PublishError::Refused(other.to_string()),
        }
    }
}
