//! Putting a snapshot in the place of a replica's state. `snapshot` says in which order, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_log::disk::DiskError;
use weir_log::partition::{segment_file_name, segment_index_names};
use weir_model::PartitionId;

use super::Shard;
use crate::checkpoint::{Checkpoints, ReplaceError};
use crate::files::{PartitionFiles, Paused, ShardFiles, manifest_of};
use crate::machine::Machine;
use crate::snapshot::{StagedSnapshot, staged_name};
use crate::view::{PartitionView, Shown};

/// A snapshot that is to be put in the place of the state.
#[derive(Debug)]
pub struct InstallTask {
    snapshot: StagedSnapshot,
    checkpoints: Arc<Checkpoints>,
    files: Arc<ShardFiles>,
    shown: Arc<Shown>,
    partitions: BTreeMap<PartitionId, Arc<PartitionView>>,
}

/// A snapshot that is in its place on disk, and shown as far as partitions show it.
#[derive(Debug)]
#[must_use = "the shard must take it over"]
pub struct Installed {
    machine: Box<Machine>,
    partitions: BTreeMap<PartitionId, Arc<PartitionView>>,
    grown: Vec<Arc<PartitionView>>,
    gone: Vec<Arc<PartitionView>>,
    paused: Paused,
}

/// Why a snapshot was not put in the place of the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The state is as late as the snapshot.
    #[error("the state is as late as the snapshot at entry {applied_index}")]
    Stale {
        /// Of the snapshot.
        applied_index: u64,
    },
    /// The file system failed before anything was decided: the old state is as good as it was.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The shard has stopped, and nothing of it may be written any more: a restart finds either the old state or the
    /// new one, whole.
    #[error("the snapshot was put in place in part; restart the node: {0}")]
    Stopped(String),
}

impl Shard {
    /// Begins to put a snapshot in the place of the state. Nothing may be applied until the task has run and
    /// [`Shard::complete_install`] was called, or the task has failed.
    pub fn begin_install(&self, snapshot: StagedSnapshot) -> InstallTask {
        InstallTask {
            snapshot,
            checkpoints: Arc::clone(&self.checkpoints),
            files: Arc::clone(&self.files),
            shown: Arc::clone(&self.shown),
            partitions: self.partitions.clone(),
        }
    }

    /// Goes on from the snapshot. Views that are held go on to work, with the new content; those of partitions that it
    /// does not have are closed. What was in memory only is dropped: the snapshot has it, or it never was.
    pub fn complete_install(&mut self, installed: Installed) {
        let Installed { machine, partitions, grown, gone, paused } = installed;
        self.machine = *machine;
        self.stopped = false;
        self.partitions = partitions;
        self.shown.unwritten_bytes.store(0, Ordering::Release);
        self.show_all();
        drop(paused);
        grown.iter().for_each(|view| view.tell());
        gone.iter().for_each(|view| view.observers().closed());
    }
}

impl InstallTask {
    /// Index of the last entry that the snapshot covers.
    pub fn applied_index(&self) -> u64 {
        self.snapshot.applied_index()
    }

    /// Puts it in place, durably. Blocks on the disk.
    pub fn run(self) -> Result<Installed, InstallError> {
        let paused = self.files.pause_writing();
        if let Some(why) = self.files.stopped() {
            return Err(InstallError::Stopped(why));
        }
        let StagedSnapshot { machine, raft_meta, .. } = &self.snapshot;
        let place = || self.place();
        match self.checkpoints.replace(machine, raft_meta, place) {
            Ok(()) => {}
            Err(ReplaceError::Stale) => {
                return Err(InstallError::Stale { applied_index: machine.applied_index() });
            }
            Err(ReplaceError::Before(error)) => return Err(error),
            Err(ReplaceError::Unknown(error)) => return Err(self.stop(error.to_string())),
        }
        self.show(paused).map_err(|why| self.stop(why))
    }

    fn stop(&self, why: String) -> InstallError {
        self.files.stop(why.clone());
        InstallError::Stopped(why)
    }

    /// Makes everything that the old state's segments hold durable, and puts the staged ones beside them.
    fn place(&self) -> Result<(), InstallError> {
        let disk = self.files.disk();
        self.files.sync().map_err(InstallError::Stopped)?;
        let mut dirs: BTreeSet<PathBuf> = BTreeSet::new();
        for (partition, entry) in &self.snapshot.staged {
            let dir = self.files.partition_dir(*partition);
            if !dirs.contains(&dir) {
                disk.create_dir_all(&dir)?;
            }
            // Indexes of a file that had this name say nothing of this one; they are derived anew.
            for name in segment_index_names(entry) {
                match disk.remove_file(&dir.join(name)) {
                    Err(error) if !error.is_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
            let staged = self.snapshot.dir.join(staged_name(*partition, entry));
            disk.rename(&staged, &dir.join(segment_file_name(entry)))?;
            dirs.insert(dir);
        }
        Ok(dirs.iter().try_for_each(|dir| disk.sync_dir(dir))?)
    }

    /// Goes on with the files of the new state, and lets go of those that it does not name.
    fn show(&self, paused: Paused) -> Result<Installed, String> {
        let (mut partitions, mut grown) = (BTreeMap::new(), Vec::new());
        let handles = self.files.handles();
        for (id, state) in self.snapshot.machine.partitions() {
            let view = match self.partitions.get(&id) {
                Some(view) => {
                    let has_grown =
                        view.switch(handles, state).map_err(|error| format!("partition {id}: {error}"))?;
                    if has_grown {
                        grown.push(Arc::clone(view));
                    }
                    Arc::clone(view)
                }
                None => {
                    let dir = self.files.partition_dir(id);
                    let files = PartitionFiles::open(handles, dir, &manifest_of(state))
                        .map_err(|error| format!("partition {id}: {error}"))?;
                    Arc::new(PartitionView::new(id, state, &self.shown, files))
                }
            };
            partitions.insert(id, view);
        }
        let is_gone = |id: &PartitionId| !partitions.contains_key(id);
        let gone: Vec<Arc<PartitionView>> =
            self.partitions.iter().filter(|(id, _)| is_gone(id)).map(|(_, view)| Arc::clone(view)).collect();
        gone.iter().for_each(|view| view.abandon());
        let kept: Vec<Arc<PartitionView>> = partitions.values().cloned().collect();
        self.files.supersede(&gone, &kept);
        self.files.unlink_retired();
        Ok(Installed { machine: self.snapshot.machine.clone(), partitions, grown, gone, paused })
    }
}
