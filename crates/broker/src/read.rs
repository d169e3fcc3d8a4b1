//! Reading from a partition, and finding offsets in it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weir_cluster::ShardHandle;
use weir_model::batch::verify_batch;
use weir_model::command::PartitionMeta;
use weir_model::settings::PartitionSettings;
use weir_model::{Offset, PartitionId, ShardId, TimestampMs, TopicId};
use weir_shard::{FileRange, PartitionView};

use crate::admin::ready;
use crate::blocking::Blocking;
use crate::errors::{ReadError, Unavailable};
use crate::offsets::record_at;

/// A partition of a topic, looked up once per request. Cheap to clone.
#[derive(Clone)]
pub struct PartitionRef {
    handle: ShardHandle,
    view: Arc<PartitionView>,
    settings: Arc<PartitionSettings>,
    topic_id: TopicId,
    index: i32,
    meta: PartitionMeta,
    blocking: Blocking,
}

impl fmt::Debug for PartitionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionRef")
            .field("topic_id", &self.topic_id)
            .field("index", &self.index)
            .field("id", &self.meta.id)
            .field("shard", &self.meta.shard)
            .finish_non_exhaustive()
    }
}

/// Whole batches as they are stored.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// The bytes in pieces, to be sent behind each other. The first batch contains the offset asked
    /// for and may begin before it; the client skips what it did not ask for.
    pub pieces: Vec<Piece>,
    /// How many bytes these are.
    pub bytes: usize,
    /// The offset after the last batch; where to read on.
    pub next_offset: Offset,
}

/// Stored bytes on their way to a client.
#[derive(Clone, Debug)]
pub enum Piece {
    /// In memory.
    Memory(Bytes),
    /// Where they are stored, to be sent from there.
    Stored(FileRange),
}

impl Piece {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Memory(bytes) => bytes.len(),
            Piece::Stored(range) => range.len(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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
    pub(crate) fn new(
        handle: ShardHandle,
        view: Arc<PartitionView>,
        topic_id: TopicId,
        index: i32,
        meta: PartitionMeta,
        blocking: Blocking,
    ) -> PartitionRef {
        PartitionRef { settings: view.settings(), handle, view, topic_id, index, meta, blocking }
    }

    pub(crate) fn handle(&self) -> &ShardHandle {
        &self.handle
    }

    pub(crate) fn view(&self) -> &Arc<PartitionView> {
        &self.view
    }

    /// Whether this node leads the partition and knows all that was decided before: only then does
    /// it know what is not there.
    pub(crate) fn ready(&self) -> Result<(), Unavailable> {
        ready(&self.handle)
    }

    /// Whether this node leads the partition, and knows all that was decided before.
    pub fn is_led_here(&self) -> bool {
        self.ready().is_ok()
    }

    /// The leadership in which this node leads the partition, if it is [`PartitionRef::ready`]. What is kept in memory
    /// beside the replicated state is good only for one: in between another node may have led.
    pub(crate) fn leadership(&self) -> Result<u64, Unavailable> {
        let term = self.handle.leadership().term;
        self.ready()?;
        Ok(term)
    }

    /// Where to read what is not in memory.
    pub(crate) fn blocking(&self) -> Blocking {
        self.blocking
    }

    /// Identity of the partition.
    pub fn id(&self) -> PartitionId {
        self.meta.id
    }

    /// Where it lives.
    pub fn shard(&self) -> ShardId {
        self.meta.shard
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
        self.view.log_start()
    }

    /// The high watermark: the offset that the next record will get.
    pub fn next_offset(&self) -> Offset {
        self.view.next_offset()
    }

    /// Epoch of the current leadership.
    pub fn leader_epoch(&self) -> i32 {
        self.view.leader_epoch()
    }

    /// Bytes that the partition takes.
    pub fn bytes(&self) -> u64 {
        self.view.bytes()
    }

    /// The last epoch not above this one that has records, and the offset after its last record
    /// (Kafka's OffsetForLeaderEpoch).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, Offset) {
        self.view.end_offset_for_epoch(epoch)
    }

    /// Whole batches from the one that contains `offset` on, at least one if there is one, up to
    /// `max_bytes`. What is in memory is answered at once, and where the segment file can be sent as it is, not
    /// even read; the disk is read on a blocking thread.
    pub async fn read(&self, offset: Offset, max_bytes: usize) -> Result<Records, ReadError> {
        if let Some(found) = self.view.range(offset, max_bytes) {
            let (bytes, next_offset) = (found.range.len(), found.next_offset);
            return Ok(Records { pieces: vec![Piece::Stored(found.range)], bytes, next_offset });
        }
        match self.view.read(offset, max_bytes, true) {
            Ok(read) => Ok(read.into()),
            Err(weir_shard::ReadError::WouldBlock) => {
                let view = self.view.clone();
                let read = self.blocking.run(move || view.read(offset, max_bytes, false)).await?;
                read.map(Records::from).map_err(|error| self.read_error(offset, error))
            }
            Err(error) => Err(self.read_error(offset, error)),
        }
    }

    /// The offset that is looked for; none if no record has such a timestamp.
    pub async fn list_offset(&self, query: OffsetQuery) -> Result<Option<ListedOffset>, ReadError> {
        self.ready()?;
        let bound = |offset| {
            let leader_epoch = self.view.epoch_at(offset);
            Ok(Some(ListedOffset { offset, timestamp: -1, leader_epoch }))
        };
        match query {
            OffsetQuery::Earliest => bound(self.log_start()),
            OffsetQuery::Latest => {
                let offset = self.next_offset();
                Ok(Some(ListedOffset { offset, timestamp: -1, leader_epoch: self.leader_epoch() }))
            }
            OffsetQuery::MaxTimestamp => match self.view.max_timestamp() {
                newest if newest >= 0 => self.find(newest).await,
                _ => Ok(None),
            },
            OffsetQuery::At(at) => self.find(at).await,
        }
    }

    /// The first record whose timestamp is `at` or later.
    async fn find(&self, at: TimestampMs) -> Result<Option<ListedOffset>, ReadError> {
        let view = self.view.clone();
        let found = self.blocking.run(move || find_record(&view, at)).await?;
        let found = found.map_err(|error| self.read_error(self.log_start(), error))?;
        Ok(found.map(|(offset, timestamp)| ListedOffset {
            offset,
            timestamp,
            leader_epoch: self.view.epoch_at(offset),
        }))
    }

    fn read_error(&self, offset: Offset, error: weir_shard::ReadError) -> ReadError {
        use weir_shard::ReadError as Below;
        match error {
            Below::OutOfRange { log_start, next_offset } => match self.ready() {
                Ok(()) => ReadError::OutOfRange { offset, log_start, next_offset },
                // Somebody who leads may know of more.
                Err(unavailable) => unavailable.into(),
            },
            Below::Closed => ReadError::UnknownPartition,
            Below::WouldBlock => ReadError::Io("the records are not in memory".into()),
            corrupt @ Below::Corrupt { .. } => ReadError::Corrupt(corrupt.to_string()),
            Below::Disk(error) => ReadError::Io(error.to_string()),
        }
    }
}

/// The first record whose timestamp is `at` or later: the batch is found by the index, the record by
/// looking into the batch.
fn find_record(
    view: &PartitionView,
    at: TimestampMs,
) -> Result<Option<(Offset, TimestampMs)>, weir_shard::ReadError> {
    let Some(position) = view.find_timestamp(at)? else { return Ok(None) };
    let mut offset = position.base_offset;
    // Usually the first batch has it. It may not if its newest record is below the log start.
    loop {
        let log_start = view.log_start();
        offset = offset.max(log_start);
        if offset >= view.next_offset() {
            return Ok(None);
        }
        let read = view.read(offset, 1, false)?;
        if read.chunks.is_empty() || read.next_offset <= offset {
            return Ok(None);
        }
        let next = read.next_offset;
        let batch = read.in_one_piece();
        let header = verify_batch(&batch)
            .map_err(|error| weir_shard::ReadError::Corrupt { offset, why: error.to_string() })?;
        offset = next;
        let batch = batch.slice(..header.total_bytes());
        if let Some(found) = record_at(&header, &batch, log_start, at) {
            return Ok(Some(found));
        }
    }
}

impl From<weir_shard::ReadOut> for Records {
    fn from(read: weir_shard::ReadOut) -> Records {
        let pieces = read.chunks.into_iter().map(Piece::Memory).collect();
        Records { pieces, bytes: read.bytes, next_offset: read.next_offset }
    }
}
