//! Positions in a key: before its first word, between two, behind its last.

use crate::limits::ROUTING_KEY_BYTES_MAX;

/// A key of nothing but dots has a word more than bytes, and a position more than words.
const POSITIONS_MAX: usize = ROUTING_KEY_BYTES_MAX + 2;

const BLOCKS: usize = POSITIONS_MAX.div_ceil(64);

/// A set of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    blocks: [u64; BLOCKS],
}

/// So many low bits.
fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Positions {
    /// All from `first` to `last`.
    pub(super) fn between(first: usize, last: usize) -> Positions {
        let mut positions = Positions::default();
        for (index, block) in positions.blocks.iter_mut().enumerate() {
            let below = |position: usize| low_bits(position.saturating_sub(64 * index));
            *block = below(last + 1) & !below(first);
        }
        positions
    }

    pub(super) fn contains(self, position: usize) -> bool {
        self.blocks[position / 64] & (1 << (position % 64)) != 0
    }

    /// The lowest.
    pub(super) fn first(self) -> Option<usize> {
        let index = self.blocks.iter().position(|block| *block != 0)?;
        Some(64 * index + self.blocks[index].trailing_zeros() as usize)
    }

    /// The same but this one.
    pub(super) fn without(mut self, position: usize) -> Positions {
        self.blocks[position / 64] &= !(1 << (position % 64));
        self
    }

    /// Those that are not in `others`.
    pub(super) fn minus(mut self, others: Positions) -> Positions {
        for (block, other) in self.blocks.iter_mut().zip(others.blocks) {
            *block &= !other;
        }
        self
    }

    /// Each a word further. None may be the last that there can be.
    pub(super) fn moved_on(self) -> Positions {
        let mut moved = Positions::default();
        let mut carried = 0;
        for (block, from) in moved.blocks.iter_mut().zip(self.blocks) {
            *block = (from << 1) | carried;
            carried = from >> 63;
        }
        moved
    }

    /// Those that `keep` says yes to.
    pub(super) fn filter(self, keep: impl Fn(usize) -> bool) -> Positions {
        let mut kept = self;
        let mut left = self;
        while let Some(position) = left.first() {
            left = left.without(position);
            if !keep(position) {
                kept = kept.without(position);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LAST: usize = POSITIONS_MAX - 1;

    fn listed(positions: Positions) -> BTreeSet<usize> {
        (0..=LAST).filter(|position| positions.contains(*position)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn they_are_what_a_set_of_numbers_would_be(first in 0..=LAST, last in 0..=LAST, out in proptest::collection::vec(0..=LAST, 0..50)) {
            let mut model: BTreeSet<usize> = (first..=last).collect();
            let mut positions = Positions::between(first, last);
            prop_assert_eq!(listed(positions), model.clone());
            for position in &out {
                positions = positions.without(*position);
                model.remove(position);
            }
            prop_assert_eq!(listed(positions), model.clone());
            prop_assert_eq!(positions.first(), model.first().copied());
            let odd = positions.filter(|position| position % 2 == 1);
            let odd_model: BTreeSet<usize> = model.iter().copied().filter(|p| p % 2 == 1).collect();
            prop_assert_eq!(listed(odd), odd_model);
            let even = positions.minus(odd).without(LAST);
            let moved_model: BTreeSet<usize> =
                model.iter().filter(|p| **p % 2 == 0 && **p != LAST).map(|p| p + 1).collect();
            prop_assert_eq!(listed(even.moved_on()), moved_model);
        }
    }
}
