//! Open files, shared by all partitions of a node and bounded: those used longest ago are closed.
//!
//! Files with unsynced bytes are not in here. Their segments hold them open until they are synced,
//! because the error of a failed write-back is only told to handles that were open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskError, File, OpenMode};

/// Keeps at most so many files open. See the module's description.
#[derive(Debug)]
pub struct HandleCache {
    disk: Arc<dyn Disk>,
    capacity: usize,
    next_id: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: BTreeMap<u64, (Arc<dyn File>, u64)>,
    /// Ids by when they were last used.
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl HandleCache {
    /// A cache of at most `capacity` open files of this disk.
    pub fn new(disk: Arc<dyn Disk>, capacity: usize) -> Arc<HandleCache> {
        let open = Mutex::new(Open::default());
        Arc::new(HandleCache { disk, capacity: capacity.max(1), next_id: AtomicU64::new(0), open })
    }

    /// The disk whose files these are.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Files that are open in here.
    pub fn open_files(&self) -> usize {
        self.open.lock().files.len()
    }

    /// A number for a file that nothing else has.
    pub(super) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The file, if it is open.
    pub(super) fn peek(&self, id: u64) -> Option<Arc<dyn File>> {
        let mut open = self.open.lock();
        let file = open.files.get(&id).map(|(file, _)| Arc::clone(file))?;
        open.touch(id, &file);
        Some(file)
    }

    /// The file, opened for reading if it is not open.
    pub(super) fn get(&self, id: u64, path: &Path) -> Result<Arc<dyn File>, DiskError> {
        match self.peek(id) {
            Some(file) => Ok(file),
            None => {
                let file = self.disk.open(path, OpenMode::Read)?;
                self.put(id, &file);
                Ok(file)
            }
        }
    }

    /// Takes in an open file.
    pub(super) fn put(&self, id: u64, file: &Arc<dyn File>) {
        let mut closed = Vec::new();
        let mut open = self.open.lock();
        open.touch(id, file);
        while open.files.len() > self.capacity {
            let Some((_, oldest)) = open.by_use.pop_first() else { break };
            closed.extend(open.files.remove(&oldest));
        }
        // Closing can take long: not under the lock.
        drop(open);
        drop(closed);
    }

    /// Closes a file as far as the cache is concerned.
    pub(super) fn forget(&self, id: u64) {
        let mut open = self.open.lock();
        let gone = open.files.remove(&id);
        if let Some((_, used)) = &gone {
            open.by_use.remove(used);
        }
        drop(open);
        drop(gone);
    }
}

impl Open {
    fn touch(&mut self, id: u64, file: &Arc<dyn File>) {
        self.uses += 1;
        let uses = self.uses;
        if let Some((_, used)) = self.files.insert(id, (Arc::clone(file), uses)) {
            self.by_use.remove(&used);
        }
        self.by_use.insert(uses, id);
    }
}
