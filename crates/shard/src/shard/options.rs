//! How a replica is opened, and why it may not be.

use std::path::PathBuf;

use bytes::Bytes;
use weir_log::disk::DiskError;
use weir_model::PartitionId;

/// Bounds of one replica's work. None of them changes what `apply` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// Bytes of one write to a segment file.
    pub write_bytes_max: usize,
    /// Bytes that one run of the segment writer writes before it returns.
    pub run_bytes_max: usize,
    /// Segment files without unsynced bytes that are kept open.
    pub open_files_max: usize,
    /// Files with unsynced bytes, which must be kept open: with so many the segment writer syncs them, and
    /// does not wait for a checkpoint.
    pub dirty_files_max: usize,
}

impl Default for ShardOptions {
    fn default() -> Self {
        ShardOptions {
            write_bytes_max: 4 << 20,
            run_bytes_max: 16 << 20,
            open_files_max: 256,
            dirty_files_max: 1000,
        }
    }
}

/// What the checkpoint says about the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Entries up to this one are in the state; 0 if none is.
    pub applied_index: u64,
    /// Term of that entry.
    pub applied_term: u64,
    /// What was handed to the checkpoint; empty if there was none.
    pub raft_meta: Bytes,
}

/// Why a replica could not be opened. Nothing was deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The checkpoint is not what was written.
    #[error("the checkpoint {} cannot be read: {why}; restore this node's shard from its peers or a backup", path.display())]
    Checkpoint {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is data but no checkpoint that says what it is.
    #[error("{} has data but no manifest; restore this node's shard from its peers or a backup", path.display())]
    MissingManifest {
        /// The shard's directory.
        path: PathBuf,
    },
    /// A partition's files do not hold what the checkpoint says.
    #[error("partition {partition}: {why}; restore this node's shard from its peers or a backup")]
    Partition {
        /// Which partition.
        partition: PartitionId,
        /// What is wrong.
        why: String,
    },
    /// The checkpoint was written by a newer version.
    #[error("{} needs {what} version {version}; this version of Weir has up to {supported}", path.display())]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Of what.
        what: &'static str,
        /// What it needs.
        version: u32,
        /// What there is.
        supported: u32,
    },
}
