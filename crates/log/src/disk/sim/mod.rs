//! A disk in memory that behaves as badly as real ones are allowed to, from a seed.
//!
//! It keeps what a program sees (the page cache) apart from what the device holds, and brings the
//! two together only as far as the program synced. On [`SimDisk::crash`] everything else survives
//! in part: sectors of 512 bytes, in any order, torn or not; names likewise. Faults can be planned
//! for the nth operation of a kind, the disk can be full, and bits can be turned over at rest.
//!
//! Handles of before a crash fail from then on, as those of a dead process would.

mod content;
mod names;
mod seed;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::content::{Content, space_of};
use self::names::{Names, Node};
use self::seed::Seed;
use super::{DirEntry, Disk, DiskError, DiskErrorKind, File, OpenMode};

/// A kind of operation that faults are planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Reads of file content.
    Read,
    /// Writes, allocations and changes of length.
    Write,
    /// Syncs of files, directories and file systems.
    Sync,
    /// Creating, renaming and removing names.
    Name,
}

/// How a planned fault shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device fails (`EIO`). A failing write may have been done in part; a failing sync leaves
    /// the cache clean and the device behind.
    Io,
    /// The disk is full (`ENOSPC`); nothing was done.
    NoSpace,
}

/// One planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What fails.
    pub operation: Operation,
    /// Which one from now, counting from 0.
    pub after: u64,
    /// How.
    pub kind: FaultKind,
}

/// A simulated disk. Clones are handles to the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    seed: Seed,
    names: Names,
    files: BTreeMap<u64, Open>,
    next_file: u64,
    /// Space in bytes; `None` for as much as anybody wants.
    capacity: Option<u64>,
    used: u64,
    /// Changes and syncs so far.
    operations: u64,
    /// The change or sync at which the power goes.
    crash_at: Option<u64>,
    /// Everything fails until a restart.
    down: bool,
    /// Counts restarts; handles of an earlier one are dead.
    run: u64,
    /// Whether reads without waiting find anything.
    cached: bool,
    faults: Vec<Fault>,
}

#[derive(Debug, Default)]
struct Open {
    content: Content,
    handles: u64,
}

impl SimDisk {
    /// An empty disk. The same seed and the same operations give the same outcomes.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                seed: Seed::new(seed),
                names: Names::default(),
                files: BTreeMap::new(),
                next_file: 0,
                capacity: None,
                used: 0,
                operations: 0,
                crash_at: None,
                down: false,
                run: 0,
                cached: true,
                faults: Vec::new(),
            })),
        }
    }

    /// A handle as code under test takes it.
    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// Changes and syncs that were asked for so far (reads are not counted).
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Lets the power go at that change or sync, counted as [`SimDisk::operations`] counts: it is
    /// done in part or not at all, and everything fails until [`SimDisk::restart`].
    pub fn crash_at(&self, operation: u64) {
        self.state.lock().crash_at = Some(operation);
    }

    /// Whether a crash has happened that no restart followed.
    pub fn is_down(&self) -> bool {
        self.state.lock().down
    }

    /// The power goes and comes back: unsynced bytes and names survive in part.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        state.down = true;
        state.restart();
    }

    /// Brings the disk back after [`SimDisk::crash_at`] struck; without that, the same as
    /// [`SimDisk::crash`].
    pub fn restart(&self) {
        self.crash();
    }

    /// The process dies, the machine does not: handles are dead, but the page cache, synced or
    /// not, is what the next process reads.
    pub fn kill_process(&self) {
        let mut state = self.state.lock();
        state.crash_at = None;
        state.down = false;
        state.forget_handles();
    }

    /// Plans a fault.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Drops all planned faults.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// Limits the disk's space; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Whether reads without waiting find their bytes. At first they do.
    pub fn set_cached(&self, cached: bool) {
        self.state.lock().cached = cached;
    }

    /// Turns one bit of a file over, at rest. False if the file does not exist or is shorter.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) -> bool {
        let mut state = self.state.lock();
        match state.names.get(path) {
            Some(Node::File(id)) => state.content(id).is_some_and(|content| content.flip_bit(byte, bit)),
            _ => false,
        }
    }

    /// Drops the page cache of a file: what the device does not hold is gone.
    pub fn drop_cache(&self, path: &Path) {
        let mut state = self.state.lock();
        if let Some(Node::File(id)) = state.names.get(path) {
            if let Some(content) = state.content(id) {
                content.drop_cache();
            }
            state.measure();
        }
    }
}

impl State {
    fn content(&mut self, id: u64) -> Option<&mut Content> {
        self.files.get_mut(&id).map(|file| &mut file.content)
    }

    fn measure(&mut self) {
        self.used = self.files.values().map(|file| file.content.space()).sum();
    }

    fn restart(&mut self) {
        let State { seed, names, files, .. } = self;
        names.lose_power(seed);
        for file in files.values_mut() {
            file.content.lose_power(seed);
        }
        self.crash_at = None;
        self.down = false;
        self.forget_handles();
    }

    fn forget_handles(&mut self) {
        self.run += 1;
        let named: Vec<u64> = self.names.files().collect();
        self.files.retain(|id, file| {
            file.handles = 0;
            named.contains(id)
        });
        self.measure();
    }

    /// Frees a file that neither a name nor a handle stands for any more.
    fn collect(&mut self, id: u64) {
        if self.files.get(&id).is_some_and(|file| file.handles == 0)
            && !self.names.files().any(|named| named == id)
        {
            self.files.remove(&id);
            self.measure();
        }
    }

    /// Lets an operation begin: counts it, and answers how it fails if it does.
    fn begin(&mut self, operation: Operation) -> Result<(), Failure> {
        if self.down {
            return Err(Failure::Down);
        }
        if operation != Operation::Read {
            let number = self.operations;
            self.operations += 1;
            if self.crash_at.is_some_and(|at| number >= at) {
                self.down = true;
                return Err(Failure::Power);
            }
        }
        let mut struck = None;
        self.faults.retain_mut(|fault| {
            if fault.operation != operation {
                return true;
            }
            if fault.after == 0 {
                struck = struck.or(Some(fault.kind));
                return false;
            }
            fault.after -= 1;
            true
        });
        struck.map_or(Ok(()), |kind| Err(Failure::Planned(kind)))
    }

    /// Whether `more` bytes still fit.
    fn has_room(&self, more: u64) -> bool {
        self.capacity.is_none_or(|capacity| self.used.saturating_add(more) <= capacity)
    }
}

/// How an operation failed before it was done.
enum Failure {
    Down,
    Power,
    /// There is not enough space: what fits is written.
    Full,
    Planned(FaultKind),
}

impl Failure {
    fn at(&self, operation: &'static str, path: &Path) -> DiskError {
        match self {
            Failure::Down | Failure::Power => {
                DiskError::new(operation, path, DiskErrorKind::Io, "the simulated machine has crashed")
            }
            Failure::Planned(FaultKind::Io) => {
                DiskError::new(operation, path, DiskErrorKind::Io, "input/output error (simulated)")
            }
            Failure::Full | Failure::Planned(FaultKind::NoSpace) => no_space(operation, path),
        }
    }
}

fn no_space(operation: &'static str, path: &Path) -> DiskError {
    DiskError::new(operation, path, DiskErrorKind::NoSpace, "no space left on device (simulated)")
}

fn not_found(operation: &'static str, path: &Path) -> DiskError {
    DiskError::new(operation, path, DiskErrorKind::NotFound, "no such file or directory (simulated)")
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, DiskError> {
        let mut state = self.state.lock();
        if state.down {
            return Err(Failure::Down.at("open", path));
        }
        let id = match (state.names.get(path), mode) {
            (Some(Node::Directory), _) => {
                let reason = "is a directory (simulated)";
                return Err(DiskError::new("open", path, DiskErrorKind::Io, reason));
            }
            (Some(Node::File(_)), OpenMode::CreateNew) => {
                let reason = "file exists (simulated)";
                return Err(DiskError::new("open", path, DiskErrorKind::AlreadyExists, reason));
            }
            (Some(Node::File(id)), _) => id,
            (None, OpenMode::Read | OpenMode::Write | OpenMode::Overwrite) => {
                return Err(not_found("open", path));
            }
            (None, OpenMode::CreateNew | OpenMode::Create) => {
                if !path.parent().is_some_and(|parent| state.names.is_dir(parent)) {
                    return Err(not_found("open", path));
                }
                state.begin(Operation::Name).map_err(|failure| failure.at("open", path))?;
                let id = state.next_file;
                state.next_file += 1;
                state.files.insert(id, Open::default());
                state.names.link(path, Node::File(id));
                id
            }
        };
        if let Some(file) = state.files.get_mut(&id) {
            file.handles += 1;
        }
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { disk: self.clone(), path: path.to_owned(), id, run: state.run, writable }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let directories: Vec<&Path> = path.ancestors().filter(|d| !d.as_os_str().is_empty()).collect();
        for directory in directories.into_iter().rev() {
            let Some(parent) = directory.parent() else { continue };
            if !state.names.is_dir(directory) {
                state.begin(Operation::Name).map_err(|failure| failure.at("create directory", path))?;
                state.names.link(directory, Node::Directory);
                // The power can go before it is durable.
                state.begin(Operation::Name).map_err(|failure| failure.at("create directory", path))?;
            } else if state.down {
                return Err(Failure::Down.at("create directory", path));
            }
            state.names.sync(parent);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let Some(Node::File(id)) = state.names.get(path) else {
            return Err(not_found("remove", path));
        };
        state.begin(Operation::Name).map_err(|failure| failure.at("remove", path))?;
        state.names.unlink(path);
        state.collect(id);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if state.names.get(path) != Some(Node::Directory) {
            return Err(not_found("remove directory", path));
        }
        if state.names.children(path).next().is_some() {
            let reason = "directory not empty (simulated)";
            return Err(DiskError::new("remove directory", path, DiskErrorKind::Io, reason));
        }
        state.begin(Operation::Name).map_err(|failure| failure.at("remove directory", path))?;
        state.names.unlink(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let Some(Node::File(id)) = state.names.get(from) else {
            return Err(not_found("rename", from));
        };
        let replaced = state.names.get(to);
        state.begin(Operation::Name).map_err(|failure| failure.at("rename", from))?;
        state.names.rename(from, to, Node::File(id));
        if let Some(Node::File(old)) = replaced {
            state.collect(old);
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let state = self.state.lock();
        if state.down {
            return Err(Failure::Down.at("list", path));
        }
        if !state.names.is_dir(path) {
            return Err(not_found("list", path));
        }
        let entry = |(path, node): (&Path, Node)| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            match node {
                Node::Directory => DirEntry { name, len: 0, is_dir: true },
                Node::File(id) => {
                    let len = state.files.get(&id).map_or(0, |file| file.content.len());
                    DirEntry { name, len, is_dir: false }
                }
            }
        };
        let mut entries: Vec<DirEntry> = state.names.children(path).map(entry).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if !state.names.is_dir(path) {
            return Err(not_found("sync directory", path));
        }
        state.begin(Operation::Sync).map_err(|failure| failure.at("sync directory", path))?;
        state.names.sync(path);
        Ok(())
    }

    fn available_space(&self, path: &Path) -> Result<u64, DiskError> {
        let state = self.state.lock();
        if state.down {
            return Err(Failure::Down.at("measure free space of", path));
        }
        Ok(state.capacity.map_or(u64::MAX / 2, |capacity| capacity.saturating_sub(state.used)))
    }

    fn sync_filesystem(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let begun = state.begin(Operation::Sync);
        let State { files, seed, names, .. } = &mut *state;
        match begun {
            Ok(()) => {
                files.values_mut().for_each(|file| file.content.sync());
                names.sync_all();
                Ok(())
            }
            Err(failure) => {
                if matches!(failure, Failure::Planned(_)) {
                    files.values_mut().for_each(|file| file.content.fail_sync(seed));
                }
                Err(failure.at("sync file system of", path))
            }
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    id: u64,
    run: u64,
    writable: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.run == self.run {
            if let Some(file) = state.files.get_mut(&self.id) {
                file.handles = file.handles.saturating_sub(1);
            }
            state.collect(self.id);
        }
    }
}

impl SimFile {
    /// Runs one operation on the file, with the failure that it meets, if it meets one.
    fn with<T>(
        &self,
        operation: Operation,
        verb: &'static str,
        run: impl FnOnce(&mut State, Option<Failure>) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let mut state = self.disk.state.lock();
        if state.run != self.run || !state.files.contains_key(&self.id) {
            return Err(Failure::Down.at(verb, &self.path));
        }
        if operation == Operation::Write && !self.writable {
            let reason = "the file was opened for reading (simulated)";
            return Err(DiskError::new(verb, &self.path, DiskErrorKind::Denied, reason));
        }
        let failure = state.begin(operation).err();
        run(&mut state, failure)
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<usize, DiskError> {
        self.with(Operation::Read, "read", |state, failure| match failure {
            Some(failure) => Err(failure.at("read", &self.path)),
            None => Ok(state.content(self.id).map_or(0, |content| content.read(buffer, position))),
        })
    }

    fn try_read_cached(&self, buffer: &mut [u8], position: u64) -> Result<Option<usize>, DiskError> {
        if !self.disk.state.lock().cached {
            return Ok(None);
        }
        self.read_at(buffer, position).map(Some)
    }

    fn is_cached(&self, position: u64, len: usize) -> bool {
        let mut state = self.disk.state.lock();
        let end = position.saturating_add(len as u64);
        state.cached && state.content(self.id).is_some_and(|content| content.len() >= end)
    }

    fn send(&self, socket: BorrowedFd<'_>, position: u64, len: usize) -> io::Result<usize> {
        let bytes = self.read_vec(len, position).map_err(io::Error::other)?;
        Ok(rustix::io::write(socket, &bytes)?)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> Result<(), DiskError> {
        self.with(Operation::Write, "write", |state, failure| {
            let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
            slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
            let Some(old_len) = state.content(self.id).map(|content| content.len()) else {
                return Err(not_found("write", &self.path));
            };
            let new_len = old_len.max(position + bytes.len() as u64);
            let more = space_of(new_len) - space_of(old_len);
            let failure = failure.or_else(|| (!state.has_room(more)).then_some(Failure::Full));
            match &failure {
                Some(Failure::Down | Failure::Planned(FaultKind::NoSpace)) => bytes.clear(),
                Some(Failure::Full) => {
                    let free = state.capacity.map_or(0, |capacity| capacity.saturating_sub(state.used));
                    let end = space_of(old_len) + free / space_of(1) * space_of(1);
                    bytes.truncate(end.saturating_sub(position) as usize);
                }
                Some(_) => bytes.truncate(state.seed.below(bytes.len() as u64 + 1) as usize),
                None => {}
            }
            let State { files, seed, .. } = &mut *state;
            if let Some(file) = files.get_mut(&self.id).filter(|_| !bytes.is_empty()) {
                file.content.write(&bytes, position, seed);
                state.measure();
            }
            failure.map_or(Ok(()), |failure| Err(failure.at("write", &self.path)))
        })
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.with(Operation::Write, "allocate", |state, failure| {
            if let Some(failure) = failure {
                return Err(failure.at("allocate", &self.path));
            }
            let old_len = state.content(self.id).map_or(0, |content| content.len());
            let more = space_of(len).saturating_sub(space_of(old_len));
            if !state.has_room(more) {
                return Err(no_space("allocate", &self.path));
            }
            if let Some(content) = state.content(self.id).filter(|content| content.len() < len) {
                content.set_len(len);
                state.used += more;
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.with(Operation::Write, "set the length of", |state, failure| {
            if let Some(failure) = failure {
                return Err(failure.at("set the length of", &self.path));
            }
            if let Some(content) = state.content(self.id) {
                content.set_len(len);
            }
            state.measure();
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.with(Operation::Sync, "sync", |state, failure| {
            let State { files, seed, .. } = &mut *state;
            let Some(file) = files.get_mut(&self.id) else { return Err(not_found("sync", &self.path)) };
            match failure {
                None => {
                    file.content.sync();
                    Ok(())
                }
                Some(failure) => {
                    if matches!(failure, Failure::Planned(_)) {
                        file.content.fail_sync(seed);
                    }
                    Err(failure.at("sync", &self.path))
                }
            }
        })
    }

    fn len(&self) -> Result<u64, DiskError> {
        let mut state = self.disk.state.lock();
        if state.down || state.run != self.run {
            return Err(Failure::Down.at("measure", &self.path));
        }
        Ok(state.content(self.id).map_or(0, |content| content.len()))
    }
}
