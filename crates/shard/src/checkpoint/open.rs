//! Reading a checkpoint back. Whatever is not exactly what was written is an error that stops the
//! shard, and nothing is deleted before all of it was read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use weir_log::disk::{Disk, DiskError, OpenMode};
use weir_model::ShardId;

use super::format::{self, ChunkPlace, MANIFEST_BYTES_MAX, Manifest};
use super::{Checkpoints, Durable, MANIFEST, MANIFEST_NEW, checkpoint_dir, state_name, state_number};
use crate::files::Holds;
use crate::limits::MACHINE_VERSION_MAX;
use crate::machine::{ChunkId, ChunkKind, Machine};
use crate::shard::ShardError;

impl Checkpoints {
    /// Opens the checkpoints of the shard in `shard_dir`, with the state of the last one and what the
    /// caller had put into it. A new shard gets its first, empty one.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        shard_dir: &Path,
        shard: ShardId,
        holds: Holds,
    ) -> Result<(Checkpoints, Machine, Bytes), ShardError> {
        let dir = checkpoint_dir(shard_dir);
        disk.create_dir_all(&dir)?;
        // The process that renamed the manifest may have died before that was durable. What follows
        // from it must not be: files that only the one before it names would be gone, and the journal
        // released, when the power goes and brings that one back.
        disk.sync_dir(&dir)?;
        let checkpoints = Checkpoints { disk, dir, shard, holds, durable: Mutex::default() };
        match checkpoints.read_manifest()? {
            Some(manifest) => checkpoints.load(manifest),
            None => checkpoints.begin(shard_dir),
        }
    }

    /// The first checkpoint: without one, data on disk is data whose checkpoint was lost.
    fn begin(self, shard_dir: &Path) -> Result<(Checkpoints, Machine, Bytes), ShardError> {
        let is_partition = |name: &str| name.parse::<u64>().is_ok();
        let strangers = self.disk.list(shard_dir)?.into_iter().any(|e| e.is_dir && is_partition(&e.name));
        let states = self.disk.list(&self.dir)?;
        // A crash while the very first one was made leaves at most its own file behind.
        let later = states.iter().filter_map(|entry| state_number(&entry.name)).any(|number| number > 0);
        if strangers || later {
            return Err(ShardError::MissingManifest { path: shard_dir.to_owned() });
        }
        let machine = Machine::new();
        self.write(&mut self.durable.lock(), &machine, &Bytes::new())?;
        Ok((self, machine, Bytes::new()))
    }

    fn load(self, manifest: Manifest) -> Result<(Checkpoints, Machine, Bytes), ShardError> {
        let machine = self.read_machine(&manifest)?;
        let mut durable = Durable {
            applied_index: manifest.applied_index,
            chunks: manifest.chunks.into_iter().collect(),
            next_file: manifest.next_file,
            stray: Vec::new(),
        };
        self.clear_leftovers(&mut durable)?;
        *self.durable.lock() = durable;
        Ok((self, machine, manifest.raft_meta))
    }

    /// The state that a manifest says, every chunk of it checked.
    pub(crate) fn read_machine(&self, manifest: &Manifest) -> Result<Machine, ShardError> {
        let mut machine = Machine::new();
        for (id, place) in &manifest.chunks {
            self.load_chunk(&mut machine, *id, place, manifest.applied_index)?;
        }
        if manifest.chunks.first().is_none_or(|(id, _)| id.kind != ChunkKind::Root) {
            return Err(self.unreadable(MANIFEST, "it names no root"));
        }
        if machine.version() != manifest.machine_version {
            return Err(self.unreadable(MANIFEST, "its machine version is not that of its root"));
        }
        machine.set_applied(manifest.applied_index, manifest.applied_term);
        Ok(machine)
    }

    pub(super) fn read_manifest(&self) -> Result<Option<Manifest>, ShardError> {
        let Some(bytes) = self.read_manifest_bytes()? else { return Ok(None) };
        let manifest = self.decode_manifest(bytes)?;
        Ok(Some(manifest))
    }

    pub(super) fn read_manifest_bytes(&self) -> Result<Option<Bytes>, ShardError> {
        let path = self.path(MANIFEST);
        let file = match self.disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let length = file.len()?;
        if length > MANIFEST_BYTES_MAX {
            return Err(self.unreadable(MANIFEST, "it is longer than any manifest"));
        }
        let mut bytes = vec![0; length as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(Some(bytes.into()))
    }

    /// A manifest of this shard that this binary can use.
    pub(crate) fn decode_manifest(&self, bytes: Bytes) -> Result<Manifest, ShardError> {
        let path = self.path(MANIFEST);
        let manifest =
            Manifest::decode(bytes).map_err(|error| self.unreadable(MANIFEST, error.to_string()))?;
        if manifest.shard != self.shard {
            return Err(self.unreadable(MANIFEST, format!("it is that of shard {}", manifest.shard)));
        }
        if manifest.machine_version > MACHINE_VERSION_MAX {
            return Err(ShardError::Newer {
                path,
                what: "state machine",
                version: manifest.machine_version,
                supported: MACHINE_VERSION_MAX,
            });
        }
        Ok(manifest)
    }

    fn load_chunk(
        &self,
        machine: &mut Machine,
        id: ChunkId,
        place: &ChunkPlace,
        index: u64,
    ) -> Result<(), ShardError> {
        let name = state_name(place.file);
        let bytes = self.read_chunk(&name, place).map_err(|error| match error {
            error if error.is_not_found() => self.unreadable(&name, "the file is missing"),
            error => error.into(),
        })?;
        let content = format::chunk_content(id, place, &bytes).map_err(|why| self.unreadable(&name, why))?;
        machine.load_chunk(id, content, index).map_err(|error| self.unreadable(&name, error.to_string()))
    }

    fn read_chunk(&self, name: &str, place: &ChunkPlace) -> Result<Bytes, DiskError> {
        let file = self.disk.open(&self.path(name), OpenMode::Read)?;
        let there = file.len()?.saturating_sub(place.position).min(place.bytes());
        let mut bytes = vec![0; there as usize];
        let read = file.read_at(&mut bytes, place.position)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }

    /// Unlinks what earlier processes left: files of checkpoints that never became durable, and of
    /// those that were replaced.
    fn clear_leftovers(&self, durable: &mut Durable) -> Result<(), DiskError> {
        let needed: BTreeSet<u64> = durable.chunks.values().map(|place| place.file).collect();
        for entry in self.disk.list(&self.dir)? {
            match state_number(&entry.name) {
                Some(number) if !needed.contains(&number) => durable.stray.push(number),
                _ => {}
            }
        }
        self.unlink_strays(durable);
        match self.disk.remove_file(&self.path(MANIFEST_NEW)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn unreadable(&self, name: &str, why: impl Into<String>) -> ShardError {
        let path: PathBuf = self.path(name);
        ShardError::Checkpoint { path, why: why.into() }
    }
}
