//! The lock that keeps two processes out of one data directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::DiskError;

/// Longest note read from somebody else's lock file.
const HOLDER_BYTES_MAX: u64 = 32;

/// Held as long as the data directory is in use; the system drops it with the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "the data directory {} is in use by {holder}; stop that process or choose another directory",
        directory.display()
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Who has it, as far as its lock file says.
        holder: String,
    },
    /// The lock file cannot be made or locked.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Locks `<directory>/lock` for this process. The directory must exist.
pub fn lock_data_dir(directory: &Path) -> Result<Lock, LockError> {
    let path = directory.join("lock");
    let failed = |operation, error: std::io::Error| DiskError::from_io(operation, &path, &error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| failed("open", error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            let known = (&file).take(HOLDER_BYTES_MAX).read_to_string(&mut holder).is_ok();
            let holder = holder.trim();
            let holder = if known && !holder.is_empty() {
                format!("process {holder}")
            } else {
                "another process".to_owned()
            };
            return Err(LockError::InUse { directory: directory.to_owned(), holder });
        }
        Err(error) => return Err(failed("lock", error.into()).into()),
    }
    // Only for the message above; the lock itself is the kernel's, and can be had on a full disk.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Lock { _file: file })
}
