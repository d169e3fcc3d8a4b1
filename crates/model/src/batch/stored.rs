//! A batch that has its place: the producer's bytes, with the offset and epoch that `apply` gave.

use bytes::Bytes;

use super::header::{self, BatchHeader};
use crate::{Offset, TimestampMs};

/// Bytes at the start of a batch that are patched on its way out: base offset, length, epoch.
pub const PATCHED_PREFIX_BYTES: usize = 16;

/// A batch as the log holds it. The bytes are shared with the buffer that the batch arrived in;
/// its first sixteen bytes are written anew whenever it leaves, so that nothing is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Epoch of the partition's leadership in which it was appended.
    pub leader_epoch: i32,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// Largest timestamp in the batch.
    pub max_timestamp: TimestampMs,
    bytes: Bytes,
}

impl StoredBatch {
    /// Gives a verified batch its place. `header` is that of `bytes`.
    pub fn place(header: &BatchHeader, bytes: Bytes, base_offset: Offset, leader_epoch: i32) -> StoredBatch {
        debug_assert_eq!(header.total_bytes(), bytes.len());
        StoredBatch {
            base_offset,
            leader_epoch,
            last_offset: base_offset + i64::from(header.last_offset_delta),
            max_timestamp: header.max_timestamp,
            bytes,
        }
    }

    /// Length in bytes, as stored and as sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes; never true for a batch made by [`StoredBatch::place`].
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first sixteen bytes with this place patched in.
    pub fn prefix(&self) -> [u8; PATCHED_PREFIX_BYTES] {
        let mut prefix = [0; PATCHED_PREFIX_BYTES];
        prefix[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        prefix[8..12].copy_from_slice(&self.bytes[8..12]);
        prefix[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        prefix
    }

    /// Everything after the patched prefix, shared and not copied.
    pub fn rest(&self) -> Bytes {
        self.bytes.slice(PATCHED_PREFIX_BYTES..)
    }

    /// Everything after the patched prefix.
    pub fn rest_slice(&self) -> &[u8] {
        &self.bytes[PATCHED_PREFIX_BYTES..]
    }

    /// The header with this place in it.
    pub fn header(&self) -> Result<BatchHeader, header::BatchError> {
        let mut header = BatchHeader::parse(&self.bytes)?;
        header.base_offset = self.base_offset;
        header.leader_epoch = self.leader_epoch;
        Ok(header)
    }

    /// The batch in one piece, copied.
    pub fn to_contiguous(&self) -> Bytes {
        let mut all = Vec::with_capacity(self.len());
        all.extend_from_slice(&self.prefix());
        all.extend_from_slice(self.rest_slice());
        all.into()
    }
}
