//! What reading a partition gives, and why it may not.

use bytes::{Bytes, BytesMut};
use weir_log::partition::TimestampHit;
use weir_model::batch::StoredBatch;
use weir_model::{Offset, TimestampMs};

/// Whole batches, as they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOut {
    /// Bytes of the batches, to be sent behind each other.
    pub chunks: Vec<Bytes>,
    /// Their length in all.
    pub bytes: usize,
    /// The offset after the last record read; where to read on.
    pub next_offset: Offset,
    /// How many batches.
    pub batches: usize,
}

impl ReadOut {
    /// All bytes behind each other; copied only if they lie in several pieces.
    pub fn in_one_piece(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.chunks) {
            Ok([whole]) => whole,
            Err(chunks) => {
                let mut whole = BytesMut::with_capacity(self.bytes);
                chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
                whole.freeze()
            }
        }
    }
}

/// Where a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPosition {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp of its records.
    pub max_timestamp: TimestampMs,
    /// Epoch in which it was appended.
    pub leader_epoch: i32,
}

impl From<&StoredBatch> for BatchPosition {
    fn from(batch: &StoredBatch) -> BatchPosition {
        BatchPosition {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            max_timestamp: batch.max_timestamp,
            leader_epoch: batch.leader_epoch,
        }
    }
}

impl From<TimestampHit> for BatchPosition {
    fn from(hit: TimestampHit) -> BatchPosition {
        BatchPosition {
            base_offset: hit.base_offset,
            last_offset: hit.last_offset,
            max_timestamp: hit.max_timestamp,
            leader_epoch: hit.leader_epoch,
        }
    }
}

/// Why a partition could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such offset.
    #[error("the log has offsets from {log_start} to below {next_offset}")]
    OutOfRange {
        /// The first offset that the log has.
        log_start: Offset,
        /// The offset that the next record will get.
        next_offset: Offset,
    },
    /// Only the disk has it, and the caller does not want to wait for that.
    #[error("the records are not in memory")]
    WouldBlock,
    /// The partition is closed.
    #[error("the partition is closed")]
    Closed,
    /// What the segment file holds is not what was written.
    #[error("the log is damaged at offset {offset}: {why}")]
    Corrupt {
        /// Where.
        offset: Offset,
        /// What is wrong.
        why: String,
    },
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] weir_log::disk::DiskError),
}
