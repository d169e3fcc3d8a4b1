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
use weir_log::partition::SegmentEntry;
use weir_model::PartitionId;

use super::filling::{self, Filling};
use super::{
    SnapshotError, SnapshotFile, SnapshotId, SnapshotWanted, Snapshots, damaged, staged_name, staging_dir,
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
                    *filling = Some(filling::begin(&self.snapshots, &self.dir, partition, entry)?);
                }
            }
        }
    }
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
