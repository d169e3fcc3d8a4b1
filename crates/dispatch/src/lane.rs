//! One lane: what of its log comes next, and what came back.

use std::collections::{BTreeMap, VecDeque};

use weir_model::subscription::{DeadReason, Disposition, Marks, Settlement};
use weir_model::{Offset, TimestampMs};

use crate::resting::{Rest, Resting};
use crate::sizes::Sizes;
use crate::types::{LaneChanges, LaneStart, Waiting};

/// Records that came back whose content is kept for the moment until they are handed out again.
const AT_HAND_MAX: usize = 512;

/// Bytes of them, beside the one that is handed out next.
const AT_HAND_BYTES_MAX: usize = 1 << 20;

/// What comes next in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This record, which is at hand.
    Ready(Offset),
    /// This record, once it is read.
    Absent(Offset),
    /// Whatever the log has from this offset on, once it is read.
    Unread(Offset),
    /// Nothing.
    Nothing,
}

/// A record that is handed out.
pub(crate) struct Taken<R> {
    pub record: R,
    pub marks: Marks,
    pub redelivered: bool,
}

/// Records that were already dead when a leadership began.
pub(crate) struct DeadRun {
    pub from: Offset,
    /// The last one.
    pub to: Offset,
    pub reason: DeadReason,
    pub marks: Marks,
}

pub(crate) struct Lane<R> {
    /// The log's end.
    end: Offset,
    /// What was appended since expiry was looked at begins here.
    fresh_from: Offset,
    /// Read ahead, rising. Handed out from its front.
    window: VecDeque<(Offset, R)>,
    window_bytes: usize,
    /// Where to read on. Nothing from here on was ever looked at by this leader.
    unread: Offset,
    /// Runs at or behind `unread`, or in the window, that are not to be handed out from the log.
    skip: VecDeque<(Offset, Offset)>,
    /// What is noted of records that are handed out from the log: runs, rising.
    past: VecDeque<(Offset, Offset, Marks)>,
    /// What came back, by the order in which it is handed out again: runs of the same marks.
    returned: BTreeMap<(u64, Offset), (Offset, Marks)>,
    at_hand: BTreeMap<Offset, R>,
    /// What came back and is not handed out before its time.
    resting: Resting,
    returns_in_turn: bool,
    next_order: u64,
    /// Records below may have been handed out by an earlier leader.
    handed_out_before: Offset,
    /// What was told last.
    handed_out_told: Offset,
    handed_out: Offset,
    changes: Vec<Settlement>,
    /// Neither settled nor dead nor leased.
    ready: u64,
    sized: Option<Sized>,
}

/// What a lane knows of its records' sizes, where the bytes that wait are bounded.
struct Sized {
    sizes: Sizes,
    /// Nothing from here on has been sized.
    to: Offset,
    /// Runs that are not ready, rising: settled, dead, or, with true, such that may come back.
    not_ready: VecDeque<(Offset, Offset, bool)>,
    ready_bytes: u64,
}

impl<R: Waiting> Lane<R> {
    /// A lane at the beginning of a leadership, and its dead records.
    pub(crate) fn new(
        start: LaneStart,
        returns_in_turn: bool,
        rest: Option<Rest>,
        sized: bool,
    ) -> (Lane<R>, Vec<DeadRun>) {
        let run_len = |from: Offset, to: Offset| (to - from + 1) as u64;
        let settled: u64 = start.settled.iter().map(|(from, to)| run_len(*from, *to)).sum();
        let mut lane = Lane {
            end: start.end,
            fresh_from: start.end,
            window: VecDeque::new(),
            window_bytes: 0,
            unread: start.head,
            skip: VecDeque::new(),
            past: VecDeque::new(),
            returned: BTreeMap::new(),
            at_hand: BTreeMap::new(),
            resting: Resting::default(),
            returns_in_turn,
            next_order: 0,
            handed_out_before: start.handed_out,
            handed_out_told: start.handed_out,
            handed_out: start.handed_out,
            changes: Vec::new(),
            ready: ((start.end - start.head).max(0) as u64).saturating_sub(settled),
            sized: None,
        };
        let mut not_ready: Vec<_> = start.settled.iter().map(|(from, to)| (*from, *to, false)).collect();
        let mut skip = start.settled;
        let mut dead = Vec::new();
        for (from, to, marks) in start.marked {
            lane.next_order = lane.next_order.max(marks.order + 1);
            if let Some(reason) = marks.dead {
                lane.ready -= run_len(from, to);
                dead.push(DeadRun { from, to, reason, marks });
                skip.push((from, to));
                not_ready.push((from, to, false));
            } else if let Some(until) = rest.and_then(|rest| rest.until(&marks)) {
                lane.ready -= run_len(from, to);
                lane.resting.insert(from, to, marks, until);
                skip.push((from, to));
                not_ready.push((from, to, true));
            } else if returns_in_turn {
                lane.returned.insert((marks.order, from), (to, marks));
                skip.push((from, to));
            } else {
                lane.past.push_back((from, to, marks));
            }
        }
        skip.sort_unstable();
        lane.skip = skip.into();
        if sized {
            not_ready.sort_unstable();
            let (sizes, to) = (Sizes::default(), start.head);
            lane.sized = Some(Sized { sizes, to, not_ready: not_ready.into(), ready_bytes: 0 });
        }
        (lane, dead)
    }

    pub(crate) fn ready(&self) -> u64 {
        self.ready
    }

    /// Bytes of records that are ready, as far as they were sized.
    pub(crate) fn ready_bytes(&self) -> u64 {
        self.sized.as_ref().map_or(0, |sized| sized.ready_bytes)
    }

    /// From where on records are to be sized.
    pub(crate) fn unsized_from(&self) -> Option<Offset> {
        self.sized.as_ref().map(|sized| sized.to).filter(|to| *to < self.end)
    }

    /// Takes the sizes of records, rising: of all that there are from where they were wanted up to `next`. None of
    /// them has been handed out by this leader. How many bytes are ready more than before.
    pub(crate) fn size(&mut self, records: impl IntoIterator<Item = (Offset, u64)>, next: Offset) -> u64 {
        let Some(sized) = &mut self.sized else { return 0 };
        let (from, next, before) = (sized.to, next.min(self.end), sized.ready_bytes);
        for (offset, bytes) in records {
            while sized.not_ready.front().is_some_and(|(_, to, _)| *to < offset) {
                sized.not_ready.pop_front();
            }
            let not_ready = sized.not_ready.front().filter(|(from, _, _)| *from <= offset);
            let comes_back = not_ready.is_some_and(|(_, _, comes_back)| *comes_back);
            if (from..next).contains(&offset) && (comes_back || not_ready.is_none()) {
                sized.sizes.push(offset, bytes);
                sized.ready_bytes += if comes_back { 0 } else { bytes };
            }
        }
        sized.to = from.max(next);
        sized.ready_bytes - before
    }

    /// Records are not ready any more.
    fn unready(&mut self, from: Offset, to: Offset) {
        self.ready -= (to - from + 1).cast_unsigned();
        if let Some(sized) = &mut self.sized {
            sized.ready_bytes = sized.ready_bytes.saturating_sub(sized.sizes.sum(from, to));
        }
    }

    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// The log has grown. By how many records.
    pub(crate) fn appended(&mut self, end: Offset) -> u64 {
        let grown = end.saturating_sub(self.end).max(0).cast_unsigned();
        self.ready += grown;
        self.end = self.end.max(end);
        grown
    }

    /// Expiry is looked at.
    pub(crate) fn age(&mut self) {
        self.fresh_from = self.end;
    }

    /// Whether expiry was never looked at since a record was appended, which [`Lane::next`] said is ready.
    pub(crate) fn is_fresh(&self, offset: Offset) -> bool {
        self.returned.is_empty() && offset >= self.fresh_from
    }

    /// What is handed out next.
    pub(crate) fn next(&mut self) -> Next {
        if let Some((_, from)) = self.returned.keys().next() {
            return if self.at_hand.contains_key(from) { Next::Ready(*from) } else { Next::Absent(*from) };
        }
        self.drop_skipped();
        match self.window.front() {
            Some((offset, _)) => Next::Ready(*offset),
            None => self.unread_from().map_or(Next::Nothing, Next::Unread),
        }
    }

    /// The first record of the log that is not read and may be handed out.
    pub(crate) fn unread_from(&self) -> Option<Offset> {
        let mut at = self.unread;
        while let Some((_, to)) = self.skipped_from(at).filter(|(from, _)| *from <= at) {
            at = to + 1;
        }
        (at < self.end).then_some(at)
    }

    /// Whether the window has room for more.
    pub(crate) fn has_room(&self, bytes: usize, records: usize) -> bool {
        self.window_bytes < bytes && self.window.len() < records
    }

    /// Takes records that were read from the log, rising: all that there are from where they were wanted up to
    /// `next`. What is not among them is not in the log any more, and settled.
    pub(crate) fn supply(&mut self, records: impl IntoIterator<Item = (Offset, R)>, next: Offset) {
        let (mut at, next) = (self.unread, next.min(self.end));
        for (offset, record) in records {
            if offset < at || offset >= next {
                continue;
            }
            self.lose(at, offset - 1);
            if !self.is_skipped(offset) {
                self.window_bytes += record.bytes();
                self.window.push_back((offset, record));
            }
            at = offset + 1;
        }
        self.lose(at, next - 1);
        self.unread = self.unread.max(next);
    }

    /// Settles those of a run that were to be handed out and are not in the log.
    fn lose(&mut self, from: Offset, to: Offset) {
        let mut at = from;
        while at <= to {
            match self.skipped_from(at) {
                Some((first, last)) if first <= at => at = last + 1,
                next => {
                    let end = next.map_or(to, |(first, _)| to.min(first - 1));
                    self.unready(at, end);
                    self.settle(at, end, Disposition::Accept);
                    at = end + 1;
                }
            }
        }
    }

    /// Takes records of which one came back and is handed out next: that one, and of the others those that follow it. If
    /// it is not among them it is not in the log any more.
    pub(crate) fn supply_returned(&mut self, offset: Offset, records: impl IntoIterator<Item = (Offset, R)>) {
        let mut records: BTreeMap<Offset, R> = records.into_iter().collect();
        if !records.contains_key(&offset) {
            if self.returned.keys().next().is_some_and(|(_, from)| *from == offset) {
                self.pop_returned();
                self.unready(offset, offset);
                self.settle(offset, offset, Disposition::Accept);
            }
            return;
        }
        // What was at hand and did not come next is read again.
        self.at_hand.clear();
        let mut bytes = 0;
        let in_turn = self.returned.iter().flat_map(|((_, from), (to, _))| *from..=*to);
        for next in in_turn.take(AT_HAND_MAX) {
            let Some(record) = records.remove(&next).filter(|_| bytes < AT_HAND_BYTES_MAX) else { return };
            bytes += record.bytes();
            self.at_hand.insert(next, record);
        }
    }

    /// A look at what [`Lane::next`] said is ready.
    pub(crate) fn peek(&self) -> Option<&R> {
        match self.returned.keys().next() {
            Some((_, from)) => self.at_hand.get(from),
            None => self.window.front().map(|(_, record)| record),
        }
    }

    /// Hands out what [`Lane::next`] said is ready.
    pub(crate) fn take(&mut self) -> Option<Taken<R>> {
        if let Some((_, from)) = self.returned.keys().next().copied() {
            let record = self.at_hand.remove(&from)?;
            let marks = self.pop_returned()?;
            self.unready(from, from);
            return Some(Taken { record, marks, redelivered: true });
        }
        let (offset, record) = self.window.pop_front()?;
        self.window_bytes -= record.bytes();
        self.unready(offset, offset);
        self.handed_out = self.handed_out.max(offset + 1);
        let marks = self.past_of(offset);
        let redelivered = marks.is_some() || offset < self.handed_out_before;
        Some(Taken { record, marks: marks.unwrap_or_default(), redelivered })
    }

    /// Takes out what comes first, whether or not it is read.
    pub(crate) fn drop_first(&mut self) -> Option<(Offset, Marks)> {
        let next = self.next();
        let offset = match next {
            Next::Nothing => return None,
            Next::Ready(offset) | Next::Absent(offset) | Next::Unread(offset) => offset,
        };
        self.unready(offset, offset);
        self.at_hand.remove(&offset);
        if let Some(marks) = self.pop_returned() {
            return Some((offset, marks));
        }
        match self.window.pop_front() {
            Some((_, record)) => self.window_bytes -= record.bytes(),
            None => self.unread = offset + 1,
        }
        Some((offset, self.past_of(offset).unwrap_or_default()))
    }

    /// Takes out a record that is ready, wherever it waits; none if it is not ready, or rests. It may come back later, or not.
    pub(crate) fn take_out(&mut self, offset: Offset, comes_back: bool) -> Option<Marks> {
        if let Some(marks) = self.take_out_returned(offset) {
            self.at_hand.remove(&offset);
            self.unready(offset, offset);
            return Some(marks);
        }
        let at = self.window.partition_point(|(other, _)| *other < offset);
        if self.window.get(at).is_some_and(|(other, _)| *other == offset) {
            let (_, record) = self.window.remove(at)?;
            self.window_bytes -= record.bytes();
        } else if (self.unread..self.end).contains(&offset) && !self.is_skipped(offset) {
            let at = self.skip.partition_point(|(_, to)| *to < offset);
            match at.checked_sub(1).and_then(|before| self.skip.get_mut(before)) {
                Some((_, to)) if *to + 1 == offset => *to = offset,
                _ => self.skip.insert(at, (offset, offset)),
            }
            if let Some(sized) = self.sized.as_mut().filter(|sized| sized.to <= offset) {
                let at = sized.not_ready.partition_point(|(_, to, _)| *to < offset);
                sized.not_ready.insert(at, (offset, offset, comes_back));
            }
        } else {
            return None;
        }
        self.unready(offset, offset);
        let at = self.past.partition_point(|(_, to, _)| *to < offset);
        let marks = self.past.get(at).filter(|(from, _, _)| *from <= offset).map(|(_, _, marks)| *marks);
        Some(marks.unwrap_or_default())
    }

    fn take_out_returned(&mut self, offset: Offset) -> Option<Marks> {
        // Those that come back in turn have any order; the others have their places.
        let run = match self.returns_in_turn {
            true => self.returned.iter().find(|((_, from), (to, _))| (*from..=*to).contains(&offset)),
            false => self.returned.range(..=(0, offset)).next_back().filter(|(_, (to, _))| *to >= offset),
        };
        let (key @ (order, from), (to, marks)) = run.map(|(key, run)| (*key, *run))?;
        self.returned.remove(&key);
        if from < offset {
            self.returned.insert((order, from), (offset - 1, marks));
        }
        if offset < to {
            self.returned.insert((order, offset + 1), (to, marks));
        }
        Some(marks)
    }

    /// Notes what becomes of a run of records, none of which is ready.
    pub(crate) fn settle(&mut self, from: Offset, to: Offset, disposition: Disposition) {
        if let (Some(sized), Disposition::Accept) = (&mut self.sized, disposition) {
            sized.sizes.forget(from, to);
        }
        match self.changes.last_mut() {
            // What is given back together stays together: the order among returns is that of these runs.
            Some(last) if last.to + 1 == from && last.disposition == disposition => last.to = to,
            _ => self.changes.push(Settlement { from, to, disposition }),
        }
    }

    /// A run of records with the same marks comes back.
    pub(crate) fn give_back(&mut self, from: Offset, to: Offset, marks: Marks) {
        let key = if self.returns_in_turn { marks.order } else { 0 };
        self.returned.insert((key, from), (to, marks));
        self.ready += (to - from + 1).cast_unsigned();
        if let Some(sized) = &mut self.sized {
            sized.ready_bytes += sized.sizes.sum(from, to);
        }
    }

    /// A run of records with the same marks comes back at a later time.
    pub(crate) fn rest(&mut self, from: Offset, to: Offset, marks: Marks, until: TimestampMs) {
        self.resting.insert(from, to, marks, until);
    }

    /// What has rested for long enough comes back.
    pub(crate) fn wake(&mut self, now: TimestampMs) {
        while let Some((from, to, marks)) = self.resting.pop_rested(now) {
            let marks_in_turn = Marks { order: self.next_order(), ..marks };
            self.give_back(from, to, if self.returns_in_turn { marks_in_turn } else { marks });
        }
    }

    /// When records have rested for long enough, if there are such.
    pub(crate) fn wakes_at(&self) -> Option<TimestampMs> {
        self.resting.first_until()
    }

    /// Records that rest.
    pub(crate) fn resting(&self) -> u64 {
        self.resting.records()
    }

    /// The order number of the next release.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// Settles everything that is ready or rests. Returns how many records that were.
    pub(crate) fn purge(&mut self) -> u64 {
        let purged = self.ready + self.resting.records();
        for (from, to) in self.resting.drain() {
            self.settle(from, to, Disposition::Accept);
        }
        let returned = std::mem::take(&mut self.returned);
        for ((_, from), (to, _)) in returned {
            self.settle(from, to, Disposition::Accept);
        }
        let window = std::mem::take(&mut self.window);
        for (offset, _) in window {
            self.settle(offset, offset, Disposition::Accept);
        }
        let mut at = self.unread;
        for (from, to) in std::mem::take(&mut self.skip) {
            if from > at {
                self.settle(at, from - 1, Disposition::Accept);
            }
            at = at.max(to + 1);
        }
        if at < self.end {
            self.settle(at, self.end - 1, Disposition::Accept);
        }
        self.at_hand.clear();
        self.past.clear();
        (self.window_bytes, self.ready) = (0, 0);
        self.unread = self.end;
        if let Some(sized) = &mut self.sized {
            (sized.ready_bytes, sized.to) = (0, self.end);
        }
        purged
    }

    /// What is to be proposed.
    pub(crate) fn take_changes(&mut self) -> LaneChanges {
        let news = self.handed_out > self.handed_out_told;
        self.handed_out_told = self.handed_out;
        let handed_out = if news { self.handed_out } else { 0 };
        LaneChanges { handed_out, settlements: std::mem::take(&mut self.changes) }
    }

    fn pop_returned(&mut self) -> Option<Marks> {
        let ((order, from), (to, marks)) = self.returned.pop_first()?;
        if from < to {
            self.returned.insert((order, from + 1), (to, marks));
        }
        Some(marks)
    }

    /// Forgets what lies before the window, or what is read next.
    fn drop_skipped(&mut self) {
        let at = self.window.front().map_or(self.unread, |(offset, _)| *offset);
        while self.skip.front().is_some_and(|(_, to)| *to < at) {
            self.skip.pop_front();
        }
    }

    fn is_skipped(&self, offset: Offset) -> bool {
        self.skipped_from(offset).is_some_and(|(from, _)| from <= offset)
    }

    /// The first run to be skipped that ends at or behind an offset. They do not lie in each other.
    fn skipped_from(&self, offset: Offset) -> Option<(Offset, Offset)> {
        self.skip.get(self.skip.partition_point(|(_, to)| *to < offset)).copied()
    }

    fn past_of(&mut self, offset: Offset) -> Option<Marks> {
        while self.past.front().is_some_and(|(_, to, _)| *to < offset) {
            self.past.pop_front();
        }
        self.past.front().filter(|(from, _, _)| *from <= offset).map(|(_, _, marks)| *marks)
    }
}
