//! One replica: the state machine, the tails that it fills, and what everybody else sees of it. Owned
//! by the worker that applies; nothing here touches a disk.

mod install;
mod options;
mod publish;
mod recover;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_log::disk::{Disk, remove_tree};
use weir_model::command::Outcome;
use weir_model::entry::Entry;
use weir_model::{PartitionId, ShardId};

use crate::checkpoint::{CheckpointTask, Checkpoints};
use crate::files::ShardFiles;
use crate::machine::{ApplyError, Effect, Machine};
use crate::snapshot::{Snapshots, mending_dir, staging_dir};
use crate::view::{PartitionView, ShardView, Shown};
use crate::writer::SegmentWriter;

pub use install::{InstallError, InstallTask, Installed};
pub use options::{Recovered, ShardError, ShardOptions};

/// A replica of one shard.
#[derive(Debug)]
pub struct Shard {
    machine: Machine,
    stopped: bool,
    /// The same as the views show, without a lock.
    partitions: BTreeMap<PartitionId, Arc<PartitionView>>,
    shown: Arc<Shown>,
    files: Arc<ShardFiles>,
    checkpoints: Arc<Checkpoints>,
    /// Both empty between two entries; kept for their room.
    effects: Vec<Effect>,
    grown: Vec<Arc<PartitionView>>,
}

impl Shard {
    /// Opens the replica in `dir`, which is made if it does not exist: reads its checkpoint and cuts the
    /// segment files back to it. The caller then applies the journal's entries behind
    /// [`Recovered::applied_index`] again.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        shard: ShardId,
        options: ShardOptions,
    ) -> Result<(Shard, SegmentWriter, Recovered), ShardError> {
        // What was staged and never installed was never acknowledged as anything.
        remove_tree(&*disk, &staging_dir(&dir))?;
        remove_tree(&*disk, &mending_dir(&dir))?;
        let shown = Arc::new(Shown::default());
        let files = Arc::new(ShardFiles::new(Arc::clone(&disk), &dir, options.open_files_max, &shown));
        let (checkpoints, machine, raft_meta) = Checkpoints::open(disk, &dir, shard, files.holds().clone())?;
        let recovered = Recovered {
            applied_index: machine.applied_index(),
            applied_term: machine.applied_term(),
            raft_meta,
        };
        let writer = SegmentWriter::new(Arc::clone(&files), Arc::clone(&shown), options);
        let mut shard = Shard {
            machine,
            stopped: false,
            partitions: BTreeMap::new(),
            shown,
            files,
            checkpoints: Arc::new(checkpoints),
            effects: Vec::new(),
            grown: Vec::new(),
        };
        shard.recover()?;
        Ok((shard, writer, recovered))
    }

    /// Applies one committed entry: memory only. Its effects are visible in the views when this returns.
    /// After an error the replica must stop.
    pub fn apply(&mut self, index: u64, term: u64, entry: &Entry) -> Result<Vec<Outcome>, ApplyError> {
        if self.stopped {
            return Err(ApplyError::Stopped);
        }
        let mut effects = std::mem::take(&mut self.effects);
        let applied = self.machine.apply(index, term, entry, &mut effects);
        self.stopped = applied.is_err();
        if applied.is_ok() {
            self.publish(effects.drain(..));
            self.show_applied();
        }
        effects.clear();
        self.effects = effects;
        applied
    }

    /// Notes that the log has gone on by entries that do not concern the state: blank ones, and changes
    /// of membership.
    pub fn set_applied(&mut self, index: u64, term: u64) {
        self.machine.set_applied(index, term);
        self.show_applied();
    }

    /// What everybody else reads.
    pub fn view(&self) -> ShardView {
        ShardView::new(Arc::clone(&self.shown))
    }

    /// The state, for whoever holds the replica.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Takes hold of the state as it is now: pointers to its chunks are cloned, however large it is. The
    /// task makes it durable, in the background; `raft_meta` goes with it. After an entry that could not be
    /// applied the state is that of no entry, and no task will make it durable.
    pub fn begin_checkpoint(&mut self, raft_meta: Bytes) -> CheckpointTask {
        let (checkpoints, files) = (Arc::clone(&self.checkpoints), Arc::clone(&self.files));
        CheckpointTask::new(checkpoints, files, self.machine.clone(), raft_meta, self.stopped)
    }

    /// The way to send this replica's checkpoints to others, and to take in theirs.
    pub fn snapshots(&self) -> Snapshots {
        Snapshots::new(Arc::clone(&self.checkpoints), Arc::clone(&self.files), Arc::clone(&self.shown))
    }

    fn show_applied(&self) {
        self.shown.entry_time.store(self.machine.entry_time(), Ordering::Release);
        self.shown.applied_index.store(self.machine.applied_index(), Ordering::Release);
    }
}
