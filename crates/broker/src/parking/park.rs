//! Parking records, and taking them back before their time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll, ready};

use weir_cluster::PendingOutcome;
use weir_model::batch::{BatchBuilder, Record};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::timer::TimerRow;
use weir_model::{Offset, ShardId, SubscriptionId, TimestampMs};

use super::Due;
use crate::broker::Broker;
use crate::errors::{AdminError, PublishError, Unavailable, refused};
use crate::publish::not_taken;
use crate::read::PartitionRef;

/// Records of one batch. Each is read for itself when its time has come, and its batch with it.
const BATCH_RECORDS: usize = 128;

/// Bytes of records in one batch, for the same reason. One record may be larger.
const BATCH_BYTES: usize = 32 << 10;

/// Records that are parked together, in one lot.
#[derive(Debug, Default)]
pub struct ParkedBatch {
    builder: BatchBuilder,
    deadlines: Vec<(u32, TimestampMs)>,
}

impl ParkedBatch {
    /// An empty one.
    pub fn new() -> ParkedBatch {
        ParkedBatch::default()
    }

    /// Adds a record that is released at a time of day, in milliseconds since 1970; at once if that is past.
    pub fn push(&mut self, mut record: Record, due: &Due, at: TimestampMs) {
        let number = self.deadlines.len() as u32;
        record.headers.push(due.header());
        let Record { timestamp, key, value, headers, .. } = record;
        self.builder.push(timestamp, key.as_deref(), value.as_deref(), &headers);
        self.deadlines.push((number, at));
    }

    /// Whether no more should go with it.
    pub fn is_full(&self) -> bool {
        self.deadlines.len() >= BATCH_RECORDS || self.builder.section_bytes() >= BATCH_BYTES
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }
}

/// Where a batch is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedAt {
    /// In the lot of this shard.
    pub shard: ShardId,
    /// Offset of its first record there.
    pub base_offset: Offset,
}

impl ParkedAt {
    /// The name of one of its records, by its number in the batch and its deadline.
    pub fn name(&self, number: u32, at: TimestampMs) -> ParkedName {
        ParkedName { shard: self.shard, offset: self.base_offset + i64::from(number), at }
    }
}

/// The name by which a parked record can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedName {
    shard: ShardId,
    offset: Offset,
    at: TimestampMs,
}

/// A text that names no parked record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not the name of a parked record: it has a shard, an offset and a time, with '-' between them"
)]
pub struct InvalidParkedName;

impl fmt::Display for ParkedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.shard.0, self.offset, self.at)
    }
}

impl FromStr for ParkedName {
    type Err = InvalidParkedName;

    fn from_str(text: &str) -> Result<ParkedName, InvalidParkedName> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().ok_or(InvalidParkedName);
        let (shard, offset, at) = (next()?, next()?, next()?);
        let number = |text: &str| text.parse::<i64>().map_err(|_| InvalidParkedName);
        let shard = shard.parse().map_err(|_| InvalidParkedName)?;
        Ok(ParkedName { shard: ShardId(shard), offset: number(offset)?, at: number(at)? })
    }
}

/// A batch on its way to a lot: resolves when it is durable there. Dropping it does not take it back.
#[must_use = "without awaiting it nobody knows whether the batch is durable"]
pub struct Parking {
    pending: PendingOutcome,
    shard: ShardId,
}

impl fmt::Debug for Parking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parking").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl Future for Parking {
    type Output = Result<ParkedAt, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shard = self.shard;
        Poll::Ready(match ready!(Pin::new(&mut self.pending).poll(context)) {
            Ok(Outcome::Appended(appended)) => Ok(ParkedAt { shard, base_offset: appended.base_offset }),
            Ok(Outcome::Refused(Refusal::Limit { what, limit })) => Err(PublishError::Refused(format!(
                "no more can be parked: the limit of {limit} {what} is reached"
            ))),
            Ok(Outcome::Refused(refusal)) => Err(refusal.into()),
            Ok(other) => Err(PublishError::Refused(format!("parking came to {other:?}"))),
            Err(error) => Err(not_taken(error)),
        })
    }
}

impl Broker {
    /// Puts a batch in the line of a lot, see [`Broker::lot_for`].
    pub async fn park(&self, lot: &PartitionRef, batch: ParkedBatch) -> Result<Parking, PublishError> {
        let ParkedBatch { builder, deadlines } = batch;
        let batch = builder.build();
        let max = lot.settings().max_message_bytes as usize;
        if batch.len() > max {
            return Err(PublishError::TooLarge { bytes: batch.len(), max });
        }
        let command = Command::AppendTimed { partition: lot.id(), deadlines, batch };
        let admission = lot.handle().admit_relayed(command.admitted_bytes()).await.map_err(not_taken)?;
        let pending = lot.handle().relay_admitted(admission, command).map_err(not_taken)?;
        Ok(Parking { pending, shard: lot.shard() })
    }

    /// Takes a parked record back, for good. Whether it was still there: one that has been released, or was taken back
    /// before, is not, nor is one whose time has come: it is on its way.
    pub async fn cancel_parked(&self, name: ParkedName) -> Result<bool, AdminError> {
        let Some(lot) = self.lot_of_shard(name.shard) else { return Ok(false) };
        lot.ready()?;
        let row = TimerRow { at: name.at, offset: name.offset };
        // Told before the clock is read: whoever lets go what is due then sees it. What goes to other shards arrives there
        // before it is settled here, so that it could be taken back although it is there.
        let _cancelling = self.lots.cancelling(name.shard, row);
        let is_there = lot.handle().view().timers(lot.id()).is_some_and(|timers| timers.contains(row));
        if !is_there || row.at <= self.now_ms() {
            return Ok(false);
        }
        let command = Command::MoveRecords {
            partition: lot.id(),
            subscription: SubscriptionId::QUEUE,
            records: vec![(name.offset, name.offset)],
            deadlines: vec![row],
            appends: Vec::new(),
        };
        match lot.handle().propose(command).await.map_err(Unavailable::from)? {
            Outcome::Together(_) => Ok(true),
            Outcome::Refused(Refusal::AlreadySettled(..) | Refusal::NoSuchRecords(..)) => Ok(false),
            other => Err(refused(other)),
        }
    }

    /// How many records are parked on this node.
    pub fn parked(&self) -> u64 {
        let lots = self.node.data_shards().into_iter().filter_map(|shard| self.lot_of_shard(shard));
        lots.filter_map(|lot| lot.handle().view().timers(lot.id())).map(|timers| timers.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_text() {
        let name = ParkedAt { shard: ShardId(3), base_offset: 70 }.name(2, 1_700_000_000_000);
        assert_eq!(name.to_string(), "3-72-1700000000000");
        assert_eq!(name.to_string().parse(), Ok(name));
        let past = ParkedName { at: -5, ..name };
        assert_eq!(past.to_string().parse(), Ok(past));
        for text in ["", "3", "3-4", "a-4-5", "3--", "3-4-5-6x", "4294967296-1-1"] {
            assert_eq!(text.parse::<ParkedName>(), Err(InvalidParkedName), "{text}");
        }
    }
}
