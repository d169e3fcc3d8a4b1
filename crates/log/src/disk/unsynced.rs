//! Files of which nothing has to outlive the process.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use super::{DirEntry, Disk, DiskError, File, OpenMode};

/// A file system on which nothing is made durable: every sync succeeds at once and does nothing. For what is
/// thrown away at the next start anyhow, and only spills to files because it may outgrow memory.
#[derive(Clone, Debug)]
pub struct UnsyncedDisk {
    disk: Arc<dyn Disk>,
}

impl UnsyncedDisk {
    /// The same files as on `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> UnsyncedDisk {
        UnsyncedDisk { disk }
    }
}

impl Disk for UnsyncedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, DiskError> {
        Ok(Arc::new(UnsyncedFile { file: self.disk.open(path, mode)? }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.create_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove_file(path)
    }

    fn remove_unused_file(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove_unused_file(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        self.disk.list(path)
    }

    fn sync_dir(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn available_space(&self, path: &Path) -> Result<u64, DiskError> {
        self.disk.available_space(path)
    }

    fn sync_filesystem(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
}

#[derive(Debug)]
struct UnsyncedFile {
    file: Arc<dyn File>,
}

impl File for UnsyncedFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<usize, DiskError> {
        self.file.read_at(buffer, position)
    }

    fn try_read_cached(&self, buffer: &mut [u8], position: u64) -> Result<Option<usize>, DiskError> {
        self.file.try_read_cached(buffer, position)
    }

    fn read_vec(&self, len: usize, position: u64) -> Result<Vec<u8>, DiskError> {
        self.file.read_vec(len, position)
    }

    fn try_read_vec_cached(&self, len: usize, position: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.file.try_read_vec_cached(len, position)
    }

    fn is_cached(&self, position: u64, len: usize) -> bool {
        self.file.is_cached(position, len)
    }

    fn send(&self, socket: BorrowedFd<'_>, position: u64, len: usize) -> io::Result<usize> {
        self.file.send(socket, position, len)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> Result<(), DiskError> {
        self.file.write_at(slices, position)
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.file.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }
}
