//! Reading from a partition, and finding offsets in it.

use std::sync::Arc;

use bytes::Bytes;
use weir_model::settings::PartitionSettings;
use weir_model::{Offset, PartitionId, ShardId, TimestampMs, TopicId};

use crate::errors::{ReadError, Unavailable};
use crate::wait::FetchWait;

/// A partition of a topic, looked up once per request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PartitionRef {
    id: PartitionId,
    shard: ShardId,
    topic_id: TopicId,
    index: i32,
    settings: Arc<PartitionSettings>,
}

/// Whole batches as they are stored.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// The bytes in pieces, to be sent behind each other. The first batch contains the offset asked
    /// for and may begin before it; the client skips what it did not ask for.
    pub chunks: Vec<Bytes>,
    /// How many bytes these are.
    pub bytes: usize,
    /// The offset after the last batch; where to read on.
    pub next_offset: Offset,
}

/// What offset is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The first that is there.
    Earliest,
    /// The one that the next record will get.
    Latest,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// The first record whose timestamp is this or later.
    At(TimestampMs),
}

/// An offset that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset.
    pub offset: Offset,
    /// The record's timestamp; -1 for `Earliest` and `Latest`.
    pub timestamp: TimestampMs,
    /// Epoch of the leadership in which the record was appended, which may be a past one.
    pub leader_epoch: i32,
}

impl PartitionRef {
    /// Identity of the partition.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Where it lives.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Identity of its topic.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Its number within the topic.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Its settings.
    pub fn settings(&self) -> &Arc<PartitionSettings> {
        &self.settings
    }

    /// First offset that is there.
    pub fn log_start(&self) -> Offset {
        0
    }

    /// The high watermark: the offset that the next record will get.
    pub fn next_offset(&self) -> Offset {
        0
    }

    /// Epoch of the current leadership.
    pub fn leader_epoch(&self) -> i32 {
        0
    }

    /// Bytes that the partition takes.
    pub fn bytes(&self) -> u64 {
        0
    }

    /// The last epoch not above this one that has records, and the offset after its last record
    /// (Kafka's OffsetForLeaderEpoch).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, Offset) {
        (epoch, 0)
    }

    /// Whole batches from the one that contains `offset` on, at least one if there is one, up to
    /// `max_bytes`. What is in memory is answered at once; the disk is read on a blocking thread.
    pub async fn read(&self, offset: Offset, max_bytes: usize) -> Result<Records, ReadError> {
        let _ = (offset, max_bytes);
        Err(Unavailable::Starting.into())
    }

    /// The offset that is looked for; none if no record has such a timestamp.
    pub async fn list_offset(&self, query: OffsetQuery) -> Result<Option<ListedOffset>, ReadError> {
        let _ = query;
        Err(Unavailable::Starting.into())
    }
}

impl FetchWait {
    /// Begins to count what is appended to these partitions.
    pub fn on<'a>(partitions: impl IntoIterator<Item = &'a PartitionRef>) -> FetchWait {
        let _ = partitions.into_iter().count();
        FetchWait::empty()
    }
}
