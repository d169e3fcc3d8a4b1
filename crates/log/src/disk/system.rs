//! Three system calls in a form that no safe binding has.

// Reading into memory that holds nothing yet, `sync_file_range` and `cachestat` are not in rustix.
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

/// Number of cachestat(2), which is newer than the table of names: the same on every architecture that Rust
/// runs on except Alpha.
const CACHESTAT: libc::c_long = 451;

/// A range of bytes, as cachestat(2) takes it.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// What cachestat(2) counts: pages.
#[derive(Default)]
#[repr(C)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    under_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether all pages of a range are in the page cache. A system that cannot tell (before Linux 6.5) says no.
pub(super) fn is_cached(file: &File, position: u64, len: u64) -> bool {
    let Some(last) = len.checked_sub(1).and_then(|more| position.checked_add(more)) else { return false };
    let page = rustix::param::page_size() as u64;
    let pages = last / page - position / page + 1;
    let range = CachestatRange { offset: position, len };
    let mut counts = Cachestat::default();
    // SAFETY: both structures have the layout that the kernel expects, and live as long as the call.
    let failed = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut counts, 0 as libc::c_uint)
    };
    failed == 0 && counts.cached >= pages
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
