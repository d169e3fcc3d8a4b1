//! What callers of a partition log hand in and get back.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use weir_model::{Offset, TimestampMs};

use crate::disk::{DiskError, FileRange};

/// A segment as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// The offset that it begins at, and its name.
    pub base: Offset,
    /// 0 as appended; more after rewrites.
    pub generation: u32,
    /// Its bytes: what lies behind them in the file is not part of the log.
    pub bytes: u64,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp in it, or -1.
    pub max_timestamp: TimestampMs,
    /// Entry time of its first append.
    pub first_time: TimestampMs,
    /// Whether it is complete; only the last segment may not be.
    pub closed: bool,
}

/// Which files a partition log consists of. Made durable by a checkpoint, it is what
/// [`super::PartitionLog::open`] cuts back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionManifest {
    /// Nothing below this offset can be read.
    pub start: Offset,
    /// Offset of the next record.
    pub end: Offset,
    /// All segments, ascending.
    pub segments: Vec<SegmentEntry>,
}

/// Names a moment in the life of a partition log: what was retired before it may be unlinked when
/// the manifest of that moment is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// What opening a partition log did to its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Files that no manifest named, which are renamed out of the way.
    pub set_aside: Vec<String>,
    /// Files that were cut back, with their lengths before and after.
    pub cut: Vec<(String, u64, u64)>,
    /// Names that are none of ours; left alone.
    pub unknown: Vec<String>,
}

/// How a read behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Return at most this much, in whole batches.
    pub max_bytes: usize,
    /// Return one batch even if it is larger than that.
    pub at_least_one: bool,
    /// Fail with [`ReadError::WouldBlock`] rather than wait for the disk.
    pub cached_only: bool,
}

/// Whole batches as they lie in a segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// The batches, the first of which has the offset that was asked for, or is the first behind it
    /// if nothing is left there. Empty at the end of the log.
    pub bytes: Bytes,
    /// Offset to read next.
    pub next_offset: Offset,
    /// Number of batches.
    pub batches: usize,
}

/// Whole batches that lie in a segment file, and are not read.
#[derive(Clone, Debug)]
pub struct RangeChunk {
    /// The batches, as [`ReadChunk::bytes`].
    pub range: FileRange,
    /// Offset to read next.
    pub next_offset: Offset,
}

/// A batch that a search by time has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampHit {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp in it: not below what was asked for.
    pub max_timestamp: TimestampMs,
    /// Epoch of the leader that appended it.
    pub leader_epoch: i32,
}

/// Bytes on disk that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub position: u64,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is corrupt at byte {}: {}", self.file.display(), self.position, self.why)
    }
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The offset is below the log's start or above its end.
    #[error("offset {offset} is out of range: the log holds {start} to {end}")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The first offset that can be read.
        start: Offset,
        /// The offset behind the last.
        end: Offset,
    },
    /// It cannot be done without waiting for the disk: call again where waiting is fine.
    #[error("the read would have to wait for the disk")]
    WouldBlock,
    /// What is there is no record batch, or not the right one.
    #[error("{0}")]
    Corrupt(Corruption),
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why a partition log could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// The file system failed. A full disk can be waited for and the call repeated.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A batch that does not follow the one before it.
    #[error("a batch at offset {found} cannot be appended: the next offset is {expected}")]
    OutOfOrder {
        /// The log's end.
        expected: Offset,
        /// The batch's base offset.
        found: Offset,
    },
    /// The segment has no room for the batch: the caller must roll earlier.
    #[error(
        "segment {base} has {bytes} bytes and no room for a batch up to offset {last_offset}: a new segment is needed"
    )]
    SegmentFull {
        /// The segment.
        base: Offset,
        /// Its bytes.
        bytes: u64,
        /// What was to be appended.
        last_offset: Offset,
    },
    /// A write or sync of this file failed earlier: its content must be written anew
    /// ([`super::PartitionLog::begin_repair`]), or the shard must stop.
    #[error("{} failed earlier and must be written anew: {reason}", file.display())]
    Failed {
        /// The file.
        file: PathBuf,
        /// What happened.
        reason: String,
    },
    /// A file stands where a new one should be made.
    #[error("{} already exists and is not empty; it was not overwritten", file.display())]
    Unexpected {
        /// The file.
        file: PathBuf,
    },
    /// A segment that is not there, or not in the state that the operation needs.
    #[error("segment {base}: {why}")]
    Segment {
        /// Its base offset.
        base: Offset,
        /// What is wrong.
        why: &'static str,
    },
    /// The files do not hold what they must.
    #[error("{0}")]
    Corrupt(Corruption),
    /// Reading the existing content failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}
