//! One segment: its file, its indexes, and how something is found in it.
//!
//! A segment is shared between the log that writes it and everybody who reads it. What is
//! published (`bytes` and what goes with it) only grows, so a reader works on what it saw.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use weir_model::{Offset, TimestampMs};

use super::handles::HandleCache;
use super::head::{BatchHead, HEAD_BYTES};
use super::index::{
    INDEX_INTERVAL_BYTES, IndexEntries, IndexFile, OffsetEntry, decode_offset_entry, decode_time_entry,
};
use super::names::{FileKind, file_path};
use super::rewrite::check_crc;
use super::sound::Sound;
use super::types::{Corruption, RangeChunk, ReadChunk, ReadError, ReadOptions, SegmentEntry, TimestampHit};
use super::walk::{LONG_WALK_BYTES, SHORT_WALK_BYTES, Walk, read_vec};
use crate::disk::{Disk, DiskError, File, FileRange, OpenMode};

/// Longest read, a single batch excepted. Who asks for more gets this much and asks again.
pub(super) const READ_BYTES_MAX: usize = 8 << 20;

/// Less than this is read into memory: finding the edges of a range costs more than copying it.
const RANGE_BYTES_MIN: u64 = 32 << 10;

/// Stepping over more than this behind an entry means that the index lacks some.
const STEPPED_BYTES_MAX: u64 = 4 * INDEX_INTERVAL_BYTES;

/// Places where recent reads ended, and where the next ones of the same readers will begin.
const RECENT_READS: usize = 8;

#[derive(Debug)]
pub(super) struct Segment {
    pub base: Offset,
    pub generation: u32,
    dir: Arc<Path>,
    log_id: u64,
    index_id: u64,
    time_id: u64,
    state: RwLock<State>,
    /// Held by whoever rebuilds the indexes.
    rebuilding: Mutex<()>,
    recent: Mutex<([(Offset, u64); RECENT_READS], usize)>,
    sound: Mutex<Sound>,
}

#[derive(Debug)]
pub(super) struct State {
    pub bytes: u64,
    pub last_offset: Offset,
    pub max_timestamp: TimestampMs,
    pub first_time: TimestampMs,
    pub closed: bool,
    pub index: Index,
    /// Held open while it has unsynced bytes.
    pub unsynced: Option<Arc<dyn File>>,
    /// Why its content is not to be relied on any more.
    pub failed: Option<String>,
}

#[derive(Debug)]
pub(super) enum Index {
    /// In memory, for what lies behind a position. Segments that are still written to have it, and
    /// closed ones whose index could not be written.
    Memory { entries: IndexEntries, from: u64, from_offset: Offset },
    /// In its two files.
    Files,
    /// Nowhere.
    Unknown,
}

/// Where to begin looking.
struct Start {
    position: u64,
    /// What the batch there must be, if an index file says so.
    last_offset: Option<Offset>,
    /// Whether it comes from files that are not to be trusted.
    in_doubt: bool,
}

impl Segment {
    pub(super) fn new(dir: &Arc<Path>, handles: &HandleCache, entry: &SegmentEntry, index: Index) -> Segment {
        Segment {
            base: entry.base,
            generation: entry.generation,
            dir: Arc::clone(dir),
            log_id: handles.new_id(),
            index_id: handles.new_id(),
            time_id: handles.new_id(),
            state: RwLock::new(State {
                bytes: entry.bytes,
                last_offset: entry.last_offset,
                max_timestamp: entry.max_timestamp,
                first_time: entry.first_time,
                closed: entry.closed,
                index,
                unsynced: None,
                failed: None,
            }),
            rebuilding: Mutex::new(()),
            recent: Mutex::new(([(-1, 0); RECENT_READS], 0)),
            sound: Mutex::default(),
        }
    }

    pub(super) fn path(&self, kind: FileKind) -> PathBuf {
        file_path(&self.dir, self.base, self.generation, kind)
    }

    pub(super) fn entry(&self) -> SegmentEntry {
        let state = self.state.read();
        SegmentEntry {
            base: self.base,
            generation: self.generation,
            bytes: state.bytes,
            last_offset: state.last_offset,
            max_timestamp: state.max_timestamp,
            first_time: state.first_time,
            closed: state.closed,
        }
    }

    pub(super) fn last_offset(&self) -> Offset {
        self.state.read().last_offset
    }

    pub(super) fn with_state<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.state.write())
    }

    /// The file for writing, held open from now on until it is synced.
    pub(super) fn file_for_writing(&self, handles: &HandleCache) -> Result<Arc<dyn File>, DiskError> {
        if let Some(file) = &self.state.read().unsynced {
            return Ok(Arc::clone(file));
        }
        let file = handles.disk().open(&self.path(FileKind::Log), OpenMode::Write)?;
        self.state.write().unsynced = Some(Arc::clone(&file));
        handles.forget(self.log_id);
        Ok(file)
    }

    /// Lets go of the file after a sync took it over.
    pub(super) fn take_unsynced(&self, handles: &HandleCache) -> Option<Arc<dyn File>> {
        let file = self.state.write().unsynced.take()?;
        handles.put(self.log_id, &file);
        Some(file)
    }

    /// Closes its files as far as the cache is concerned.
    pub(super) fn forget_handles(&self, handles: &HandleCache) {
        for id in [self.log_id, self.index_id, self.time_id] {
            handles.forget(id);
        }
    }

    pub(super) fn log_file(
        &self,
        handles: &HandleCache,
        cached_only: bool,
    ) -> Result<Arc<dyn File>, ReadError> {
        if let Some(file) = &self.state.read().unsynced {
            return Ok(Arc::clone(file));
        }
        self.opened(handles, self.log_id, FileKind::Log, cached_only)
    }

    fn opened(
        &self,
        handles: &HandleCache,
        id: u64,
        kind: FileKind,
        cached_only: bool,
    ) -> Result<Arc<dyn File>, ReadError> {
        if cached_only {
            handles.peek(id).ok_or(ReadError::WouldBlock)
        } else {
            Ok(handles.get(id, &self.path(kind))?)
        }
    }

    fn corrupt(&self, position: u64, why: impl Into<String>) -> ReadError {
        ReadError::Corrupt(Corruption { file: self.path(FileKind::Log), position, why: why.into() })
    }

    /// Reads whole batches from the one that holds `offset`, or the first behind it; `None` if all
    /// of the segment lies below.
    pub(super) fn read(
        &self,
        handles: &HandleCache,
        offset: Offset,
        options: ReadOptions,
    ) -> Result<Option<ReadChunk>, ReadError> {
        let entry = self.entry();
        if offset > entry.last_offset {
            return Ok(None);
        }
        let file = self.log_file(handles, options.cached_only)?;
        if let Some(position) = self.recent_read(offset)
            && let Some(chunk) = self.read_from(&*file, entry.bytes, position, offset, options)?
        {
            return Ok(Some(chunk));
        }
        let found = self.seek(handles, &*file, offset, options.cached_only)?;
        let Some((position, _)) = found else {
            let why = format!("the batches end before offset {}", entry.last_offset);
            return Err(self.corrupt(entry.bytes, why));
        };
        match self.read_from(&*file, entry.bytes, position, offset, options)? {
            Some(chunk) => Ok(Some(chunk)),
            None => Err(self.corrupt(position, "the batch there changed while it was read")),
        }
    }

    /// Reads whole batches at a position; `None` if that is not where `offset` is.
    fn read_from(
        &self,
        file: &dyn File,
        end: u64,
        position: u64,
        offset: Offset,
        options: ReadOptions,
    ) -> Result<Option<ReadChunk>, ReadError> {
        let room = end.saturating_sub(position) as usize;
        let max_bytes = options.max_bytes.min(READ_BYTES_MAX);
        let len = room.min(max_bytes.max(HEAD_BYTES));
        let mut bytes = read_vec(file, len, position, options.cached_only)?;
        if bytes.len() < HEAD_BYTES {
            return if options.cached_only {
                Err(ReadError::WouldBlock)
            } else {
                Err(self.corrupt(position, "the file ends within a batch"))
            };
        }
        let first = BatchHead::parse(&bytes).map_err(|why| self.corrupt(position, why))?;
        if first.last_offset < offset {
            return Ok(None);
        }
        if first.bytes > bytes.len() {
            if first.bytes > room {
                return Err(self.corrupt(position, "the batch is longer than the log's part of the file"));
            }
            if first.bytes > max_bytes && !options.at_least_one {
                return Ok(Some(ReadChunk { bytes: Default::default(), next_offset: offset, batches: 0 }));
            }
            bytes = read_vec(file, first.bytes, position, options.cached_only)?;
            if bytes.len() < first.bytes {
                return if options.cached_only {
                    Err(ReadError::WouldBlock)
                } else {
                    Err(self.corrupt(position, "the file ends within a batch"))
                };
            }
        }
        self.check(&bytes[..first.bytes], position, &first, offset)?;
        let (mut at, mut last_offset, mut batches) = (first.bytes, first.last_offset, 1);
        while let Some(head) = self.sound_batch(&bytes[at..], last_offset + 1) {
            (at, last_offset, batches) = (at + head.bytes, head.last_offset, batches + 1);
        }
        bytes.truncate(at);
        self.note_read(last_offset + 1, position + at as u64);
        self.note_sound(position, position + at as u64);
        Ok(Some(ReadChunk { bytes: bytes.into(), next_offset: last_offset + 1, batches }))
    }

    /// What lies between two edges of batches is what was written there.
    pub(super) fn note_sound(&self, from: u64, to: u64) {
        self.sound.lock().note(from, to);
    }

    /// Whole batches from the one that holds `offset` as a range of the file. Only if they are known to be sound, lie in the page
    /// cache, and are enough to be worth it; [`Segment::read`] knows all else.
    pub(super) fn range(
        &self,
        handles: &HandleCache,
        offset: Offset,
        max_bytes: usize,
    ) -> Option<RangeChunk> {
        let entry = self.entry();
        let file = self.log_file(handles, true).ok()?;
        let position = match self.recent_read(offset) {
            Some(position) => position,
            None => self.seek(handles, &*file, offset, true).ok()??.0,
        };
        let most = position + max_bytes.min(READ_BYTES_MAX) as u64;
        let to = self.sound.lock().end_of(position)?.min(entry.bytes).min(most);
        if to < position + RANGE_BYTES_MIN {
            return None;
        }
        let (end, next_offset) = self.edge_below(handles, &*file, &entry, to)?;
        if end < position + RANGE_BYTES_MIN {
            return None;
        }
        let len = (end - position) as usize;
        if !file.is_cached(position, len) {
            self.sound.lock().doubt(position);
            return None;
        }
        self.note_read(next_offset, end);
        Some(RangeChunk { range: FileRange::new(file, position, len), next_offset })
    }

    /// The last edge between batches up to a position that an index knows, and the offset behind it.
    fn edge_below(
        &self,
        handles: &HandleCache,
        file: &dyn File,
        entry: &SegmentEntry,
        to: u64,
    ) -> Option<(u64, Offset)> {
        if to == entry.bytes {
            return Some((to, entry.last_offset + 1));
        }
        let below = |entry: &OffsetEntry| u64::from(entry.position) <= to;
        let found = match &self.state.read().index {
            Index::Memory { entries, .. } => Some(entries.last_below(below)?),
            Index::Files => None,
            Index::Unknown => return None,
        };
        let found = match found {
            Some(found) => found,
            None => {
                let index = self.opened(handles, self.index_id, FileKind::OffsetIndex, true).ok()?;
                let index = IndexFile { file: &*index, cached_only: true };
                index.last_below(decode_offset_entry, below).ok()??
            }
        };
        let mut head = [0; HEAD_BYTES];
        let edge = u64::from(found.position);
        let have = file.try_read_cached(&mut head, edge).ok()??;
        let head = BatchHead::parse(&head[..have]).ok()?;
        (head.last_offset == self.base + i64::from(found.relative)).then_some((edge, head.base_offset))
    }

    /// Checks the batch that a read begins with: its CRC, and its offsets, which the CRC does not cover.
    fn check(
        &self,
        batch: &[u8],
        position: u64,
        head: &BatchHead,
        expected: Offset,
    ) -> Result<(), ReadError> {
        // What lies before the segment may have been left out by a rewrite.
        if self.generation == 0 && head.base_offset > expected.max(self.base) {
            return Err(self.corrupt(position, "records are missing before the batch"));
        }
        check_crc(batch).map(drop).map_err(|why| self.corrupt(position, why))
    }

    /// The batch that these bytes begin with, if all of it is there and it is what follows. What is not
    /// sound ends the read before it, and whoever reads on is told.
    fn sound_batch(&self, bytes: &[u8], expected: Offset) -> Option<BatchHead> {
        let head = BatchHead::parse(bytes).ok().filter(|head| head.bytes <= bytes.len())?;
        let follows = match self.generation {
            0 => head.base_offset == expected,
            _ => head.base_offset >= expected,
        };
        (follows && check_crc(&bytes[..head.bytes]).is_ok()).then_some(head)
    }

    fn recent_read(&self, offset: Offset) -> Option<u64> {
        self.recent.lock().0.iter().find(|(next, _)| *next == offset).map(|(_, position)| *position)
    }

    fn note_read(&self, next_offset: Offset, position: u64) {
        let mut recent = self.recent.lock();
        let (reads, turn) = &mut *recent;
        if !reads.contains(&(next_offset, position)) {
            reads[*turn % RECENT_READS] = (next_offset, position);
            *turn += 1;
        }
    }

    /// The first batch that ends at or behind an offset.
    pub(super) fn seek(
        &self,
        handles: &HandleCache,
        file: &dyn File,
        offset: Offset,
        cached_only: bool,
    ) -> Result<Option<(u64, BatchHead)>, ReadError> {
        let start = self.start_for(handles, offset, cached_only)?;
        match self.walk_to(file, &start, offset, cached_only)? {
            Ok(found) => Ok(found),
            Err(_) if cached_only => Err(ReadError::WouldBlock),
            Err(InDoubt) => {
                let start = self.rebuilt_start(handles, offset)?;
                Ok(self.walk_to(file, &start, offset, cached_only)?.unwrap_or(None))
            }
        }
    }

    fn walk_to(
        &self,
        file: &dyn File,
        start: &Start,
        offset: Offset,
        cached_only: bool,
    ) -> Result<Result<Option<(u64, BatchHead)>, InDoubt>, ReadError> {
        let (end, path) = (self.state.read().bytes, self.path(FileKind::Log));
        let mut walk = Walk::new(file, &path, start.position, end, SHORT_WALK_BYTES).cached_only(cached_only);
        let mut expected = start.last_offset;
        loop {
            let (position, head) = match walk.next() {
                Ok(Some(found)) => found,
                Ok(None) if start.in_doubt && expected.is_some() => return Ok(Err(InDoubt)),
                Ok(None) => return Ok(Ok(None)),
                Err(ReadError::Corrupt(_)) if start.in_doubt && expected.is_some() => {
                    return Ok(Err(InDoubt));
                }
                Err(error) => return Err(error),
            };
            if start.in_doubt && expected.take().is_some_and(|last_offset| last_offset != head.last_offset) {
                return Ok(Err(InDoubt));
            }
            if head.last_offset >= offset {
                return Ok(Ok(Some((position, head))));
            }
            if start.in_doubt && position - start.position > STEPPED_BYTES_MAX {
                return Ok(Err(InDoubt));
            }
        }
    }

    fn start_for(
        &self,
        handles: &HandleCache,
        offset: Offset,
        cached_only: bool,
    ) -> Result<Start, ReadError> {
        let asked = self.ask_memory(offset, |entries| entries.position_for(offset));
        let found = match asked {
            InMemory::Answer { answer, from } => {
                let position = answer.map_or(from, u64::from);
                return Ok(Start { position, last_offset: None, in_doubt: false });
            }
            InMemory::InFiles => {
                let file = self.opened(handles, self.index_id, FileKind::OffsetIndex, cached_only);
                let relative = offset - self.base;
                let below = |entry: &OffsetEntry| i64::from(entry.relative) <= relative;
                file.map_err(Some).and_then(|file| {
                    IndexFile { file: &*file, cached_only }.last_below(decode_offset_entry, below)
                })
            }
            InMemory::Unknown => Err(None),
        };
        match found {
            Ok(entry) => Ok(Start {
                position: entry.map_or(0, |entry| u64::from(entry.position)),
                last_offset: entry.map(|entry| self.base + i64::from(entry.relative)),
                in_doubt: true,
            }),
            _ if cached_only => Err(ReadError::WouldBlock),
            // Missing, unreadable or no index: all the same, it can be made again.
            Err(_) => self.rebuilt_start(handles, offset),
        }
    }

    /// Asks the index in memory, if there is one that knows about what lies from an offset on.
    fn ask_memory<T>(&self, offset: Offset, ask: impl FnOnce(&IndexEntries) -> T) -> InMemory<T> {
        match &self.state.read().index {
            Index::Memory { entries, from, from_offset } if *from == 0 || offset >= *from_offset => {
                InMemory::Answer { answer: ask(entries), from: *from }
            }
            Index::Files => InMemory::InFiles,
            _ => InMemory::Unknown,
        }
    }

    /// Where to begin according to an index that was just derived from the batches.
    fn rebuilt_start(&self, handles: &HandleCache, offset: Offset) -> Result<Start, ReadError> {
        let position = self.rebuild(handles, |entries| entries.position_for(offset))?;
        Ok(Start { position: position.map_or(0, u64::from), last_offset: None, in_doubt: false })
    }

    /// The first batch with a timestamp of at least `timestamp`, not wholly below `from`.
    pub(super) fn find_timestamp(
        &self,
        handles: &HandleCache,
        timestamp: TimestampMs,
        from: Offset,
        cached_only: bool,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let file = self.log_file(handles, cached_only)?;
        let before = self.offset_before(handles, &*file, timestamp, cached_only)?;
        let from = before.map_or(from, |offset| from.max(offset + 1));
        let Some((position, _)) = self.seek(handles, &*file, from, cached_only)? else { return Ok(None) };
        let (end, path) = (self.state.read().bytes, self.path(FileKind::Log));
        let mut walk = Walk::new(&*file, &path, position, end, SHORT_WALK_BYTES).cached_only(cached_only);
        while let Some((_, head)) = walk.next()? {
            if head.max_timestamp >= timestamp {
                let BatchHead { base_offset, last_offset, max_timestamp, leader_epoch, .. } = head;
                return Ok(Some(TimestampHit { base_offset, last_offset, max_timestamp, leader_epoch }));
            }
        }
        Ok(None)
    }

    /// The last offset up to which all timestamps are below a time, as far as an index knows.
    fn offset_before(
        &self,
        handles: &HandleCache,
        log: &dyn File,
        timestamp: TimestampMs,
        cached_only: bool,
    ) -> Result<Option<Offset>, ReadError> {
        // The time index is of use only as a whole, so the segment's first offset is asked for.
        let found = match self.ask_memory(self.base, |entries| entries.offset_before(timestamp)) {
            InMemory::Answer { answer, .. } => return Ok(answer),
            InMemory::InFiles => {
                let file = self.opened(handles, self.time_id, FileKind::TimeIndex, cached_only);
                file.map_err(Some).and_then(|file| {
                    let index = IndexFile { file: &*file, cached_only };
                    let found = index.last_below(decode_time_entry, |entry| entry.timestamp < timestamp)?;
                    // A file of nothing although there are timestamps is no index.
                    let empty = file.len().map_err(|error| Some(error.into()))? == 0;
                    if empty && self.state.read().max_timestamp >= 0 { Err(None) } else { Ok(found) }
                })
            }
            InMemory::Unknown => Err(None),
        };
        match found {
            Ok(None) => return Ok(None),
            Ok(Some(entry)) => {
                let offset = self.base + i64::from(entry.relative);
                if let Some((_, head)) = self.seek(handles, log, offset, cached_only)?
                    && (head.last_offset, head.max_timestamp) == (offset, entry.timestamp)
                {
                    return Ok(Some(offset));
                }
            }
            Err(_) => {}
        }
        if cached_only { Err(ReadError::WouldBlock) } else { self.offset_before_rebuilt(handles, timestamp) }
    }

    fn offset_before_rebuilt(
        &self,
        handles: &HandleCache,
        timestamp: TimestampMs,
    ) -> Result<Option<Offset>, ReadError> {
        self.rebuild(handles, |entries| entries.offset_before(timestamp))
    }

    /// Derives the indexes from the batches. A closed segment's are kept in memory until somebody
    /// has written them ([`Segment::write_indexes`]).
    fn rebuild<T>(&self, handles: &HandleCache, ask: impl Fn(&IndexEntries) -> T) -> Result<T, ReadError> {
        let _one_at_a_time = self.rebuilding.lock();
        let (upto, closed) = match &*self.state.read() {
            State { index: Index::Memory { entries, from: 0, .. }, .. } => return Ok(ask(entries)),
            State { index: Index::Memory { from, .. }, closed, .. } => (*from, *closed),
            State { bytes, closed, .. } => (*bytes, *closed),
        };
        let walked = self.walk_for_index(handles, upto)?;
        let answer = {
            let state = &mut *self.state.write();
            if let Index::Memory { entries, from, .. } = &mut state.index {
                entries.prepend(walked);
                *from = 0;
            } else {
                state.index = Index::Memory { entries: walked, from: 0, from_offset: self.base };
            }
            match &mut state.index {
                Index::Memory { entries, .. } => {
                    if closed {
                        entries.finish();
                    }
                    ask(entries)
                }
                _ => ask(&IndexEntries::new(self.base)),
            }
        };
        if closed {
            // A disk that is full leaves it in memory, where it serves as well.
            let _ = self.write_indexes(handles);
        }
        Ok(answer)
    }

    fn walk_for_index(&self, handles: &HandleCache, upto: u64) -> Result<IndexEntries, ReadError> {
        let (file, path) = (self.log_file(handles, false)?, self.path(FileKind::Log));
        let mut walk = Walk::new(&*file, &path, 0, upto, LONG_WALK_BYTES);
        let mut entries = IndexEntries::new(self.base);
        while let Some((position, head)) = walk.next()? {
            if head.last_offset - self.base > i64::from(i32::MAX) || head.base_offset < self.base {
                return Err(self.corrupt(position, "the batch's offset does not belong to this segment"));
            }
            entries.add(position, &head);
        }
        Ok(entries)
    }

    /// Writes the indexes of a closed segment from memory to their files, which are returned so
    /// that they can be synced. Without an index in memory nothing is written: it is rebuilt when
    /// it is first needed.
    pub(super) fn write_indexes(&self, handles: &HandleCache) -> Result<Vec<Arc<dyn File>>, DiskError> {
        let (offsets, times) = match &mut *self.state.write() {
            State { index: Index::Memory { entries, from: 0, .. }, closed: true, .. } => {
                entries.finish();
                (entries.encode_offsets(), entries.encode_times())
            }
            _ => return Ok(Vec::new()),
        };
        let index = write_whole(&**handles.disk(), &self.path(FileKind::OffsetIndex), &offsets)?;
        let times = write_whole(&**handles.disk(), &self.path(FileKind::TimeIndex), &times)?;
        handles.put(self.index_id, &index);
        handles.put(self.time_id, &times);
        self.state.write().index = Index::Files;
        Ok(vec![index, times])
    }
}

/// What the index in memory says.
enum InMemory<T> {
    Answer {
        answer: T,
        /// Where the part begins that it knows about.
        from: u64,
    },
    /// Nothing: the files are to be asked.
    InFiles,
    Unknown,
}

/// The index pointed at something else than it said, or lacks entries.
struct InDoubt;

/// Writes a file of exactly these bytes.
fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<Arc<dyn File>, DiskError> {
    let file = disk.open(path, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(&[std::io::IoSlice::new(bytes)], 0)?;
    Ok(file)
}
