//! Deadlines of stored records.

use crate::wire::{DecodeError, Reader, Writer};
use crate::{Offset, TimestampMs};

/// When something is to happen to a record of a partition. Rows are ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerRow {
    /// When.
    pub at: TimestampMs,
    /// To which record.
    pub offset: Offset,
}

impl TimerRow {
    /// Bytes in the encoding.
    pub const ENCODED_BYTES: usize = 16;

    /// Writes it, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.i64(self.at);
        out.i64(self.offset);
    }

    /// Reads what [`TimerRow::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<TimerRow, DecodeError> {
        Ok(TimerRow { at: reader.i64()?, offset: reader.i64()? })
    }
}
