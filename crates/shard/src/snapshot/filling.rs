//! One segment of a snapshot: compared with what is here of it, and fetched as far as that is not the same.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_log::disk::{Disk, DiskError, File, OpenMode};
use weir_log::partition::{PinnedSegments, ReadError, SegmentEntry, verify_segment};
use weir_model::{PartitionId, SegmentId};

use super::{
    CHECKSUM_BYTES_MAX, PIECE_BYTES_MAX, SnapshotError, SnapshotFile, SnapshotWanted, Snapshots, damaged,
    staged_name,
};

/// A segment that is being fetched, or compared with what is here.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) partition: PartitionId,
    pub(super) entry: SegmentEntry,
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

/// What of a segment is here, if anything is: staged by an earlier attempt, or the replica's own.
pub(super) fn begin(
    snapshots: &Snapshots,
    dir: &Path,
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

    pub(super) fn wanted(&self) -> SnapshotWanted {
        let file = self.file_name();
        if self.compared < self.present {
            let to = self.present.min(self.compared + CHECKSUM_BYTES_MAX);
            SnapshotWanted::Checksum { file, from: self.compared, to }
        } else {
            SnapshotWanted::Bytes { file, from: self.staged, to: self.entry.bytes }
        }
    }

    /// Whether the replica's own segment has all of it.
    pub(super) fn is_kept(&self) -> bool {
        self.own.is_some() && self.present == self.entry.bytes && self.compared == self.present
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_kept() || (self.compared == self.present && self.staged == self.entry.bytes)
    }

    /// Compares what is here up to a position with the sender's. What differs from it, and all of the segment with it,
    /// is fetched.
    pub(super) fn compare(&mut self, disk: &dyn Disk, to: u64, crc: u32) -> Result<(), SnapshotError> {
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

    pub(super) fn take(&mut self, disk: &dyn Disk, bytes: &[u8]) -> Result<(), SnapshotError> {
        let at = self.staged;
        self.opened(disk)?.write_at(&[IoSlice::new(bytes)], at)?;
        self.staged = at + bytes.len() as u64;
        Ok(())
    }

    /// Makes the staged file durable, and reads it again.
    pub(super) fn finish(&mut self, disk: &dyn Disk) -> Result<(), SnapshotError> {
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
