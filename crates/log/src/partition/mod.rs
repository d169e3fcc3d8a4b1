//! The partition log: the records of one partition in segment files of Kafka's own format.
//!
//! ```text
//!   00000000000000000000.log      closed, with .index and .timeindex beside it
//!   00000000000000052311.log      closed
//!   00000000000000104622.log      open: grows, its index is in memory
//! ```
//!
//! One writer ([`PartitionLog`]) appends, closes, retires; any number of readers
//! ([`PartitionReader`]) read beside it. Nothing is synced on the way: a checkpoint takes what is
//! dirty ([`PartitionLog::take_dirty`]), syncs it, and makes durable the manifest that names the
//! files and their lengths. After a crash, opening cuts back to the manifest, and the journal
//! brings the rest again.
//!
//! A file is unlinked in two steps: retired first, so that no new reader finds it, and unlinked
//! when a manifest that does not name it is durable and nobody reads it any more.

mod dirty;
mod handles;
mod head;
mod index;
mod inspect;
mod names;
mod open;
mod reader;
mod rewrite;
mod scrub;
mod segment;
mod sound;
mod stretches;
mod switch;
#[cfg(test)]
mod tests;
mod types;
mod verify;
mod walk;

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_model::batch::{PATCHED_PREFIX_BYTES, StoredBatch};
use weir_model::{Offset, TimestampMs};

use self::head::BatchHead;
use self::index::IndexEntries;
use self::names::FileKind;
use self::reader::Shared;
use self::segment::{Index, Segment, State};
use crate::disk::{DiskError, File, OpenMode};

pub use dirty::DirtyFiles;
pub use handles::HandleCache;
pub use inspect::{BatchFound, SegmentCheck, inspect_partition, is_partition_dir};
pub use reader::{PartitionReader, PinnedSegments};
pub use rewrite::{RewrittenSegment, SegmentRewrite};
pub use scrub::{ScrubReport, scrub_segments};
pub use stretches::Stretch;
pub use switch::LogSwitch;
pub use types::{
    Corruption, OpenReport, PartitionError, PartitionManifest, RangeChunk, ReadChunk, ReadError, ReadOptions,
    SegmentEntry, Ticket, TimestampHit,
};
pub use verify::verify_segment;

/// Positions within a segment are 32 bits wide, and signed in Kafka.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// Files are sent on their way to the disk in pieces of this size.
const WRITEBACK_BYTES: u64 = 512 << 10;

/// Rests of batches below this are copied: a slice of a vectored write costs about as much.
const COPY_BELOW_BYTES: usize = 1024;

/// The writing end of a partition's log. See the module's description.
#[derive(Debug)]
pub struct PartitionLog {
    shared: Arc<Shared>,
    /// Segments that were retired, and at which ticket.
    retired: Vec<(u64, Arc<Segment>)>,
    /// Files that no manifest named, until one is durable that does not name them either.
    aside: Vec<PathBuf>,
    next_ticket: u64,
    /// Segments with unsynced bytes.
    dirty: Vec<Arc<Segment>>,
    dirty_indexes: Vec<Arc<dyn File>>,
    /// Names were made or changed since the last checkpoint.
    dir_dirty: bool,
    dir_made: bool,
}

impl PartitionLog {
    /// A handle that reads.
    pub fn reader(&self) -> PartitionReader {
        PartitionReader { shared: Arc::clone(&self.shared) }
    }

    /// Offset of the next record.
    pub fn end(&self) -> Offset {
        self.shared.range.read().end
    }

    /// Appends batches, which begin where the log ends and follow each other without a hole, to the
    /// open segment, or to a new one if there is none. `entry_time` is that of the entry that
    /// carried the first of them.
    ///
    /// Readers see all of them or, after an error, none. After an error that clears by itself, such as that
    /// of a full disk, the call can be repeated; after any other failure to write, the segment has failed.
    pub fn append(&mut self, batches: &[StoredBatch], entry_time: TimestampMs) -> Result<(), PartitionError> {
        let Some(first) = batches.first() else { return Ok(()) };
        self.check_order(batches)?;
        let open = self.open_segment();
        let position = open.as_ref().map_or(0, |segment| segment.entry().bytes);
        let base = open.as_ref().map_or(first.base_offset, |segment| segment.base);
        check_room(base, position, batches)?;
        let segment = match open {
            Some(segment) => {
                check_not_failed(&segment)?;
                segment
            }
            None => self.make_segment(base, entry_time)?,
        };
        let file = segment.file_for_writing(&self.shared.handles)?;
        self.note_dirty(&segment);
        if let Err(error) = write_batches(&*file, position, batches) {
            if !error.clears_by_itself() {
                segment.with_state(|state| state.failed = Some(error.to_string()));
            }
            return Err(error.into());
        }
        segment.with_state(|state| publish(state, position, batches));
        let end = segment.entry().bytes;
        segment.note_sound(position, end);
        begin_writeback(&*file, position, end);
        let new = position == 0;
        let mut range = self.shared.range.write();
        range.end = batches.last().map_or(range.end, |last| last.last_offset + 1);
        if new {
            range.segments = range.segments.iter().cloned().chain([segment]).collect();
        }
        Ok(())
    }

    /// Closes the open segment: the next append begins a new one. Its indexes are written; if they
    /// cannot be, they stay in memory, and are derived again after the next start.
    pub fn roll(&mut self) {
        if let Some(segment) = self.open_segment() {
            segment.with_state(|state| state.closed = true);
            self.dir_dirty = true;
            if let Ok(indexes) = segment.write_indexes(&self.shared.handles) {
                self.dirty_indexes.extend(indexes);
            }
        }
    }

    /// Raises the log's start, and retires all closed segments that lie wholly below it. Readers
    /// that have begun go on. Returns their entries.
    pub fn retire_below(&mut self, start: Offset) -> Vec<SegmentEntry> {
        let mut range = self.shared.range.write();
        range.start = range.start.max(start.min(range.end));
        let (gone, kept): (Vec<_>, Vec<_>) = range.segments.iter().cloned().partition(|segment| {
            let entry = segment.entry();
            entry.closed && entry.last_offset < start
        });
        range.segments = kept.into();
        drop(range);
        let entries = gone.iter().map(|segment| segment.entry()).collect();
        self.retired.extend(gone.into_iter().map(|segment| (self.next_ticket, segment)));
        entries
    }

    /// The files that the log consists of now, and a ticket to hand to
    /// [`PartitionLog::unlink_retired`] when a manifest with them is durable. For that,
    /// [`PartitionLog::take_dirty`] of the same moment or later must have been synced.
    pub fn manifest(&mut self) -> Result<(PartitionManifest, Ticket), PartitionError> {
        let range = self.reader().range_now();
        range.segments.iter().try_for_each(|segment| check_not_failed(segment))?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let segments = range.segments.iter().map(|segment| segment.entry()).collect();
        Ok((PartitionManifest { start: range.start, end: range.end, segments }, ticket))
    }

    /// Takes over what is unsynced.
    pub fn take_dirty(&mut self) -> DirtyFiles {
        let mut dirty = DirtyFiles::new();
        // A segment of which nothing is written yet is no part of the log; it is begun again.
        let (begun, written): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.dirty).into_iter().partition(|segment| segment.entry().bytes == 0);
        self.dirty = begun;
        for segment in written {
            if let Some(file) = segment.take_unsynced(&self.shared.handles) {
                dirty.segments.push((segment, file));
            }
        }
        dirty.indexes = std::mem::take(&mut self.dirty_indexes);
        if std::mem::take(&mut self.dir_dirty) {
            dirty.dirs.insert(Arc::clone(&self.shared.dir));
        }
        dirty
    }

    /// Files that are held open because they have unsynced bytes.
    pub fn dirty_files(&self) -> usize {
        self.dirty.len() + self.dirty_indexes.len()
    }

    /// Unlinks what was retired before the ticket was given out and nobody reads any more, now that
    /// the ticket's manifest is durable. Returns how many segments are still waiting.
    pub fn unlink_retired(&mut self, durable: Ticket) -> Result<usize, PartitionError> {
        let disk = Arc::clone(self.shared.handles.disk());
        while let Some(path) = self.aside.last() {
            remove_if_there(disk.remove_unused_file(path))?;
            self.aside.pop();
            self.dir_dirty = true;
        }
        let mut index = 0;
        while index < self.retired.len() {
            let (ticket, segment) = &self.retired[index];
            // Nobody can find it any more, so a count of one is final.
            if *ticket > durable.0 || Arc::strong_count(segment) > 1 {
                index += 1;
                continue;
            }
            segment.forget_handles(&self.shared.handles);
            for kind in FileKind::ALL {
                remove_if_there(disk.remove_unused_file(&segment.path(kind)))?;
            }
            self.dir_dirty = true;
            self.retired.swap_remove(index);
        }
        Ok(self.retired.len())
    }

    fn open_segment(&self) -> Option<Arc<Segment>> {
        let last = self.shared.range.read().segments.last().cloned()?;
        (!last.entry().closed).then_some(last)
    }

    fn check_order(&self, batches: &[StoredBatch]) -> Result<(), PartitionError> {
        let mut expected = self.end();
        for batch in batches {
            if batch.base_offset != expected {
                return Err(PartitionError::OutOfOrder { expected, found: batch.base_offset });
            }
            expected = batch.last_offset + 1;
        }
        Ok(())
    }

    /// Makes the file of a new segment. It is not part of the log before something is in it.
    fn make_segment(
        &mut self,
        base: Offset,
        first_time: TimestampMs,
    ) -> Result<Arc<Segment>, PartitionError> {
        // An append to it failed earlier: its file is ours, whatever of that append is in it.
        if let Some(begun) = self.dirty.iter().find(|s| s.base == base && s.entry().bytes == 0) {
            check_not_failed(begun)?;
            return Ok(Arc::clone(begun));
        }
        let Shared { dir, handles, .. } = &*self.shared;
        if !self.dir_made {
            handles.disk().create_dir_all(dir)?;
            self.dir_made = true;
        }
        let entry = SegmentEntry {
            base,
            generation: 0,
            bytes: 0,
            last_offset: base - 1,
            max_timestamp: -1,
            first_time,
            closed: false,
        };
        let index = Index::Memory { entries: IndexEntries::new(base), from: 0, from_offset: base };
        let segment = Arc::new(Segment::new(dir, handles, &entry, index));
        let path = segment.path(FileKind::Log);
        let file = handles.disk().open(&path, OpenMode::Create)?;
        if file.len()? > 0 {
            return Err(PartitionError::Unexpected { file: path });
        }
        segment.with_state(|state| state.unsynced = Some(file));
        self.dir_dirty = true;
        Ok(segment)
    }

    fn note_dirty(&mut self, segment: &Arc<Segment>) {
        // Nearly always the last.
        if !self.dirty.iter().rev().any(|dirty| Arc::ptr_eq(dirty, segment)) {
            self.dirty.push(Arc::clone(segment));
        }
    }
}

/// The name of the file that holds a segment's batches.
pub fn segment_file_name(entry: &SegmentEntry) -> String {
    names::file_name(entry.base, entry.generation, FileKind::Log)
}

/// The names of the files with its indexes, once it is closed.
pub fn segment_index_names(entry: &SegmentEntry) -> [String; 2] {
    [FileKind::OffsetIndex, FileKind::TimeIndex]
        .map(|kind| names::file_name(entry.base, entry.generation, kind))
}

fn check_not_failed(segment: &Segment) -> Result<(), PartitionError> {
    match segment.with_state(|state| state.failed.clone()) {
        None => Ok(()),
        Some(reason) => Err(PartitionError::Failed { file: segment.path(FileKind::Log), reason }),
    }
}

fn check_room(base: Offset, position: u64, batches: &[StoredBatch]) -> Result<(), PartitionError> {
    let bytes: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
    let last_offset = batches.last().map_or(base, |batch| batch.last_offset);
    if position + bytes > SEGMENT_BYTES_MAX || last_offset - base > i64::from(i32::MAX) {
        return Err(PartitionError::SegmentFull { base, bytes: position, last_offset });
    }
    Ok(())
}

/// Writes batches behind each other with their places patched in: one vectored write.
fn write_batches(file: &dyn File, position: u64, batches: &[StoredBatch]) -> Result<(), DiskError> {
    // Prefixes and small rests stand in one buffer, large rests are written from where they are.
    let small = |batch: &StoredBatch| batch.len() - PATCHED_PREFIX_BYTES < COPY_BELOW_BYTES;
    let copied = |batch: &StoredBatch| if small(batch) { batch.len() } else { PATCHED_PREFIX_BYTES };
    let mut buffer = Vec::with_capacity(batches.iter().map(copied).sum());
    for batch in batches {
        buffer.extend_from_slice(&batch.prefix());
        if small(batch) {
            buffer.extend_from_slice(batch.rest_slice());
        }
    }
    let mut slices = Vec::new();
    let (mut from, mut to) = (0, 0);
    for batch in batches {
        to += copied(batch);
        if !small(batch) {
            slices.push(IoSlice::new(&buffer[from..to]));
            slices.push(IoSlice::new(batch.rest_slice()));
            from = to;
        }
    }
    slices.push(IoSlice::new(&buffer[from..to]));
    file.write_at(&slices, position)
}

/// Sends what has become full of a file on its way to the disk, so that the sync of a checkpoint finds
/// little to do and the journal's writes do not stand behind it. Less than a piece waits: a page that is
/// still being filled would be written again and again.
fn begin_writeback(file: &dyn File, before: u64, after: u64) {
    let (from, to) = (before - before % WRITEBACK_BYTES, after - after % WRITEBACK_BYTES);
    if from < to {
        file.begin_writeback(from, to - from);
    }
}

/// Lets readers see what was written.
fn publish(state: &mut State, mut position: u64, batches: &[StoredBatch]) {
    for batch in batches {
        let head = BatchHead {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            bytes: batch.len(),
            leader_epoch: batch.leader_epoch,
            max_timestamp: batch.max_timestamp,
        };
        if let Index::Memory { entries, .. } = &mut state.index {
            entries.add(position, &head);
        }
        position += batch.len() as u64;
        state.last_offset = batch.last_offset;
        state.max_timestamp = state.max_timestamp.max(batch.max_timestamp);
    }
    state.bytes = position;
}

fn remove_if_there(result: Result<(), DiskError>) -> Result<(), DiskError> {
    result.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

/// Removes a partition that nothing names any more: every file of ours, and the directory if nothing
/// else is in it. Returns names that are none of ours, which stay.
pub fn remove_partition(handles: &HandleCache, dir: &Path) -> Result<Vec<String>, DiskError> {
    let disk = handles.disk();
    let entries = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut unknown = Vec::new();
    for entry in entries {
        if entry.is_dir || names::parse_name(&entry.name) == names::Name::Unknown {
            unknown.push(entry.name);
        } else {
            remove_if_there(disk.remove_file(&dir.join(&entry.name)))?;
        }
    }
    if unknown.is_empty() {
        disk.remove_dir(dir)?;
        if let Some(parent) = dir.parent() {
            disk.sync_dir(parent)?;
        }
    }
    Ok(unknown)
}
