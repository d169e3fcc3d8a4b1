//! Consumers: their credit, their turn, and which of them is active.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::types::{ConsumerId, NewConsumer, OwnerId, SubscribeError};

/// A bound that consumers share, such as that of a channel with several consumers, perhaps of several queues.
pub trait Gate: Send + Sync {
    /// Takes one of what may be unsettled, if there is one left. It is given back by whoever settles.
    fn take(&self) -> bool;

    /// Whether it may be shut. One that is not lets everything through at present.
    fn is_limited(&self) -> bool {
        true
    }

    /// So many records were handed out while it was not limited, by somebody who could not ask it.
    fn count(&self, records: u32) {
        let _ = records;
    }

    /// Of what was taken, so many were not handed out after all.
    fn give_back(&self, records: u32) {
        let _ = records;
    }
}

/// Consumers of one queue.
const CONSUMERS_MAX: usize = 100_000;

struct Consumer {
    owner: OwnerId,
    credit: Option<u32>,
    priority: i32,
    exclusive: bool,
    settled: bool,
    gate: Option<Arc<dyn Gate>>,
    /// Stands in line.
    in_line: bool,
}

/// All consumers of one queue.
#[derive(Default)]
pub(crate) struct Consumers {
    next: u64,
    all: BTreeMap<ConsumerId, Consumer>,
    /// Those with credit, by priority, each priority in the order of its turns.
    line: BTreeMap<Reverse<i32>, VecDeque<ConsumerId>>,
    single_active: bool,
    active: Option<ConsumerId>,
}

impl Consumers {
    pub(crate) fn new(first: ConsumerId, single_active: bool) -> Consumers {
        Consumers { next: first.0, single_active, ..Consumers::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether somebody would take a record.
    pub(crate) fn is_anybody_willing(&self) -> bool {
        !self.line.is_empty()
    }

    /// The one that gets everything, where only one does.
    pub(crate) fn active(&self) -> Option<ConsumerId> {
        self.active
    }

    pub(crate) fn add(&mut self, new: NewConsumer) -> Result<ConsumerId, SubscribeError> {
        // Whoever consumes exclusively is the only one.
        if self.all.values().next().is_some_and(|consumer| consumer.exclusive) {
            return Err(SubscribeError::Exclusive);
        }
        if new.exclusive && !self.all.is_empty() {
            return Err(SubscribeError::NotAlone);
        }
        if self.all.len() >= CONSUMERS_MAX {
            return Err(SubscribeError::TooMany { limit: CONSUMERS_MAX });
        }
        let id = ConsumerId(self.next);
        self.next += 1;
        let NewConsumer { owner, credit, priority, exclusive, settled, gate } = new;
        self.all.insert(id, Consumer { owner, credit, priority, exclusive, settled, gate, in_line: false });
        self.choose_active();
        self.line_up(id);
        Ok(id)
    }

    /// Takes a consumer out. Whether it was there.
    pub(crate) fn remove(&mut self, id: ConsumerId) -> bool {
        let Some(consumer) = self.all.remove(&id) else { return false };
        if consumer.in_line {
            self.leave_line(id, consumer.priority);
        }
        if self.active == Some(id) {
            self.active = None;
            self.choose_active();
        }
        true
    }

    pub(crate) fn of(&self, owner: OwnerId) -> Vec<ConsumerId> {
        self.all.iter().filter(|(_, consumer)| consumer.owner == owner).map(|(id, _)| *id).collect()
    }

    /// Adds to a consumer's credit; one without a bound stays so.
    pub(crate) fn add_credit(&mut self, id: ConsumerId, more: u32) {
        if let Some(Consumer { credit: Some(credit), .. }) = self.all.get_mut(&id) {
            *credit = credit.saturating_add(more);
            self.line_up(id);
        }
    }

    /// The next consumer that takes a record, with one of its credit spent: whose lease it is, and whether the
    /// record is settled at once. The caller hands one out to it.
    pub(crate) fn take_turn(&mut self) -> Option<(ConsumerId, OwnerId, bool)> {
        let mut tried: Option<Reverse<i32>> = None;
        while let Some(priority) = self.priority_below(tried) {
            tried = Some(priority);
            for _ in 0..self.line.get(&priority).map_or(0, VecDeque::len) {
                let id = self.line.get_mut(&priority).and_then(VecDeque::pop_front)?;
                let Some(consumer) = self.all.get_mut(&id) else { continue };
                let open = consumer.gate.as_ref().is_none_or(|gate| gate.take());
                if open && let Some(credit) = &mut consumer.credit {
                    *credit -= 1;
                }
                consumer.in_line = consumer.credit != Some(0);
                let taken = (id, consumer.owner, consumer.settled);
                if consumer.in_line {
                    self.line.entry(priority).or_default().push_back(id);
                } else if self.line.get(&priority).is_some_and(VecDeque::is_empty) {
                    self.line.remove(&priority);
                }
                if open {
                    return Some(taken);
                }
            }
        }
        None
    }

    /// The highest priority of those in line, or the next one below another.
    fn priority_below(&self, other: Option<Reverse<i32>>) -> Option<Reverse<i32>> {
        let from = other.map_or(Bound::Unbounded, Bound::Excluded);
        self.line.range((from, Bound::Unbounded)).next().map(|(priority, _)| *priority)
    }

    /// Makes the first of the highest priority the active one, if there is none.
    fn choose_active(&mut self) {
        if !self.single_active || self.active.is_some() {
            return;
        }
        let best = self.all.iter().min_by_key(|(id, consumer)| (Reverse(consumer.priority), **id));
        self.active = best.map(|(id, _)| *id);
        if let Some(id) = self.active {
            self.line_up(id);
        }
    }

    /// Puts a consumer in line, if it has credit, is the active one, and does not stand there already.
    fn line_up(&mut self, id: ConsumerId) {
        let passive = self.single_active && self.active != Some(id);
        let Some(consumer) = self.all.get_mut(&id) else { return };
        if passive || consumer.in_line || consumer.credit == Some(0) {
            return;
        }
        consumer.in_line = true;
        self.line.entry(Reverse(consumer.priority)).or_default().push_back(id);
    }

    fn leave_line(&mut self, id: ConsumerId, priority: i32) {
        if let Some(turns) = self.line.get_mut(&Reverse(priority)) {
            turns.retain(|other| *other != id);
            if turns.is_empty() {
                self.line.remove(&Reverse(priority));
            }
        }
    }
}
