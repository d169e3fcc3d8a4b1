//! Giving a replica that is too far behind the state of another one: a durable checkpoint and the segment files that it
//! lacks; and a segment by itself to one whose own is damaged ([`Mending`]).
//!
//! Nothing here knows a network. A [`SnapshotSource`] is a checkpoint that stays on disk while it is read from; a
//! [`Staging`] says what it [wants][SnapshotWanted] next, one thing at a time, and takes it. Whoever stands between the
//! two may lose any of it, or bring it twice.
//!
//! ```text
//! shards/<shard>/incoming/                      the staging directory
//!   <number>.state                              parts of the sender's state files, at the same places
//!   <partition>-<base>[.<generation>].log       segments that are not here, or not whole
//! ```
//!
//! What is staged is nothing: the replica goes on with what it has, and a start removes the directory. A segment that
//! this replica has already, of the same partition, base offset and generation, is compared with the sender's by
//! checksums of its content and not sent again, as far as it goes. Every piece has a checksum, every chunk and every
//! batch its own: what is complete is read again and checked by these before it counts.
//!
//! # The switch
//!
//! [`crate::InstallTask`] does it, in this order; the old state is good at every point before the fifth, the new one at
//! every point behind it.
//!
//! 1. The segment writer is paused. From here on the files are those that the segments' states say.
//! 2. What it has written is synced: segments that stay where they are may have been in the page cache only.
//! 3. Staged segments are renamed to where they belong, and their directories synced. To the old checkpoint such a file
//!    is one that it does not name, which the next start sets aside; or one that is longer than it says, which is cut; or
//!    the same segment with content that is known to be right. A segment (partition, base, generation) only ever grows,
//!    so that of a later state begins with all that an earlier one says of it.
//! 4. The state is written as one new state file, under a number that no checkpoint names, and synced.
//! 5. The manifest is written under another name, synced, and renamed to its place, and that is synced.
//!
//! A failure of the fifth step leaves it open which of the two a restart finds. The shard then stops, so that nothing
//! more is written on top of the old state. After that the logs go on with the new files, and what nobody names any
//! more is unlinked; a start does the same with what is left of it.

mod filling;
mod mending;
mod source;
mod staging;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_log::disk::DiskError;
use weir_log::partition::{SegmentEntry, segment_file_name};
use weir_model::{PartitionId, SegmentId};

use crate::checkpoint::Checkpoints;
use crate::files::ShardFiles;
use crate::shard::ShardError;
use crate::view::Shown;

pub use mending::Mending;
pub use source::SnapshotSource;
pub use staging::{StagedSnapshot, Staging};

/// Bytes of one piece, so that neither side holds more of a file in memory.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// Bytes that one checksum is over, so that nobody waits long for it.
pub const CHECKSUM_BYTES_MAX: u64 = 64 << 20;

/// Name of the staging directory, within the shard's.
const STAGING: &str = "incoming";

/// Name of the directory in which a segment is gathered that is to mend one, within the shard's.
const MENDING: &str = "mending";

/// A file of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotFile {
    /// The manifest.
    Manifest,
    /// The state file of that number.
    State(u64),
    /// A segment's batches.
    Segment(PartitionId, SegmentId),
}

/// Which checkpoint. Two of the same entry, made by two nodes, lie on disk in different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotId {
    /// Entries up to this one are in it.
    pub applied_index: u64,
    /// Term of that entry.
    pub applied_term: u64,
    /// Length of its manifest.
    pub manifest_bytes: u64,
    /// CRC-32C of its manifest.
    pub manifest_crc: u32,
}

/// What a staging directory lacks next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotWanted {
    /// Bytes of a file; as many as the sender likes to send, from the first of them on.
    Bytes {
        /// Of which file.
        file: SnapshotFile,
        /// The first byte.
        from: u64,
        /// The byte behind the last one.
        to: u64,
    },
    /// The CRC-32C of bytes that may be here already; at most [`CHECKSUM_BYTES_MAX`] of them.
    Checksum {
        /// Of which file.
        file: SnapshotFile,
        /// The first byte.
        from: u64,
        /// The byte behind the last one.
        to: u64,
    },
}

/// Why a snapshot could not be sent, or taken in. Nothing of the replica's own has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The checkpoint, or what came of one, cannot be read.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// What came is not what it is said to be.
    #[error("{what} of the snapshot is not what its manifest says: {why}")]
    Damaged {
        /// Which part.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// A part that the checkpoint does not have was asked for.
    #[error("the checkpoint has no bytes {from} to {to} of {file:?}")]
    NotThere {
        /// Of which file.
        file: SnapshotFile,
        /// The first byte.
        from: u64,
        /// The byte behind the last one.
        to: u64,
    },
}

/// A replica's way to send its checkpoints, and to take in those of others. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshots {
    checkpoints: Arc<Checkpoints>,
    files: Arc<ShardFiles>,
    shown: Arc<Shown>,
}

impl Snapshots {
    pub(crate) fn new(checkpoints: Arc<Checkpoints>, files: Arc<ShardFiles>, shown: Arc<Shown>) -> Snapshots {
        Snapshots { checkpoints, files, shown }
    }

    /// The last durable checkpoint, to be sent; none if there is none but that of a new shard. As long as the source
    /// lives, no file of the shard is unlinked. Blocks, also for a checkpoint that is being made.
    pub fn source(&self) -> Result<Option<SnapshotSource>, SnapshotError> {
        let held = self.checkpoints.hold()?;
        Ok(held.map(|held| SnapshotSource::new(held, self.clone())))
    }

    /// Begins to take in a checkpoint. What is left of an earlier attempt is used as far as it is of use; there must not
    /// be another one under way. Blocks.
    pub fn begin(&self, id: SnapshotId) -> Result<Staging, SnapshotError> {
        Staging::begin(self.clone(), id)
    }

    /// Begins to mend a segment whose file is not what was written. There must not be another one under way. Blocks.
    pub fn mend(&self, partition: PartitionId, entry: SegmentEntry) -> Result<Mending, SnapshotError> {
        Mending::begin(self.clone(), partition, entry)
    }

    /// Removes what an attempt has left. There must not be one under way. Blocks.
    pub fn clear(&self) -> Result<(), SnapshotError> {
        Ok(weir_log::disk::remove_tree(&**self.files.disk(), &staging_dir(self.files.dir()))?)
    }
}

/// Where a shard's snapshot is gathered.
pub(crate) fn staging_dir(shard_dir: &Path) -> PathBuf {
    shard_dir.join(STAGING)
}

/// Where a segment is gathered that mends one.
pub(crate) fn mending_dir(shard_dir: &Path) -> PathBuf {
    shard_dir.join(MENDING)
}

/// Name of a segment in the staging directory.
pub(crate) fn staged_name(partition: PartitionId, entry: &SegmentEntry) -> String {
    format!("{partition}-{}", segment_file_name(entry))
}

fn damaged(what: impl Into<String>, why: impl Into<String>) -> SnapshotError {
    SnapshotError::Damaged { what: what.into(), why: why.into() }
}
