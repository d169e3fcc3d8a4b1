//! What goes wrong with files, with the file and the operation in it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What kind of failure a [`DiskError`] is, as far as callers act differently on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// The file or directory does not exist.
    NotFound,
    /// The file exists and should not.
    AlreadyExists,
    /// The file system or a quota is full. Clears when space is made.
    NoSpace,
    /// No permission, or a read-only file system.
    Denied,
    /// Too many open files, or no memory: clears when load falls.
    Exhausted,
    /// The device failed, or anything else that does not clear by itself.
    Io,
}

/// A failed operation on a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// What was tried, as a verb: `open`, `write`, `sync`.
    pub operation: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// What kind of failure it is.
    pub kind: DiskErrorKind,
    /// The system's words.
    pub reason: String,
}

impl DiskError {
    pub(crate) fn new(
        operation: &'static str,
        path: &Path,
        kind: DiskErrorKind,
        reason: impl Into<String>,
    ) -> DiskError {
        DiskError { operation, path: path.to_owned(), kind, reason: reason.into() }
    }

    pub(crate) fn from_io(operation: &'static str, path: &Path, error: &io::Error) -> DiskError {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => DiskErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => DiskErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::NoSpace,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => DiskErrorKind::Denied,
            io::ErrorKind::OutOfMemory => DiskErrorKind::Exhausted,
            _ => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => DiskErrorKind::Exhausted,
                _ => DiskErrorKind::Io,
            },
        };
        DiskError::new(operation, path, kind, error.to_string())
    }

    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        self.kind == DiskErrorKind::NoSpace
    }

    /// Whether it may succeed when it is tried again later: the disk is full, or there are too few file
    /// descriptors or too little memory.
    pub fn clears_by_itself(&self) -> bool {
        matches!(self.kind, DiskErrorKind::NoSpace | DiskErrorKind::Exhausted)
    }

    /// Whether the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == DiskErrorKind::NotFound
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.path.display(), self.reason)
    }
}

impl std::error::Error for DiskError {}
