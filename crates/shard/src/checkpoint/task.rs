//! Making one checkpoint durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use weir_log::disk::{DiskError, File, OpenMode};
use weir_model::Offset;

use super::format::{self, ChunkPlace, Manifest};
use super::{Checkpoints, Durable, MANIFEST, MANIFEST_NEW, STATE_FILES_MAX, state_name};
use crate::files::{RewriteError, ShardFiles};
use crate::machine::{ChunkId, Machine};
use crate::view::PartitionView;

/// A checkpoint that was begun: holds the state of one index until it is durable or dropped.
#[derive(Debug)]
pub struct CheckpointTask {
    checkpoints: Arc<Checkpoints>,
    files: Arc<ShardFiles>,
    machine: Machine,
    raft_meta: Bytes,
    /// The state is that of no entry.
    stopped: bool,
    /// Partitions that had unwritten batches, and where each ended.
    awaited: Vec<(Arc<PartitionView>, Offset)>,
}

/// A checkpoint that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointDone {
    /// Everything up to this entry is safe outside the journal.
    pub applied_index: u64,
    /// Bytes of state written.
    pub state_bytes: u64,
    /// Chunks of state written.
    pub chunks_written: usize,
}

/// Why a checkpoint was not made. The one before is still good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The segment writer has not come so far yet: run it, then call again.
    #[error("the checkpoint at entry {applied_index} must wait for the segment writer")]
    Unwritten {
        /// Of the checkpoint.
        applied_index: u64,
    },
    /// The file system failed while the state was written. It may be tried again with a new checkpoint.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An entry could not be applied, so that the state is that of no entry.
    #[error("an entry could not be applied: there is no state that a checkpoint could keep")]
    NotApplied,
    /// The shard has stopped: segment files could not be written or synced.
    #[error("this shard cannot be made durable any more; restart the node: {0}")]
    Stopped(String),
}

impl CheckpointTask {
    pub(crate) fn new(
        checkpoints: Arc<Checkpoints>,
        files: Arc<ShardFiles>,
        machine: Machine,
        raft_meta: Bytes,
        stopped: bool,
    ) -> CheckpointTask {
        let with_end = |view: Arc<PartitionView>| {
            let end = view.next_offset();
            (view, end)
        };
        let awaited = files.all_waiting().into_iter().map(with_end).collect();
        CheckpointTask { checkpoints, files, machine, raft_meta, stopped, awaited }
    }

    /// Index of the last entry that it covers. It must not be made durable before the journal is up to
    /// here.
    pub fn applied_index(&self) -> u64 {
        self.machine.applied_index()
    }

    /// Whether the segment writer has written all that the checkpoint covers.
    pub fn is_ready(&self) -> bool {
        self.awaited.iter().all(|(view, end)| view.written_offset() >= *end)
    }

    /// How many chunks of state it holds on to.
    pub fn chunks(&self) -> usize {
        self.machine.chunk_ids().len()
    }

    /// Makes the checkpoint durable. Blocks on the disk.
    pub fn run(&self) -> Result<CheckpointDone, CheckpointError> {
        let applied_index = self.applied_index();
        if self.stopped {
            return Err(CheckpointError::NotApplied);
        }
        if !self.is_ready() {
            return Err(CheckpointError::Unwritten { applied_index });
        }
        let mut durable = self.checkpoints.durable.lock();
        if durable.applied_index > applied_index {
            // A later one was faster.
            let applied_index = durable.applied_index;
            return Ok(CheckpointDone { applied_index, state_bytes: 0, chunks_written: 0 });
        }
        if let Some(why) = self.files.stopped() {
            return Err(CheckpointError::Stopped(why));
        }
        self.files.hide_retired(applied_index).map_err(|error| match error {
            RewriteError::Full(error) => CheckpointError::Disk(error),
            RewriteError::Failed(why) => {
                self.files.stop(why.clone());
                CheckpointError::Stopped(why)
            }
        })?;
        self.files.sync().map_err(CheckpointError::Stopped)?;
        let done = self.checkpoints.write(&mut durable, &self.machine, &self.raft_meta)?;
        self.files.unlink_retired();
        Ok(done)
    }
}

impl Checkpoints {
    /// Writes what `durable` lacks of the machine, and makes it the durable checkpoint.
    pub(super) fn write(
        &self,
        durable: &mut Durable,
        machine: &Machine,
        raft_meta: &Bytes,
    ) -> Result<CheckpointDone, DiskError> {
        let ids = machine.chunk_ids();
        let worn = durable.worn_files(&ids);
        let is_good = |id: &ChunkId, changed_at: u64| {
            let place = durable.chunks.get(id).filter(|_| changed_at <= durable.applied_index)?;
            (!worn.contains(&place.file)).then_some(*place)
        };
        let (mut chunks, mut written) = (BTreeMap::new(), Vec::new());
        for (id, changed_at) in ids {
            match is_good(&id, changed_at) {
                Some(place) => drop(chunks.insert(id, place)),
                None => written.push(id),
            }
        }
        let number = durable.next_file;
        // From here on the number is used, whatever comes of it.
        durable.next_file += 1;
        durable.stray.push(number);
        let state_bytes = self.write_state(number, machine, &written, &mut chunks)?;
        let manifest = Manifest {
            shard: self.shard,
            applied_index: machine.applied_index(),
            applied_term: machine.applied_term(),
            machine_version: machine.version(),
            next_file: durable.next_file,
            raft_meta: raft_meta.clone(),
            chunks: chunks.iter().map(|(id, place)| (*id, *place)).collect(),
        };
        self.write_manifest(&manifest)?;
        durable.replace(machine.applied_index(), chunks);
        self.unlink_strays(durable);
        Ok(CheckpointDone {
            applied_index: machine.applied_index(),
            state_bytes,
            chunks_written: written.len(),
        })
    }

    /// Writes a state file with these chunks, and notes where they lie.
    fn write_state(
        &self,
        number: u64,
        machine: &Machine,
        ids: &[ChunkId],
        chunks: &mut BTreeMap<ChunkId, ChunkPlace>,
    ) -> Result<u64, DiskError> {
        let file = self.disk.open(&self.path(&state_name(number)), OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(&format::state_header())], 0)?;
        let mut position = format::STATE_HEADER_BYTES;
        for &id in ids {
            let content = machine.encode_chunk(id);
            let (header, crc) = format::chunk_header(id, &content);
            file.write_at(&[IoSlice::new(&header), IoSlice::new(&content)], position)?;
            let place = ChunkPlace { file: number, position, length: content.len() as u32, crc };
            position += place.bytes();
            chunks.insert(id, place);
        }
        file.sync_data()?;
        Ok(position)
    }

    /// Makes a manifest the current one, durably, with all names that it depends on.
    fn write_manifest(&self, manifest: &Manifest) -> Result<(), DiskError> {
        let path = self.path(MANIFEST_NEW);
        let file: Arc<dyn File> = self.disk.open(&path, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(&manifest.encode())], 0)?;
        file.sync_data()?;
        drop(file);
        // The state file's name must be there before a manifest that refers to it can be.
        self.disk.sync_dir(&self.dir)?;
        self.disk.rename(&path, &self.path(MANIFEST))?;
        self.disk.sync_dir(&self.dir)
    }

    /// Unlinks files that no durable manifest names. What cannot be unlinked now is tried again.
    pub(super) fn unlink_strays(&self, durable: &mut Durable) {
        if self.holds.are_held() {
            return;
        }
        let unlink = |number: &u64| match self.disk.remove_file(&self.path(&state_name(*number))) {
            Ok(()) => false,
            Err(error) => !error.is_not_found(),
        };
        durable.stray.retain(unlink);
    }
}

impl Durable {
    /// Takes over a checkpoint that has become durable. Files that only the one before it needed may
    /// be unlinked from here on.
    fn replace(&mut self, applied_index: u64, chunks: BTreeMap<ChunkId, ChunkPlace>) {
        let needed: BTreeSet<u64> = chunks.values().map(|place| place.file).collect();
        let before = self.chunks.values().map(|place| place.file).chain(self.stray.drain(..));
        let stray: BTreeSet<u64> = before.filter(|file| !needed.contains(file)).collect();
        self.stray = stray.into_iter().collect();
        self.applied_index = applied_index;
        self.chunks = chunks;
    }

    /// Files whose chunks are written anew although they have not changed: those that would be
    /// mostly dead, and the oldest if there are too many. So the checkpoint's size stays within twice
    /// that of the state, and its files within a bound.
    fn worn_files(&self, ids: &[(ChunkId, u64)]) -> BTreeSet<u64> {
        let mut total: BTreeMap<u64, u64> = BTreeMap::new();
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for place in self.chunks.values() {
            let end = total.entry(place.file).or_default();
            *end = (*end).max(place.position + place.bytes());
        }
        for (id, changed_at) in ids {
            if let Some(place) = self.chunks.get(id).filter(|_| *changed_at <= self.applied_index) {
                *live.entry(place.file).or_default() += place.bytes();
            }
        }
        let mut worn: BTreeSet<u64> = BTreeSet::new();
        for (file, end) in &total {
            if live.get(file).copied().unwrap_or(0) * 2 < *end {
                worn.insert(*file);
            }
        }
        let kept: Vec<u64> = live.keys().copied().filter(|file| !worn.contains(file)).collect();
        let excess = (kept.len() + 1).saturating_sub(STATE_FILES_MAX);
        worn.extend(kept.into_iter().take(excess));
        worn
    }
}
