//! Partitions that were closed. Ids are never used twice, so a late repeat of a closed partition's
//! `OpenPartition` must not bring it back, and the files of a closed one may be removed even when the
//! process that closed it did not live to do so.

use std::collections::BTreeSet;

use weir_model::PartitionId;
use weir_model::wire::{DecodeError, Reader, Writer};

use crate::limits::CLOSED_PARTITIONS_MAX;

/// The closed partitions: the latest by id one by one, of older ones only that there were some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClosedPartitions {
    ids: BTreeSet<PartitionId>,
    /// Whatever is below and not open has been closed, or is too old to be opened.
    floor: PartitionId,
}

impl ClosedPartitions {
    pub(crate) fn insert(&mut self, id: PartitionId) {
        if id >= self.floor {
            self.ids.insert(id);
        }
        while self.ids.len() > CLOSED_PARTITIONS_MAX {
            if let Some(lowest) = self.ids.pop_first() {
                self.floor = PartitionId(lowest.0 + 1);
            }
        }
    }

    /// Whether a partition that is not open may be opened.
    pub(crate) fn may_open(&self, id: PartitionId) -> bool {
        id >= self.floor && !self.ids.contains(&id)
    }

    /// Whether the partition is known to have been closed.
    pub(crate) fn contains(&self, id: PartitionId) -> bool {
        self.ids.contains(&id)
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.floor.0);
        out.u32(self.ids.len() as u32);
        self.ids.iter().for_each(|id| out.u64(id.0));
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<ClosedPartitions, DecodeError> {
        let floor = PartitionId(reader.u64()?);
        let ids = reader.list(8, |r| Ok(PartitionId(r.u64()?)))?;
        if ids.len() > CLOSED_PARTITIONS_MAX {
            return Err(reader.error("more closed partitions than are remembered"));
        }
        Ok(ClosedPartitions { ids: ids.into_iter().collect(), floor })
    }
}
