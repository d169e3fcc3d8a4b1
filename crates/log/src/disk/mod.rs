//! The only seam between Weir and files.
//!
//! Everything that touches a disk goes through the two traits [`Disk`] and [`File`], so that the
//! same code runs on a real file system ([`RealDisk`]) and on a simulated one ([`SimDisk`]) that
//! loses, tears, reorders and damages what was not made durable. Both traits are blocking; the
//! caller decides on which thread.
//!
//! What a caller may rely on, and no more:
//!
//! * Bytes written are read back at once, but survive a power loss only after [`File::sync_data`]
//!   returned without an error. Until then any subset of the written sectors may survive.
//! * A created, renamed or removed name survives only after [`Disk::sync_dir`] of its directory.
//!   Directories made by [`Disk::create_dir_all`] are durable when it returns.
//! * After a failed sync nothing is known about the bytes written since the last good one, and a
//!   later sync that succeeds does not change that.

mod error;
mod lock;
mod range;
mod real;
mod release;
mod sim;
mod system;
#[cfg(test)]
mod tests;
mod tree;
mod unsynced;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use error::{DiskError, DiskErrorKind};
pub use lock::{Lock, LockError, lock_data_dir};
pub use range::FileRange;
pub use real::RealDisk;
pub use sim::{Fault, FaultKind, Operation, SimDisk};
pub use tree::remove_tree;
pub use unsynced::UnsyncedDisk;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading, and for overwriting in place what [`File::allocate`] has made and a sync has made
    /// durable; it must exist. A write of whole blocks of 4096 bytes, from memory that begins at such a
    /// block's edge, may then go past the page cache.
    Overwrite,
    /// For reading and writing; it must not exist yet.
    CreateNew,
    /// For reading and writing; made if it does not exist, otherwise left as it is.
    Create,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The last component of its path. Names that are not UTF-8 are listed with replacement
    /// characters, so that they match nothing that Weir ever wrote.
    pub name: String,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A file system. See the module's description for what is durable when.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, DiskError>;
    /// Makes a directory and its parents, durably. Succeeds if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError>;
    /// Removes a file's name. Open handles keep working.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError>;
    /// Removes a file that nobody has open. The space of a large one may be given back a little later, so that nobody
    /// waits for that.
    fn remove_unused_file(&self, path: &Path) -> Result<(), DiskError> {
        self.remove_file(path)
    }
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<(), DiskError>;
    /// Renames a file within one file system, replacing what has the new name. It is durable when the directory of
    /// the new name was synced; between two directories the old name may come back with a power loss even then.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;
    /// Lists a directory, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>, DiskError>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<(), DiskError>;
    /// Bytes that can still be written on the file system that holds `path`.
    fn available_space(&self, path: &Path) -> Result<u64, DiskError>;
    /// Makes everything on the file system that holds `path` durable. Errors of files that are not
    /// open any more may go unnoticed: keep files with unsynced bytes open.
    fn sync_filesystem(&self, path: &Path) -> Result<(), DiskError>;
}

/// An open file. All access is by position; there is no cursor to share.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes at `position`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<usize, DiskError>;
    /// As [`File::read_at`], but only what can be had without waiting for the disk: possibly fewer
    /// bytes, or `None` when not even the first is at hand (or this cannot be told).
    fn try_read_cached(&self, buffer: &mut [u8], position: u64) -> Result<Option<usize>, DiskError>;
    /// As [`File::read_at`], into new memory, of which nothing is written twice.
    fn read_vec(&self, len: usize, position: u64) -> Result<Vec<u8>, DiskError> {
        let mut bytes = vec![0; len];
        let have = self.read_at(&mut bytes, position)?;
        bytes.truncate(have);
        Ok(bytes)
    }
    /// As [`File::try_read_cached`], into new memory, of which nothing is written twice.
    fn try_read_vec_cached(&self, len: usize, position: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let mut bytes = vec![0; len];
        Ok(self.try_read_cached(&mut bytes, position)?.map(|have| {
            bytes.truncate(have);
            bytes
        }))
    }
    /// Whether all of a range lies in memory, as far as can be told: then it can be read, or sent, without
    /// waiting for the disk.
    fn is_cached(&self, _position: u64, _len: usize) -> bool {
        false
    }
    /// Sends bytes of the file to a socket from where they lie, as sendfile(2) does: up to `len` of them, as
    /// many as the socket takes without waiting. None are sent at the end of the file.
    fn send(&self, _socket: BorrowedFd<'_>, _position: u64, _len: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Asks the system to begin writing a range to the disk, and does not wait for it. Nothing is durable by
    /// that; but a later sync has less to write, and others less to wait for behind it. Whether anything
    /// comes of it is not told.
    fn begin_writeback(&self, _position: u64, _len: u64) {}
    /// Writes all of `slices` behind each other at `position`, growing the file if need be.
    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> Result<(), DiskError>;
    /// Grows the file to `len` bytes of zeroes that are really written, so that overwriting them
    /// changes no metadata. Never shrinks it.
    fn allocate(&self, len: u64) -> Result<(), DiskError>;
    /// Cuts the file, or grows it by a hole.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;
    /// Makes bytes and length durable.
    fn sync_data(&self) -> Result<(), DiskError>;
    /// Current length in bytes.
    fn len(&self) -> Result<u64, DiskError>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }
}
