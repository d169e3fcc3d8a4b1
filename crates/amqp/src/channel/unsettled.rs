//! What a channel has delivered and its peer has not settled yet, by delivery tag.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Looks that are remembered. Of more every other one is forgotten: what was there at it counts as delivered by the next.
const LOOKS_MAX: usize = 1_024;

/// Deliveries of one channel. Tags begin at 1 and rise by one with every delivery, settled or not.
#[derive(Debug)]
pub(crate) struct Unsettled<T> {
    last: u64,
    waiting: BTreeMap<u64, T>,
    /// What the last tag was at the looks for what is overdue; only looks before which something was delivered that waits.
    looks: VecDeque<(u64, Instant)>,
}

/// A tag that was not given out, or was settled before: 406 PRECONDITION_FAILED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown delivery tag {0}")]
pub(crate) struct UnknownTag(pub u64);

impl<T> Default for Unsettled<T> {
    fn default() -> Self {
        Unsettled { last: 0, waiting: BTreeMap::new(), looks: VecDeque::new() }
    }
}

impl<T> Unsettled<T> {
    /// The tag of a delivery that its peer has to settle.
    pub(crate) fn deliver(&mut self, delivery: T) -> u64 {
        let tag = self.deliver_settled();
        self.waiting.insert(tag, delivery);
        tag
    }

    /// The tag of a delivery that counts as settled already.
    pub(crate) fn deliver_settled(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The tag that the next delivery will get.
    pub(crate) fn next_tag(&self) -> u64 {
        self.last + 1
    }

    /// Takes out what a peer settles by a tag: one delivery, or all up to it in the order of their tags. With
    /// `multiple`, 0 means all there are, of which there may be none.
    ///
    /// The tag itself must wait also where others below it do: RabbitMQ refuses it otherwise.
    pub(crate) fn settle(&mut self, tag: u64, multiple: bool) -> Result<Vec<(u64, T)>, UnknownTag> {
        if multiple && tag == 0 {
            return Ok(std::mem::take(&mut self.waiting).into_iter().collect());
        }
        if !multiple {
            return Ok(vec![(tag, self.waiting.remove(&tag).ok_or(UnknownTag(tag))?)]);
        }
        if !self.waiting.contains_key(&tag) {
            return Err(UnknownTag(tag));
        }
        let behind = self.waiting.split_off(&(tag + 1));
        Ok(std::mem::replace(&mut self.waiting, behind).into_iter().collect())
    }

    /// Puts back what was taken out and is not settled after all, under the tags that it had.
    pub(crate) fn restore(&mut self, deliveries: impl IntoIterator<Item = (u64, T)>) {
        self.waiting.extend(deliveries);
    }

    /// A look: the deliveries that wait and were there already at a look at least this long ago, each with how long ago
    /// the first such look was. To be asked at intervals: nothing is noted of single deliveries.
    pub(crate) fn aged(
        &mut self,
        now: Instant,
        least: Duration,
    ) -> impl Iterator<Item = (u64, &T, Duration)> {
        let first = self.waiting.keys().next().copied();
        while self.looks.pop_front_if(|(last, _)| first.is_none_or(|first| first > *last)).is_some() {}
        if first.is_some() && self.looks.back().is_none_or(|(last, _)| *last < self.last) {
            if self.looks.len() >= LOOKS_MAX {
                // The oldest stays: what is stuck has been since then.
                let mut is_dropped = true;
                self.looks.retain(|_| {
                    is_dropped = !is_dropped;
                    !is_dropped
                });
            }
            self.looks.push_back((self.last, now));
        }
        let looks = self.looks.iter().map(move |(last, at)| (*last, now.duration_since(*at)));
        let mut looks = looks.take_while(move |(_, age)| *age >= least).peekable();
        self.waiting.iter().map_while(move |(tag, delivery)| {
            while looks.next_if(|(last, _)| last < tag).is_some() {}
            looks.peek().map(|(_, age)| (*tag, delivery, *age))
        })
    }

    /// Puts something else under the tags of those for which there is something, and takes out what was there.
    pub(crate) fn take_back(&mut self, instead: impl Fn(&T) -> Option<T>) -> Vec<T> {
        let there = self.waiting.values_mut();
        there.filter_map(|there| instead(there).map(|other| std::mem::replace(there, other))).collect()
    }

    /// All that wait, to be changed.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.values_mut()
    }

    /// How many deliveries wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes out everything.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_too_long_is_found_at_a_look() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut unsettled = Unsettled::default();
        let look = |unsettled: &mut Unsettled<char>, at: u32| -> Vec<(u64, char, u64)> {
            let aged = unsettled.aged(began + at * second, 10 * second);
            aged.map(|(tag, delivery, age)| (tag, *delivery, age.as_secs())).collect()
        };
        assert_eq!(look(&mut unsettled, 0), []);
        let first = unsettled.deliver('a');
        assert_eq!(look(&mut unsettled, 5), [], "it may have been delivered just now");
        let second = unsettled.deliver('b');
        assert_eq!(look(&mut unsettled, 9), []);
        assert_eq!(look(&mut unsettled, 14), []);
        assert_eq!(look(&mut unsettled, 15), [(1, 'a', 10)]);
        assert_eq!(look(&mut unsettled, 18), [(1, 'a', 13)], "the other one came later");
        assert_eq!(look(&mut unsettled, 20), [(1, 'a', 15), (2, 'b', 11)]);
        assert_eq!(unsettled.settle(first, false), Ok(vec![(1, 'a')]));
        assert_eq!(look(&mut unsettled, 21), [(2, 'b', 12)]);
        assert_eq!(unsettled.take_back(|delivery| (*delivery == 'b').then_some('c')), ['b']);
        assert_eq!(unsettled.take_back(|delivery| (*delivery == 'b').then_some('c')), []);
        assert_eq!(unsettled.settle(second, false), Ok(vec![(2, 'c')]));
        assert_eq!(look(&mut unsettled, 100), []);
    }

    #[test]
    fn looks_are_remembered_up_to_a_bound_and_what_is_stuck_is_found_all_the_same() {
        let (began, least) = (Instant::now(), Duration::from_secs(1));
        let mut unsettled = Unsettled::default();
        let stuck = unsettled.deliver('s');
        for at in 0..5 * LOOKS_MAX as u32 {
            let tag = unsettled.deliver('p');
            let aged: Vec<u64> = unsettled.aged(began + at * least, least).map(|(tag, _, _)| tag).collect();
            assert!(aged.iter().all(|tag| *tag == stuck), "the others are settled at once");
            unsettled.settle(tag, false).unwrap();
            assert!(unsettled.looks.len() <= LOOKS_MAX);
        }
        let end = began + 6 * LOOKS_MAX as u32 * least;
        let aged: Vec<_> = unsettled.aged(end, least).collect();
        assert_eq!((aged.len(), aged[0].0), (1, stuck));
        assert_eq!(aged[0].2, 6 * LOOKS_MAX as u32 * least, "since the first look");
    }

    #[test]
    fn tags_are_settled_one_by_one_or_up_to_one() {
        let mut unsettled = Unsettled::default();
        let tags: Vec<u64> = "abcdef".chars().map(|delivery| unsettled.deliver(delivery)).collect();
        assert_eq!(tags, [1, 2, 3, 4, 5, 6]);
        assert_eq!(unsettled.settle(2, false), Ok(vec![(2, 'b')]));
        assert_eq!(unsettled.settle(4, true), Ok(vec![(1, 'a'), (3, 'c'), (4, 'd')]));
        assert_eq!(unsettled.settle(0, true), Ok(vec![(5, 'e'), (6, 'f')]));
        assert_eq!(unsettled.settle(0, true), Ok(vec![]));
        assert_eq!(unsettled.deliver('g'), 7);
        unsettled.restore([(6, 'f'), (5, 'e')]);
        assert_eq!(unsettled.settle(6, true), Ok(vec![(5, 'e'), (6, 'f')]));
    }

    #[test]
    fn trap_a_tag_that_does_not_wait_is_refused_even_if_others_below_it_do() {
        let mut unsettled = Unsettled::default();
        for delivery in "abc".chars() {
            unsettled.deliver(delivery);
        }
        assert_eq!(unsettled.settle(3, false), Ok(vec![(3, 'c')]));
        assert_eq!(unsettled.settle(3, true), Err(UnknownTag(3)));
        for (tag, multiple) in [(0, false), (4, false), (4, true), (u64::MAX, true), (3, false)] {
            assert_eq!(unsettled.settle(tag, multiple), Err(UnknownTag(tag)));
        }
        assert_eq!(unsettled.take_all(), ['a', 'b']);
    }

    #[test]
    fn what_is_settled_as_it_is_delivered_has_a_tag_and_does_not_wait() {
        let mut unsettled = Unsettled::default();
        assert_eq!((unsettled.deliver_settled(), unsettled.deliver('b')), (1, 2));
        assert_eq!(unsettled.settle(1, false), Err(UnknownTag(1)));
        assert_eq!(unsettled.settle(2, true), Ok(vec![(2, 'b')]));
    }
}
