//! How large the records of a lane are, for queues that bound the bytes that wait.

use std::collections::BTreeMap;

use weir_model::Offset;

/// Records of one run at most: a run is let go when all of its records are settled.
const RUN_MAX: u32 = 4_096;

/// Neighbours of the same size.
#[derive(Clone, Copy, Debug)]
struct Run {
    count: u32,
    /// Of these are not settled.
    live: u32,
    each: u64,
}

/// Sizes of records that are not settled. Takes memory by the run of records of the same size, at most some 40 bytes
/// for each record.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    /// By the offset of their first record.
    runs: BTreeMap<Offset, Run>,
}

impl Sizes {
    /// Notes a record that lies behind all others.
    pub(crate) fn push(&mut self, offset: Offset, bytes: u64) {
        if let Some((from, run)) = self.runs.iter_mut().next_back()
            && from + i64::from(run.count) == offset
            && run.each == bytes
            && run.count < RUN_MAX
        {
            run.count += 1;
            run.live += 1;
            return;
        }
        self.runs.insert(offset, Run { count: 1, live: 1, each: bytes });
    }

    /// Bytes of a run of records; those that are not known count nothing.
    pub(crate) fn sum(&self, from: Offset, to: Offset) -> u64 {
        let first = self.runs.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let within = self.runs.range(first..=to).map(|(first, run)| {
            let last = first + i64::from(run.count) - 1;
            let records = (last.min(to) - (*first).max(from) + 1).max(0);
            run.each * records.cast_unsigned()
        });
        within.sum()
    }

    /// Records are settled. None of them was before.
    pub(crate) fn forget(&mut self, from: Offset, to: Offset) {
        let first = self.runs.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let mut gone = Vec::new();
        for (first, run) in self.runs.range_mut(first..=to) {
            let last = first + i64::from(run.count) - 1;
            let records = (last.min(to) - (*first).max(from) + 1).max(0) as u32;
            run.live = run.live.saturating_sub(records);
            if run.live == 0 {
                gone.push(*first);
            }
        }
        for first in gone {
            self.runs.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_of_one_size_take_one_run_until_all_are_settled() {
        let mut sizes = Sizes::default();
        (0..1_000_000).for_each(|offset| sizes.push(offset, 12));
        assert_eq!(sizes.runs.len(), 1_000_000_usize.div_ceil(RUN_MAX as usize));
        assert_eq!(sizes.sum(0, 999_999), 12_000_000);
        sizes.forget(1, 999_999);
        assert_eq!(sizes.runs.len(), 1);
        sizes.forget(0, 0);
        assert!(sizes.runs.is_empty());
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_records(
            records in proptest::collection::vec((1i64..3, 0u64..3), 1..40), from in 0i64..60, len in 0i64..60,
        ) {
            let (mut sizes, mut model, mut offset) = (Sizes::default(), Vec::new(), 0);
            for (step, bytes) in records {
                offset += step;
                sizes.push(offset, bytes);
                model.push((offset, bytes));
            }
            let to = from + len;
            let sum = model.iter().filter(|(offset, _)| (from..=to).contains(offset)).map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(sizes.sum(from, to), sum);
            model.iter().for_each(|(offset, _)| sizes.forget(*offset, *offset));
            prop_assert!(sizes.runs.is_empty());
        }
    }
}
