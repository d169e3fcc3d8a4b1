//! The Raft log of one shard: which entries there are, in memory where they may be wanted soon, and
//! in the journal's files otherwise.
//!
//! ```text
//!      purged    needed by nobody here      wanted soon
//! ------------|--------------------------|-------------------|
//!             first: only positions      cached: entries     last
//! ```
//!
//! An entry is kept as it came, decoded once and encoded once; reading it for replication or for
//! `apply` clones a pointer. Entries leave memory, oldest first, when they are durable here and
//! applied and the others take more room than is set; they are then read back by their position.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_log::journal::{JournalReader, Position, RecoveredRecord};
use weir_model::ShardId;

use super::codec::{decode_entry, decode_entry_id, entry_bytes};
use super::types::{Config, LogId, RaftEntry, Vote, log_id, term_of};
use crate::blocking::Blocking;
use crate::journal::queue::{JournalQueue, Request};
use crate::journal::records;

/// Bytes of entries that are read for one append to a follower, or handed to `apply` at once, unless
/// a single one is larger.
pub(crate) const READ_BYTES_MAX: usize = 4 << 20;

/// Which entries a shard's log has.
pub(crate) struct ShardLog {
    shard: ShardId,
    cache_bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    cached_bytes: usize,
    /// Every slot below holds no entry.
    uncached_below: u64,
    /// Every entry below is applied.
    applied_below: u64,
}

struct Slot {
    term: u64,
    bytes: u32,
    /// Where it lies; none until it is durable.
    position: Option<Position>,
    entry: Option<RaftEntry>,
}

/// An entry in memory, or where to read it.
enum Found {
    Here(RaftEntry),
    There(LogId, Position),
}

impl ShardLog {
    pub(crate) fn new(shard: ShardId, cache_bytes_max: usize) -> ShardLog {
        ShardLog { shard, cache_bytes_max, state: Mutex::default() }
    }

    /// The first position of the journal that this shard needs; none if it needs nothing yet.
    pub(crate) fn needed_from(&self) -> Option<Position> {
        self.state.lock().slots.front().and_then(|slot| slot.position)
    }

    /// The position of the first durable entry behind an index.
    pub(crate) fn needed_behind(&self, index: Option<u64>) -> Option<Position> {
        let state = self.state.lock();
        let from = index.map_or(0, |index| index + 1).max(state.first) - state.first;
        state.slots.get(usize::try_from(from).ok()?).and_then(|slot| slot.position)
    }

    /// These entries are durable, at these positions.
    pub(crate) fn set_durable(&self, placed: impl Iterator<Item = (LogId, Position)>) {
        let mut state = self.state.lock();
        for (id, position) in placed {
            // An entry that was truncated meanwhile is another's place by now.
            if let Some(slot) = state.slot_mut(id.index).filter(|slot| slot.term == term_of(&id)) {
                slot.position = Some(position);
            }
        }
        state.shrink(self.cache_bytes_max);
    }

    /// Everything up to the index is applied.
    pub(crate) fn set_applied(&self, index: u64) {
        let mut state = self.state.lock();
        state.applied_below = state.applied_below.max(index + 1);
        state.shrink(self.cache_bytes_max);
    }

    /// Whether every entry up to the index is durable here (or gone, because a checkpoint has it).
    pub(crate) fn is_durable(&self, index: u64) -> bool {
        let mut state = self.state.lock();
        index < state.first || state.slot_mut(index).is_some_and(|slot| slot.position.is_some())
    }

    /// Bytes of the entries that are not applied yet.
    pub(crate) fn unapplied_bytes(&self) -> u64 {
        let state = self.state.lock();
        let from = clamp(state.applied_below.max(state.first) - state.first, &state);
        state.slots.range(from..).map(|slot| u64::from(slot.bytes)).sum()
    }

    /// The index of the first entry that is still here.
    pub(crate) fn first_index(&self) -> u64 {
        self.state.lock().first
    }

    /// Index of the last entry; 0 if there is none.
    pub(crate) fn last_index(&self) -> u64 {
        self.state.lock().last().map_or(0, |id| id.index)
    }

    /// Whether the shard has never taken part in anything.
    pub(crate) fn is_pristine(&self) -> bool {
        let state = self.state.lock();
        state.vote.is_none() && state.slots.is_empty() && state.purged.is_none()
    }

    fn find(&self, range: impl RangeBounds<u64>, bytes_max: usize) -> Result<Vec<Found>, io::Error> {
        let state = self.state.lock();
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let from = clamp(start.max(state.first) - state.first, &state);
        let to = clamp(end.max(state.first) - state.first, &state).max(from);
        let mut found = Vec::with_capacity((to - from).min(4096));
        let mut bytes = 0;
        for (at, slot) in state.slots.range(from..to).enumerate() {
            if bytes > 0 && bytes + slot.bytes as usize > bytes_max {
                break;
            }
            bytes += slot.bytes as usize;
            let id = log_id(slot.term, state.first + (from + at) as u64);
            found.push(match (&slot.entry, slot.position) {
                (Some(entry), _) => Found::Here(entry.clone()),
                (None, Some(position)) => Found::There(id, position),
                (None, None) => {
                    return Err(io::Error::other(format!("entry {id} is neither in memory nor durable")));
                }
            });
        }
        Ok(found)
    }
}

fn clamp(at: u64, state: &State) -> usize {
    usize::try_from(at).map_or(state.slots.len(), |at| at.min(state.slots.len()))
}

impl State {
    fn next_index(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        let at = index.checked_sub(self.first)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }

    fn last(&self) -> Option<LogId> {
        match self.slots.back() {
            Some(slot) => Some(log_id(slot.term, self.next_index() - 1)),
            None => self.purged,
        }
    }

    fn push(&mut self, slot: Slot) {
        if slot.entry.is_some() {
            self.cached_bytes += slot.bytes as usize;
        }
        self.slots.push_back(slot);
    }

    fn forget(&mut self, slot: &Slot) {
        if slot.entry.is_some() {
            self.cached_bytes -= slot.bytes as usize;
        }
    }

    fn truncate_after(&mut self, last: Option<u64>) {
        let keep_below = last.map_or(0, |index| index + 1);
        while self.next_index() > keep_below {
            let Some(slot) = self.slots.pop_back() else { break };
            self.forget(&slot);
        }
        self.uncached_below = self.uncached_below.min(self.next_index());
    }

    fn purge_through(&mut self, id: LogId) {
        while self.first <= id.index {
            let Some(slot) = self.slots.pop_front() else { break };
            self.forget(&slot);
            self.first += 1;
        }
        self.first = self.first.max(id.index + 1);
        self.purged = self.purged.max(Some(id));
        self.uncached_below = self.uncached_below.max(self.first);
    }

    /// Lets go of the oldest entries that are durable and applied, until the others fit.
    fn shrink(&mut self, bytes_max: usize) {
        while self.cached_bytes > bytes_max && self.uncached_below < self.applied_below {
            let index = self.uncached_below;
            let Some(slot) = self.slot_mut(index) else { break };
            if slot.position.is_none() {
                break;
            }
            let bytes = slot.bytes as usize;
            if slot.entry.take().is_some() {
                self.cached_bytes -= bytes;
            }
            self.uncached_below += 1;
        }
    }
}

/// A shard's log as the journal's records tell it, record by record.
#[derive(Default)]
pub(crate) struct LogRecovery {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    /// Entries without holes between them, rising. All but the last are below what a checkpoint
    /// covers, or before a loss.
    runs: Vec<Run>,
}

/// Entries that follow each other.
#[derive(Default)]
struct Run {
    /// Index of the first entry.
    first: u64,
    /// Term, bytes and place of each.
    entries: VecDeque<(u64, u32, Position)>,
}

impl Run {
    /// Index behind the last entry.
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// Entries that cannot be used because some before them are lost.
pub(crate) struct Dropped {
    /// The last entry that can be.
    pub after: Option<LogId>,
    /// First index that is lost or cannot be used.
    pub from: u64,
    /// The last.
    pub to: u64,
}

impl LogRecovery {
    /// Whether the journal holds a vote of the shard: it keeps one from before the first entry on.
    pub(crate) fn has_vote(&self) -> bool {
        self.vote.is_some()
    }

    /// Takes the next record of the shard.
    pub(crate) fn take(&mut self, record: &RecoveredRecord) -> Result<(), String> {
        // What is kept is copied: a record shares the memory of its whole group.
        let payload = || Bytes::copy_from_slice(&record.payload);
        match record.kind {
            records::VOTE => {
                self.vote = Some(records::decode_vote_record(payload()).map_err(|e| e.to_string())?);
            }
            records::COMMITTED => {
                self.committed = records::decode_log_id_record(payload()).map_err(|e| e.to_string())?;
            }
            records::PURGED => {
                self.purged = records::decode_log_id_record(payload()).map_err(|e| e.to_string())?;
            }
            records::TRUNCATE => {
                let after = records::decode_log_id_record(payload()).map_err(|e| e.to_string())?;
                let keep_below = after.map_or(0, |id| id.index + 1);
                self.truncate(keep_below);
            }
            records::ENTRY => {
                let id = decode_entry_id(&record.payload).map_err(|e| e.to_string())?;
                self.take_entry(id, record.payload.len(), record.position)?;
            }
            other => return Err(format!("records of kind {} are not known to this binary", other.0)),
        }
        Ok(())
    }

    fn take_entry(&mut self, id: LogId, bytes: usize, position: Position) -> Result<(), String> {
        let next = self.runs.last().map(Run::end);
        match next {
            Some(next) if id.index < next => {
                return Err(format!("entry {id} follows entry {} without a truncation", next - 1));
            }
            Some(next) if id.index == next => {}
            // What came before was released or lies below a snapshot that was installed: whether
            // the checkpoint really has it is checked in `finish`.
            _ => self.runs.push(Run { first: id.index, entries: VecDeque::new() }),
        }
        if let Some(run) = self.runs.last_mut() {
            run.entries.push_back((term_of(&id), bytes as u32, position));
        }
        Ok(())
    }

    fn truncate(&mut self, keep_below: u64) {
        while let Some(run) = self.runs.last_mut() {
            while run.end() > keep_below && run.entries.pop_back().is_some() {}
            if !run.entries.is_empty() {
                return;
            }
            self.runs.pop();
        }
    }

    /// Drops what lies behind entries that are neither here nor in the checkpoint, which nothing can
    /// be applied without. To be asked for only when the operator has accepted a loss, and nobody else
    /// has the entries. What is dropped must be truncated in the journal before anything is appended.
    pub(crate) fn drop_behind_loss(&mut self, checkpoint: Option<LogId>) -> Option<Dropped> {
        let covered = checkpoint.map_or(0, |id| id.index + 1);
        let last = self.runs.last().filter(|run| run.first > covered)?;
        let to = last.end() - 1;
        self.runs.retain(|run| run.first <= covered);
        let reaching = self.runs.last().filter(|run| run.end() > covered);
        let kept = reaching.and_then(|run| Some((run.end(), run.entries.back()?.0)));
        Some(match kept {
            Some((end, term)) => Dropped { after: Some(log_id(term, end - 1)), from: end, to },
            None => Dropped { after: checkpoint, from: covered, to },
        })
    }

    /// Entries that are known to be committed and are neither here nor in the checkpoint: the first index
    /// and the last. A journal that was released up to a checkpoint has nothing else to tell that the
    /// checkpoint is gone.
    pub(crate) fn lacks_committed(&self, checkpoint: Option<LogId>) -> Option<(u64, u64)> {
        let in_journal = self.runs.last().map_or(0, Run::end);
        let next = checkpoint.map_or(0, |id| id.index + 1).max(in_journal);
        self.committed.filter(|committed| committed.index >= next).map(|committed| (next, committed.index))
    }

    /// The log, given what the shard's checkpoint covers. `Err` has the first and the last index of
    /// entries that are in neither.
    pub(crate) fn finish(mut self, log: &ShardLog, checkpoint: Option<LogId>) -> Result<(), (u64, u64)> {
        let mut state = log.state.lock();
        state.vote = self.vote;
        let covered = checkpoint.map_or(0, |id| id.index + 1);
        // Without one that reaches the checkpoint there is nothing beyond it.
        let run = self.runs.pop().filter(|run| run.end() >= covered);
        let mut run = run.unwrap_or(Run { first: covered, entries: VecDeque::new() });
        if run.first > covered {
            return Err((covered, run.first - 1));
        }
        state.purged = checkpoint;
        if run.first > 0 && run.first < covered {
            if let Some(before) = self.purged.filter(|purged| purged.index + 1 == run.first) {
                state.purged = Some(before);
            } else if let Some((term, ..)) = run.entries.pop_front() {
                // The entry before the first one is not known any more, but the first one is.
                state.purged = Some(log_id(term, run.first));
                run.first += 1;
            }
        } else if run.first == 0 {
            state.purged = None;
        }
        state.first = run.first;
        state.uncached_below = run.first;
        for (term, bytes, position) in run.entries {
            state.push(Slot { term, bytes, position: Some(position), entry: None });
        }
        state.applied_below = covered;
        state.uncached_below = state.next_index();
        // A loss that the operator accepted may have taken entries that were committed.
        state.committed = self.committed.min(state.last());
        Ok(())
    }
}

/// The log as the consensus library uses it. Clones are handles to the same log.
#[derive(Clone)]
pub(crate) struct LogStore {
    log: Arc<ShardLog>,
    queue: Arc<JournalQueue>,
    reader: JournalReader,
    blocking: Blocking,
}

impl LogStore {
    pub(crate) fn new(
        log: Arc<ShardLog>,
        queue: Arc<JournalQueue>,
        reader: JournalReader,
        blocking: Blocking,
    ) -> LogStore {
        LogStore { log, queue, reader, blocking }
    }

    /// Entries of a range, at least one if there is one, and whole ones up to about `bytes_max`.
    async fn read(
        &self,
        range: impl RangeBounds<u64>,
        bytes_max: usize,
    ) -> Result<Vec<RaftEntry>, io::Error> {
        let found = self.log.find(range, bytes_max)?;
        if found.iter().all(|found| matches!(found, Found::Here(_))) {
            let here = found.into_iter().filter_map(|found| match found {
                Found::Here(entry) => Some(entry),
                Found::There(..) => None,
            });
            return Ok(here.collect());
        }
        let (reader, shard) = (self.reader.clone(), self.log.shard);
        let read = move || found.into_iter().map(|found| read_back(&reader, shard, found)).collect();
        self.blocking.run(read).await.map_err(io::Error::other)?
    }
}

fn read_back(reader: &JournalReader, shard: ShardId, found: Found) -> Result<RaftEntry, io::Error> {
    let (id, position) = match found {
        Found::Here(entry) => return Ok(entry),
        Found::There(id, position) => (id, position),
    };
    let record = reader.read(position).map_err(io::Error::other)?;
    if record.shard != shard || record.kind != records::ENTRY {
        return Err(io::Error::other(format!(
            "position {position} of the journal holds no entry of shard {shard}"
        )));
    }
    let entry = decode_entry(record.payload).map_err(io::Error::other)?;
    if entry.log_id != id {
        return Err(io::Error::other(format!(
            "position {position} of the journal holds entry {}, not {id}",
            entry.log_id
        )));
    }
    Ok(entry)
}

impl RaftLogReader<Config> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<RaftEntry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read(range, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<RaftEntry>, io::Error> {
        self.read(start..end, READ_BYTES_MAX).await
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<RaftEntry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let store = self.clone();
        let state = (store, start, VecDeque::<RaftEntry>::new());
        stream::try_unfold(state, move |(store, mut next, mut read)| async move {
            if read.is_empty() && next < end {
                read = store.read(next..end, READ_BYTES_MAX).await?.into();
            }
            let Some(entry) = read.pop_front() else { return Ok(None) };
            next = entry.log_id.index + 1;
            Ok(Some((entry, (store, next, read))))
        })
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.state.lock().vote)
    }

    async fn get_key_log_ids(&mut self, range: RangeInclusive<LogId>) -> Result<Vec<LogId>, io::Error> {
        // The last log id of each leader, which is what the library's own search returns; its
        // description speaks of the first.
        let state = self.log.state.lock();
        let (start, end) = (range.start().index.max(state.first), *range.end());
        let from = clamp(start - state.first, &state);
        let to = clamp((end.index + 1).max(start) - state.first, &state);
        let mut ids: Vec<LogId> = Vec::new();
        for (at, slot) in state.slots.range(from..to).enumerate() {
            let id = log_id(slot.term, start + at as u64);
            match ids.last_mut() {
                Some(last) if term_of(last) == slot.term => *last = id,
                _ => ids.push(id),
            }
        }
        Ok(ids)
    }
}

impl RaftLogStorage<Config> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Config>, io::Error> {
        let state = self.log.state.lock();
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: state.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.log.state.lock().vote = Some(*vote);
        let (done, durable) = oneshot::channel();
        self.queue.push(Request::Vote { shard: self.log.shard, vote: *vote, done }).await?;
        durable.await.unwrap_or_else(|_| Err(io::Error::other("the journal has stopped")))
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        if let Some(committed) = committed {
            self.log.state.lock().committed = Some(committed);
            self.queue.set_pointer(self.log.shard, records::COMMITTED, committed);
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.log.state.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Config>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        {
            let mut state = self.log.state.lock();
            for entry in &entries {
                if state.slots.is_empty() && state.purged.is_none() {
                    state.first = entry.log_id.index;
                    state.uncached_below = state.first;
                }
                if entry.log_id.index != state.next_index() {
                    let expected = state.next_index();
                    let why = format!("entry {} would leave a hole; {expected} comes next", entry.log_id);
                    return Err(io::Error::other(why));
                }
                state.push(Slot {
                    term: term_of(&entry.log_id),
                    bytes: entry_bytes(entry) as u32,
                    position: None,
                    entry: Some(entry.clone()),
                });
            }
        }
        let queued = entries.clone();
        self.queue.push(Request::Append { shard: self.log.shard, entries, done: callback }).await?;
        for entry in queued {
            if let openraft::EntryPayload::Normal(proposal) = &entry.payload {
                proposal.tell_queued(&Ok(()));
            }
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.log.state.lock().truncate_after(last.map(|id| id.index));
        self.queue.push(Request::Truncate { shard: self.log.shard, after: last }).await
    }

    async fn purge(&mut self, id: LogId) -> Result<(), io::Error> {
        self.log.state.lock().purge_through(id);
        self.queue.set_pointer(self.log.shard, records::PURGED, id);
        self.queue.release();
        Ok(())
    }
}
