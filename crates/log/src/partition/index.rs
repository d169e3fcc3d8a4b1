//! The two sparse indexes of a segment, in memory and on disk. `docs/formats.md` draws them.
//!
//! Both are derived from the batches and are never trusted: whoever looks something up checks that
//! the batch found is the one that the entry says.

use weir_model::{Offset, TimestampMs};

use super::head::BatchHead;
use super::types::ReadError;
use super::walk::read_at;
use crate::disk::File;

/// Bytes of batches between entries: Kafka's default of `index.interval.bytes`.
pub(super) const INDEX_INTERVAL_BYTES: u64 = 4096;

pub(super) const OFFSET_ENTRY_BYTES: usize = 8;
pub(super) const TIME_ENTRY_BYTES: usize = 12;

/// A batch that an entry points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffsetEntry {
    /// Its last offset, less the segment's base.
    pub relative: i32,
    pub position: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeEntry {
    pub timestamp: TimestampMs,
    pub relative: i32,
}

/// The entries of a segment, or of the part of it that was walked over.
#[derive(Clone, Debug)]
pub(super) struct IndexEntries {
    base: Offset,
    pub offsets: Vec<OffsetEntry>,
    pub times: Vec<TimeEntry>,
    bytes_since_entry: u64,
    max_timestamp: TimestampMs,
    max_timestamp_relative: i32,
}

impl IndexEntries {
    pub(super) fn new(base: Offset) -> IndexEntries {
        IndexEntries {
            base,
            offsets: Vec::new(),
            times: Vec::new(),
            bytes_since_entry: 0,
            max_timestamp: -1,
            max_timestamp_relative: 0,
        }
    }

    /// Takes note of the batch at a position; called for each in order.
    pub(super) fn add(&mut self, position: u64, head: &BatchHead) {
        // Appends refuse what does not fit, and readers what a file cannot hold.
        let relative = (head.last_offset - self.base) as i32;
        if head.max_timestamp > self.max_timestamp {
            (self.max_timestamp, self.max_timestamp_relative) = (head.max_timestamp, relative);
        }
        if self.bytes_since_entry > INDEX_INTERVAL_BYTES {
            self.offsets.push(OffsetEntry { relative, position: position as u32 });
            self.note_time();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += head.bytes as u64;
    }

    /// The last entry of the time index, when nothing follows any more.
    pub(super) fn finish(&mut self) {
        self.note_time();
    }

    fn note_time(&mut self) {
        if self.max_timestamp > self.times.last().map_or(-1, |last| last.timestamp) {
            let (timestamp, relative) = (self.max_timestamp, self.max_timestamp_relative);
            self.times.push(TimeEntry { timestamp, relative });
        }
    }

    /// Puts the entries of what comes before in front of these.
    pub(super) fn prepend(&mut self, mut before: IndexEntries) {
        before.finish();
        let grown_to = before.times.last().map_or(-1, |last| last.timestamp);
        let later = self.times.iter().filter(|entry| entry.timestamp > grown_to);
        before.times.extend(later);
        before.offsets.append(&mut self.offsets);
        self.offsets = before.offsets;
        self.times = before.times;
        if before.max_timestamp >= self.max_timestamp {
            self.max_timestamp = before.max_timestamp;
            self.max_timestamp_relative = before.max_timestamp_relative;
        }
    }

    /// Position of the last batch known to end at or below an offset.
    pub(super) fn position_for(&self, offset: Offset) -> Option<u32> {
        let relative = offset - self.base;
        let behind = self.offsets.partition_point(|entry| i64::from(entry.relative) <= relative);
        behind.checked_sub(1).map(|index| self.offsets[index].position)
    }

    /// The last entry for which `below` holds, which it does for the first so many.
    pub(super) fn last_below(&self, below: impl Fn(&OffsetEntry) -> bool) -> Option<OffsetEntry> {
        let behind = self.offsets.partition_point(below);
        behind.checked_sub(1).map(|index| self.offsets[index])
    }

    /// The last offset up to which all timestamps are known to be below a time.
    pub(super) fn offset_before(&self, timestamp: TimestampMs) -> Option<Offset> {
        let behind = self.times.partition_point(|entry| entry.timestamp < timestamp);
        behind.checked_sub(1).map(|index| self.base + i64::from(self.times[index].relative))
    }

    pub(super) fn encode_offsets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.offsets.len() * OFFSET_ENTRY_BYTES);
        for entry in &self.offsets {
            out.extend_from_slice(&entry.relative.to_be_bytes());
            out.extend_from_slice(&entry.position.to_be_bytes());
        }
        out
    }

    pub(super) fn encode_times(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.times.len() * TIME_ENTRY_BYTES);
        for entry in &self.times {
            out.extend_from_slice(&entry.timestamp.to_be_bytes());
            out.extend_from_slice(&entry.relative.to_be_bytes());
        }
        out
    }
}

pub(super) fn decode_offset_entry(bytes: &[u8; OFFSET_ENTRY_BYTES]) -> OffsetEntry {
    let [a, b, c, d, e, f, g, h] = *bytes;
    OffsetEntry { relative: i32::from_be_bytes([a, b, c, d]), position: u32::from_be_bytes([e, f, g, h]) }
}

pub(super) fn decode_time_entry(bytes: &[u8; TIME_ENTRY_BYTES]) -> TimeEntry {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
    TimeEntry {
        timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        relative: i32::from_be_bytes([i, j, k, l]),
    }
}

/// An index file, searched where it lies.
pub(super) struct IndexFile<'a> {
    pub file: &'a dyn File,
    pub cached_only: bool,
}

impl IndexFile<'_> {
    /// The last entry for which `below` holds, `below` being true for the first so many entries.
    /// `Err(None)` if the file is no index at all.
    pub(super) fn last_below<const N: usize, T>(
        &self,
        decode: impl Fn(&[u8; N]) -> T,
        below: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, Option<ReadError>> {
        let len = self.file.len().map_err(|error| Some(ReadError::Disk(error)))?;
        if !len.is_multiple_of(N as u64) {
            return Err(None);
        }
        let (mut low, mut high) = (0, len / N as u64);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let mut bytes = [0; N];
            if read_at(self.file, &mut bytes, middle * N as u64, self.cached_only).map_err(Some)? < N {
                return Err(if self.cached_only { Some(ReadError::WouldBlock) } else { None });
            }
            let entry = decode(&bytes);
            if below(&entry) {
                found = Some(entry);
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(found)
    }
}
