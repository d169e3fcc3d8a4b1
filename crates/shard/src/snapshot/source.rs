//! A durable checkpoint that is being sent: its files stay where they are, and are read piece by piece.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use weir_log::disk::{File, OpenMode};
use weir_log::partition::{SegmentEntry, segment_file_name};

use super::{CHECKSUM_BYTES_MAX, PIECE_BYTES_MAX, SnapshotError, SnapshotFile, SnapshotId, Snapshots};
use crate::checkpoint::{Held, state_name};
use crate::files::Hold;

/// A durable checkpoint whose files stay on disk as long as this lives, whatever is trimmed or closed meanwhile.
pub struct SnapshotSource {
    id: SnapshotId,
    manifest: Bytes,
    snapshots: Snapshots,
    /// The file that was read last, which is nearly always the one that is read next.
    open: Mutex<Option<(SnapshotFile, Arc<dyn File>)>>,
    _hold: Hold,
}

impl fmt::Debug for SnapshotSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotSource").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SnapshotSource {
    pub(super) fn new(held: Held, snapshots: Snapshots) -> SnapshotSource {
        let Held { manifest, bytes, hold } = held;
        let id = SnapshotId {
            applied_index: manifest.applied_index,
            applied_term: manifest.applied_term,
            manifest_bytes: bytes.len() as u64,
            manifest_crc: crc32c::crc32c(&bytes),
        };
        SnapshotSource { id, manifest: bytes, snapshots, open: Mutex::new(None), _hold: hold }
    }

    /// Which checkpoint.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// Bytes of a file from a position on, up to one behind the last, and at most [`PIECE_BYTES_MAX`]. The range must
    /// be in the file; how far a file is part of the checkpoint its manifest says. Blocks.
    pub fn read(&self, file: SnapshotFile, from: u64, to: u64) -> Result<Bytes, SnapshotError> {
        let missing = SnapshotError::NotThere { file, from, to };
        let len = to.checked_sub(from).ok_or(missing.clone())?.min(PIECE_BYTES_MAX as u64) as usize;
        if file == SnapshotFile::Manifest {
            let end = from.saturating_add(len as u64);
            let there = end <= self.manifest.len() as u64;
            return if there { Ok(self.manifest.slice(from as usize..end as usize)) } else { Err(missing) };
        }
        let bytes = self.opened(file, &missing)?.read_vec(len, from)?;
        if bytes.len() < len { Err(missing) } else { Ok(bytes.into()) }
    }

    /// The CRC-32C of at most [`CHECKSUM_BYTES_MAX`] bytes of a file. Blocks.
    pub fn checksum(&self, file: SnapshotFile, from: u64, to: u64) -> Result<u32, SnapshotError> {
        if to.saturating_sub(from) > CHECKSUM_BYTES_MAX {
            return Err(SnapshotError::NotThere { file, from, to });
        }
        let (mut crc, mut at) = (0, from);
        while at < to {
            let bytes = self.read(file, at, to)?;
            crc = crc32c::crc32c_append(crc, &bytes);
            at += bytes.len() as u64;
        }
        Ok(crc)
    }

    fn opened(&self, file: SnapshotFile, missing: &SnapshotError) -> Result<Arc<dyn File>, SnapshotError> {
        let mut open = self.open.lock();
        if let Some((last, handle)) = &*open
            && *last == file
        {
            return Ok(Arc::clone(handle));
        }
        let Some(path) = self.path(file) else { return Err(missing.clone()) };
        let handle = self.snapshots.files.disk().open(&path, OpenMode::Read)?;
        *open = Some((file, Arc::clone(&handle)));
        Ok(handle)
    }

    fn path(&self, file: SnapshotFile) -> Option<PathBuf> {
        match file {
            SnapshotFile::Manifest => None,
            SnapshotFile::State(number) => Some(self.snapshots.checkpoints.dir().join(state_name(number))),
            SnapshotFile::Segment(partition, segment) => {
                let entry = SegmentEntry {
                    base: segment.base,
                    generation: segment.generation,
                    bytes: 0,
                    last_offset: 0,
                    max_timestamp: -1,
                    first_time: 0,
                    closed: false,
                };
                Some(self.snapshots.files.partition_dir(partition).join(segment_file_name(&entry)))
            }
        }
    }
}
