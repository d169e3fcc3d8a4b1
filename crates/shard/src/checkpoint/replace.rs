//! A checkpoint that came from another node: sent from here, or put in the place of ours.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use weir_log::disk::{Disk, DiskError};
use weir_model::ShardId;

use super::{Checkpoints, Durable, Manifest};
use crate::files::{Hold, Holds};
use crate::machine::Machine;
use crate::shard::ShardError;

/// A durable checkpoint whose files stay while this lives.
pub(crate) struct Held {
    pub manifest: Manifest,
    /// The manifest as it lies on the disk.
    pub bytes: Bytes,
    pub hold: Hold,
}

/// Why a checkpoint was not put in the place of ours.
#[derive(Debug)]
pub(crate) enum ReplaceError<E> {
    /// Ours is as late as that one.
    Stale,
    /// Nothing has changed.
    Before(E),
    /// Nobody knows which of them a restart will find.
    Unknown(DiskError),
}

impl Checkpoints {
    /// What reads the chunks that were written into a directory.
    pub(crate) fn over(disk: Arc<dyn Disk>, dir: PathBuf, shard: ShardId) -> Checkpoints {
        Checkpoints { disk, dir, shard, holds: Holds::default(), durable: Mutex::default() }
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// The last durable checkpoint; none if that is the one that a new shard begins with. Blocks, also for one that is
    /// being made.
    pub(crate) fn hold(&self) -> Result<Option<Held>, ShardError> {
        let durable = self.durable.lock();
        if durable.applied_index == 0 {
            return Ok(None);
        }
        let Some(bytes) = self.read_manifest_bytes()? else { return Ok(None) };
        let manifest = self.decode_manifest(bytes.clone())?;
        Ok(Some(Held { manifest, bytes, hold: self.holds.take() }))
    }

    /// Makes a state that came from elsewhere the durable checkpoint. `place` puts the segment files that it names where
    /// they belong, durably; it is called when it is certain that no checkpoint of ours is being made, and what it does
    /// must not harm the checkpoint that there is. All chunks are written anew: ours tell nothing of them.
    pub(crate) fn replace<E>(
        &self,
        machine: &Machine,
        raft_meta: &Bytes,
        place: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), ReplaceError<E>> {
        let mut durable = self.durable.lock();
        if durable.applied_index >= machine.applied_index() {
            return Err(ReplaceError::Stale);
        }
        place().map_err(ReplaceError::Before)?;
        let before = durable.chunks.values().map(|place| place.file);
        let mut fresh = Durable {
            applied_index: 0,
            chunks: BTreeMap::new(),
            next_file: durable.next_file,
            stray: durable.stray.iter().copied().chain(before).collect(),
        };
        fresh.stray.sort_unstable();
        fresh.stray.dedup();
        let number = fresh.next_file;
        let written = self.write(&mut fresh, machine, raft_meta);
        if let Err(error) = written {
            durable.next_file = fresh.next_file;
            durable.stray.push(number);
            return Err(ReplaceError::Unknown(error));
        }
        *durable = fresh;
        Ok(())
    }
}
