//! Looking at a checkpoint without opening the shard, changing nothing.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_log::disk::Disk;
use weir_log::partition::PartitionManifest;
use weir_model::{PartitionId, ShardId};

use super::{Checkpoints, checkpoint_dir};
use crate::files::{Holds, manifest_of};
use crate::shard::ShardError;

/// What a shard's last durable checkpoint says, every byte of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSurvey {
    /// Entries up to this one are in it.
    pub applied_index: u64,
    /// Number of chunks of state.
    pub chunks: usize,
    /// Bytes of these.
    pub bytes: u64,
    /// Which segment files each partition must have, and how long they must be at least.
    pub partitions: Vec<(PartitionId, PartitionManifest)>,
}

/// The last entry that the checkpoint of the shard in a directory says it covers, 0 if there is none; only
/// its manifest is read.
pub fn checkpointed_index(disk: Arc<dyn Disk>, shard_dir: &Path, shard: ShardId) -> Result<u64, ShardError> {
    let dir = checkpoint_dir(shard_dir);
    let checkpoints = Checkpoints { disk, dir, shard, holds: Holds::default(), durable: Mutex::default() };
    Ok(checkpoints.read_manifest()?.map_or(0, |manifest| manifest.applied_index))
}

/// Reads the checkpoint of the shard in a directory; `None` if there is none.
pub fn survey_checkpoint(
    disk: Arc<dyn Disk>,
    shard_dir: &Path,
    shard: ShardId,
) -> Result<Option<CheckpointSurvey>, ShardError> {
    let dir = checkpoint_dir(shard_dir);
    let checkpoints = Checkpoints { disk, dir, shard, holds: Holds::default(), durable: Mutex::default() };
    let Some(manifest) = checkpoints.read_manifest()? else { return Ok(None) };
    let machine = checkpoints.read_machine(&manifest)?;
    Ok(Some(CheckpointSurvey {
        applied_index: manifest.applied_index,
        chunks: manifest.chunks.len(),
        bytes: manifest.chunks.iter().map(|(_, place)| place.bytes()).sum(),
        partitions: machine.partitions().map(|(id, state)| (id, manifest_of(state))).collect(),
    }))
}
