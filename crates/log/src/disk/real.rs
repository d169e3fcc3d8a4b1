//! Files on a real file system.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::release::{LARGE_BYTES, release};
use super::{DirEntry, Disk, DiskError, DiskErrorKind, File, OpenMode, system};

/// Slices that one system call takes (`IOV_MAX` on Linux).
const SLICES_MAX: usize = 1024;

/// Zeroes written at a time while a file is allocated.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// Memory, place and length of a write past the page cache are multiples of this: enough for every disk.
const DIRECT_ALIGNMENT: u64 = 4096;

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl RealDisk {
    /// A shared handle.
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(RealDisk)
    }
}

fn failed<'a, E: Into<std::io::Error>>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(E) -> DiskError + 'a {
    move |error| DiskError::from_io(operation, path, &error.into())
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, DiskError> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::Write | OpenMode::Overwrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
        }
        let file = options.open(path).map_err(failed("open", path))?;
        // File systems that do not know such writes refuse to open the file for them.
        let direct = match mode {
            OpenMode::Overwrite => options.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path).ok(),
            _ => None,
        };
        Ok(Arc::new(RealFile {
            file,
            direct,
            path: path.to_owned(),
            cached_reads: AtomicBool::new(true),
            direct_writes: AtomicBool::new(true),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.create_dir_all(parent)?;
        }
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Ok(()),
        };
        if path.is_dir() {
            // A process that died may have made it without making it durable. Above what Weir has
            // made there may be directories that it cannot sync, and need not.
            let _ = self.sync_dir(parent);
            return Ok(());
        }
        match fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(error) => return Err(DiskError::from_io("create directory", path, &error)),
        }
        self.sync_dir(parent)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        fs::remove_file(path).map_err(failed("remove", path))
    }

    fn remove_unused_file(&self, path: &Path) -> Result<(), DiskError> {
        let opened = fs::OpenOptions::new().write(true).open(path);
        let large = opened.ok().filter(|file| file.metadata().is_ok_and(|now| now.len() > LARGE_BYTES));
        self.remove_file(path)?;
        if let Some(file) = large {
            release(file);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<(), DiskError> {
        fs::remove_dir(path).map_err(failed("remove directory", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        fs::rename(from, to).map_err(failed("rename", from))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed("list", path))? {
            let entry = entry.map_err(failed("list", path))?;
            let metadata = entry.metadata().map_err(failed("list", &entry.path()))?;
            let is_dir = metadata.is_dir();
            let len = if is_dir { 0 } else { metadata.len() };
            entries.push(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), len, is_dir });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), DiskError> {
        let directory = fs::File::open(path).map_err(failed("open", path))?;
        rustix::fs::fsync(&directory).map_err(failed("sync directory", path))
    }

    fn available_space(&self, path: &Path) -> Result<u64, DiskError> {
        let space = rustix::fs::statvfs(path).map_err(failed("measure free space of", path))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn sync_filesystem(&self, path: &Path) -> Result<(), DiskError> {
        let directory = fs::File::open(path).map_err(failed("open", path))?;
        rustix::fs::syncfs(&directory).map_err(failed("sync file system of", path))
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    /// The same file for writes past the page cache.
    direct: Option<fs::File>,
    path: PathBuf,
    /// Cleared when such writes turn out not to be taken.
    direct_writes: AtomicBool,
    /// Cleared when the file system turns out not to know reads without waiting.
    cached_reads: AtomicBool,
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], position + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DiskError::from_io("read", &self.path, &error)),
            }
        }
        Ok(done)
    }

    fn try_read_cached(&self, buffer: &mut [u8], position: u64) -> Result<Option<usize>, DiskError> {
        if !self.cached_reads.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let slices = &mut [IoSliceMut::new(buffer)];
        self.cached(rustix::io::preadv2(&self.file, slices, position, ReadWriteFlags::NOWAIT))
    }

    fn read_vec(&self, len: usize, position: u64) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            match system::read(&self.file, &mut bytes, len, position, ReadWriteFlags::empty()) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(DiskError::from_io("read", &self.path, &error.into())),
            }
        }
        Ok(bytes)
    }

    fn try_read_vec_cached(&self, len: usize, position: u64) -> Result<Option<Vec<u8>>, DiskError> {
        if !self.cached_reads.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(len);
        let read = system::read(&self.file, &mut bytes, len, position, ReadWriteFlags::NOWAIT);
        self.cached(read.map(|_| bytes))
    }

    fn is_cached(&self, position: u64, len: usize) -> bool {
        system::is_cached(&self.file, position, len as u64)
    }

    fn send(&self, socket: BorrowedFd<'_>, position: u64, len: usize) -> io::Result<usize> {
        let mut position = position;
        Ok(rustix::fs::sendfile(socket, &self.file, Some(&mut position), len)?)
    }

    fn begin_writeback(&self, position: u64, len: u64) {
        system::begin_writeback(&self.file, position, len);
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> Result<(), DiskError> {
        if let ([bytes], Some(direct)) = (slices, self.direct_for(slices, position)) {
            match Self::write_direct(direct, bytes, position) {
                Err(Errno::INVAL | Errno::OPNOTSUPP) => self.direct_writes.store(false, Ordering::Relaxed),
                written => {
                    return written.map_err(|error| DiskError::from_io("write", &self.path, &error.into()));
                }
            }
        }
        let mut at = position;
        for group in slices.chunks(SLICES_MAX) {
            at = self.write_group(group, at)?;
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        let mut at = self.len()?;
        if at >= len {
            return Ok(());
        }
        // First for the blocks, so that a full disk is met before half a file is written; file
        // systems that cannot do it lose only that.
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => {}
            Err(error) => return Err(DiskError::from_io("allocate", &self.path, &error.into())),
        }
        // Then for real: blocks that are only reserved would be converted by the first overwrite,
        // and its sync would pay for that.
        let zeroes = vec![0; ZERO_CHUNK_BYTES.min((len - at) as usize)];
        while at < len {
            let chunk = zeroes.len().min((len - at) as usize);
            self.write_at(&[IoSlice::new(&zeroes[..chunk])], at)?;
            at += chunk as u64;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len).map_err(failed("set the length of", &self.path))
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        rustix::fs::fdatasync(&self.file).map_err(failed("sync", &self.path))
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.file.metadata().map_err(failed("measure", &self.path))?.len())
    }
}

impl RealFile {
    /// What a read that would not wait has come to.
    fn cached<T>(&self, read: Result<T, Errno>) -> Result<Option<T>, DiskError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.cached_reads.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(DiskError::from_io("read", &self.path, &error.into())),
        }
    }

    /// The file for a write past the page cache, if this one can be.
    fn direct_for(&self, slices: &[IoSlice<'_>], position: u64) -> Option<&fs::File> {
        let direct = self.direct.as_ref().filter(|_| self.direct_writes.load(Ordering::Relaxed))?;
        let [bytes] = slices else { return None };
        let parts = [position, bytes.len() as u64, bytes.as_ptr().addr() as u64];
        parts.iter().all(|part| part.is_multiple_of(DIRECT_ALIGNMENT)).then_some(direct)
    }

    fn write_direct(direct: &fs::File, bytes: &[u8], position: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(direct, &bytes[done..], position + done as u64) {
                Ok(0) => return Err(Errno::IO),
                // The rest begins at a block's edge again, or is refused and written otherwise.
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes at most [`SLICES_MAX`] slices and returns where they end.
    fn write_group(&self, slices: &[IoSlice<'_>], position: u64) -> Result<u64, DiskError> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut done = 0;
        while done < total {
            let written = if done == 0 {
                rustix::io::pwritev(&self.file, slices, position)
            } else {
                rustix::io::pwritev(&self.file, &skip(slices, done), position + done as u64)
            };
            match written {
                Ok(0) => {
                    let kind = DiskErrorKind::Io;
                    return Err(DiskError::new("write", &self.path, kind, "the system wrote nothing"));
                }
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(DiskError::from_io("write", &self.path, &error.into())),
            }
        }
        Ok(position + total as u64)
    }
}

/// What remains of `slices` behind their first `done` bytes.
fn skip<'a>(slices: &'a [IoSlice<'a>], mut done: usize) -> Vec<IoSlice<'a>> {
    let mut rest = Vec::with_capacity(slices.len());
    for slice in slices {
        if done >= slice.len() {
            done -= slice.len();
        } else {
            rest.push(IoSlice::new(&slice[done..]));
            done = 0;
        }
    }
    rest
}
