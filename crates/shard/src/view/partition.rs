//! One partition as readers see it: its ends, its segments, and its records, which lie in segment
//! files and, from some offset on, in the tail in memory. A batch leaves the tail only after its
//! segment file can be read, so that a reader who does not find it in one finds it in the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_model::batch::StoredBatch;
use weir_model::settings::PartitionSettings;
use weir_model::{Offset, PartitionId, TimestampMs};

use super::observer::{AppendObserver, ObserverGuard, Observers};
use super::read::{BatchPosition, ReadError, ReadOut};
use super::tail::{Tail, TailBatch, chunks_of};
use crate::state::epochs::EpochTable;
use crate::state::partition::{
    PartitionState, SegmentId, SegmentInfo, grow_segments, leader_epoch, trim_segments,
};

/// One partition. Shared by all who read it.
pub struct PartitionView {
    id: PartitionId,
    epoch_base: i32,
    opened_at: u64,
    leaderships: Arc<AtomicU64>,
    now: Mutex<Now>,
    observers: Arc<Observers>,
}

/// What changes with every append.
#[derive(Debug)]
struct Now {
    settings: Arc<PartitionSettings>,
    log_start: Offset,
    next_offset: Offset,
    /// Bytes of all segments.
    bytes: u64,
    segments: VecDeque<SegmentInfo>,
    epochs: EpochTable,
    tail: Tail,
    /// Waits for the segment writer.
    queued: bool,
    closed: bool,
}

impl fmt::Debug for PartitionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionView").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PartitionView {
    pub(crate) fn new(id: PartitionId, state: &PartitionState, leaderships: Arc<AtomicU64>) -> PartitionView {
        PartitionView {
            id,
            epoch_base: state.epoch_base,
            opened_at: state.opened_at,
            leaderships,
            now: Mutex::new(Now {
                settings: Arc::clone(&state.settings),
                log_start: state.log_start,
                next_offset: state.next_offset,
                bytes: state.segments.iter().map(|segment| segment.bytes).sum(),
                segments: state.segments.clone(),
                epochs: state.epochs.clone(),
                tail: Tail::default(),
                queued: false,
                closed: false,
            }),
            observers: Arc::default(),
        }
    }

    /// Which partition.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The first offset that the log has.
    pub fn log_start(&self) -> Offset {
        self.now.lock().log_start
    }

    /// The offset that the next record will get. All below is committed and readable: this is also
    /// Kafka's high watermark.
    pub fn next_offset(&self) -> Offset {
        self.now.lock().next_offset
    }

    /// First and next offset of one moment.
    pub fn offsets(&self) -> (Offset, Offset) {
        let now = self.now.lock();
        (now.log_start, now.next_offset)
    }

    /// The epoch of appends now.
    pub fn leader_epoch(&self) -> i32 {
        leader_epoch(self.epoch_base, self.opened_at, self.leaderships.load(Ordering::Acquire))
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.now.lock().bytes
    }

    /// Bytes that are in memory only.
    pub fn unwritten_bytes(&self) -> usize {
        self.now.lock().tail.bytes()
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<PartitionSettings> {
        Arc::clone(&self.now.lock().settings)
    }

    /// Whether the partition is gone.
    pub fn is_closed(&self) -> bool {
        self.now.lock().closed
    }

    /// The segments, rising; the last one is appended to.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.now.lock().segments.iter().copied().collect()
    }

    /// Largest timestamp in the log, or -1.
    pub fn max_timestamp(&self) -> TimestampMs {
        self.now.lock().segments.iter().map(|segment| segment.max_timestamp).max().unwrap_or(-1)
    }

    /// Whole batches beginning with the one that contains `offset`, at least one if there is one, up to
    /// `max_bytes`. Nothing if `offset` is the end of the log. With `cached_only` nothing waits for the
    /// disk.
    pub fn read(&self, offset: Offset, max_bytes: usize, cached_only: bool) -> Result<ReadOut, ReadError> {
        let mut out = ReadOut { chunks: Vec::new(), bytes: 0, next_offset: offset, batches: 0 };
        let _ = cached_only;
        loop {
            let left = max_bytes.saturating_sub(out.bytes);
            let batches = {
                let now = self.now.lock();
                if out.batches == 0 {
                    now.check(offset)?;
                }
                now.tail.look(out.next_offset, left)
            };
            let Some(last) = batches.last() else { return Ok(out) };
            let bytes: usize = batches.iter().map(StoredBatch::len).sum();
            if out.batches > 0 && bytes > left {
                return Ok(out);
            }
            out.next_offset = last.last_offset + 1;
            out.bytes += bytes;
            out.batches += batches.len();
            chunks_of(&batches, &mut out.chunks);
        }
    }

    /// The first batch that has a record with this timestamp or a later one.
    pub fn find_timestamp(&self, at: TimestampMs) -> Result<Option<BatchPosition>, ReadError> {
        let now = self.now.lock();
        now.check(now.log_start)?;
        Ok(now.tail.find_timestamp(now.log_start, at).map(|batch| BatchPosition {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            max_timestamp: batch.max_timestamp,
            leader_epoch: batch.leader_epoch,
        }))
    }

    /// The largest epoch up to `epoch` that has records, and the offset after its last one;
    /// (-1, -1) if `epoch` is not known here.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, Offset) {
        let current = self.leader_epoch();
        let now = self.now.lock();
        now.epochs.end_of(epoch, current, now.next_offset)
    }

    /// The epoch in which the record at `offset` was appended; for the end of the log, that of the
    /// last record; -1 if that is not known.
    pub fn epoch_at(&self, offset: Offset) -> i32 {
        self.now.lock().epochs.at(offset)
    }

    /// Tells `observer` about every append from here on, and once if the partition is closed. An append
    /// that is under way may be told or not: register, then look.
    pub fn observe(&self, observer: Arc<dyn AppendObserver>) -> ObserverGuard {
        let guard = self.observers.add(Arc::clone(&observer));
        if self.is_closed() {
            observer.closed();
        }
        guard
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.observers
    }

    /// Shows a batch that was applied at entry time `time`. Returns whether the partition is to be put
    /// in the segment writer's queue.
    pub(crate) fn append(&self, batch: StoredBatch, starts_segment: bool, time: TimestampMs) -> bool {
        let mut now = self.now.lock();
        grow_segments(&mut now.segments, &batch, starts_segment, time);
        now.epochs.appended(batch.leader_epoch, batch.base_offset);
        now.bytes += batch.len() as u64;
        now.next_offset = batch.last_offset + 1;
        now.tail.push(batch, starts_segment);
        !std::mem::replace(&mut now.queued, true)
    }

    pub(crate) fn trim(&self, log_start: Offset) -> Vec<SegmentId> {
        let mut now = self.now.lock();
        let now = &mut *now;
        now.log_start = log_start;
        now.epochs.trimmed(log_start);
        let dropped = trim_segments(&mut now.segments, log_start, now.next_offset);
        now.bytes = now.segments.iter().map(|segment| segment.bytes).sum();
        dropped
    }

    pub(crate) fn configure(&self, settings: Arc<PartitionSettings>) {
        self.now.lock().settings = settings;
    }

    /// Closes the view. Whoever waits must then be told.
    pub(crate) fn close(&self) {
        self.now.lock().closed = true;
    }

    /// What the segment writer writes next.
    pub(crate) fn next_run(&self, max_bytes: usize) -> Vec<TailBatch> {
        self.now.lock().tail.next_run(max_bytes)
    }

    /// The first `count` batches of the tail can be read from their file. Returns their bytes, and
    /// whether more wait.
    pub(crate) fn written(&self, count: usize) -> (usize, bool) {
        let mut now = self.now.lock();
        let bytes = now.tail.drop_front(count);
        now.queued = !now.tail.is_empty();
        (bytes, now.queued)
    }

    /// Everything below this offset is in segment files.
    pub(crate) fn written_offset(&self) -> Offset {
        let now = self.now.lock();
        now.tail.first_offset().unwrap_or(now.next_offset)
    }
}

impl Now {
    /// Whether a read at `offset` can be answered.
    fn check(&self, offset: Offset) -> Result<(), ReadError> {
        if self.closed {
            return Err(ReadError::Closed);
        }
        if !(self.log_start..=self.next_offset).contains(&offset) {
            return Err(ReadError::OutOfRange { log_start: self.log_start, next_offset: self.next_offset });
        }
        Ok(())
    }
}
