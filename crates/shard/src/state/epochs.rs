//! Which leader epoch wrote what: a table of epochs and the first offset of each, from which clients
//! tell whether the log that they read before is still the same (KIP-101, KIP-320).

use weir_model::Offset;
use weir_model::wire::{DecodeError, Reader, Writer};

use crate::limits::EPOCHS_PER_PARTITION_MAX;

/// An epoch and the first offset that was appended in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The leader epoch.
    pub epoch: i32,
    /// Its first offset that the log still has.
    pub offset: Offset,
}

/// The table. Epochs and offsets rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochTable {
    starts: Vec<EpochStart>,
}

impl EpochTable {
    #[cfg(test)]
    pub(crate) fn starts(&self) -> &[EpochStart] {
        &self.starts
    }

    /// A batch was appended at `offset` in `epoch`.
    pub(crate) fn appended(&mut self, epoch: i32, offset: Offset) {
        if self.starts.last().is_some_and(|last| last.epoch >= epoch) {
            return;
        }
        if self.starts.len() >= EPOCHS_PER_PARTITION_MAX {
            self.starts.remove(0);
        }
        self.starts.push(EpochStart { epoch, offset });
    }

    /// Records below `log_start` are gone.
    pub(crate) fn trimmed(&mut self, log_start: Offset) {
        let gone = self.starts.partition_point(|start| start.offset <= log_start);
        if gone > 0 {
            self.starts.drain(..gone - 1);
            self.starts[0].offset = log_start;
        }
    }

    /// The epoch in which the record at `offset` was appended; -1 if that is not known.
    pub(crate) fn at(&self, offset: Offset) -> i32 {
        let after = self.starts.partition_point(|start| start.offset <= offset);
        if after == 0 { -1 } else { self.starts[after - 1].epoch }
    }

    /// The largest epoch up to `epoch` that has records, and the offset after its last one, as Kafka's
    /// `OffsetForLeaderEpoch` answers; (-1, -1) if `epoch` is not known. `current` is the epoch of
    /// appends now, `next_offset` the end of the log.
    pub(crate) fn end_of(&self, epoch: i32, current: i32, next_offset: Offset) -> (i32, Offset) {
        if epoch < 0 || epoch > current {
            return (-1, -1);
        }
        if epoch == current {
            return (current, next_offset);
        }
        let after = self.starts.partition_point(|start| start.epoch <= epoch);
        let end = self.starts.get(after).map_or(next_offset, |start| start.offset);
        match after {
            // Older than anything that is left: it ends where the log begins.
            0 => (epoch, end),
            _ => (self.starts[after - 1].epoch, end),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.list(&self.starts, |out, start| {
            out.i32(start.epoch);
            out.i64(start.offset);
        });
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<EpochTable, DecodeError> {
        let starts = reader.list(12, |r| Ok(EpochStart { epoch: r.i32()?, offset: r.i64()? }))?;
        let rising = |pair: &[EpochStart]| pair[0].epoch < pair[1].epoch && pair[0].offset <= pair[1].offset;
        if starts.len() > EPOCHS_PER_PARTITION_MAX || !starts.windows(2).all(rising) {
            return Err(reader.error("a table of epochs is out of order"));
        }
        Ok(EpochTable { starts })
    }
}
