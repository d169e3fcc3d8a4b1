//! Deadlines of records of one partition, in the order in which they come: when a parked record is to be
//! released, or when one that waits expires.
//!
//! A row is a time and an offset, and stays until it is taken out by name. Rows lie in runs of a bounded length,
//! which are shared with checkpoints and views until they change, so that one more row costs what a run costs and
//! not what all of them do.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::TimestampMs;
use weir_model::timer::TimerRow;
use weir_model::wire::{DecodeError, Reader, Writer};

/// Rows of one run: 32 KiB, of which half move when one is put in.
const RUN_MAX: usize = 2_048;

/// All deadlines of one partition.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// By the first row of each run when it was cut, which no row of it precedes. None of them is empty.
    runs: BTreeMap<TimerRow, Arc<Vec<TimerRow>>>,
    len: usize,
}

impl PartialEq for Timers {
    fn eq(&self, other: &Timers) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Timers {}

impl Timers {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The earliest deadline.
    pub fn first(&self) -> Option<TimerRow> {
        self.iter().next()
    }

    /// Rows whose time has come, the earliest first, up to so many.
    pub fn due(&self, now: TimestampMs, most: usize) -> Vec<TimerRow> {
        self.iter().take_while(|row| row.at <= now).take(most).collect()
    }

    /// Whether a row is there.
    pub fn contains(&self, row: TimerRow) -> bool {
        let run = self.run_of(row).and_then(|key| self.runs.get(&key));
        run.is_some_and(|run| run.binary_search(&row).is_ok())
    }

    /// All rows, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = TimerRow> + '_ {
        self.runs.values().flat_map(|run| run.iter().copied())
    }

    /// Puts a row in. Whether it was not there.
    pub(crate) fn insert(&mut self, row: TimerRow) -> bool {
        // What precedes all runs goes to the front of the first.
        let key = self.run_of(row).unwrap_or_else(|| self.move_first_to(row));
        let run = Arc::make_mut(self.runs.entry(key).or_default());
        let Err(at) = run.binary_search(&row) else { return false };
        run.insert(at, row);
        self.len += 1;
        if run.len() > RUN_MAX {
            // Rows mostly come in rising order: then the runs that are left behind stay full.
            let cut = if at + 1 == run.len() { RUN_MAX } else { RUN_MAX / 2 };
            let rest = run.split_off(cut);
            self.runs.insert(rest[0], Arc::new(rest));
        }
        true
    }

    /// Takes a row out. Whether it was there.
    pub(crate) fn remove(&mut self, row: TimerRow) -> bool {
        let Some(key) = self.run_of(row) else { return false };
        let Some(run) = self.runs.get_mut(&key) else { return false };
        let Ok(at) = run.binary_search(&row) else { return false };
        self.len -= 1;
        if run.len() == 1 {
            self.runs.remove(&key);
        } else {
            Arc::make_mut(run).remove(at);
        }
        true
    }

    /// The run that a row belongs to: the last that begins at or before it.
    fn run_of(&self, row: TimerRow) -> Option<TimerRow> {
        self.runs.range(..=row).next_back().map(|(key, _)| *key)
    }

    /// Lets the first run, if there is one, begin at a row that precedes all others.
    fn move_first_to(&mut self, row: TimerRow) -> TimerRow {
        if let Some((_, run)) = self.runs.pop_first() {
            self.runs.insert(row, run);
        }
        row
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.len as u32);
        self.iter().for_each(|row| row.encode(out));
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Timers, DecodeError> {
        let mut timers = Timers::default();
        for row in reader.list(TimerRow::ENCODED_BYTES, TimerRow::decode)? {
            let follows = timers.runs.last_key_value().is_none_or(|(_, run)| run.last() < Some(&row));
            if !follows {
                return Err(reader.error("deadlines are not in order"));
            }
            timers.insert(row);
        }
        Ok(timers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn row(at: TimestampMs, offset: i64) -> TimerRow {
        TimerRow { at, offset }
    }

    fn reloaded(timers: &Timers) -> Timers {
        let mut out = Writer::new();
        timers.encode(&mut out);
        Timers::decode(&mut Reader::new("timers", out.finish())).unwrap()
    }

    #[test]
    fn a_million_rows_take_few_runs_in_whatever_order_they_come() {
        let rising = |i: i64| row(i / 3, i);
        let scattered = |i: i64| row(i.wrapping_mul(7_919) % 600_000, i);
        let mut timers = Timers::default();
        (0..200_000).for_each(|i| assert!(timers.insert(rising(i))));
        assert!(timers.runs.len() <= 200_000 / RUN_MAX + 1, "{}", timers.runs.len());
        let mut timers = Timers::default();
        (0..200_000).for_each(|i| assert!(timers.insert(scattered(i))));
        assert!(timers.runs.len() <= 3 * 200_000 / RUN_MAX, "{}", timers.runs.len());
        assert_eq!(reloaded(&timers), timers);
        let due = timers.due(10, 1_000_000);
        assert!(due.iter().all(|row| row.at <= 10) && due.is_sorted() && !due.is_empty());
        due.into_iter().for_each(|row| assert!(timers.remove(row)));
        assert!(timers.first().unwrap().at > 10);
    }

    proptest! {
        #[test]
        fn timers_are_a_sorted_set(
            steps in proptest::collection::vec((any::<bool>(), 0i64..40, 0i64..4), 0..300),
        ) {
            let (mut timers, mut model) = (Timers::default(), BTreeSet::new());
            for (insert, at, offset) in steps {
                let row = row(at, offset);
                if insert {
                    prop_assert_eq!(timers.insert(row), model.insert(row));
                } else {
                    prop_assert_eq!(timers.remove(row), model.remove(&row));
                }
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.contains(row), insert);
            }
            prop_assert!(timers.iter().eq(model.iter().copied()));
            prop_assert_eq!(timers.due(20, 7), model.iter().copied().filter(|row| row.at <= 20).take(7).collect::<Vec<_>>());
            prop_assert_eq!(reloaded(&timers), timers);
        }
    }
}
