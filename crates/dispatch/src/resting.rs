//! Records that came back and rest before they are handed out again.

use std::collections::BTreeMap;

use weir_model::subscription::Marks;
use weir_model::{Offset, TimestampMs};

/// Which records rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rests {
    /// All that come back.
    All,
    /// Those whose delivery failed.
    Failed,
    /// Those that were given back without having failed.
    Returned,
}

/// How long records that came back rest: longer each time that their delivery has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Which of them.
    pub of: Rests,
    /// After the first failure, and if none has failed, in milliseconds.
    pub least_ms: u32,
    /// At most, in milliseconds.
    pub most_ms: u32,
}

impl Rest {
    /// When a record that came back with these marks may be handed out again; none if it may at once.
    pub fn until(&self, marks: &Marks) -> Option<TimestampMs> {
        let rests = match self.of {
            Rests::All => true,
            Rests::Failed => marks.last_failed,
            Rests::Returned => !marks.last_failed,
        };
        if !rests || marks.returns == 0 || marks.at == 0 {
            return None;
        }
        let times = i64::from(marks.failures.max(1));
        let delay = times.saturating_mul(self.least_ms.into()).min(self.most_ms.into());
        (delay > 0).then(|| marks.at.saturating_add(delay))
    }
}

/// The records of a lane that rest: runs of the same marks, by the time until which they do.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    runs: BTreeMap<(TimestampMs, u64, Offset), (Offset, Marks)>,
    records: u64,
}

impl Resting {
    pub(crate) fn insert(&mut self, from: Offset, to: Offset, marks: Marks, until: TimestampMs) {
        self.runs.insert((until, marks.order, from), (to, marks));
        self.records += (to - from + 1).cast_unsigned();
    }

    /// How many records rest.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Until when the first of them do.
    pub(crate) fn first_until(&self) -> Option<TimestampMs> {
        self.runs.keys().next().map(|(until, _, _)| *until)
    }

    /// A run that has rested for long enough, in the order in which they have.
    pub(crate) fn pop_rested(&mut self, now: TimestampMs) -> Option<(Offset, Offset, Marks)> {
        let ((until, _, from), (to, marks)) = self.runs.first_key_value().map(|(key, run)| (*key, *run))?;
        if until > now {
            return None;
        }
        self.runs.pop_first();
        self.records -= (to - from + 1).cast_unsigned();
        Some((from, to, marks))
    }

    /// All of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Offset, Offset)> + use<> {
        self.records = 0;
        std::mem::take(&mut self.runs).into_iter().map(|((_, _, from), (to, _))| (from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(failures: u16, returns: u16, last_failed: bool) -> Marks {
        Marks { failures, returns, order: 0, at: 1_000, last_failed, dead: None }
    }

    #[test]
    fn each_failure_makes_the_rest_longer_up_to_the_most() {
        let rest = Rest { of: Rests::All, least_ms: 30, most_ms: 100 };
        let until = |failures| rest.until(&marks(failures, 1, true));
        assert_eq!([0, 1, 2, 3, 4, u16::MAX].map(until), [1030, 1030, 1060, 1090, 1100, 1100].map(Some));
        let largest = Rest { of: Rests::All, least_ms: u32::MAX, most_ms: u32::MAX };
        assert!(largest.until(&Marks { at: i64::MAX, ..marks(u16::MAX, 1, true) }).is_some());
    }

    #[test]
    fn which_records_rest_depends_on_why_they_came_back() {
        let until =
            |of, last_failed| Rest { of, least_ms: 5, most_ms: 5 }.until(&marks(1, 1, last_failed)).is_some();
        assert_eq!(
            [Rests::All, Rests::Failed, Rests::Returned].map(|of| until(of, true)),
            [true, true, false]
        );
        assert_eq!(
            [Rests::All, Rests::Failed, Rests::Returned].map(|of| until(of, false)),
            [true, false, true]
        );
        let rest = Rest { of: Rests::All, least_ms: 5, most_ms: 5 };
        assert_eq!(rest.until(&Marks::default()), None, "it never came back");
        assert_eq!(rest.until(&Marks { at: 0, ..marks(1, 1, true) }), None, "nobody knows when it came back");
        assert_eq!(Rest { of: Rests::All, least_ms: 0, most_ms: 0 }.until(&marks(1, 1, true)), None);
    }
}
