//! Reading a partition log, from any thread, beside the one that writes it.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use weir_model::{Offset, TimestampMs};

use super::handles::HandleCache;
use super::segment::Segment;
use super::types::{RangeChunk, ReadChunk, ReadError, ReadOptions, SegmentEntry, TimestampHit};

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub dir: Arc<Path>,
    pub handles: Arc<HandleCache>,
    pub range: RwLock<Range>,
}

/// The segments of one moment.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub start: Offset,
    pub end: Offset,
    /// Ascending. Replaced as a whole, so that a reader keeps what it began with.
    pub segments: Arc<[Arc<Segment>]>,
}

impl Range {
    /// Index of the first segment that may hold an offset or something behind it.
    pub(super) fn segment_for(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base <= offset).saturating_sub(1)
    }
}

/// Reads a partition log. Clones are handles to the same log; a reader goes on working on what it
/// began with while segments are trimmed or rewritten.
#[derive(Clone, Debug)]
pub struct PartitionReader {
    pub(super) shared: Arc<Shared>,
}

impl PartitionReader {
    /// The first offset that can be read.
    pub fn start(&self) -> Offset {
        self.shared.range.read().start
    }

    /// The offset behind the last record.
    pub fn end(&self) -> Offset {
        self.shared.range.read().end
    }

    /// The segments of this moment.
    pub fn segments(&self) -> Vec<SegmentEntry> {
        self.range_now().segments.iter().map(|segment| segment.entry()).collect()
    }

    /// Reads whole batches from one segment, beginning with the batch that holds `offset`, which
    /// may begin below it. At the end of the log there is nothing to read. At most 8 MiB are
    /// returned, or one larger batch.
    pub fn read(&self, offset: Offset, options: ReadOptions) -> Result<ReadChunk, ReadError> {
        let range = self.range_now();
        if offset < range.start || offset > range.end {
            return Err(ReadError::OutOfRange { offset, start: range.start, end: range.end });
        }
        for segment in &range.segments[range.segment_for(offset)..] {
            if let Some(chunk) = segment.read(&self.shared.handles, offset, options)? {
                return Ok(chunk);
            }
        }
        Ok(ReadChunk { bytes: Default::default(), next_offset: offset, batches: 0 })
    }

    /// What [`PartitionReader::read`] would read, as a range of a segment file for who can send it from there.
    /// Only if that is worth it, all of it lies in the page cache, and it is known to be sound: what this
    /// process has written, or read before. Never waits for the disk.
    pub fn range(&self, offset: Offset, max_bytes: usize) -> Option<RangeChunk> {
        let range = self.range_now();
        if offset < range.start || offset >= range.end {
            return None;
        }
        let segment =
            range.segments[range.segment_for(offset)..].iter().find(|s| s.last_offset() >= offset)?;
        segment.range(&self.shared.handles, offset, max_bytes)
    }

    /// The first batch with a timestamp of at least `timestamp`, if there is one. Which of its
    /// records it is only decoding tells.
    pub fn find_timestamp(
        &self,
        timestamp: TimestampMs,
        cached_only: bool,
    ) -> Result<Option<TimestampHit>, ReadError> {
        self.find_timestamp_from(0, timestamp, cached_only)
    }

    /// As [`PartitionReader::find_timestamp`], but nothing that lies wholly below an offset. What is
    /// trimmed stays in the log until a checkpoint lets go of it.
    pub fn find_timestamp_from(
        &self,
        from: Offset,
        timestamp: TimestampMs,
        cached_only: bool,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let range = self.range_now();
        let from = range.start.max(from);
        for segment in range.segments.iter() {
            let entry = segment.entry();
            if entry.max_timestamp >= timestamp && entry.last_offset >= from {
                let found = segment.find_timestamp(&self.shared.handles, timestamp, from, cached_only)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Keeps all files of this moment from being unlinked, for a transfer to another node.
    pub fn pin(&self) -> PinnedSegments {
        PinnedSegments { handles: Arc::clone(&self.shared.handles), segments: self.range_now().segments }
    }

    pub(super) fn range_now(&self) -> Range {
        self.shared.range.read().clone()
    }
}

/// Segments that stay on disk as long as this lives, whatever is trimmed meanwhile.
#[derive(Clone, Debug)]
pub struct PinnedSegments {
    handles: Arc<HandleCache>,
    segments: Arc<[Arc<Segment>]>,
}

impl PinnedSegments {
    /// What is pinned, as of when it was pinned or later: an open segment may have grown.
    pub fn segments(&self) -> Vec<SegmentEntry> {
        self.segments.iter().map(|segment| segment.entry()).collect()
    }

    /// Reads bytes of a segment's `.log` as they are; fewer than asked for only at its end.
    pub fn read_bytes(
        &self,
        base: Offset,
        buffer: &mut [u8],
        position: u64,
    ) -> Result<Option<usize>, ReadError> {
        let Some(segment) = self.segments.iter().find(|segment| segment.base == base) else {
            return Ok(None);
        };
        let room = segment.entry().bytes.saturating_sub(position).min(buffer.len() as u64) as usize;
        let file = segment.log_file(&self.handles, false)?;
        Ok(Some(file.read_at(&mut buffer[..room], position)?))
    }
}
