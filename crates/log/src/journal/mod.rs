//! The journal: the node's one sequential stream of records, durable by one sync for all shards.
//!
//! Fixed-size files are filled from their start with groups, a group being what one write carries,
//! and are written over when nothing in them is needed any more. `docs/formats.md` draws the bytes
//! and lists the rules by which opening tells a log's end from a loss. In short:
//!
//! ```text
//!   released      needed, durable       not synced yet
//! ------------|----------------------|-----------------|
//!           first                 durable             end      positions
//! ```
//!
//! The journal has no thread and no clock: its owner calls [`Journal::append`] and
//! [`Journal::sync`] from wherever it likes to block. Readers ([`JournalReader`]) run beside it.

mod encode;
mod format;
mod open;
mod reader;
mod recovery;
mod scan;
mod survey;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use weir_model::ShardId;

use self::encode::{GroupEncoder, payload_bytes, record_bytes};
use self::format::{GROUP_HEADER_BYTES, GroupHeader, JOURNAL_SHARD, align};
use self::reader::ReadableFile;
use self::scan::file_name;
use crate::disk::{Disk, DiskError, File, OpenMode};

pub use reader::JournalReader;
pub use survey::{GroupSummary, JournalSurvey, survey_journal};
pub use types::{
    Cut, JournalError, JournalFile, JournalOptions, JournalPressure, JournalRecord, LostRange, Position,
    RecordKind, RecoveredRecord, RecoveryReport,
};

/// The writing end of the journal. See the module's description.
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: JournalOptions,
    /// Files with something needed in them, in order; the last is being filled. Empty only while
    /// the journal is opened.
    live: VecDeque<LiveFile>,
    /// Numbers of files with nothing needed in them, in order, all above the live ones'.
    spares: VecDeque<u64>,
    /// Number of the spare file that somebody is making.
    being_made: Option<u64>,
    highest_number: u64,
    /// Position behind the last group.
    end: u64,
    durable: u64,
    /// Nothing below is needed.
    first: u64,
    /// Position behind the last group that holds records.
    records_end: u64,
    /// The highest durable position that a group says.
    durable_written: u64,
    /// The latest records of kept kinds.
    kept: BTreeMap<(ShardId, RecordKind), Bytes>,
    reader: JournalReader,
    encoder: GroupEncoder,
    poisoned: Option<DiskError>,
}

#[derive(Debug)]
struct LiveFile {
    number: u64,
    base: u64,
    /// Position behind the groups with the kept records.
    head_end: u64,
    capacity: u64,
    file: Arc<dyn File>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("files", &self.files())
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Appends records in order and returns their positions. They can be read at once; they are
    /// durable when a later [`Journal::sync`] has returned.
    ///
    /// Records that do not fit one group go into several: a crash may keep the first of them only.
    pub fn append(&mut self, records: &[JournalRecord<'_>]) -> Result<Vec<Position>, JournalError> {
        self.check_usable()?;
        self.check_records(records)?;
        let mut positions = Vec::with_capacity(records.len());
        let mut rest = records;
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(self.records_for_group(rest));
            self.make_room(group)?;
            self.write_group(group, false, false, &mut positions)?;
            self.remember_kept(group);
            self.records_end = self.end;
            rest = behind;
        }
        Ok(positions)
    }

    /// Makes everything that was appended durable, and returns the position below which all is.
    pub fn sync(&mut self) -> Result<Position, JournalError> {
        self.check_usable()?;
        if self.durable < self.end {
            if let Some(file) = self.live.back().map(|live| Arc::clone(&live.file)) {
                self.poison_on_error(file.sync_data())?;
            }
            self.durable = self.end;
        }
        Ok(Position(self.durable))
    }

    /// To be called when nothing has been appended for a while: writes down how far the journal is
    /// durable, so that damage to the last groups is told from an unfinished write. Does nothing
    /// if that already stands there.
    pub fn seal(&mut self) -> Result<Position, JournalError> {
        self.sync()?;
        if self.durable_written < self.records_end {
            match self.make_room(&[]) {
                // The next file will say it.
                Err(JournalError::Full { .. }) => return Ok(Position(self.durable)),
                room => room?,
            }
            self.write_group(&[], false, false, &mut Vec::new())?;
        }
        self.sync()
    }

    /// Makes the file after the current one, if there is none, so that beginning it costs nothing.
    pub fn prepare_spare(&mut self) -> Result<(), JournalError> {
        self.check_usable()?;
        match self.order_spare() {
            Some(order) => {
                let made = order.make(&mut || {});
                self.spare_made(&order, made)
            }
            None => Ok(()),
        }
    }

    /// How much of the current file is written, in bytes, and how much goes into it.
    pub fn filled(&self) -> (u64, u64) {
        self.live.back().map_or((0, 0), |live| (self.end - live.base, live.capacity))
    }

    /// What to make so that beginning the next file costs nothing, if there is no spare file and nobody makes
    /// one. It may be made beside the journal, from any thread; [`Journal::spare_made`] must be told.
    pub fn order_spare(&mut self) -> Option<SpareOrder> {
        if !self.spares.is_empty() || self.being_made.is_some() {
            return None;
        }
        self.highest_number += 1;
        self.being_made = Some(self.highest_number);
        Some(SpareOrder {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            number: self.highest_number,
            bytes: self.options.file_bytes,
        })
    }

    /// Takes a spare file over, or notes that it could not be made; says why.
    pub fn spare_made(
        &mut self,
        order: &SpareOrder,
        made: Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.being_made = None;
        self.check_usable()?;
        made?;
        // Numbers rise from file to file. Where the journal could not wait, it has gone past this one.
        if self.live.back().is_some_and(|live| live.number > order.number) {
            return self.recycle(order.number, order.bytes);
        }
        let place = self.spares.partition_point(|number| *number < order.number);
        self.spares.insert(place, order.number);
        Ok(())
    }

    /// Removes the files that only make beginning the next one cheaper, where their space is needed.
    pub fn remove_spares(&mut self) -> Result<(), JournalError> {
        self.check_usable()?;
        while let Some(number) = self.spares.back() {
            self.disk.remove_file(&self.dir.join(file_name(*number)))?;
            self.spares.pop_back();
        }
        Ok(())
    }

    /// Says that nothing below the position is needed any more: files wholly below it, and durable,
    /// are kept for reuse or removed.
    pub fn release_below(&mut self, position: Position) -> Result<(), JournalError> {
        self.check_usable()?;
        let bound = position.0.min(self.durable);
        let needed = self.live.iter().skip(1);
        let count = needed.take_while(|file| file.base <= bound && file.head_end <= self.durable).count();
        if count == 0 {
            return Ok(());
        }
        // It must be on disk that the files are not needed before they are gone: a file that is
        // missing otherwise is a loss.
        self.first = self.live[count].base;
        self.make_room_unlimited(&[])?;
        self.write_group(&[], false, false, &mut Vec::new())?;
        self.sync()?;
        self.reader.remove_below(self.first);
        for _ in 0..count {
            let (number, capacity) = (self.live[0].number, self.live[0].capacity);
            self.recycle(number, capacity)?;
            self.live.pop_front();
        }
        Ok(())
    }

    /// Position below which everything is durable.
    pub fn durable(&self) -> Position {
        Position(self.durable)
    }

    /// Position behind everything that was appended.
    pub fn end(&self) -> Position {
        Position(self.end)
    }

    /// A handle that reads records by position.
    pub fn reader(&self) -> JournalReader {
        self.reader.clone()
    }

    /// Reads one record; see [`JournalReader::read`].
    pub fn read(&self, position: Position) -> Result<RecoveredRecord, JournalError> {
        self.reader.read(position)
    }

    /// The files that hold something needed, the lowest first.
    pub fn files(&self) -> Vec<JournalFile> {
        let ends = self.live.iter().skip(1).map(|next| next.base).chain([self.end]);
        self.live
            .iter()
            .zip(ends)
            .map(|(live, end)| JournalFile {
                number: live.number,
                base: Position(live.base),
                end: Position(end),
                bytes: live.capacity,
            })
            .collect()
    }

    /// How much of what the journal may take is taken.
    pub fn pressure(&self) -> JournalPressure {
        let used_bytes = self.live.iter().map(|live| live.capacity).sum();
        JournalPressure { used_bytes, bytes_max: self.options.journal_bytes_max }
    }

    fn check_usable(&self) -> Result<(), JournalError> {
        self.poisoned.clone().map_or(Ok(()), |error| Err(JournalError::Poisoned(error)))
    }

    fn poison_on_error(&mut self, result: Result<(), DiskError>) -> Result<(), JournalError> {
        result.map_err(|error| {
            self.poisoned = Some(error.clone());
            JournalError::Poisoned(error)
        })
    }

    fn check_records(&self, records: &[JournalRecord<'_>]) -> Result<(), JournalError> {
        let bytes_max = self.options.record_bytes_max();
        let mut kept = self.kept.values().map(Bytes::len).sum::<usize>();
        for record in records {
            let bytes = payload_bytes(record);
            if bytes > bytes_max {
                return Err(JournalError::RecordTooLarge { bytes, bytes_max });
            }
            if record.shard == JOURNAL_SHARD {
                return Err(JournalError::Options("shard 4294967295 is the journal's own"));
            }
            if record.kind.is_kept() {
                kept += record_bytes(record);
            }
        }
        // Counted as if nothing were replaced: far below the limit in all but absurd cases.
        let bytes_max = self.options.kept_bytes_max();
        if kept > bytes_max { Err(JournalError::KeptTooLarge { bytes: kept, bytes_max }) } else { Ok(()) }
    }

    /// How many of the records the next group takes: at least one.
    fn records_for_group(&self, records: &[JournalRecord<'_>]) -> usize {
        let mut bytes = GROUP_HEADER_BYTES;
        let fits = records.iter().take_while(|record| {
            bytes += record_bytes(record);
            bytes <= self.options.group_bytes_max
        });
        fits.count().max(1)
    }

    fn remember_kept(&mut self, records: &[JournalRecord<'_>]) {
        for record in records.iter().filter(|record| record.kind.is_kept()) {
            self.keep(record.shard, record.kind, record.chunks.concat().into());
        }
    }

    fn keep(&mut self, shard: ShardId, kind: RecordKind, payload: Bytes) {
        if payload.is_empty() {
            self.kept.remove(&(shard, kind));
        } else {
            self.kept.insert((shard, kind), payload);
        }
    }

    /// Begins a new file if the records do not fit the current one.
    fn make_room(&mut self, records: &[JournalRecord<'_>]) -> Result<(), JournalError> {
        if self.has_room(records) {
            return Ok(());
        }
        let JournalPressure { used_bytes, bytes_max } = self.pressure();
        if used_bytes + self.options.file_bytes > bytes_max {
            return Err(JournalError::Full { used_bytes, bytes_max });
        }
        self.begin_file()
    }

    /// As [`Journal::make_room`] for a small group, whatever the journal may take: without it, the
    /// journal could not be opened, or freed of what fills it.
    fn make_room_unlimited(&mut self, records: &[JournalRecord<'_>]) -> Result<(), JournalError> {
        if self.has_room(records) { Ok(()) } else { self.begin_file() }
    }

    fn has_room(&self, records: &[JournalRecord<'_>]) -> bool {
        let bytes = GROUP_HEADER_BYTES + records.iter().map(record_bytes).sum::<usize>();
        self.live.back().is_some_and(|live| self.end - live.base + align(bytes as u64) <= live.capacity)
    }

    /// Writes one group behind the last. The current file has room for it.
    fn write_group(
        &mut self,
        records: &[JournalRecord<'_>],
        begins_file: bool,
        repeated: bool,
        positions: &mut Vec<Position>,
    ) -> Result<(), JournalError> {
        let Some(live) = self.live.back() else {
            return Err(JournalError::Options("the journal has no file"));
        };
        let header = GroupHeader {
            identity: self.options.identity,
            generation: live.number,
            position: self.end,
            durable: self.durable,
            first: self.first,
            length: 0,
            record_count: 0,
            records_crc: 0,
            begins_file,
            repeated,
        };
        let (file, place) = (Arc::clone(&live.file), self.end - live.base);
        let header = self.encoder.encode(header, records, positions);
        let written = file.write_at(&[IoSlice::new(self.encoder.bytes())], place);
        self.poison_on_error(written)?;
        self.end = header.end();
        self.durable_written = self.durable;
        Ok(())
    }

    /// Begins the next file with the kept records. Everything in the one before is durable first,
    /// so that what is not durable always lies in one file.
    fn begin_file(&mut self) -> Result<(), JournalError> {
        self.sync()?;
        let number = match self.spares.front() {
            Some(number) => *number,
            None => {
                let number = self.highest_number + 1;
                make_file(&*self.disk, &self.dir, number, self.options.file_bytes, &mut || {})?;
                self.highest_number = number;
                self.spares.push_back(number);
                number
            }
        };
        let path = self.dir.join(file_name(number));
        let file = self.disk.open(&path, OpenMode::Overwrite)?;
        if file.len()? < self.options.file_bytes {
            file.allocate(self.options.file_bytes)?;
            file.sync_data()?;
        }
        let capacity = file.len()?;
        self.spares.pop_front();
        let base = self.end;
        self.reader.add(Arc::new(ReadableFile { path, base, capacity, file: Arc::clone(&file) }));
        self.live.push_back(LiveFile { number, base, head_end: base, capacity, file });
        self.write_head()
    }

    /// Repeats the kept records at the head of the current file.
    fn write_head(&mut self) -> Result<(), JournalError> {
        let kept = std::mem::take(&mut self.kept);
        let chunks: Vec<[Bytes; 1]> = kept.values().map(|payload| [payload.clone()]).collect();
        let records: Vec<JournalRecord<'_>> = kept
            .keys()
            .zip(&chunks)
            .map(|((shard, kind), chunks)| JournalRecord { shard: *shard, kind: *kind, chunks })
            .collect();
        let mut rest = records.as_slice();
        let mut begins_file = true;
        let mut written = Ok(());
        while written.is_ok() && (begins_file || !rest.is_empty()) {
            let count = if rest.is_empty() { 0 } else { self.records_for_group(rest) };
            let (group, behind) = rest.split_at(count);
            written = self.write_group(group, begins_file, true, &mut Vec::new());
            (rest, begins_file) = (behind, false);
        }
        drop(records);
        self.kept = kept;
        written?;
        let end = self.end;
        if let Some(live) = self.live.back_mut() {
            live.head_end = end;
        }
        Ok(())
    }

    /// Gives a file that holds nothing needed a new number, or removes it. Durable when it returns,
    /// so that files disappear strictly from the lowest upwards.
    fn recycle(&mut self, number: u64, bytes: u64) -> Result<(), JournalError> {
        let path = self.dir.join(file_name(number));
        let files = (self.live.len() + self.spares.len()) as u64;
        let is_kept = self.spares.len() < self.options.spare_files_max
            && files * self.options.file_bytes <= self.options.journal_bytes_max;
        if is_kept && bytes == self.options.file_bytes {
            let number = self.highest_number + 1;
            self.disk.rename(&path, &self.dir.join(file_name(number)))?;
            self.highest_number = number;
            self.spares.push_back(number);
        } else {
            self.disk.remove_file(&path)?;
        }
        // If this fails, nobody knows which name the file has, and what was written to it later could
        // be gone with the name.
        let synced = self.disk.sync_dir(&self.dir);
        self.poison_on_error(synced)
    }
}

/// A spare file to be made.
#[derive(Debug)]
#[must_use = "the journal waits for it to be made"]
pub struct SpareOrder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    number: u64,
    bytes: u64,
}

impl SpareOrder {
    /// Makes the file, calling `pause` between its pieces of 1 MiB: a disk that is given all of it at once
    /// keeps everybody else waiting.
    pub fn make(&self, pause: &mut dyn FnMut()) -> Result<(), JournalError> {
        make_file(&*self.disk, &self.dir, self.number, self.bytes, pause)
    }
}

/// Bytes of a new file that are written between two pauses.
const PIECE_BYTES: u64 = 1 << 20;

/// Makes a file of zeroes, durable with its name.
fn make_file(
    disk: &dyn Disk,
    dir: &Path,
    number: u64,
    bytes: u64,
    pause: &mut dyn FnMut(),
) -> Result<(), JournalError> {
    let path = dir.join(file_name(number));
    let made = disk.open(&path, OpenMode::Create).and_then(|file| {
        let mut len = file.len()?;
        while len < bytes {
            let piece = PIECE_BYTES.min(bytes - len);
            file.allocate(len + piece)?;
            file.begin_writeback(len, piece);
            len += piece;
            pause();
        }
        file.sync_data()?;
        disk.sync_dir(dir)
    });
    made.map_err(|error| {
        // Space that a half-made file takes helps nobody; it holds nothing yet, and if it
        // cannot be removed either, the next attempt finds it and goes on with it.
        let _ = disk.remove_file(&path);
        JournalError::Disk(error)
    })
}
