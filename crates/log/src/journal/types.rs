//! What callers of the journal hand in and get back.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use weir_model::ShardId;

use crate::disk::DiskError;

/// A place in the journal: a count of bytes over all its files, strictly rising. As an end or a
/// bound it means "everything below".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a record is to its owner; the journal only looks at one bit of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKind(pub u8);

impl RecordKind {
    /// Set in kinds of which the journal keeps the latest record per shard: it repeats that record
    /// at the head of every new file, so that it outlives the recycling of the file that it was
    /// written in. For small state such as a vote. A record with an empty payload ends the keeping.
    pub const KEPT: u8 = 0x80;

    /// Whether the latest record of this kind is kept.
    pub fn is_kept(self) -> bool {
        self.0 & RecordKind::KEPT != 0
    }
}

/// A record to be appended. Its payload is what the chunks hold, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct JournalRecord<'a> {
    /// Whose it is. `ShardId(u32::MAX)` is taken by the journal itself.
    pub shard: ShardId,
    /// What it is.
    pub kind: RecordKind,
    /// Its payload, written without being copied where chunks are large.
    pub chunks: &'a [Bytes],
}

/// A record read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    /// Where it lies.
    pub position: Position,
    /// Whose it is.
    pub shard: ShardId,
    /// What it is.
    pub kind: RecordKind,
    /// Its payload, which shares memory with the group it was read in: copy it to keep it long.
    pub payload: Bytes,
    /// The journal repeated it, because its kind is kept. It may be the only copy left.
    pub repeated: bool,
}

/// How a journal behaves. The defaults are those of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Length of each file. Files of another length are used up and not made anew.
    pub file_bytes: u64,
    /// Longest group, and so the largest record with what goes around it; at most half a file.
    pub group_bytes_max: usize,
    /// All files that hold something needed take at most this much.
    pub journal_bytes_max: u64,
    /// Released files that are kept for reuse, as long as they and the others together stay within
    /// `journal_bytes_max`; others are removed. A new file costs a write of zeroes for every byte, so
    /// there should be room for all that a checkpoint releases at once.
    pub spare_files_max: usize,
    /// There was a journal, so that none at all is a loss and not a beginning.
    pub must_exist: bool,
    /// Of the data directory: a number drawn when it was made. Groups of another are refused.
    pub identity: u64,
    /// The operator accepts the loss of corrupt ranges from this position on.
    pub accept_loss_from: Option<Position>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            file_bytes: 64 << 20,
            group_bytes_max: 20 << 20,
            journal_bytes_max: 2 << 30,
            spare_files_max: 16,
            must_exist: false,
            identity: 0,
            accept_loss_from: None,
        }
    }
}

/// A range of the journal that was durable and cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// First position that is lost.
    pub from: Position,
    /// Position behind the loss.
    pub to: Position,
    /// The file it lies in, if that is still there.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub place: u64,
    /// What is wrong.
    pub why: &'static str,
    /// Shards of which records are certainly lost; there may be others.
    pub shards: Vec<ShardId>,
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "positions {} to {}", self.from, self.to)?;
        if let Some(file) = &self.file {
            write!(f, " ({} at byte {})", file.display(), self.place)?;
        }
        write!(f, ": {}", self.why)?;
        if !self.shards.is_empty() {
            write!(f, "; among others records of shards ")?;
            for (index, shard) in self.shards.iter().enumerate() {
                write!(f, "{}{shard}", if index == 0 { "" } else { ", " })?;
            }
        }
        Ok(())
    }
}

/// Where the log ended because what follows was never known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The end of the log.
    pub at: Position,
    /// What is wrong there.
    pub why: &'static str,
    /// Valid groups behind it, which are dropped.
    pub groups_dropped: u64,
}

/// What opening a journal found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Files that hold something.
    pub files: usize,
    /// Groups read back.
    pub groups: u64,
    /// Records read back, repeated ones included.
    pub records: u64,
    /// The highest position that the groups themselves said was durable.
    pub known_durable: Position,
    /// Bytes above that position that were there, and were written again and synced.
    pub bytes_rewritten: u64,
    /// Where an unfinished write was cut off.
    pub cut: Option<Cut>,
    /// Losses that the operator has accepted, now or earlier.
    pub accepted_losses: Vec<LostRange>,
}

/// How full the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPressure {
    /// Bytes of files that hold something needed, the current file included.
    pub used_bytes: u64,
    /// What they may take.
    pub bytes_max: u64,
}

impl JournalPressure {
    /// Whether checkpoints should be forced: less than a quarter is left.
    pub fn is_high(&self) -> bool {
        self.used_bytes > self.bytes_max - self.bytes_max / 4
    }
}

/// One file of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFile {
    /// Its number, which is also the generation of its groups.
    pub number: u64,
    /// Position of its first byte.
    pub base: Position,
    /// Position behind its last group.
    pub end: Position,
    /// Its length on disk.
    pub bytes: u64,
}

/// Why the journal could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The file system failed; nothing was appended. Other than after [`JournalError::Poisoned`],
    /// the call may be repeated.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An earlier write or sync failed. What the disk holds is not known any more: the process must
    /// stop, and the next one reads what is really there.
    #[error("the journal cannot be used any more: {0}")]
    Poisoned(DiskError),
    /// A record that does not fit a group.
    #[error("a record of {bytes} bytes does not fit the journal, whose groups take at most {bytes_max}")]
    RecordTooLarge {
        /// Its payload.
        bytes: usize,
        /// What fits.
        bytes_max: usize,
    },
    /// Kept records that leave too little of a file for others.
    #[error("{bytes} bytes of kept records are more than the {bytes_max} that a journal file has for them")]
    KeptTooLarge {
        /// All of them.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// No further file may be begun until checkpoints release old ones.
    #[error("the journal is full: {used_bytes} of {bytes_max} bytes are needed until the next checkpoint")]
    Full {
        /// Bytes of needed files.
        used_bytes: u64,
        /// What they may take.
        bytes_max: u64,
    },
    /// Durable records cannot be read any more.
    #[error("the journal in {} is corrupt: {} of durable records are lost: {}",
        directory.display(), ranges(lost), list(lost))]
    Corrupt {
        /// The journal's directory.
        directory: PathBuf,
        /// What is lost.
        lost: Vec<LostRange>,
    },
    /// There was a journal, and now there is nothing of it. Nothing was begun in its place.
    #[error("the journal in {} is gone: no group of it is there", .0.display())]
    Gone(PathBuf),
    /// The journal belongs to another data directory.
    #[error("{} belongs to another data directory (identity {found:016x}, expected {expected:016x})", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Its identity.
        found: u64,
        /// The expected one.
        expected: u64,
    },
    /// The journal was written by a newer version.
    #[error("{} has format version {version}; this version of Weir reads up to 1", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its version.
        version: u8,
    },
    /// Nothing that is still needed lies at the position.
    #[error("position {0} of the journal is not there any more")]
    Released(Position),
    /// No intact record lies at the position.
    #[error("no intact record lies at position {position} of the journal ({}): {why}", file.display())]
    Unreadable {
        /// The position.
        position: Position,
        /// The file that should have it.
        file: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// Options that contradict each other.
    #[error("the journal cannot be opened with these options: {0}")]
    Options(&'static str),
}

fn ranges(lost: &[LostRange]) -> String {
    if lost.len() == 1 { "one range".to_owned() } else { format!("{} ranges", lost.len()) }
}

fn list(lost: &[LostRange]) -> String {
    lost.iter().map(LostRange::to_string).collect::<Vec<_>>().join("; ")
}
