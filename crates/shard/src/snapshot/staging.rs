//! Taking in a checkpoint of another replica, piece by piece, into the staging directory.
//!
//! First its manifest, which says where the chunks of state lie; then these; and from the state follows which segments
//! there must be. There is always at most one thing that is wanted, so that whoever brings it need remember nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use weir_log::disk::{Disk, DiskError, File, OpenMode};
use weir_log::partition::{PinnedSegments, ReadError, SegmentEntry, verify_segment};
use weir_model::{PartitionId, SegmentId};

use super::{
    CHECKSUM_BYTES_MAX, PIECE_BYTES_MAX, SnapshotError, SnapshotFile, SnapshotId, SnapshotWanted, Snapshots,
    staged_name, staging_dir,
};
use crate::checkpoint::{Checkpoints, MANIFEST_BYTES_MAX, Manifest, state_name};
use crate::files::manifest_of;
use crate::machine::Machine;
use crate::shard::ShardError;

/// Chunks with less than this between them in a state file are fetched in one go.
const GAP_BYTES_MAX: u64 = 4096;

/// A checkpoint of another replica that is being taken in. Dropping it leaves what is staged to the next attempt.
#[derive(Debug)]
pub struct Staging {
    snapshots: Snapshots,
    dir: PathBuf,
    id: SnapshotId,
    phase: Phase,
    /// Segments of the snapshot that are here already.
    kept_bytes: u64,
}

#[derive(Debug)]
enum Phase {
    /// The manifest so far.
    Manifest(Vec<u8>),
    State {
        manifest: Manifest,
        /// What is still to come: of which state file, from and to.
        ranges: VecDeque<(u64, u64, u64)>,
        file: Option<(u64, Arc<dyn File>)>,
    },
    Segments {
        manifest: Manifest,
        machine: Box<Machine>,
        waiting: VecDeque<(PartitionId, SegmentEntry)>,
        filling: Option<Filling>,
        staged: Vec<(PartitionId, SegmentEntry)>,
    },
}

/// A segment that is being fetched, or compared with what is here.
#[derive(Debug)]
struct Filling {
    partition: PartitionId,
    entry: SegmentEntry,
    path: PathBuf,
    /// The replica's own segment, up to `present`; without it, that is what is staged already.
    own: Option<PinnedSegments>,
    /// Bytes that are here and may be the right ones.
    present: u64,
    /// Of these, found to be the right ones.
    compared: u64,
    /// Bytes in the staged file that are the right ones.
    staged: u64,
    file: Option<Arc<dyn File>>,
}

/// A snapshot that is whole: checked, and durable but for its place.
#[derive(Debug)]
pub struct StagedSnapshot {
    pub(crate) machine: Box<Machine>,
    pub(crate) raft_meta: Bytes,
    pub(crate) dir: PathBuf,
    pub(crate) staged: Vec<(PartitionId, SegmentEntry)>,
}

impl StagedSnapshot {
    /// Entries up to this one are in it.
    pub fn applied_index(&self) -> u64 {
        self.machine.applied_index()
    }

    /// Term of that entry.
    pub fn applied_term(&self) -> u64 {
        self.machine.applied_term()
    }

    /// What the sender's caller had put into its checkpoint.
    pub fn raft_meta(&self) -> &Bytes {
        &self.raft_meta
    }
}

impl Staging {
    pub(super) fn begin(snapshots: Snapshots, id: SnapshotId) -> Result<Staging, SnapshotError> {
        if id.manifest_bytes > MANIFEST_BYTES_MAX {
            return Err(damaged("the manifest", "it is longer than any manifest"));
        }
        let dir = staging_dir(snapshots.files.dir());
        let disk = snapshots.files.disk();
        disk.create_dir_all(&dir)?;
        // Segments of an earlier attempt may be of use; that of the state would only be in the way.
        for entry in disk.list(&dir)?.into_iter().filter(|entry| !entry.name.ends_with(".log")) {
            disk.remove_file(&dir.join(&entry.name))?;
        }
        let phase = Phase::Manifest(Vec::new());
        Ok(Staging { snapshots, dir, id, phase, kept_bytes: 0 })
    }

    /// Which checkpoint this is about.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// Bytes of segments that were here already and are not fetched.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// What is lacking; none if nothing is.
    pub fn wanted(&self) -> Option<SnapshotWanted> {
        match &self.phase {
            Phase::Manifest(bytes) => Some(SnapshotWanted::Bytes {
                file: SnapshotFile::Manifest,
                from: bytes.len() as u64,
                to: self.id.manifest_bytes,
            }),
            Phase::State { ranges, .. } => {
                let (file, from, to) = *ranges.front()?;
                Some(SnapshotWanted::Bytes { file: SnapshotFile::State(file), from, to })
            }
            Phase::Segments { filling, .. } => filling.as_ref().map(Filling::wanted),
        }
    }

    /// Takes bytes of a file. Those that are not the next that are wanted are left. Blocks. After an error the attempt
    /// has failed.
    pub fn take_bytes(&mut self, file: SnapshotFile, from: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        let to = from.saturating_add(bytes.len() as u64);
        match self.wanted() {
            Some(SnapshotWanted::Bytes { file: wanted, from: first, to: end })
                if wanted == file && first == from && to <= end && !bytes.is_empty() => {}
            _ => return Ok(()),
        }
        match &mut self.phase {
            Phase::Manifest(have) => have.extend_from_slice(bytes),
            Phase::State { ranges, file, .. } => {
                if let Some(range) = ranges.front_mut() {
                    let path = self.dir.join(state_name(range.0));
                    write_state(&**self.snapshots.files.disk(), &path, range.0, file, from, bytes)?;
                    range.1 = to;
                }
                if ranges.front().is_some_and(|(_, from, to)| from >= to) {
                    ranges.pop_front();
                }
            }
            Phase::Segments { filling, .. } => {
                if let Some(filling) = filling {
                    filling.take(&**self.snapshots.files.disk(), bytes)?;
                }
            }
        }
        self.advance()
    }

    /// Takes the checksum of bytes that may be here. One that is not wanted is left. Blocks. After an error the attempt
    /// has failed.
    pub fn take_checksum(
        &mut self,
        file: SnapshotFile,
        from: u64,
        to: u64,
        crc: u32,
    ) -> Result<(), SnapshotError> {
        if self.wanted() != Some(SnapshotWanted::Checksum { file, from, to }) {
            return Ok(());
        }
        if let Phase::Segments { filling: Some(filling), .. } = &mut self.phase {
            filling.compare(&**self.snapshots.files.disk(), to, crc)?;
        }
        self.advance()
    }

    /// The whole snapshot, once nothing is wanted.
    pub fn finish(self) -> Option<StagedSnapshot> {
        match self.phase {
            Phase::Segments { manifest, machine, filling: None, staged, .. } => {
                Some(StagedSnapshot { machine, raft_meta: manifest.raft_meta, dir: self.dir, staged })
            }
            _ => None,
        }
    }

    /// Goes on to what is wanted next.
    fn advance(&mut self) -> Result<(), SnapshotError> {
        if let Phase::Manifest(bytes) = &mut self.phase
            && bytes.len() as u64 == self.id.manifest_bytes
        {
            let bytes = Bytes::from(std::mem::take(bytes));
            let manifest = self.check_manifest(bytes)?;
            let ranges = ranges_of(&manifest);
            self.phase = Phase::State { manifest, ranges, file: None };
        }
        if let Phase::State { ranges, .. } = &self.phase
            && ranges.is_empty()
        {
            self.load()?;
        }
        self.next_segment()
    }

    fn check_manifest(&self, bytes: Bytes) -> Result<Manifest, SnapshotError> {
        if crc32c::crc32c(&bytes) != self.id.manifest_crc {
            return Err(damaged("the manifest", "its checksum does not fit"));
        }
        let manifest = self.snapshots.checkpoints.decode_manifest(bytes).map_err(in_snapshot)?;
        let place = (manifest.applied_index, manifest.applied_term);
        if place != (self.id.applied_index, self.id.applied_term) {
            return Err(damaged("the manifest", "it is that of another entry"));
        }
        Ok(manifest)
    }

    /// Reads the state, every chunk of it checked, and finds out which segments there must be.
    fn load(&mut self) -> Result<(), SnapshotError> {
        let Phase::State { manifest, .. } = &self.phase else { return Ok(()) };
        let disk = Arc::clone(self.snapshots.files.disk());
        let shard = self.snapshots.checkpoints.shard();
        let checkpoints = Checkpoints::over(Arc::clone(&disk), self.dir.clone(), shard);
        let machine = checkpoints.read_machine(manifest).map_err(in_snapshot)?;
        let machine = Box::new(machine);
        let manifest = manifest.clone();
        let mut waiting = VecDeque::new();
        for (partition, state) in machine.partitions() {
            waiting.extend(manifest_of(state).segments.into_iter().map(|entry| (partition, entry)));
        }
        // The state has been read: its files have served.
        let named: BTreeSet<String> = waiting.iter().map(|(id, entry)| staged_name(*id, entry)).collect();
        for entry in disk.list(&self.dir)?.into_iter().filter(|entry| !named.contains(&entry.name)) {
            disk.remove_file(&self.dir.join(&entry.name))?;
        }
        self.phase = Phase::Segments { manifest, machine, waiting, filling: None, staged: Vec::new() };
        Ok(())
    }

    /// Finishes the segment that is whole, and goes on to the next that is not.
    fn next_segment(&mut self) -> Result<(), SnapshotError> {
        let Phase::Segments { waiting, filling, staged, .. } = &mut self.phase else { return Ok(()) };
        let disk = self.snapshots.files.disk();
        loop {
            match filling {
                Some(current) if !current.is_whole() => return Ok(()),
                Some(current) => {
                    if current.is_kept() {
                        self.kept_bytes += current.entry.bytes;
                    } else {
                        current.finish(&**disk)?;
                        staged.push((current.partition, current.entry));
                    }
                    *filling = None;
                }
                None => {
                    let Some((partition, entry)) = waiting.pop_front() else { return Ok(()) };
                    *filling = Some(begin(&self.snapshots, &self.dir, partition, entry)?);
                }
            }
        }
    }
}

/// What of a segment is here, if anything is: staged by an earlier attempt, or the replica's own.
fn begin(
    snapshots: &Snapshots,
    dir: &std::path::Path,
    partition: PartitionId,
    entry: SegmentEntry,
) -> Result<Filling, SnapshotError> {
    if entry.bytes == 0 {
        return Err(damaged("the state", "it has a segment without content"));
    }
    let path = dir.join(staged_name(partition, &entry));
    let staged = match snapshots.files.disk().open(&path, OpenMode::Read) {
        Ok(file) => file.len()?.min(entry.bytes),
        Err(error) if error.is_not_found() => 0,
        Err(error) => return Err(error.into()),
    };
    let mut filling =
        Filling { partition, entry, path, own: None, present: staged, compared: 0, staged: 0, file: None };
    if staged == 0 {
        let view = snapshots.shown.partitions.read().get(&partition).cloned();
        let pinned = view.and_then(|view| Some(view.files().reader()?.pin()));
        let same = |own: &SegmentEntry| (own.base, own.generation) == (entry.base, entry.generation);
        if let Some(pinned) = pinned
            && let Some(own) = pinned.segments().into_iter().find(same)
        {
            filling.present = own.bytes.min(entry.bytes);
            filling.own = Some(pinned);
        }
    }
    Ok(filling)
}

impl Filling {
    fn file_name(&self) -> SnapshotFile {
        let segment = SegmentId { base: self.entry.base, generation: self.entry.generation };
        SnapshotFile::Segment(self.partition, segment)
    }

    fn wanted(&self) -> SnapshotWanted {
        let file = self.file_name();
        if self.compared < self.present {
            let to = self.present.min(self.compared + CHECKSUM_BYTES_MAX);
            SnapshotWanted::Checksum { file, from: self.compared, to }
        } else {
            SnapshotWanted::Bytes { file, from: self.staged, to: self.entry.bytes }
        }
    }

    /// Whether the replica's own segment has all of it.
    fn is_kept(&self) -> bool {
        self.own.is_some() && self.present == self.entry.bytes && self.compared == self.present
    }

    fn is_whole(&self) -> bool {
        self.is_kept() || (self.compared == self.present && self.staged == self.entry.bytes)
    }

    /// Compares what is here up to a position with the sender's. What differs from it, and all of the segment with it,
    /// is fetched.
    fn compare(&mut self, disk: &dyn Disk, to: u64, crc: u32) -> Result<(), SnapshotError> {
        let from = self.compared;
        let copies = self.own.is_some() && self.present < self.entry.bytes;
        let (mut at, mut ours) = (from, 0);
        while at < to {
            let bytes = self.read(disk, at, ((to - at) as usize).min(PIECE_BYTES_MAX))?;
            if bytes.is_empty() {
                // It has become shorter since, which is no content of that segment.
                break;
            }
            ours = crc32c::crc32c_append(ours, &bytes);
            if copies {
                self.opened(disk)?.write_at(&[IoSlice::new(&bytes)], at)?;
            }
            at += bytes.len() as u64;
        }
        if at < to || ours != crc {
            (self.own, self.present, self.compared, self.staged) = (None, 0, 0, 0);
            return Ok(self.opened(disk)?.set_len(0)?);
        }
        self.compared = to;
        if self.own.is_none() || copies {
            self.staged = to;
        }
        Ok(())
    }

    fn read(&mut self, disk: &dyn Disk, at: u64, len: usize) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = vec![0; len];
        let read = match &self.own {
            None => self.opened(disk)?.read_at(&mut bytes, at)?,
            Some(pinned) => match pinned.read_bytes(self.entry.base, &mut bytes, at) {
                Ok(read) => read.unwrap_or(0),
                // What is not there any more is not what is wanted.
                Err(ReadError::Disk(error)) if error.is_not_found() => 0,
                Err(ReadError::Disk(error)) => return Err(error.into()),
                Err(_) => 0,
            },
        };
        bytes.truncate(read);
        Ok(bytes)
    }

    fn opened(&mut self, disk: &dyn Disk) -> Result<&dyn File, DiskError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => disk.open(&self.path, OpenMode::Create)?,
        };
        Ok(&**self.file.insert(file))
    }

    fn take(&mut self, disk: &dyn Disk, bytes: &[u8]) -> Result<(), SnapshotError> {
        let at = self.staged;
        self.opened(disk)?.write_at(&[IoSlice::new(bytes)], at)?;
        self.staged = at + bytes.len() as u64;
        Ok(())
    }

    /// Makes the staged file durable, and reads it again.
    fn finish(&mut self, disk: &dyn Disk) -> Result<(), SnapshotError> {
        let bytes = self.entry.bytes;
        let file = self.opened(disk)?;
        file.set_len(bytes)?;
        file.sync_data()?;
        match verify_segment(disk, &self.path, &self.entry) {
            Ok(()) => Ok(()),
            Err(ReadError::Disk(error)) => Err(error.into()),
            Err(error) => {
                self.file = None;
                disk.remove_file(&self.path)?;
                let what = format!("segment {} of partition {}", self.entry.base, self.partition);
                Err(damaged(what, error.to_string()))
            }
        }
    }
}

fn damaged(what: impl Into<String>, why: impl Into<String>) -> SnapshotError {
    SnapshotError::Damaged { what: what.into(), why: why.into() }
}

/// What cannot be read of the state that came is no fault of this replica's own checkpoint, whose words tell the operator
/// to restore it.
fn in_snapshot(error: ShardError) -> SnapshotError {
    match error {
        ShardError::Disk(error) => error.into(),
        ShardError::Checkpoint { why, .. } => damaged("the state", why),
        error => damaged("the state", error.to_string()),
    }
}

/// The parts of state files that a manifest needs, chunks that lie side by side taken together.
fn ranges_of(manifest: &Manifest) -> VecDeque<(u64, u64, u64)> {
    let mut places: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for (_, place) in &manifest.chunks {
        let end = place.position.saturating_add(place.bytes());
        let known = places.entry((place.file, place.position)).or_default();
        *known = end.max(*known);
    }
    let mut ranges: VecDeque<(u64, u64, u64)> = VecDeque::new();
    for ((file, from), to) in places {
        match ranges.back_mut() {
            Some(last) if last.0 == file && from <= last.2.saturating_add(GAP_BYTES_MAX) => {
                last.2 = last.2.max(to);
            }
            _ => ranges.push_back((file, from, to)),
        }
    }
    ranges
}

fn write_state(
    disk: &dyn Disk,
    path: &std::path::Path,
    number: u64,
    open: &mut Option<(u64, Arc<dyn File>)>,
    position: u64,
    bytes: &[u8],
) -> Result<(), DiskError> {
    let file = match open.take().filter(|(open, _)| *open == number) {
        Some((_, file)) => file,
        None => disk.open(path, OpenMode::Create)?,
    };
    file.write_at(&[IoSlice::new(bytes)], position)?;
    *open = Some((number, file));
    Ok(())
}
