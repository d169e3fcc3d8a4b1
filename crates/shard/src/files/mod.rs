//! A shard's segment files: what the segment writer and checkpoints share.
//!
//! `apply` touches none of this but the queues. Locks of partition logs are held across writes, so
//! only the writer and checkpoints take them; readers have a [`PartitionReader`] of their own.
//!
//! [`PartitionReader`]: weir_log::partition::PartitionReader

mod holds;
mod partition;
mod retire;
mod rewrite;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use weir_log::disk::Disk;
use weir_log::partition::{DirtyFiles, HandleCache};
use weir_model::PartitionId;

use crate::view::{PartitionView, Shown};

pub(crate) use holds::{Hold, Holds};
pub(crate) use partition::{PartitionFiles, manifest_of};
pub(crate) use retire::Retirement;
pub(crate) use rewrite::{RewriteError, Rewriting};

/// The segment files of one shard.
#[derive(Debug)]
pub(crate) struct ShardFiles {
    handles: Arc<HandleCache>,
    dir: PathBuf,
    /// Partitions whose tail waits to be written. Locked for a moment only: `apply` adds to it.
    waiting: Mutex<VecDeque<Arc<PartitionView>>>,
    /// Partitions that were written to since the last checkpoint.
    dirty: Mutex<BTreeMap<PartitionId, Arc<PartitionView>>>,
    /// Their files that are held open, about.
    dirty_files: AtomicUsize,
    /// While something is sent from here, nothing is unlinked.
    holds: Holds,
    /// Locked by the writer while it writes one partition; set while nothing may be written.
    writing: Mutex<bool>,
    /// Held while something is synced.
    syncing: Mutex<()>,
    /// Locked for a moment only: `apply` adds to it.
    retired: Mutex<retire::Retired>,
    retiring: Mutex<retire::Retiring>,
    holds_retired: Arc<AtomicBool>,
    /// Why nothing may be written any more.
    stopped: Mutex<Option<String>>,
}

impl ShardFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, open_files_max: usize, shown: &Shown) -> ShardFiles {
        ShardFiles {
            handles: HandleCache::new(disk, open_files_max),
            dir: dir.to_owned(),
            waiting: Mutex::default(),
            dirty: Mutex::default(),
            dirty_files: AtomicUsize::new(0),
            holds: Holds::default(),
            writing: Mutex::new(false),
            syncing: Mutex::new(()),
            holds_retired: Arc::clone(&shown.holds_retired),
            retired: Mutex::default(),
            retiring: Mutex::default(),
            stopped: Mutex::default(),
        }
    }

    pub(crate) fn handles(&self) -> &Arc<HandleCache> {
        &self.handles
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        self.handles.disk()
    }

    /// The shard's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a partition's files are. Names never become paths.
    pub(crate) fn partition_dir(&self, id: PartitionId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// The writer's turn, if it may write. Nobody pauses it before it has given its turn back.
    pub(crate) fn begin_writing(&self) -> Option<MutexGuard<'_, bool>> {
        Some(self.writing.lock()).filter(|paused| !**paused)
    }

    /// Waits for what is being written, and keeps the writer from going on until the pause is dropped.
    pub(crate) fn pause_writing(self: &Arc<ShardFiles>) -> Paused {
        *self.writing.lock() = true;
        Paused { files: Arc::clone(self) }
    }

    /// Puts a partition at the end of the writer's queue.
    pub(crate) fn queue(&self, partition: Arc<PartitionView>) {
        self.waiting.lock().push_back(partition);
    }

    /// The partition whose turn it is to be written. It stays in the queue meanwhile, so that a
    /// checkpoint that is begun now knows of it.
    pub(crate) fn first_waiting(&self) -> Option<Arc<PartitionView>> {
        self.waiting.lock().front().cloned()
    }

    /// Takes the first one out, or puts it at the end if more of it waits.
    pub(crate) fn first_written(&self, more: bool) {
        let mut waiting = self.waiting.lock();
        if let Some(first) = waiting.pop_front().filter(|_| more) {
            waiting.push_back(first);
        }
    }

    /// Those that wait or are being written now.
    pub(crate) fn all_waiting(&self) -> Vec<Arc<PartitionView>> {
        self.waiting.lock().iter().cloned().collect()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// The partition has unsynced bytes, in so many files more than before.
    pub(crate) fn note_dirty(&self, partition: &Arc<PartitionView>, more_files: usize) {
        self.dirty_files.fetch_add(more_files, Ordering::AcqRel);
        self.dirty.lock().entry(partition.id()).or_insert_with(|| Arc::clone(partition));
    }

    /// Makes everything durable that was written up to now. After an error the shard has stopped: what
    /// the device holds is not known any more.
    pub(crate) fn sync(&self) -> Result<(), String> {
        // What somebody else has taken and is still syncing is not durable either.
        let _one_at_a_time = self.syncing.lock();
        if let Some(why) = self.stopped() {
            return Err(why);
        }
        let partitions = std::mem::take(&mut *self.dirty.lock());
        let mut dirty = DirtyFiles::new();
        for partition in partitions.values() {
            partition.files().with_log(|log| dirty.merge(log.take_dirty()));
        }
        self.dirty_files.store(0, Ordering::Release);
        dirty.sync(&**self.disk()).map_err(|error| {
            self.stop(error.to_string());
            error.to_string()
        })
    }

    /// Files that are held open because they have unsynced bytes, about.
    pub(crate) fn dirty_files(&self) -> usize {
        self.dirty_files.load(Ordering::Acquire)
    }

    /// Why nothing may be written any more, if so.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.stopped.lock().clone()
    }

    /// From here on nothing is written.
    pub(crate) fn stop(&self, why: String) {
        self.stopped.lock().get_or_insert(why);
    }
}

/// The segment writer writes nothing as long as this lives.
#[derive(Debug)]
pub(crate) struct Paused {
    files: Arc<ShardFiles>,
}

impl Drop for Paused {
    fn drop(&mut self) {
        *self.files.writing.lock() = false;
    }
}
