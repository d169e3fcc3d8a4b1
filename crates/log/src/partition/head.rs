//! What must be known of a batch to step over it, from its first bytes alone.

use weir_model::batch::{BATCH_HEADER_BYTES, LENGTH_PREFIX_BYTES};
use weir_model::{Offset, TimestampMs};

/// Bytes that [`BatchHead::parse`] looks at.
pub(super) const HEAD_BYTES: usize = 43;

/// The part of a batch's header that finding one's way needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHead {
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub bytes: usize,
    pub leader_epoch: i32,
    pub max_timestamp: TimestampMs,
}

impl BatchHead {
    /// Parses the head of a batch, of which at least [`HEAD_BYTES`] must be at hand.
    pub(super) fn parse(bytes: &[u8]) -> Result<BatchHead, &'static str> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Err("the file ends within a batch");
        };
        let i32_at = |at: usize| i32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let i64_at = |at: usize| i64::from(i32_at(at)) << 32 | i64::from(i32_at(at + 4) as u32);
        let (base_offset, length, delta) = (i64_at(0), i32_at(8), i32_at(23));
        if head[16] != 2 {
            return Err("no record batch of version 2 begins there");
        }
        if length < (BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32 {
            return Err("the batch's length is impossible");
        }
        if base_offset < 0 || delta < 0 || base_offset.checked_add(i64::from(delta)).is_none() {
            return Err("the batch's offsets are impossible");
        }
        Ok(BatchHead {
            base_offset,
            last_offset: base_offset + i64::from(delta),
            bytes: LENGTH_PREFIX_BYTES + length as usize,
            leader_epoch: i32_at(12),
            max_timestamp: i64_at(35),
        })
    }
}
