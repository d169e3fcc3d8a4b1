//! One partition as readers see it: its ends, its segments, and its records, which lie in segment
//! files and, from some offset on, in the tail in memory. A batch leaves the tail only after its
//! segment file can be read, so that a reader who does not find it in one finds it in the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use weir_log::disk::DiskError;
use weir_log::partition::{
    self, HandleCache, PartitionError, PartitionReader, RangeChunk, ReadOptions, ScrubReport, SegmentEntry,
    Stretch, scrub_segments,
};
use weir_model::batch::StoredBatch;
use weir_model::settings::PartitionSettings;
use weir_model::{Offset, PartitionId, SegmentId, TimestampMs};

use super::doubts::Doubts;
use super::observer::{AppendObserver, ObserverGuard, Observers};
use super::read::{BatchPosition, ReadError, ReadOut};
use super::tail::{Run, Tail, chunks_of};
use crate::files::{PartitionFiles, manifest_of};
use crate::state::epochs::EpochTable;
use crate::state::partition::{
    PartitionState, SegmentInfo, grow_segments, leader_epoch, replace_segments, trim_segments,
};

/// One partition. Shared by all who read it.
pub struct PartitionView {
    id: PartitionId,
    epoch_base: i32,
    opened_at: u64,
    leaderships: Arc<AtomicU64>,
    /// Where this and other partitions of the shard were found to be damaged.
    doubts: Arc<Doubts>,
    now: Mutex<Now>,
    files: PartitionFiles,
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
    /// Bytes that observers have not been told of.
    untold: usize,
    closed: bool,
}

/// What is to be done about an append.
pub(crate) struct Shown {
    /// The partition must be put in the segment writer's queue.
    pub unqueued: bool,
    /// Observers must be told, and nobody was going to.
    pub grown: bool,
}

impl fmt::Debug for PartitionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionView").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PartitionView {
    pub(crate) fn new(
        id: PartitionId,
        state: &PartitionState,
        shard: &super::Shown,
        files: PartitionFiles,
    ) -> PartitionView {
        PartitionView {
            id,
            epoch_base: state.epoch_base,
            opened_at: state.opened_at,
            leaderships: Arc::clone(&shard.leaderships),
            doubts: Arc::clone(&shard.doubts),
            now: Mutex::new(Now::of(state)),
            files,
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
        loop {
            let options = ReadOptions {
                max_bytes: max_bytes.saturating_sub(out.bytes),
                at_least_one: out.batches == 0,
                cached_only,
            };
            match self.read_on(&mut out, options) {
                Ok(true) => {}
                Ok(false) => return Ok(out),
                // What there is is handed out; the trouble is met again by who reads on.
                Err(_) if out.batches > 0 => return Ok(out),
                Err(error) => return Err(error),
            }
        }
    }

    /// What [`PartitionView::read`] would give, for who can send it from where it lies in a segment file: only if
    /// it is at hand there and known to be sound. Never waits for the disk.
    pub fn range(&self, offset: Offset, max_bytes: usize) -> Option<RangeChunk> {
        {
            let now = self.now.lock();
            now.check(offset).ok()?;
            if now.tail.first_offset().is_some_and(|first| first <= offset) {
                return None;
            }
        }
        self.files.reader()?.range(offset, max_bytes)
    }

    /// Reads from where `out` ends. Returns whether there may be more.
    fn read_on(&self, out: &mut ReadOut, options: ReadOptions) -> Result<bool, ReadError> {
        let in_tail = {
            let now = self.now.lock();
            now.check(out.next_offset)?;
            out.next_offset = now.first_kept(out.next_offset);
            if out.next_offset == now.next_offset {
                return Ok(false);
            }
            now.tail.look(out.next_offset, options.max_bytes, options.at_least_one)
        };
        let Some(batches) = in_tail else { return self.read_file(out, options) };
        let Some(last) = batches.last() else { return Ok(false) };
        out.next_offset = last.last_offset + 1;
        out.bytes += batches.iter().map(StoredBatch::len).sum::<usize>();
        out.batches += batches.len();
        chunks_of(&batches, &mut out.chunks);
        Ok(true)
    }

    /// Reads what has left the tail.
    fn read_file(&self, out: &mut ReadOut, options: ReadOptions) -> Result<bool, ReadError> {
        let offset = out.next_offset;
        let reader = self.files.reader().ok_or_else(|| self.lost(offset))?;
        let chunk = reader.read(offset, options).map_err(|error| self.read_error(offset, error))?;
        if chunk.batches == 0 {
            return if options.at_least_one { Err(self.lost(offset)) } else { Ok(false) };
        }
        out.next_offset = chunk.next_offset;
        out.bytes += chunk.bytes.len();
        out.batches += chunk.batches;
        out.chunks.push(chunk.bytes);
        Ok(true)
    }

    fn read_error(&self, offset: Offset, error: partition::ReadError) -> ReadError {
        match error {
            partition::ReadError::WouldBlock => ReadError::WouldBlock,
            // It was trimmed or closed while it was read; otherwise it should be there.
            partition::ReadError::OutOfRange { .. } => self.lost(offset),
            partition::ReadError::Disk(error) if error.is_not_found() => match self.lost(offset) {
                ReadError::Corrupt { .. } => ReadError::Disk(error),
                gone => gone,
            },
            partition::ReadError::Disk(error) => ReadError::Disk(error),
            partition::ReadError::Corrupt(corruption) => {
                self.doubts.note(self.id, offset);
                ReadError::Corrupt { offset, why: corruption.to_string() }
            }
        }
    }

    /// Why what was at `offset` is not there any more.
    fn lost(&self, offset: Offset) -> ReadError {
        match self.now.lock().check(offset) {
            Err(error) => error,
            Ok(()) => ReadError::Corrupt { offset, why: "no segment file has it".into() },
        }
    }

    /// The first batch that has a record with this timestamp or a later one. May wait for the disk.
    pub fn find_timestamp(&self, at: TimestampMs) -> Result<Option<BatchPosition>, ReadError> {
        // The tail is looked at before the files: what leaves it meanwhile is then found there.
        let (log_start, in_tail) = {
            let now = self.now.lock();
            now.check(now.log_start)?;
            (now.log_start, now.tail.find_timestamp(now.log_start, at))
        };
        let in_files = match self.files.reader() {
            None => None,
            Some(reader) => reader
                .find_timestamp_from(log_start, at, false)
                .map_err(|error| self.read_error(log_start, error))?,
        };
        Ok(in_files.map(BatchPosition::from).or(in_tail))
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

    /// Reads every batch in the segment files and checks it, as [`scrub_segments`] does. Blocks for as
    /// long as the disk takes.
    pub fn scrub(&self, done: &mut dyn FnMut(&SegmentEntry) -> bool) -> Result<ScrubReport, DiskError> {
        match self.files.reader() {
            Some(reader) => scrub_segments(reader, done),
            None => Ok(ScrubReport::default()),
        }
    }

    /// What the segment files have, rising; nothing that is in memory only.
    pub fn segments_in_files(&self) -> Vec<SegmentEntry> {
        self.files.reader().map(PartitionReader::segments).unwrap_or_default()
    }

    /// Bytes of a segment's file as they lie there, not looked at; fewer than asked for only at its end. None if there is no
    /// such segment. Blocks for as long as the disk takes.
    pub fn segment_bytes(
        &self,
        segment: SegmentId,
        from: u64,
        length: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        let Some(pinned) = self.files.reader().map(PartitionReader::pin) else { return Ok(None) };
        let is_meant =
            |entry: &SegmentEntry| (entry.base, entry.generation) == (segment.base, segment.generation);
        if !pinned.segments().iter().any(is_meant) {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        let read = pinned.read_bytes(segment.base, &mut bytes, from);
        let read = read.map_err(|error| self.read_error(segment.base, error))?;
        bytes.truncate(read.unwrap_or_default());
        Ok(Some(bytes.into()))
    }

    /// What of a segment is still wanted, as [`PartitionReader::stretches`] finds it. Nothing if there is no such segment
    /// in the files, or not yet. Blocks for as long as the disk takes.
    ///
    /// [`PartitionReader::stretches`]: weir_log::partition::PartitionReader::stretches
    pub fn stretches(
        &self,
        segment: SegmentId,
        wanted: &mut dyn FnMut(Offset, Offset) -> bool,
    ) -> Result<Vec<Stretch>, ReadError> {
        let Some(reader) = self.files.reader() else { return Ok(Vec::new()) };
        // One that is to be written anew with the next checkpoint is still there as it was.
        let entry = reader.segments().into_iter().find(|entry| entry.base == segment.base);
        if entry.is_none_or(|entry| entry.generation != segment.generation || !entry.closed) {
            return Ok(Vec::new());
        }
        reader.stretches(segment.base, wanted).map_err(|error| self.read_error(segment.base, error))
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

    pub(crate) fn files(&self) -> &PartitionFiles {
        &self.files
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.observers
    }

    /// Shows a batch that was applied at entry time `time`.
    pub(crate) fn append(&self, batch: StoredBatch, starts_segment: bool, time: TimestampMs) -> Shown {
        let mut now = self.now.lock();
        grow_segments(&mut now.segments, &batch, starts_segment, time);
        now.epochs.appended(batch.leader_epoch, batch.base_offset);
        now.bytes += batch.len() as u64;
        now.next_offset = batch.last_offset + 1;
        let grown = now.untold == 0;
        now.untold += batch.len();
        now.tail.push(batch, starts_segment, time);
        Shown { unqueued: !std::mem::replace(&mut now.queued, true), grown }
    }

    /// Tells observers about what was appended since the last time.
    pub(crate) fn tell(&self) {
        let bytes = std::mem::take(&mut self.now.lock().untold);
        self.observers.appended(bytes);
    }

    pub(crate) fn trim(&self, log_start: Offset) {
        let mut now = self.now.lock();
        let now = &mut *now;
        now.log_start = log_start;
        now.epochs.trimmed(log_start);
        trim_segments(&mut now.segments, log_start);
        now.bytes = now.segments.iter().map(|segment| segment.bytes).sum();
    }

    pub(crate) fn rewrite(&self, segments: &[SegmentId], new: Option<SegmentInfo>) {
        let mut now = self.now.lock();
        replace_segments(&mut now.segments, segments, new);
        now.bytes = now.segments.iter().map(|segment| segment.bytes).sum();
    }

    pub(crate) fn configure(&self, settings: Arc<PartitionSettings>) {
        self.now.lock().settings = settings;
    }

    /// Closes the view. Whoever waits must then be told.
    pub(crate) fn close(&self) {
        self.now.lock().closed = true;
    }

    /// Closes the view of a partition that a state which was put in the place of ours does not have: what was not
    /// written never will be. Whoever waits must then be told.
    pub(crate) fn abandon(&self) {
        let mut now = self.now.lock();
        now.closed = true;
        now.tail = Tail::default();
        now.queued = false;
    }

    /// Shows a later state of the partition, whose files are in place, in one step: what was in memory only is in
    /// them. Observers are told by [`PartitionView::tell`]. Returns whether the log has grown.
    pub(crate) fn switch(
        &self,
        handles: &Arc<HandleCache>,
        state: &PartitionState,
    ) -> Result<bool, PartitionError> {
        let mut grown = false;
        self.files.switch(handles, &manifest_of(state), |commit| {
            let mut now = self.now.lock();
            let mut new = Now::of(state);
            grown = new.next_offset > now.next_offset;
            // Told of at least one byte: observers count them.
            new.untold = now.untold.max(new.bytes.saturating_sub(now.bytes).max(u64::from(grown)) as usize);
            commit();
            *now = new;
        })?;
        Ok(grown)
    }

    /// What the segment writer writes next.
    pub(crate) fn next_run(&self, max_bytes: usize) -> Option<Run> {
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
    /// What a state says, all of it in segment files.
    fn of(state: &PartitionState) -> Now {
        Now {
            settings: Arc::clone(&state.settings),
            log_start: state.log_start,
            next_offset: state.next_offset,
            bytes: state.segments.iter().map(|segment| segment.bytes).sum(),
            segments: state.segments.clone(),
            epochs: state.epochs.clone(),
            tail: Tail::default(),
            queued: false,
            untold: 0,
            closed: false,
        }
    }

    /// The offset, or the first one behind it of a segment, if it lies where segments were written anew without it.
    fn first_kept(&self, offset: Offset) -> Offset {
        // Most reads are near the end.
        if self.segments.back().is_none_or(|last| last.id.base <= offset) {
            return offset;
        }
        let at = self.segments.partition_point(|segment| segment.last_offset < offset);
        self.segments.get(at).map_or(offset, |segment| offset.max(segment.id.base))
    }

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
