//! Files with unsynced bytes, gathered from many partitions for one checkpoint.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::names::FileKind;
use super::segment::Segment;
use crate::disk::{Disk, DiskError, File};

/// Beyond this many files, syncing the whole file system is cheaper than one by one.
const SYNC_FILES_MAX: usize = 200;

/// What must be synced so that a manifest taken at the same time holds. Held files stay open.
#[derive(Debug, Default)]
#[must_use = "until it is synced, nothing of it is durable"]
pub struct DirtyFiles {
    pub(super) segments: Vec<(Arc<Segment>, Arc<dyn File>)>,
    pub(super) indexes: Vec<Arc<dyn File>>,
    pub(super) dirs: BTreeSet<Arc<Path>>,
}

impl DirtyFiles {
    /// Nothing.
    pub fn new() -> DirtyFiles {
        DirtyFiles::default()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.segments.len() + self.indexes.len()
    }

    /// Whether there is nothing to sync.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.dirs.is_empty()
    }

    /// Adds another partition's.
    pub fn merge(&mut self, other: DirtyFiles) {
        self.segments.extend(other.segments);
        self.indexes.extend(other.indexes);
        self.dirs.extend(other.dirs);
    }

    /// Makes all of it durable. After an error the segments concerned count as failed: their
    /// partitions take no appends and give no manifest until they are repaired.
    pub fn sync(self, disk: &dyn Disk) -> Result<(), DiskError> {
        let result =
            if self.len() > SYNC_FILES_MAX { self.sync_filesystem(disk) } else { self.sync_each(disk) };
        if let Err(error) = &result {
            // Which of them the device refused is only known for the first; no harm in the rest.
            for (segment, _) in &self.segments {
                segment.with_state(|state| state.failed = Some(error.to_string()));
            }
        }
        result
    }

    fn sync_filesystem(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let Some((segment, _)) = self.segments.first() else { return self.sync_each(disk) };
        let path = segment.path(FileKind::Log);
        disk.sync_filesystem(path.parent().unwrap_or(&path))
    }

    fn sync_each(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        for file in self.segments.iter().map(|(_, file)| file).chain(&self.indexes) {
            file.sync_data()?;
        }
        self.dirs.iter().try_for_each(|dir| disk.sync_dir(dir))
    }
}
