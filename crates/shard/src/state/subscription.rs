//! An individual subscription: which records are settled, and what is noted of those that came back.
//!
//! It is a *cursor plus exceptions*. Everything below the head is settled; above it only what is not as it was
//! appended is noted, in blocks of 65,536 offsets that are shared with checkpoints and views until they
//! change. A record that waits is noted nowhere: ten million of them cost what one does.
//!
//! What is handed out to whom is not in here. That is the leader's memory, and a new leader hands out again
//! what is not settled; of what may have been handed out before it knows by one offset.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use weir_model::subscription::{Disposition, Marks, Settlement};
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Offset, TimestampMs};

use super::spans::{BLOCK, Spans};

/// Beyond this block there are no offsets.
const BLOCKS_MAX: i64 = i64::MAX / BLOCK as i64 - 1;

/// What is noted of a block's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Block {
    settled: Spans,
    /// Of records that are not settled; rising, apart from each other.
    marked: Vec<Marked>,
}

/// A run of positions with the same marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marked {
    from: u16,
    to: u16,
    marks: Marks,
}

/// One individual subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    head: Offset,
    handed_out: Offset,
    /// Settled records at or above the head.
    settled_above: u64,
    /// Given to the next release.
    next_order: u64,
    /// By offset, in units of [`BLOCK`]. Only blocks in which something is noted, none of them below the head's.
    blocks: BTreeMap<i64, Arc<Block>>,
}

impl Subscription {
    /// One that has settled everything below an offset.
    pub(crate) fn new(head: Offset) -> Subscription {
        Subscription { head, handed_out: head, settled_above: 0, next_order: 0, blocks: BTreeMap::new() }
    }

    /// Everything below this offset is settled, and the record at it is not, if there is one.
    pub fn head(&self) -> Offset {
        self.head
    }

    /// Records from this offset on have never been handed out.
    pub fn handed_out(&self) -> Offset {
        self.handed_out
    }

    /// How many of the records below an offset, the log's end, are not settled.
    pub fn unsettled(&self, end: Offset) -> u64 {
        ((end - self.head).max(0) as u64).saturating_sub(self.settled_above)
    }

    /// Whether a record is settled.
    pub fn is_settled(&self, offset: Offset) -> bool {
        let (key, position) = place(offset);
        offset < self.head || self.blocks.get(&key).is_some_and(|block| block.settled.contains(position))
    }

    /// How many records of a run, first and last, are not settled.
    pub fn unsettled_within(&self, from: Offset, to: Offset) -> u64 {
        let from = from.max(self.head);
        if from > to {
            return 0;
        }
        let settled: u64 = self
            .blocks
            .range(place(from).0..=place(to).0)
            .map(|(key, block)| {
                let first = if *key == place(from).0 { place(from).1 } else { 0 };
                let last = if *key == place(to).0 { place(to).1 } else { u16::MAX };
                u64::from(block.settled.count(first, last))
            })
            .sum();
        (to - from + 1) as u64 - settled
    }

    /// The first settled record of a run; none if none of them is.
    pub(crate) fn settled_within(&self, from: Offset, to: Offset) -> Option<Offset> {
        if from < self.head {
            return Some(from);
        }
        self.blocks.range(place(from).0..=place(to).0).find_map(|(key, block)| {
            let first = if *key == place(from).0 { place(from).1 } else { 0 };
            let (begin, _) = block.settled.span_from(first)?;
            let found = offset_of(*key, begin.max(first));
            (found <= to).then_some(found)
        })
    }

    /// The runs of settled records above the head, rising. Two of them may meet where a block ends.
    pub fn settled_runs(&self) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let runs = self.blocks.iter().flat_map(|(key, block)| {
            block.settled.iter().map(|(from, to)| (offset_of(*key, from), offset_of(*key, to)))
        });
        runs.filter(|(_, to)| *to >= self.head).map(|(from, to)| (from.max(self.head), to))
    }

    /// The runs of records that came back or were rejected, rising, with what is noted of them.
    pub fn marked_runs(&self) -> impl Iterator<Item = (Offset, Offset, Marks)> + '_ {
        self.blocks.iter().flat_map(|(key, block)| {
            let run = |run: &Marked| (offset_of(*key, run.from), offset_of(*key, run.to), run.marks);
            block.marked.iter().map(run)
        })
    }

    /// How many runs are noted: what the subscription takes memory for.
    pub fn runs(&self) -> usize {
        self.blocks.values().map(|block| block.settled.iter().count() + block.marked.len()).sum()
    }

    /// Notes that everything below an offset may have been handed out. `end` is the log's.
    pub(crate) fn hand_out(&mut self, upto: Offset, end: Offset) {
        self.handed_out = self.handed_out.max(upto.min(end));
    }

    /// Settles records, or gives them back. What is settled already stays so, and what is not there is passed
    /// over. `end` is the log's, `now` the entry's time.
    pub(crate) fn settle(&mut self, settlement: &Settlement, end: Offset, now: TimestampMs) {
        let (from, to) = (settlement.from.max(self.head), settlement.to.min(end - 1));
        if from > to {
            return;
        }
        self.hand_out(to + 1, end);
        match settlement.disposition {
            Disposition::Accept if from == self.head => self.raise_head(to + 1),
            Disposition::Accept => {
                for (key, first, last) in blocks_of(from, to) {
                    let block = Arc::make_mut(self.blocks.entry(key).or_default());
                    block.unmark(first, last);
                    self.settled_above += u64::from(block.settled.insert(first, last));
                }
            }
            Disposition::Release { failed } => {
                let order = self.next_order;
                self.next_order += 1;
                self.mark(from, to, |marks| Marks {
                    failures: marks.failures.saturating_add(u16::from(failed)),
                    returns: marks.returns.saturating_add(1),
                    order,
                    at: now,
                    last_failed: failed,
                    dead: marks.dead,
                });
            }
            Disposition::Reject { reason } => {
                self.mark(from, to, |marks| Marks { dead: marks.dead.or(Some(reason)), ..marks });
            }
        }
    }

    /// Takes everything below an offset for settled.
    pub(crate) fn raise_head(&mut self, head: Offset) {
        if head <= self.head {
            return;
        }
        self.count_out(head);
        self.head = head;
        self.handed_out = self.handed_out.max(head);
        self.skip_settled();
        let (key, position) = place(self.head);
        self.blocks = self.blocks.split_off(&key);
        if let Some(block) = self.blocks.get_mut(&key)
            && position > 0
        {
            if block.marked.first().is_some_and(|run| run.from < position) {
                Arc::make_mut(block).unmark(0, position - 1);
            }
            if block.is_void_from(position) {
                self.blocks.remove(&key);
            }
        }
    }

    /// Takes the settled records between the head and an offset out of the count.
    fn count_out(&mut self, upto: Offset) {
        for (key, block) in self.blocks.range(place(self.head).0..=place(upto - 1).0) {
            let first = self.head.max(offset_of(*key, 0));
            let last = (upto - 1).min(offset_of(*key, u16::MAX));
            self.settled_above -= u64::from(block.settled.count(place(first).1, place(last).1));
        }
    }

    /// Moves the head over what is settled from there on.
    fn skip_settled(&mut self) {
        loop {
            let (key, position) = place(self.head);
            let Some(block) = self.blocks.get(&key) else { return };
            let next = match block.settled.next_absent(position) {
                Some(next) => offset_of(key, next),
                None => offset_of(key + 1, 0),
            };
            self.settled_above -= (next - self.head) as u64;
            let stays = place(next).0 == key;
            self.head = next;
            self.handed_out = self.handed_out.max(next);
            if stays {
                return;
            }
        }
    }

    fn mark(&mut self, from: Offset, to: Offset, change: impl Fn(Marks) -> Marks) {
        for (key, first, last) in blocks_of(from, to) {
            Arc::make_mut(self.blocks.entry(key).or_default()).mark(first, last, &change);
            if self.blocks.get(&key).is_some_and(|block| block.is_void_from(0)) {
                self.blocks.remove(&key);
            }
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.i64(self.head);
        out.i64(self.handed_out);
        out.u64(self.next_order);
        out.u32(self.blocks.len() as u32);
        for (key, block) in &self.blocks {
            out.i64(*key);
            out.u32(block.settled.iter().count() as u32);
            block.settled.iter().for_each(|(from, to)| span(out, from, to));
            out.list(&block.marked, |out, run| {
                span(out, run.from, run.to);
                run.marks.encode(out);
            });
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Subscription, DecodeError> {
        let mut subscription = Subscription::new(reader.i64()?);
        subscription.handed_out = reader.i64()?;
        subscription.next_order = reader.u64()?;
        let head = place(subscription.head);
        if subscription.head < 0 || subscription.handed_out < subscription.head {
            return Err(reader.error("a subscription's offsets contradict each other"));
        }
        for (key, block) in reader.list(16, |r| Ok((r.i64()?, Block::decode(r)?)))? {
            let follows = subscription.blocks.last_key_value().is_none_or(|(last, _)| *last < key);
            if key < head.0 || key > BLOCKS_MAX || !follows || block.is_void_from(0) {
                return Err(reader.error("a subscription's blocks are not in order"));
            }
            let below = if key == head.0 { head.1 } else { 0 };
            if key == head.0 && block.settled.contains(head.1) {
                return Err(reader.error("a subscription's head is settled"));
            }
            subscription.settled_above += u64::from(block.settled.count(below, u16::MAX));
            subscription.blocks.insert(key, Arc::new(block));
        }
        Ok(subscription)
    }
}

impl Block {
    /// Whether nothing is noted from a position on.
    fn is_void_from(&self, position: u16) -> bool {
        self.settled.span_from(position).is_none() && self.marked.iter().all(|run| run.to < position)
    }

    /// Forgets the marks of a span.
    fn unmark(&mut self, from: u16, to: u16) {
        let (first, end) = self.touching(from, to);
        if first < end {
            let kept = self.outside(first, end, from, to);
            self.marked.splice(first..end, kept.into_iter().flatten());
        }
    }

    /// Changes the marks of those of a span that are not settled.
    fn mark(&mut self, from: u16, to: u16, change: &impl Fn(Marks) -> Marks) {
        let (first, end) = self.touching(from, to);
        let [before, behind] = self.outside(first, end, from, to);
        let mut runs: Vec<Marked> = before.into_iter().collect();
        let mut at = Some(from);
        while let Some(position) = at.and_then(|at| self.settled.next_absent(at)).filter(|next| *next <= to) {
            let gap_end = match self.settled.span_from(position) {
                Some((settled, _)) => to.min(settled - 1),
                None => to,
            };
            let known = self.marked[first..end].iter().find(|run| run.to >= position);
            let (run_end, marks) = match known {
                Some(run) if run.from <= position => (gap_end.min(run.to), run.marks),
                Some(run) => (gap_end.min(run.from - 1), Marks::default()),
                None => (gap_end, Marks::default()),
            };
            push_run(&mut runs, Marked { from: position, to: run_end, marks: change(marks) });
            at = run_end.checked_add(1);
        }
        behind.into_iter().for_each(|run| push_run(&mut runs, run));
        let changed = first..first + runs.len();
        self.marked.splice(first..end, runs);
        self.join(changed);
    }

    /// The runs that lie in a span, wholly or in part.
    fn touching(&self, from: u16, to: u16) -> (usize, usize) {
        let first = self.marked.partition_point(|run| run.to < from);
        let end = self.marked.partition_point(|run| run.from <= to);
        (first, end.max(first))
    }

    /// What of these runs lies outside of a span: before it and behind it.
    fn outside(&self, first: usize, end: usize, from: u16, to: u16) -> [Option<Marked>; 2] {
        let runs = &self.marked[first..end];
        let before = runs.first().filter(|run| run.from < from).map(|run| Marked { to: from - 1, ..*run });
        let behind = runs.last().filter(|run| run.to > to).map(|run| Marked { from: to + 1, ..*run });
        [before, behind]
    }

    /// Makes one run of what meets with equal marks, at the edges of what was changed.
    fn join(&mut self, changed: Range<usize>) {
        let (start, end) = (changed.start.saturating_sub(1), self.marked.len().min(changed.end + 1));
        let mut joined: Vec<Marked> = Vec::with_capacity(end - start);
        self.marked[start..end].iter().for_each(|run| push_run(&mut joined, *run));
        if joined.len() < end - start {
            self.marked.splice(start..end, joined);
        }
    }

    fn decode(reader: &mut Reader) -> Result<Block, DecodeError> {
        let mut block = Block::default();
        let mut free_from = Some(0u16);
        for (from, to) in reader.list(4, read_span)? {
            // Spans that meet would be one.
            if from > to || free_from.is_none_or(|free| from < free) {
                return Err(reader.error("spans of settled records are not in order"));
            }
            block.settled.insert(from, to);
            free_from = to.checked_add(2);
        }
        let mut free_from = Some(0u16);
        let runs = reader.list(4 + Marks::ENCODED_BYTES_MIN, |r| Ok((read_span(r)?, Marks::decode(r)?)))?;
        for ((from, to), marks) in runs {
            if from > to || free_from.is_none_or(|free| from < free) || block.settled.count(from, to) > 0 {
                return Err(reader.error("marked records are not in order, or settled"));
            }
            block.marked.push(Marked { from, to, marks });
            free_from = to.checked_add(1);
        }
        Ok(block)
    }
}

/// Appends a run, to the last one if it goes on with the same marks.
fn push_run(runs: &mut Vec<Marked>, run: Marked) {
    match runs.last_mut() {
        Some(last) if last.to.checked_add(1) == Some(run.from) && last.marks == run.marks => last.to = run.to,
        _ => runs.push(run),
    }
}

/// The block of an offset, and the position in it.
fn place(offset: Offset) -> (i64, u16) {
    (offset.div_euclid(BLOCK as i64), offset.rem_euclid(BLOCK as i64) as u16)
}

fn offset_of(key: i64, position: u16) -> Offset {
    key * BLOCK as i64 + Offset::from(position)
}

/// The blocks that a run lies in, each with the first and last position of it.
fn blocks_of(from: Offset, to: Offset) -> impl Iterator<Item = (i64, u16, u16)> {
    let ((first, first_position), (last, last_position)) = (place(from), place(to));
    (first..=last).map(move |key| {
        let from = if key == first { first_position } else { 0 };
        let to = if key == last { last_position } else { u16::MAX };
        (key, from, to)
    })
}

fn span(out: &mut Writer, from: u16, to: u16) {
    out.u32(u32::from(from) | u32::from(to) << 16);
}

fn read_span(reader: &mut Reader) -> Result<(u16, u16), DecodeError> {
    let both = reader.u32()?;
    Ok((both as u16, (both >> 16) as u16))
}

#[cfg(test)]
mod tests;
