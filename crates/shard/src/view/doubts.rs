//! Places where a read has found that a segment file is not what was written, for whoever can mend it.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use weir_model::{Offset, PartitionId};

/// Places that are remembered until somebody looks. What is beyond is met again by who reads there.
const DOUBTS_MAX: usize = 1_000;

/// Partitions, and offsets from which they could not be read.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    places: Mutex<BTreeSet<(PartitionId, Offset)>>,
}

impl Doubts {
    pub(crate) fn note(&self, partition: PartitionId, offset: Offset) {
        let mut places = self.places.lock();
        if places.len() < DOUBTS_MAX {
            places.insert((partition, offset));
        }
    }

    pub(crate) fn take(&self) -> Vec<(PartitionId, Offset)> {
        std::mem::take(&mut *self.places.lock()).into_iter().collect()
    }
}
