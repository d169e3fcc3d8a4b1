//! The dispatcher: lanes on one side, consumers on the other, leases between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Bound;

use weir_model::subscription::{DeadReason, Disposition, Marks};
use weir_model::{Offset, TimestampMs};

use crate::consumers::Consumers;
use crate::lane::{DeadRun, Lane, Next};
use crate::resting::Rest;
use crate::types::{
    ConsumerId, Dead, Delivery, Got, LaneChanges, LaneNumber, LaneStart, NewConsumer, Options, OwnerId,
    Place, SubscribeError, UnknownLease, Waiting, Want,
};

/// A record that is with somebody.
#[derive(Clone, Copy, Debug)]
struct Lease {
    marks: Marks,
    /// How many leases there had been before it.
    turn: u64,
}

/// One queue in its leader's memory. See the crate's description.
pub struct Dispatcher<R> {
    options: Options,
    lanes: BTreeMap<LaneNumber, Lane<R>>,
    consumers: Consumers,
    /// Owner by owner, so that one who goes gives back what it has without a look at the others.
    leases: BTreeMap<(OwnerId, Place), Lease>,
    /// Leases that there have been.
    turns: u64,
    /// Records that somebody must publish elsewhere.
    dead: VecDeque<Dead>,
}

impl<R> fmt::Debug for Dispatcher<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("options", &self.options)
            .field("lanes", &self.lanes.len())
            .field("consumers", &self.consumers.len())
            .field("leases", &self.leases.len())
            .finish_non_exhaustive()
    }
}

impl<R: Waiting> Dispatcher<R> {
    /// A queue at the beginning of a leadership.
    pub fn new(options: Options) -> Dispatcher<R> {
        Dispatcher {
            options,
            lanes: BTreeMap::new(),
            consumers: Consumers::new(options.first_consumer, options.single_active),
            leases: BTreeMap::new(),
            turns: 0,
            dead: VecDeque::new(),
        }
    }

    /// Goes by other options from here on: of how many failed deliveries a record may have, of how long those rest that
    /// come back, and of whether somebody publishes the dead.
    pub fn configure(&mut self, failures_max: Option<u16>, rest: Option<Rest>, dead_letters: bool) {
        (self.options.failures_max, self.options.rest) = (failures_max, rest);
        self.options.dead_letters = dead_letters;
        if rest.is_none() {
            self.lanes.values_mut().for_each(|lane| lane.wake(TimestampMs::MAX));
        }
        if !dead_letters {
            for dead in std::mem::take(&mut self.dead) {
                self.buried(dead.place);
            }
        }
    }

    /// Adds a lane, unless there is one of this number.
    pub fn add_lane(&mut self, number: LaneNumber, start: LaneStart) {
        if self.lanes.contains_key(&number) {
            return;
        }
        let (mut lane, dead) =
            Lane::new(start, self.options.returns_in_turn, self.options.rest, self.options.sized);
        for DeadRun { from, to, reason, marks } in dead {
            if self.options.dead_letters {
                let places = (from..=to).map(|offset| Place { lane: number, offset });
                self.dead.extend(places.map(|place| Dead { place, reason, marks }));
            } else {
                lane.settle(from, to, Disposition::Accept);
            }
        }
        self.lanes.insert(number, lane);
    }

    /// The log of a lane has grown up to an offset. By how many records that is.
    pub fn appended(&mut self, lane: LaneNumber, end: Offset) -> u64 {
        self.lanes.get_mut(&lane).map_or(0, |lane| lane.appended(end))
    }

    /// Somebody wants records from here on.
    pub fn subscribe(&mut self, consumer: NewConsumer) -> Result<ConsumerId, SubscribeError> {
        self.consumers.add(consumer)
    }

    /// A consumer wants no more records. What was leased through it stays with its owner.
    pub fn cancel(&mut self, consumer: ConsumerId) -> bool {
        self.consumers.remove(consumer)
    }

    /// A consumer takes more records than it was said to.
    pub fn add_credit(&mut self, consumer: ConsumerId, more: u32) {
        self.consumers.add_credit(consumer, more);
    }

    /// An owner is gone: its consumers are, and what was leased to it comes back, in the order in which it went out.
    /// Returns which consumers these were.
    pub fn close_owner(&mut self, owner: OwnerId, failed: bool, now: TimestampMs) -> Vec<ConsumerId> {
        let consumers = self.consumers.of(owner);
        for consumer in &consumers {
            self.consumers.remove(*consumer);
        }
        let mut places = self.leased_to(owner);
        places.sort_by_key(|place| self.leases.get(&(owner, *place)).map(|lease| lease.turn));
        for place in places {
            let _ = self.settle(owner, place, Disposition::Release { failed }, now);
        }
        consumers
    }

    /// What is leased to an owner, rising by lane and offset.
    pub fn leased_to(&self, owner: OwnerId) -> Vec<Place> {
        let first = Place { lane: 0, offset: Offset::MIN };
        let last = Place { lane: LaneNumber::MAX, offset: Offset::MAX };
        self.leases.range((owner, first)..=(owner, last)).map(|((_, place), _)| *place).collect()
    }

    /// Records were handed out to an owner by another leader, and it still has them: they are leased to it, as far as they
    /// wait and nobody else has got them. How many of them it has now.
    pub fn adopt(&mut self, owner: OwnerId, places: impl IntoIterator<Item = Place>) -> usize {
        let mut has = 0;
        for place in places {
            let is_its_own = self.leases.contains_key(&(owner, place));
            let lane = self.lanes.get_mut(&place.lane).filter(|_| !is_its_own);
            if let Some(marks) = lane.and_then(|lane| lane.take_out(place.offset, true)) {
                self.leases.insert((owner, place), Lease { marks, turn: self.turns });
                self.turns += 1;
                has += 1;
            }
            has += usize::from(is_its_own);
        }
        has
    }

    /// An owner has at most these records: what else is leased to it never reached it, and comes back without having failed.
    pub fn keep_only(&mut self, owner: OwnerId, places: &BTreeSet<Place>, now: TimestampMs) {
        for place in self.leased_to(owner) {
            if !places.contains(&place) {
                let _ = self.settle(owner, place, Disposition::Release { failed: false }, now);
            }
        }
    }

    /// All that is leased, by owner.
    pub fn leases(&self) -> impl Iterator<Item = (OwnerId, Place)> {
        self.leases.keys().copied()
    }

    /// An owner says what becomes of a record that is leased to it.
    pub fn settle(
        &mut self,
        owner: OwnerId,
        place: Place,
        disposition: Disposition,
        now: TimestampMs,
    ) -> Result<(), UnknownLease> {
        let lease = self.leases.remove(&(owner, place)).ok_or(UnknownLease(place))?;
        match disposition {
            Disposition::Accept => self.note(place, Disposition::Accept),
            Disposition::Reject { reason } => self.die(place, reason, lease.marks),
            Disposition::Release { failed } => self.release(place, lease.marks, failed, now),
        }
        Ok(())
    }

    /// As [`Dispatcher::settle`], by somebody to whom another leader handed the record out: it holds too if the record
    /// waits, and nobody else has it. Whether it holds.
    pub fn settle_again(
        &mut self,
        owner: OwnerId,
        place: Place,
        disposition: Disposition,
        now: TimestampMs,
    ) -> bool {
        if self.settle(owner, place, disposition, now).is_ok() {
            return true;
        }
        let Some(lane) = self.lanes.get_mut(&place.lane) else { return false };
        match disposition {
            // It waits, or somebody else has it: it is back already.
            Disposition::Release { .. } => return false,
            Disposition::Accept if lane.take_out(place.offset, false).is_some() => {
                self.note(place, disposition)
            }
            Disposition::Reject { reason } => match lane.take_out(place.offset, false) {
                Some(marks) => self.die(place, reason, marks),
                None => return false,
            },
            Disposition::Accept => return false,
        }
        true
    }

    /// What is needed to go on. Nothing if nobody would get a record, or the next one is at hand.
    pub fn wants(&mut self) -> Option<Want> {
        if !self.is_anybody_willing() {
            return None;
        }
        self.wants_first()
    }

    /// What is needed to see what comes first, whether or not anybody would get it.
    pub fn wants_first(&mut self) -> Option<Want> {
        for (number, lane) in self.lanes.iter_mut().rev() {
            match lane.next() {
                Next::Ready(_) => return None,
                Next::Absent(offset) => return Some(Want::One(Place { lane: *number, offset })),
                Next::Unread(offset) => return Some(Want::From(Place { lane: *number, offset })),
                Next::Nothing => {}
            }
        }
        None
    }

    /// What may be read ahead while others work: where the log of a lane goes on behind what is at hand.
    pub fn wants_ahead(&self) -> Option<Want> {
        let (bytes, records) = (self.options.window_bytes / 2, self.options.window_records / 2);
        self.lanes.iter().rev().filter(|(_, lane)| lane.has_room(bytes, records)).find_map(
            |(number, lane)| lane.unread_from().map(|offset| Want::From(Place { lane: *number, offset })),
        )
    }

    /// Takes what was wanted from a lane's log: all records that there are from there up to `next`, rising. What
    /// is not among them is not in the log any more.
    pub fn supply(&mut self, lane: LaneNumber, records: impl IntoIterator<Item = (Offset, R)>, next: Offset) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.supply(records, next);
        }
    }

    /// Takes the record that was wanted because it came back, and others that were read with it. If it is not among
    /// them it is not in the log any more.
    pub fn supply_returned(&mut self, place: Place, records: impl IntoIterator<Item = (Offset, R)>) {
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.supply_returned(place.offset, records);
        }
    }

    /// Hands out what is at hand to those who take it, also what was appended since [`Dispatcher::expire`] and is for
    /// now.
    pub fn dispatch(&mut self, now: TimestampMs, out: &mut Vec<Delivery<R>>) {
        self.wake(now);
        while self.is_anybody_willing() {
            let Ok(Some(number)) = self.first_ready(now, true) else { return };
            let Some((consumer, owner, settled)) = self.consumers.take_turn() else { return };
            if let Some(delivery) = self.hand_out(number, Some(consumer), owner, settled) {
                out.push(delivery);
            }
        }
    }

    /// Hands out one record to an owner that asks for it.
    pub fn get(&mut self, owner: OwnerId, settled: bool, now: TimestampMs) -> Got<R> {
        self.wake(now);
        match self.first_ready(now, false) {
            Err(want) => Got::Wanted(want),
            Ok(None) => Got::Empty,
            Ok(Some(number)) => self.hand_out(number, None, owner, settled).map_or(Got::Empty, Got::Record),
        }
    }

    /// Takes out what has expired and comes first, as far as it is at hand.
    pub fn expire(&mut self, now: TimestampMs) {
        self.wake(now);
        let _ = self.first_ready(now, false);
        self.lanes.values_mut().for_each(Lane::age);
    }

    /// What has rested for long enough waits again.
    fn wake(&mut self, now: TimestampMs) {
        if self.options.rest.is_some() {
            self.lanes.values_mut().for_each(|lane| lane.wake(now));
        }
    }

    /// When the first of the records that rest has rested for long enough.
    pub fn wakes_at(&self) -> Option<TimestampMs> {
        self.lanes.values().filter_map(Lane::wakes_at).min()
    }

    /// Records that came back and rest.
    pub fn resting(&self) -> u64 {
        self.lanes.values().map(Lane::resting).sum()
    }

    /// When the record that comes first expires, if it is at hand and does.
    pub fn first_expires_at(&mut self) -> Option<TimestampMs> {
        let lanes = self.lanes.values_mut().rev();
        let firsts = lanes.filter_map(|lane| match lane.next() {
            Next::Ready(_) => lane.peek().and_then(Waiting::expires_at),
            _ => None,
        });
        firsts.min()
    }

    /// Where records are to be sized, if they are: before they are handed out.
    pub fn wants_sizes(&self) -> Option<Place> {
        self.lanes
            .iter()
            .find_map(|(number, lane)| lane.unsized_from().map(|offset| Place { lane: *number, offset }))
    }

    /// Takes the sizes of a lane's records from where they were wanted up to `next`, rising. What is not among them is
    /// not in the log any more. How many bytes wait more than before.
    pub fn size(
        &mut self,
        lane: LaneNumber,
        records: impl IntoIterator<Item = (Offset, u64)>,
        next: Offset,
    ) -> u64 {
        self.lanes.get_mut(&lane).map_or(0, |lane| lane.size(records, next))
    }

    /// Takes out the records that come first, of the lowest lane before all others, while more than this wait.
    pub fn drop_over(&mut self, records: Option<u64>, bytes: Option<u64>) {
        loop {
            let are_too_many = records.is_some_and(|max| self.ready() > max);
            let are_too_large = bytes.is_some_and(|max| self.ready_bytes() > max);
            if !are_too_many && !are_too_large {
                return;
            }
            let first = self.lanes.iter_mut().find_map(|(number, lane)| {
                lane.drop_first().map(|(offset, marks)| (Place { lane: *number, offset }, marks))
            });
            let Some((place, marks)) = first else { return };
            self.die(place, DeadReason::MaxLength, marks);
        }
    }

    /// Settles everything that waits. Returns how many records that were.
    pub fn purge(&mut self) -> u64 {
        self.lanes.values_mut().map(Lane::purge).sum()
    }

    /// Whether somebody would get a record that came now.
    pub fn is_anybody_willing(&self) -> bool {
        let held = self.leases.len() as u64 + self.resting();
        self.consumers.is_anybody_willing() && held < self.options.leased_max as u64
    }

    /// Records that wait for somebody.
    pub fn ready(&self) -> u64 {
        self.lanes.values().map(Lane::ready).sum()
    }

    /// Bytes of the records that wait, as far as they were sized.
    pub fn ready_bytes(&self) -> u64 {
        self.lanes.values().map(Lane::ready_bytes).sum()
    }

    /// Records that are with somebody.
    pub fn leased(&self) -> usize {
        self.leases.len()
    }

    /// Consumers, those without credit included.
    pub fn consumers(&self) -> usize {
        self.consumers.len()
    }

    /// The consumer that gets everything, where only one does.
    pub fn active(&self) -> Option<ConsumerId> {
        self.consumers.active()
    }

    /// The end of a lane's log, as far as the dispatcher was told.
    pub fn end(&self, lane: LaneNumber) -> Option<Offset> {
        self.lanes.get(&lane).map(Lane::end)
    }

    /// What is to be proposed for each lane, and is not asked for again.
    pub fn take_changes(&mut self) -> Vec<(LaneNumber, LaneChanges)> {
        let changes = self.lanes.iter_mut().map(|(number, lane)| (*number, lane.take_changes()));
        changes.filter(|(_, changes)| !changes.is_empty()).collect()
    }

    /// Dead records that are to be published elsewhere, up to so many, oldest first. Whoever takes them says
    /// [`Dispatcher::buried`] when that is done.
    pub fn take_dead(&mut self, most: usize) -> Vec<Dead> {
        self.dead.drain(..most.min(self.dead.len())).collect()
    }

    /// A dead record is where it belongs.
    pub fn buried(&mut self, place: Place) {
        self.note(place, Disposition::Accept);
    }

    /// The lane whose first record is handed out next and is at hand; what must be read before that is known.
    /// Expired records are taken out on the way, but for a fresh one that is for now, if that is wanted.
    fn first_ready(&mut self, now: TimestampMs, is_now_wanted: bool) -> Result<Option<LaneNumber>, Want> {
        let mut above = Bound::Unbounded;
        loop {
            let Some((&number, lane)) = self.lanes.range_mut((Bound::Unbounded, above)).next_back() else {
                return Ok(None);
            };
            match lane.next() {
                Next::Nothing => above = Bound::Excluded(number),
                Next::Absent(offset) => return Err(Want::One(Place { lane: number, offset })),
                Next::Unread(offset) => return Err(Want::From(Place { lane: number, offset })),
                Next::Ready(offset) => {
                    let expires_at = lane.peek().and_then(Waiting::expires_at);
                    let is_in_time = is_now_wanted
                        && lane.is_fresh(offset)
                        && lane.peek().is_some_and(Waiting::is_for_now);
                    if is_in_time || expires_at.is_none_or(|at| at > now) {
                        return Ok(Some(number));
                    }
                    if let Some(taken) = lane.take() {
                        self.die(Place { lane: number, offset }, DeadReason::Expired, taken.marks);
                    }
                }
            }
        }
    }

    /// Hands out the first record of a lane, which is at hand.
    fn hand_out(
        &mut self,
        number: LaneNumber,
        consumer: Option<ConsumerId>,
        owner: OwnerId,
        settled: bool,
    ) -> Option<Delivery<R>> {
        let lane = self.lanes.get_mut(&number)?;
        let Next::Ready(offset) = lane.next() else { return None };
        let taken = lane.take()?;
        let place = Place { lane: number, offset };
        if settled {
            self.note(place, Disposition::Accept);
        } else {
            self.leases.insert((owner, place), Lease { marks: taken.marks, turn: self.turns });
            self.turns += 1;
        }
        let (record, redelivered, marks) = (taken.record, taken.redelivered, taken.marks);
        Some(Delivery { consumer, owner, place, record, redelivered, marks })
    }

    fn release(&mut self, place: Place, marks: Marks, failed: bool, now: TimestampMs) {
        let Some(lane) = self.lanes.get_mut(&place.lane) else { return };
        let marks = Marks {
            failures: marks.failures.saturating_add(u16::from(failed)),
            returns: marks.returns.saturating_add(1),
            order: lane.next_order(),
            at: now,
            last_failed: failed,
            dead: None,
        };
        // The release is noted in any case: it is what counts the failure.
        lane.settle(place.offset, place.offset, Disposition::Release { failed });
        if self.options.failures_max.is_some_and(|max| marks.failures > max) {
            self.die(place, DeadReason::DeliveryLimit, marks);
        } else if let Some(until) = self.options.rest.and_then(|rest| rest.until(&marks)) {
            lane.rest(place.offset, place.offset, marks, until);
        } else {
            lane.give_back(place.offset, place.offset, marks);
        }
    }

    /// Nobody gets this record any more.
    fn die(&mut self, place: Place, reason: DeadReason, marks: Marks) {
        if self.options.dead_letters {
            self.note(place, Disposition::Reject { reason });
            self.dead.push_back(Dead { place, reason, marks: Marks { dead: Some(reason), ..marks } });
        } else {
            self.note(place, Disposition::Accept);
        }
    }

    fn note(&mut self, place: Place, disposition: Disposition) {
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.settle(place.offset, place.offset, disposition);
        }
    }
}

#[cfg(test)]
mod tests;
