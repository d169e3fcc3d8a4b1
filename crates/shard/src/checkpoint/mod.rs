//! Checkpoints: the state at one index, made durable beside `apply`.
//!
//! A checkpoint writes the chunks of state that changed since the last one into one new state file,
//! and then a manifest that says where every chunk lies. The manifest is written under another name,
//! synced, and renamed: it is the old one or the new one, never something between. Files that the
//! new one does not name are unlinked only when it is durable.

mod format;
mod open;
mod replace;
mod survey;
mod task;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_log::disk::Disk;
use weir_model::ShardId;

use crate::files::Holds;
use crate::machine::ChunkId;
use format::ChunkPlace;

pub(crate) use format::{MANIFEST_BYTES_MAX, Manifest};
pub(crate) use replace::{Held, ReplaceError};
pub use survey::{CheckpointSurvey, checkpointed_index, survey_checkpoint};
pub use task::{CheckpointDone, CheckpointError, CheckpointTask};

/// Name of the current manifest.
const MANIFEST: &str = "manifest";

/// Name of a manifest that is being written.
const MANIFEST_NEW: &str = "manifest.new";

/// Suffix of state files, whose names are their numbers.
const STATE_SUFFIX: &str = ".state";

/// State files that a checkpoint may consist of; beyond this the oldest is written anew.
const STATE_FILES_MAX: usize = 32;

/// The checkpoints of one shard, on disk.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shard: ShardId,
    /// While something is sent from here, nothing is unlinked.
    holds: Holds,
    /// Held while one is made: there is one at a time.
    durable: Mutex<Durable>,
}

/// The last checkpoint that is certainly on disk.
#[derive(Debug, Default)]
struct Durable {
    applied_index: u64,
    chunks: BTreeMap<ChunkId, ChunkPlace>,
    next_file: u64,
    /// Files that no chunk of it lies in any more, but that may not be unlinked yet, or could not be.
    stray: Vec<u64>,
}

impl Checkpoints {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

pub(crate) fn state_name(number: u64) -> String {
    format!("{number:020}{STATE_SUFFIX}")
}

/// The number of a state file, if the name is one of ours.
fn state_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(STATE_SUFFIX)?.parse().ok()?;
    (state_name(number) == name).then_some(number)
}

/// The directory of checkpoints within a shard's.
fn checkpoint_dir(shard_dir: &Path) -> PathBuf {
    shard_dir.join("checkpoint")
}
