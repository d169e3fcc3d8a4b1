//! The dispatcher: by hand where an order matters, and at random against a model of the replicated state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use weir_model::subscription::Settlement;

use super::*;
use crate::consumers::Gate;
use crate::resting::{Rest, Rests};

/// A record that may expire; one that expires below 0 is for now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    offset: Offset,
    expires_at: Option<TimestampMs>,
}

impl Waiting for Note {
    fn bytes(&self) -> usize {
        100
    }

    fn expires_at(&self) -> Option<TimestampMs> {
        self.expires_at
    }

    fn is_for_now(&self) -> bool {
        self.expires_at.is_some_and(|at| at < 0)
    }
}

/// The replicated state of one lane, record by record.
#[derive(Clone, Debug, Default)]
struct Log {
    end: Offset,
    handed_out: Offset,
    settled: BTreeSet<Offset>,
    marks: BTreeMap<Offset, Marks>,
    order: u64,
    holes: BTreeSet<Offset>,
    expiring: BTreeMap<Offset, TimestampMs>,
}

impl Log {
    fn note(&self, offset: Offset) -> Option<Note> {
        let there = offset < self.end && !self.holes.contains(&offset);
        there.then(|| Note { offset, expires_at: self.expiring.get(&offset).copied() })
    }

    fn apply(&mut self, changes: LaneChanges, now: TimestampMs) {
        self.handed_out = self.handed_out.max(changes.handed_out);
        for Settlement { from, to, disposition } in changes.settlements {
            assert!(from <= to && to < self.end, "{from}..={to} of {}", self.end);
            for offset in from..=to {
                assert!(!self.settled.contains(&offset), "{offset} is settled twice");
                let marks = self.marks.entry(offset).or_default();
                match disposition {
                    Disposition::Accept => {
                        self.marks.remove(&offset);
                        self.settled.insert(offset);
                    }
                    Disposition::Release { failed } => {
                        marks.failures += u16::from(failed);
                        marks.returns += 1;
                        marks.order = self.order;
                        (marks.at, marks.last_failed) = (now, failed);
                    }
                    Disposition::Reject { reason } => marks.dead = marks.dead.or(Some(reason)),
                }
            }
            self.order += 1;
        }
    }

    fn start(&self) -> LaneStart {
        let head = (0..self.end).find(|offset| !self.settled.contains(offset)).unwrap_or(self.end);
        LaneStart {
            head,
            end: self.end,
            handed_out: self.handed_out,
            settled: self.settled.range(head..).map(|offset| (*offset, *offset)).collect(),
            marked: self.marks.iter().map(|(offset, marks)| (*offset, *offset, *marks)).collect(),
        }
    }

    fn unsettled(&self) -> usize {
        self.end as usize - self.settled.len()
    }
}

/// A dispatcher and the log that it works on.
struct Queue {
    dispatcher: Dispatcher<Note>,
    options: Options,
    lanes: BTreeMap<LaneNumber, Log>,
    now: TimestampMs,
}

const OWNER: OwnerId = OwnerId(1);

fn size_of(offset: Offset) -> u64 {
    10 + offset as u64 % 3
}

fn consumer(owner: OwnerId, credit: u32) -> NewConsumer {
    NewConsumer { owner, credit: Some(credit), priority: 0, exclusive: false, settled: false, gate: None }
}

impl Queue {
    fn new(options: Options, lanes: LaneNumber) -> Queue {
        let lanes = (0..lanes).map(|number| (number, Log::default())).collect();
        let mut queue = Queue { dispatcher: Dispatcher::new(options), options, lanes, now: 0 };
        queue.restart();
        queue
    }

    /// Another leader begins with what is replicated.
    fn restart(&mut self) {
        self.commit();
        self.dispatcher = Dispatcher::new(self.options);
        for (number, log) in &self.lanes {
            self.dispatcher.add_lane(*number, log.start());
        }
        self.size();
    }

    fn append(&mut self, lane: LaneNumber, count: Offset) {
        let log = self.lanes.get_mut(&lane).unwrap();
        log.end += count;
        self.dispatcher.appended(lane, log.end);
        self.size();
    }

    fn size(&mut self) {
        while let Some(Place { lane, offset }) = self.dispatcher.wants_sizes() {
            let log = &self.lanes[&lane];
            let next = (offset + 5).min(log.end);
            let there = (offset..next).filter(|at| log.note(*at).is_some());
            self.dispatcher.size(lane, there.map(|at| (at, size_of(at))).collect::<Vec<_>>(), next);
        }
    }

    /// What waits, by the replicated state and who has what.
    fn ready_bytes(&self, leased: &BTreeMap<Place, OwnerId>) -> u64 {
        let lanes = self.lanes.iter().flat_map(|(lane, log)| {
            (0..log.end).filter(|offset| {
                let dead = log.marks.get(offset).is_some_and(|marks| marks.dead.is_some());
                let place = Place { lane: *lane, offset: *offset };
                !dead && !log.settled.contains(offset) && !leased.contains_key(&place)
            })
        });
        lanes.map(size_of).sum()
    }

    /// Whether a record is neither settled nor dead.
    fn waits(&self, place: Place) -> bool {
        let log = &self.lanes[&place.lane];
        let is_dead = log.marks.get(&place.offset).is_some_and(|marks| marks.dead.is_some());
        place.offset < log.end && !log.settled.contains(&place.offset) && !is_dead
    }

    fn commit(&mut self) {
        for (lane, changes) in self.dispatcher.take_changes() {
            self.lanes.get_mut(&lane).unwrap().apply(changes, self.now);
        }
    }

    fn read(&mut self, want: Want) {
        match want {
            Want::From(Place { lane, offset }) => {
                let log = &self.lanes[&lane];
                let next = (offset + 7).min(log.end);
                let notes: Vec<_> = (offset..next).filter_map(|at| Some((at, log.note(at)?))).collect();
                self.dispatcher.supply(lane, notes, next);
            }
            Want::One(place) => {
                let log = &self.lanes[&place.lane];
                let around = (place.offset - 3).max(0)..(place.offset + 4).min(log.end);
                let notes: Vec<_> = around.filter_map(|at| Some((at, log.note(at)?))).collect();
                self.dispatcher.supply_returned(place, notes);
            }
        }
    }

    /// Lets everybody have what they take.
    fn run(&mut self) -> Vec<Delivery<Note>> {
        let mut out = Vec::new();
        loop {
            self.dispatcher.dispatch(self.now, &mut out);
            let Some(want) = self.dispatcher.wants() else { break };
            self.read(want);
        }
        self.commit();
        out
    }

    /// As [`Queue::run`]: the offsets of lane 0.
    fn offsets(&mut self) -> Vec<Offset> {
        self.run().iter().map(|delivery| delivery.place.offset).collect()
    }

    fn settle(&mut self, offset: Offset, disposition: Disposition) {
        self.dispatcher.settle(OWNER, Place { lane: 0, offset }, disposition, self.now).unwrap();
    }

    fn get(&mut self) -> Option<Delivery<Note>> {
        loop {
            match self.dispatcher.get(OWNER, false, self.now) {
                Got::Record(delivery) => return Some(delivery),
                Got::Empty => return None,
                Got::Wanted(want) => self.read(want),
            }
        }
    }
}

const RELEASE: Disposition = Disposition::Release { failed: false };
const FAIL: Disposition = Disposition::Release { failed: true };
const REJECT: Disposition = Disposition::Reject { reason: DeadReason::Rejected };

#[test]
fn credit_is_all_that_a_consumer_gets() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.append(0, 10);
    let id = queue.dispatcher.subscribe(consumer(OWNER, 3)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2]);
    assert_eq!((queue.dispatcher.ready(), queue.dispatcher.leased()), (7, 3));
    queue.settle(1, Disposition::Accept);
    assert_eq!(queue.offsets(), [0; 0], "credit is given back by whoever settles");
    queue.dispatcher.add_credit(id, 2);
    assert_eq!(queue.offsets(), [3, 4]);
    assert!(queue.dispatcher.cancel(id));
    queue.dispatcher.add_credit(id, 2);
    assert_eq!((queue.offsets(), queue.dispatcher.leased()), (vec![], 4), "leases stay with their owner");
}

#[test]
fn what_comes_back_has_its_original_position() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.append(0, 6);
    let id = queue.dispatcher.subscribe(consumer(OWNER, 4)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2, 3]);
    queue.settle(2, RELEASE);
    queue.settle(0, FAIL);
    queue.dispatcher.add_credit(id, 3);
    let back = queue.run();
    let seen: Vec<_> = back.iter().map(|d| (d.place.offset, d.redelivered, d.marks.failures)).collect();
    assert_eq!(seen, [(0, true, 1), (2, true, 0), (4, false, 0)]);
}

#[test]
fn returns_in_turn_come_first_in_the_order_in_which_they_came_back() {
    let options = Options { returns_in_turn: true, ..Options::default() };
    let mut queue = Queue::new(options, 1);
    queue.append(0, 6);
    let id = queue.dispatcher.subscribe(consumer(OWNER, 4)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2, 3]);
    [3, 0, 2].into_iter().for_each(|offset| queue.settle(offset, RELEASE));
    queue.dispatcher.add_credit(id, 2);
    assert_eq!(queue.offsets(), [3, 0]);
    // The next leader knows the order, and that what was leased may have been seen.
    queue.restart();
    queue.dispatcher.subscribe(consumer(OWNER, 10)).unwrap();
    let seen: Vec<_> = queue.run().iter().map(|d| (d.place.offset, d.redelivered)).collect();
    assert_eq!(seen, [(3, true), (0, true), (2, true), (1, true), (4, false), (5, false)]);
}

#[test]
fn what_an_owner_leaves_comes_back_in_the_order_in_which_it_went_out() {
    let mut queue = Queue::new(Options { returns_in_turn: true, ..Options::default() }, 1);
    queue.dispatcher.subscribe(consumer(OWNER, 4)).unwrap();
    queue.append(0, 3);
    assert_eq!(queue.offsets(), [0, 1, 2]);
    queue.settle(0, RELEASE);
    assert_eq!(queue.offsets(), [0], "it went out again, behind the others");
    queue.dispatcher.close_owner(OWNER, true, 0);
    queue.dispatcher.subscribe(consumer(OWNER, 3)).unwrap();
    assert_eq!(queue.offsets(), [1, 2, 0]);
}

#[test]
fn consumers_take_turns_and_higher_priorities_come_first() {
    let mut queue = Queue::new(Options::default(), 1);
    let mut add = |priority, credit| {
        let new = NewConsumer { priority, ..consumer(OWNER, credit) };
        queue.dispatcher.subscribe(new).unwrap()
    };
    let (a, b, high) = (add(0, 3), add(0, 3), add(5, 2));
    queue.append(0, 20);
    let turns: Vec<_> = queue.run().iter().map(|delivery| delivery.consumer.unwrap()).collect();
    assert_eq!(turns, [high, high, a, b, a, b, a, b]);
}

#[test]
fn only_one_is_active_and_the_next_takes_over() {
    let options = Options { single_active: true, ..Options::default() };
    let mut queue = Queue::new(options, 1);
    let first = queue.dispatcher.subscribe(consumer(OwnerId(1), 2)).unwrap();
    let second = queue.dispatcher.subscribe(consumer(OwnerId(2), 10)).unwrap();
    queue.append(0, 5);
    assert_eq!(queue.offsets(), [0, 1], "nobody else gets anything while it is there");
    queue.dispatcher.close_owner(OwnerId(1), true, 0);
    assert_eq!((queue.dispatcher.active(), first == second), (Some(second), false));
    let seen: Vec<_> = queue.run().iter().map(|d| (d.place.offset, d.marks.failures)).collect();
    assert_eq!(seen, [(0, 1), (1, 1), (2, 0), (3, 0), (4, 0)]);
}

#[test]
fn whoever_consumes_exclusively_is_alone() {
    let mut queue = Queue::new(Options::default(), 1);
    let exclusive = || NewConsumer { exclusive: true, ..consumer(OWNER, 1) };
    let id = queue.dispatcher.subscribe(exclusive()).unwrap();
    assert_eq!(queue.dispatcher.subscribe(consumer(OWNER, 1)), Err(SubscribeError::Exclusive));
    queue.dispatcher.cancel(id);
    queue.dispatcher.subscribe(consumer(OWNER, 1)).unwrap();
    assert_eq!(queue.dispatcher.subscribe(exclusive()), Err(SubscribeError::NotAlone));
}

#[test]
fn a_queue_has_only_so_many_consumers() {
    let mut dispatcher = Dispatcher::<Note>::new(Options::default());
    let limit = loop {
        match dispatcher.subscribe(consumer(OWNER, 0)) {
            Ok(_) => {}
            Err(SubscribeError::TooMany { limit }) => break limit,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(dispatcher.consumers(), limit);
    dispatcher.close_owner(OWNER, false, 0);
    assert!(dispatcher.subscribe(consumer(OWNER, 0)).is_ok());
}

#[test]
fn a_gate_that_is_shut_keeps_only_its_own_consumers_waiting() {
    struct Slots(AtomicI64);
    impl Gate for Slots {
        fn take(&self) -> bool {
            self.0
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left > 0).then_some(left - 1))
                .is_ok()
        }
    }
    let mut queue = Queue::new(Options::default(), 1);
    let slots = Arc::new(Slots(AtomicI64::new(2)));
    let gate: Arc<dyn Gate> = slots.clone();
    let gated = NewConsumer { gate: Some(gate), credit: None, ..consumer(OwnerId(1), 0) };
    let a = queue.dispatcher.subscribe(gated.clone()).unwrap();
    let b = queue.dispatcher.subscribe(gated).unwrap();
    let free = queue.dispatcher.subscribe(consumer(OwnerId(2), 3)).unwrap();
    queue.append(0, 20);
    let turns = |queue: &mut Queue| -> Vec<_> { queue.run().iter().map(|d| d.consumer.unwrap()).collect() };
    assert_eq!(turns(&mut queue), [a, b, free, free, free]);
    slots.0.store(1, Ordering::SeqCst);
    assert_eq!(turns(&mut queue), [a]);
}

#[test]
fn the_highest_lane_comes_first() {
    let mut queue = Queue::new(Options::default(), 3);
    queue.append(0, 2);
    queue.append(2, 2);
    let id = queue.dispatcher.subscribe(consumer(OWNER, 3)).unwrap();
    let lanes = |queue: &mut Queue| -> Vec<_> {
        queue.run().iter().map(|d| (d.place.lane, d.place.offset)).collect()
    };
    assert_eq!(lanes(&mut queue), [(2, 0), (2, 1), (0, 0)]);
    queue.append(1, 1);
    queue.dispatcher.add_credit(id, 5);
    assert_eq!(lanes(&mut queue), [(1, 0), (0, 1)]);
}

#[test]
fn too_many_failures_are_the_end_of_a_record() {
    let options = Options { failures_max: Some(2), dead_letters: true, ..Options::default() };
    let mut queue = Queue::new(options, 1);
    queue.append(0, 1);
    for failures in 0..3 {
        let delivery = queue.get().unwrap();
        assert_eq!(delivery.marks.failures, failures);
        queue.settle(0, FAIL);
    }
    assert_eq!((queue.get(), queue.dispatcher.ready()), (None, 0));
    queue.commit();
    assert_eq!(queue.lanes[&0].unsettled(), 1, "it waits for somebody who publishes it");
    queue.restart();
    let dead = queue.dispatcher.take_dead(10);
    assert_eq!((dead.len(), dead[0].reason, dead[0].marks.failures), (1, DeadReason::DeliveryLimit, 3));
    assert!(queue.get().is_none());
    queue.dispatcher.buried(dead[0].place);
    queue.commit();
    assert_eq!(queue.lanes[&0].unsettled(), 0);
}

#[test]
fn what_came_back_rests_also_under_another_leader() {
    let rest = Rest { of: Rests::All, least_ms: 100, most_ms: 250 };
    for returns_in_turn in [true, false] {
        let options = Options { rest: Some(rest), returns_in_turn, sized: true, ..Options::default() };
        let mut queue = Queue::new(options, 1);
        queue.now = 1_000;
        queue.append(0, 3);
        queue.dispatcher.subscribe(consumer(OWNER, 100)).unwrap();
        assert_eq!(queue.offsets(), [0, 1, 2]);
        queue.settle(0, FAIL);
        queue.commit();
        queue.now = 1_050;
        queue.settle(1, RELEASE);
        queue.commit();
        assert_eq!(
            (queue.dispatcher.ready(), queue.dispatcher.ready_bytes(), queue.dispatcher.resting()),
            (0, 0, 2)
        );
        assert_eq!(queue.dispatcher.wakes_at(), Some(1_100));
        queue.now = 1_099;
        assert_eq!(queue.offsets(), [0; 0]);
        queue.append(0, 1);
        assert_eq!(queue.offsets(), [3], "what was never handed out does not wait for what rests");
        queue.now = 1_100;
        assert_eq!(queue.offsets(), [0]);

        queue.now = 1_200;
        queue.settle(0, FAIL);
        // Whom 2 and 3 were leased to is forgotten; that 0 and 1 rest is not.
        queue.restart();
        assert_eq!((queue.dispatcher.resting(), queue.dispatcher.ready()), (2, 2));
        assert_eq!(queue.dispatcher.ready_bytes(), size_of(2) + size_of(3));
        queue.now = 1_150;
        queue.dispatcher.expire(queue.now);
        assert_eq!(queue.dispatcher.ready_bytes(), size_of(1) + size_of(2) + size_of(3));
        queue.dispatcher.subscribe(consumer(OWNER, 100)).unwrap();
        let mut came = queue.offsets();
        came.sort_unstable();
        assert_eq!(came, [1, 2, 3]);
        assert_eq!(queue.dispatcher.wakes_at(), Some(1_400), "it failed twice");
        assert_eq!(queue.dispatcher.purge(), 1);
        assert_eq!((queue.dispatcher.resting(), queue.dispatcher.wakes_at()), (0, None));
    }
}

#[test]
fn what_rests_counts_in_what_may_be_out() {
    let rest = Rest { of: Rests::Failed, least_ms: 100, most_ms: 100 };
    let options = Options { rest: Some(rest), leased_max: 3, ..Options::default() };
    let mut queue = Queue::new(options, 1);
    queue.now = 1_000;
    queue.append(0, 10);
    queue.dispatcher.subscribe(consumer(OWNER, 100)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2]);
    queue.settle(0, FAIL);
    queue.settle(1, RELEASE);
    assert_eq!(queue.offsets(), [1], "what was given back without having failed does not rest");
    queue.settle(2, Disposition::Accept);
    assert_eq!(queue.offsets(), [3]);
    queue.now = 1_100;
    assert_eq!(queue.offsets(), [0]);
}

#[test]
fn what_is_for_now_is_for_whoever_waits_for_it() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.now = 10;
    queue.lanes.get_mut(&0).unwrap().expiring = (0..4).map(|offset| (offset, -1)).collect();
    queue.append(0, 1);
    assert_eq!(queue.offsets(), [0; 0], "nobody waits");
    queue.dispatcher.expire(queue.now);
    let id = queue.dispatcher.subscribe(consumer(OWNER, 2)).unwrap();
    assert_eq!(queue.offsets(), [0; 0], "it was there before");
    queue.append(0, 3);
    assert_eq!(queue.offsets(), [1, 2]);
    queue.dispatcher.expire(queue.now);
    queue.settle(1, RELEASE);
    queue.dispatcher.add_credit(id, 5);
    assert_eq!(queue.offsets(), [0; 0], "what comes back has waited, and so has what nobody had credit for");
    queue.settle(2, Disposition::Accept);
    queue.commit();
    assert_eq!(queue.lanes[&0].unsettled(), 0);
}

#[test]
fn expired_records_are_never_handed_out() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.lanes.get_mut(&0).unwrap().expiring.extend([(0, 10), (2, 20)]);
    queue.append(0, 4);
    queue.now = 9;
    assert_eq!(queue.get().unwrap().place.offset, 0);
    queue.settle(0, RELEASE);
    queue.now = 10;
    assert_eq!(queue.get().unwrap().place.offset, 1, "not one that came back too late either");
    queue.read(Want::From(Place { lane: 0, offset: 2 }));
    assert_eq!(queue.dispatcher.first_expires_at(), Some(20));
    queue.now = 20;
    queue.dispatcher.expire(20);
    queue.commit();
    assert_eq!(queue.lanes[&0].settled, BTreeSet::from([0, 2]));
    assert_eq!(queue.dispatcher.ready(), 1);
}

#[test]
fn dropping_takes_what_comes_first_read_or_not() {
    let options = Options { dead_letters: true, ..Options::default() };
    let mut queue = Queue::new(options, 2);
    queue.append(1, 3);
    queue.append(0, 20);
    queue.dispatcher.drop_over(Some(11), None);
    assert_eq!((queue.dispatcher.ready(), queue.dispatcher.take_dead(100).len()), (11, 12));
    let id = queue.dispatcher.subscribe(consumer(OWNER, 4)).unwrap();
    let seen: Vec<_> = queue.run().iter().map(|d| (d.place.lane, d.place.offset)).collect();
    assert_eq!(seen, [(1, 0), (1, 1), (1, 2), (0, 12)]);
    queue.settle(12, RELEASE);
    queue.dispatcher.drop_over(Some(queue.dispatcher.ready() - 2), None);
    queue.dispatcher.add_credit(id, 1);
    assert_eq!(queue.offsets(), [14]);
}

#[test]
fn purging_leaves_what_is_leased() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.append(0, 20);
    queue.dispatcher.subscribe(consumer(OWNER, 3)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2]);
    queue.settle(1, RELEASE);
    assert_eq!((queue.dispatcher.purge(), queue.dispatcher.ready(), queue.dispatcher.leased()), (18, 0, 2));
    queue.commit();
    assert_eq!(queue.lanes[&0].unsettled(), 2);
    queue.settle(0, RELEASE);
    queue.append(0, 1);
    queue.commit();
    assert_eq!(queue.dispatcher.ready(), 2);
}

#[test]
fn what_is_not_in_the_log_any_more_is_settled() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.lanes.get_mut(&0).unwrap().holes.extend([0, 3, 4, 9]);
    queue.append(0, 10);
    queue.dispatcher.subscribe(consumer(OWNER, 100)).unwrap();
    assert_eq!(queue.offsets(), [1, 2, 5, 6, 7, 8]);
    assert_eq!((queue.dispatcher.ready(), queue.lanes[&0].unsettled()), (0, 6));
    queue.lanes.get_mut(&0).unwrap().holes.insert(5);
    queue.settle(5, RELEASE);
    assert!(queue.get().is_none());
    queue.commit();
    assert_eq!(queue.lanes[&0].unsettled(), 5);
}

#[test]
fn nobody_settles_what_is_not_leased_to_him() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.append(0, 2);
    let place = queue.get().unwrap().place;
    let error = queue.dispatcher.settle(OwnerId(2), place, Disposition::Accept, 0);
    assert_eq!(error, Err(UnknownLease(place)));
    queue.settle(0, Disposition::Accept);
    assert!(queue.dispatcher.settle(OWNER, place, RELEASE, 0).is_err());
}

#[test]
fn what_another_leader_handed_out_is_settled_by_who_has_it_unless_somebody_else_has() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.append(0, 5);
    queue.dispatcher.subscribe(consumer(OWNER, 4)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2, 3]);
    queue.restart();
    queue.dispatcher.subscribe(consumer(OwnerId(2), 1)).unwrap();
    assert_eq!(queue.offsets(), [0], "it comes to another one");
    let mut again =
        |offset, disposition| queue.dispatcher.settle_again(OWNER, Place { lane: 0, offset }, disposition, 0);
    assert!(!again(0, Disposition::Accept), "another one has it");
    assert!(again(1, Disposition::Accept) && !again(1, Disposition::Accept));
    assert!(!again(2, RELEASE), "it waits already");
    assert!(again(3, REJECT) && !again(9, Disposition::Accept));
    queue.dispatcher.subscribe(consumer(OwnerId(2), 9)).unwrap();
    assert_eq!(queue.offsets(), [2, 4]);
    assert_eq!(queue.lanes[&0].unsettled(), 3);
}

#[test]
fn what_another_leader_handed_out_stays_with_who_has_it_unless_somebody_else_has() {
    let mut queue = Queue::new(Options::default(), 1);
    queue.append(0, 6);
    queue.dispatcher.subscribe(consumer(OWNER, 4)).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2, 3]);
    queue.restart();
    queue.dispatcher.subscribe(consumer(OwnerId(2), 1)).unwrap();
    assert_eq!(queue.offsets(), [0], "it comes to another one");
    let at = |offset| Place { lane: 0, offset };
    assert_eq!(queue.dispatcher.adopt(OWNER, (0..=3).map(at)), 3);
    assert_eq!(queue.dispatcher.adopt(OWNER, [at(1), at(9)]), 1, "it has it, and there is no such record");
    queue.dispatcher.subscribe(consumer(OwnerId(2), 9)).unwrap();
    assert_eq!(queue.offsets(), [4, 5]);
    queue.dispatcher.keep_only(OWNER, &[at(1), at(0)].into(), 0);
    assert_eq!(queue.offsets(), [2, 3], "what it does not have comes back");
    queue.dispatcher.settle(OWNER, at(1), FAIL, 0).unwrap();
    let again = queue.run();
    assert_eq!((again[0].place, again[0].redelivered, again[0].marks.failures), (at(1), true, 1));
    assert_eq!(queue.dispatcher.leased_to(OWNER), []);
}

#[test]
fn no_more_is_leased_than_allowed() {
    let options = Options { leased_max: 3, ..Options::default() };
    let mut queue = Queue::new(options, 1);
    queue.append(0, 10);
    let unbounded = NewConsumer { credit: None, ..consumer(OWNER, 0) };
    queue.dispatcher.subscribe(unbounded).unwrap();
    assert_eq!(queue.offsets(), [0, 1, 2]);
    queue.settle(0, Disposition::Accept);
    assert_eq!(queue.offsets(), [3]);
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Append(LaneNumber, Offset),
    Subscribe(u64, u32, i32),
    Credit(u32),
    Settle(usize, Disposition),
    /// By somebody to whom another leader handed it out.
    Again(Place, Disposition),
    /// By another leader it was handed out to this one.
    Adopt(Place, u64),
    CloseOwner(u64),
    Get(u64),
    Drop(u64),
    DropBytes(u64),
    Purge,
    Bury,
    Wait(TimestampMs),
    /// Whether those who have records say so to the next leader.
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let disposition = || {
        prop_oneof![
            4 => Just(Disposition::Accept), 3 => Just(RELEASE), 2 => Just(FAIL), 1 => Just(REJECT),
        ]
    };
    prop_oneof![
        6 => (0u8..2, 1i64..12).prop_map(|(lane, count)| Step::Append(lane, count)),
        2 => (0u64..4, 0u32..5, 0i32..2).prop_map(|(owner, credit, priority)| Step::Subscribe(owner, credit, priority)),
        4 => (1u32..6).prop_map(Step::Credit),
        12 => (0usize..8, disposition()).prop_map(|(which, disposition)| Step::Settle(which, disposition)),
        4 => (0u8..2, 0i64..40, disposition()).prop_map(|(lane, offset, disposition)| {
            Step::Again(Place { lane, offset }, disposition)
        }),
        1 => (0u64..4).prop_map(Step::CloseOwner),
        2 => (0u64..4).prop_map(Step::Get),
        1 => (1u64..4).prop_map(Step::Drop),
        1 => (0u64..200).prop_map(Step::DropBytes),
        1 => Just(Step::Purge),
        2 => Just(Step::Bury),
        1 => (1i64..20).prop_map(Step::Wait),
        3 => (0u8..2, 0i64..40, 0u64..4).prop_map(|(lane, offset, owner)| Step::Adopt(Place { lane, offset }, owner)),
        2 => any::<bool>().prop_map(Step::Restart),
    ]
}

proptest! {
    /// Nothing settled comes again, nothing is with two at once, nothing is lost, and the counts are right.
    #[test]
    fn every_record_is_in_one_place(
        steps in proptest::collection::vec(step(), 1..80),
        returns_in_turn in any::<bool>(),
        dead_letters in any::<bool>(),
        sized in any::<bool>(),
        failures_max in proptest::option::of(0u16..3),
        expiring in proptest::collection::btree_map(0i64..60, 0i64..60, 0..8),
    ) {
        let options =
            Options { returns_in_turn, dead_letters, sized, failures_max, leased_max: 12, ..Options::default() };
        let mut queue = Queue::new(options, 2);
        for log in queue.lanes.values_mut() {
            log.expiring = expiring.clone();
        }
        let mut leased: BTreeMap<Place, OwnerId> = BTreeMap::new();
        let mut consumers: Vec<ConsumerId> = Vec::new();
        let mut dying: Vec<Dead> = Vec::new();
        for step in steps {
            let mut handed: Vec<Delivery<Note>> = Vec::new();
            match step {
                Step::Append(lane, count) => queue.append(lane, count),
                Step::Subscribe(owner, credit, priority) => {
                    let new = NewConsumer { priority, ..consumer(OwnerId(owner), credit) };
                    consumers.push(queue.dispatcher.subscribe(new).unwrap());
                }
                Step::Credit(more) => consumers.iter().for_each(|id| queue.dispatcher.add_credit(*id, more)),
                Step::Settle(which, disposition) => {
                    let chosen = leased.iter().nth(which).map(|(place, owner)| (*place, *owner));
                    if let Some((place, owner)) = chosen {
                        leased.remove(&place);
                        queue.dispatcher.settle(owner, place, disposition, 0).unwrap();
                    }
                }
                Step::Adopt(place, owner) => {
                    let has = queue.waits(place) && !leased.contains_key(&place);
                    if has {
                        leased.insert(place, OwnerId(owner));
                    }
                    let has = has || leased.get(&place) == Some(&OwnerId(owner));
                    prop_assert_eq!(queue.dispatcher.adopt(OwnerId(owner), [place]), usize::from(has));
                }
                Step::Again(place, disposition) => {
                    let waits = queue.waits(place) && !leased.contains_key(&place);
                    let holds = waits && !matches!(disposition, Disposition::Release { .. });
                    let held = queue.dispatcher.settle_again(OwnerId(7), place, disposition, queue.now);
                    prop_assert_eq!(held, holds, "{:?}", place);
                }
                Step::CloseOwner(owner) => {
                    queue.dispatcher.close_owner(OwnerId(owner), true, 0);
                    leased.retain(|_, of| *of != OwnerId(owner));
                }
                Step::Get(owner) => loop {
                    match queue.dispatcher.get(OwnerId(owner), false, queue.now) {
                        Got::Wanted(want) => queue.read(want),
                        Got::Empty => break,
                        Got::Record(delivery) => {
                            handed.push(delivery);
                            break;
                        }
                    }
                },
                Step::Drop(count) => {
                    let ready = queue.dispatcher.ready();
                    queue.dispatcher.drop_over(Some(ready.saturating_sub(count)), None);
                }
                Step::DropBytes(max) => {
                    queue.dispatcher.drop_over(None, sized.then_some(max));
                    prop_assert!(!sized || queue.dispatcher.ready_bytes() <= max);
                }
                Step::Purge => {
                    let ready = queue.dispatcher.ready();
                    prop_assert_eq!(queue.dispatcher.purge(), ready);
                }
                Step::Bury => {
                    dying.extend(queue.dispatcher.take_dead(2));
                    if let Some(dead) = dying.pop() {
                        queue.dispatcher.buried(dead.place);
                    }
                }
                Step::Wait(ms) => queue.now += ms,
                Step::Restart(they_say_so) => {
                    queue.restart();
                    if they_say_so {
                        for (place, owner) in &leased {
                            prop_assert_eq!(queue.dispatcher.adopt(*owner, [*place]), 1);
                        }
                    } else {
                        leased.clear();
                    }
                    consumers.clear();
                    dying.clear();
                }
            }
            handed.extend(queue.run());
            for delivery in handed {
                let log = &queue.lanes[&delivery.place.lane];
                prop_assert!(!log.settled.contains(&delivery.place.offset), "{:?} was settled", delivery.place);
                prop_assert_eq!(delivery.record.offset, delivery.place.offset);
                prop_assert!(delivery.record.expires_at.is_none_or(|at| at > queue.now));
                let noted = log.marks.get(&delivery.place.offset).copied().unwrap_or_default();
                prop_assert_eq!((noted.failures, noted.returns), (delivery.marks.failures, delivery.marks.returns));
                prop_assert!(leased.insert(delivery.place, delivery.owner).is_none(), "leased to two");
            }
            prop_assert_eq!(queue.dispatcher.leased(), leased.len());
            let dead: usize = queue.lanes.values()
                .map(|log| log.marks.values().filter(|marks| marks.dead.is_some()).count()).sum();
            let unsettled: usize = queue.lanes.values().map(Log::unsettled).sum();
            prop_assert_eq!(queue.dispatcher.ready() as usize + leased.len() + dead, unsettled);
            if sized {
                prop_assert_eq!(queue.dispatcher.ready_bytes(), queue.ready_bytes(&leased));
            }
        }
        // In the end everybody gives back what he has, and one who takes everything gets all that is left.
        for owner in 0..4 {
            queue.dispatcher.close_owner(OwnerId(owner), false, 0);
        }
        queue.restart();
        let expected = queue.dispatcher.ready();
        let all = NewConsumer { credit: None, settled: true, ..consumer(OwnerId(9), 0) };
        queue.dispatcher.subscribe(all).unwrap();
        let mut got = queue.run();
        let expired = expected - got.len() as u64;
        prop_assert!(expired as usize <= 2 * expiring.len());
        got.dedup_by_key(|delivery| delivery.place);
        prop_assert_eq!(got.len() as u64 + expired, expected);
        prop_assert_eq!(queue.dispatcher.ready(), 0);
        if !dead_letters {
            prop_assert_eq!(queue.lanes.values().map(Log::unsettled).sum::<usize>(), 0);
        }
    }
}
