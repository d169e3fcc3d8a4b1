//! Publisher confirms: which of a channel's messages are safe, told in as few methods as possible.

use std::collections::BTreeSet;

/// The messages of a channel in confirm mode, numbered from 1 in the order in which they were published.
#[derive(Debug, Default)]
pub(crate) struct Confirms {
    last: u64,
    /// Neither safe nor refused.
    pending: BTreeSet<u64>,
    safe: BTreeSet<u64>,
    refused: Vec<u64>,
}

/// What is sent to the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirm {
    /// `basic.ack`: this message, or all up to it.
    Ack { tag: u64, multiple: bool },
    /// `basic.nack` of one message.
    Nack { tag: u64 },
}

impl Confirms {
    /// The number of the next message.
    pub(crate) fn publish(&mut self) -> u64 {
        self.last += 1;
        self.pending.insert(self.last);
        self.last
    }

    /// A message is where it belongs.
    pub(crate) fn safe(&mut self, tag: u64) {
        if self.pending.remove(&tag) {
            self.safe.insert(tag);
        }
    }

    /// A message is not, or nobody knows.
    pub(crate) fn refused(&mut self, tag: u64) {
        if self.pending.remove(&tag) {
            self.refused.push(tag);
        }
    }

    /// How many messages are neither safe nor refused.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What the publisher is to be told, and is not told again. Refusals come first: an acknowledgement of all
    /// messages up to one must not include them.
    pub(crate) fn take(&mut self, out: &mut Vec<Confirm>) {
        self.refused.sort_unstable();
        out.extend(self.refused.drain(..).map(|tag| Confirm::Nack { tag }));
        // Everything below this number was told or is safe.
        let first_pending = self.pending.first().copied().unwrap_or(u64::MAX);
        let beyond = self.safe.split_off(&first_pending);
        let together = std::mem::take(&mut self.safe);
        if let Some(tag) = together.last() {
            out.push(Confirm::Ack { tag: *tag, multiple: together.len() > 1 });
        }
        out.extend(beyond.into_iter().map(|tag| Confirm::Ack { tag, multiple: false }));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(confirms: &mut Confirms) -> Vec<Confirm> {
        let mut out = Vec::new();
        confirms.take(&mut out);
        out
    }

    fn ack(tag: u64, multiple: bool) -> Confirm {
        Confirm::Ack { tag, multiple }
    }

    #[test]
    fn what_is_safe_without_a_gap_is_told_at_once() {
        let mut confirms = Confirms::default();
        (1..=6).for_each(|tag| assert_eq!(confirms.publish(), tag));
        [2, 1, 3, 5].into_iter().for_each(|tag| confirms.safe(tag));
        assert_eq!(taken(&mut confirms), [ack(3, true), ack(5, false)]);
        assert_eq!(taken(&mut confirms), []);
        confirms.safe(4);
        assert_eq!(taken(&mut confirms), [ack(4, false)]);
        confirms.refused(6);
        confirms.safe(6);
        assert_eq!(taken(&mut confirms), [Confirm::Nack { tag: 6 }]);
    }

    proptest! {
        /// A client that reads them as the protocol says learns of every message once, and the right thing.
        #[test]
        fn every_message_is_told_once(
            fates in proptest::collection::vec((any::<bool>(), any::<u16>(), any::<bool>()), 1..60),
        ) {
            let mut confirms = Confirms::default();
            for _ in &fates {
                confirms.publish();
            }
            let mut order: Vec<usize> = (0..fates.len()).collect();
            order.sort_by_key(|index| fates[*index].1);
            let mut client: Vec<Option<bool>> = vec![None; fates.len()];
            for index in order {
                let tag = index as u64 + 1;
                if fates[index].0 { confirms.safe(tag) } else { confirms.refused(tag) }
                if !fates[index].2 {
                    continue;
                }
                for confirm in taken(&mut confirms) {
                    tell(&mut client, confirm);
                }
            }
            for confirm in taken(&mut confirms) {
                tell(&mut client, confirm);
            }
            let expected: Vec<Option<bool>> = fates.iter().map(|fate| Some(fate.0)).collect();
            prop_assert_eq!(client, expected);
        }
    }

    fn tell(client: &mut [Option<bool>], confirm: Confirm) {
        let (tag, multiple, good) = match confirm {
            Confirm::Ack { tag, multiple } => (tag as usize, multiple, true),
            Confirm::Nack { tag } => (tag as usize, false, false),
        };
        assert_eq!(client[tag - 1], None, "told twice");
        let first = if multiple { 0 } else { tag - 1 };
        client[first..tag].iter_mut().filter(|told| told.is_none()).for_each(|told| *told = Some(good));
    }
}
