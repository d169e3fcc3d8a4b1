//! Two system calls in a form that no safe binding has.

// Reading into memory that holds nothing yet, and `sync_file_range`, are not in rustix.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::{Errno, ReadWriteFlags};

/// Reads behind what is in `bytes`, which was read from `position` on, until it holds at most `len`, in one
/// call (preadv2(2)). Returns how many bytes came: none at the end of the file.
pub(super) fn read(
    file: &File,
    bytes: &mut Vec<u8>,
    len: usize,
    position: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    let (have, wanted) = (bytes.len(), len.saturating_sub(bytes.len()));
    let room = &mut bytes.spare_capacity_mut()[..wanted];
    let slice = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: wanted };
    let at = i64::try_from(position + have as u64).map_err(|_| Errno::INVAL)?;
    // SAFETY: the slice lies within memory that the vector owns and nobody else sees meanwhile, and the
    // kernel writes to nothing else.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const slice, 1, at, flags.bits().cast_signed()) };
    let Ok(read) = usize::try_from(read) else { return Err(last_error()) };
    // SAFETY: the kernel has written that many bytes behind those that were there, and never more than
    // it was given room for.
    unsafe { bytes.set_len(have + read.min(wanted)) };
    Ok(read)
}

/// Begins to write a range of a file to the disk (sync_file_range(2)); a system without it does so when it
/// thinks fit.
pub(super) fn begin_writeback(file: &File, position: u64, len: u64) {
    if let (Ok(position), Ok(len)) = (i64::try_from(position), i64::try_from(len)) {
        // SAFETY: no memory is involved.
        unsafe { libc::sync_file_range(file.as_raw_fd(), position, len, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
