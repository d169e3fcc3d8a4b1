//! A segment file that is not what was written, mended by another replica's.
//!
//! ```text
//! shards/<shard>/mending/<partition>-<base>[.<generation>].log     the other replica's file, as far as it has come
//! ```
//!
//! A segment of the same partition, base offset and generation holds the same records on every replica. So all of the other
//! one's file is fetched beside the own, made durable, and read from its first batch to its last: only if everything in it is
//! as it has to be, what differs is written over in place, and synced. Until then the own file stays as it is; a crash in
//! between leaves some of it mended, and the rest as it was.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use weir_log::disk::{File, OpenMode, remove_tree};
use weir_log::partition::{ReadError, SegmentEntry, segment_file_name, verify_segment};
use weir_model::PartitionId;

use super::{PIECE_BYTES_MAX, SnapshotError, Snapshots, damaged, mending_dir, staged_name};

/// Bytes that are compared, and written over if they differ.
const BLOCK_BYTES: usize = 4096;

/// A segment that is being mended. Dropping it leaves the replica's file as it was.
#[derive(Debug)]
pub struct Mending {
    snapshots: Snapshots,
    partition: PartitionId,
    entry: SegmentEntry,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Bytes that have come.
    fetched: u64,
}

impl Mending {
    /// Begins with nothing. There must not be another one of this shard under way.
    pub(super) fn begin(
        snapshots: Snapshots,
        partition: PartitionId,
        entry: SegmentEntry,
    ) -> Result<Mending, SnapshotError> {
        let disk = snapshots.files.disk();
        let dir = mending_dir(snapshots.files.dir());
        remove_tree(&**disk, &dir)?;
        disk.create_dir_all(&dir)?;
        let path = dir.join(staged_name(partition, &entry));
        let file = disk.open(&path, OpenMode::CreateNew)?;
        Ok(Mending { snapshots, partition, entry, path, file, fetched: 0 })
    }

    /// The bytes of the other replica's file that are wanted next, from and to; none once all have come.
    pub fn wanted(&self) -> Option<(u64, u64)> {
        let to = self.entry.bytes.min(self.fetched + PIECE_BYTES_MAX as u64);
        (self.fetched < to).then_some((self.fetched, to))
    }

    /// Takes the bytes that were wanted. Blocks.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.file.write_at(&[IoSlice::new(bytes)], self.fetched)?;
        self.fetched += bytes.len() as u64;
        Ok(())
    }

    /// Checks what has come, and writes what differs over the replica's own file. How many bytes that were. Blocks.
    pub fn finish(self) -> Result<u64, SnapshotError> {
        let disk = Arc::clone(self.snapshots.files.disk());
        self.file.sync_data()?;
        if let Err(error) = verify_segment(&*disk, &self.path, &self.entry) {
            return Err(match error {
                ReadError::Disk(error) => error.into(),
                error => damaged(self.what(), error.to_string()),
            });
        }
        let own = self.snapshots.files.partition_dir(self.partition).join(segment_file_name(&self.entry));
        let own = disk.open(&own, OpenMode::Write)?;
        if own.len()? < self.entry.bytes {
            return Err(damaged(
                self.what(),
                "the own file is too short, and nothing is appended to it here",
            ));
        }
        let replaced = self.replace(&*own)?;
        if replaced > 0 {
            own.sync_data()?;
        }
        remove_tree(&*disk, &mending_dir(self.snapshots.files.dir()))?;
        Ok(replaced)
    }

    fn replace(&self, own: &dyn File) -> Result<u64, SnapshotError> {
        let (mut at, mut replaced) = (0, 0);
        while at < self.entry.bytes {
            let length = (self.entry.bytes - at).min(PIECE_BYTES_MAX as u64) as usize;
            let (right, ours) = (self.file.read_vec(length, at)?, own.read_vec(length, at)?);
            if right.len() < length || ours.len() < length {
                return Err(damaged(self.what(), "a file has become shorter"));
            }
            let blocks = right.chunks(BLOCK_BYTES).zip(ours.chunks(BLOCK_BYTES)).enumerate();
            for (number, (right, ours)) in blocks.filter(|(_, (right, ours))| right != ours) {
                own.write_at(&[IoSlice::new(right)], at + (number * BLOCK_BYTES) as u64)?;
                replaced += right.iter().zip(ours).filter(|(right, ours)| right != ours).count() as u64;
            }
            at += length as u64;
        }
        Ok(replaced)
    }

    fn what(&self) -> String {
        format!("segment {} of partition {}", self.entry.base, self.partition)
    }
}
