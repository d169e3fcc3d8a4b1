//! Takes all that waits, writes it, syncs once, and tells those who waited.
//!
//! [`JournalDriver`] is one synchronous value without a thread or a clock. [`run_thread`] drives it
//! from a thread of its own, [`run_task`] from a task of the simulator's runtime.
//!
//! Nobody is told anything before the sync that covers it has returned. After a sync that failed
//! nobody is ever told anything but the failure.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::IOFlushed;
use tokio::sync::{Notify, oneshot, watch};
use weir_log::journal::{Journal, JournalError, JournalRecord, Position, RecordKind, SpareOrder};
use weir_model::ShardId;

use super::queue::{JournalQueue, Request, Taken, Woken};
use super::records;
use crate::options::OnFatal;
use crate::raft::codec::encode_entry;
use crate::raft::log::ShardLog;
use crate::raft::types::{Config, LogId};

/// What a record takes besides its payload, generously.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// What a group takes besides its records, generously.
const GROUP_OVERHEAD_BYTES: usize = 128;

/// How long a full journal waits before it looks again whether a checkpoint has made room.
const FULL_RETRY: Duration = Duration::from_millis(20);

/// Whether the journal takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It does.
    Open,
    /// Checkpoints must make room first, which they do by themselves.
    Full,
    /// The disk has no place for its next file, and nobody here knows when it will.
    NoSpace,
}

/// How long the disk is left to others after each piece of a spare file.
const SPARE_PAUSE: Duration = Duration::from_millis(1);

/// How full the journal is, for those who decide on checkpoints and on what is let in.
///
/// The bound that is set is kept here and not by the journal itself: what Raft has been given must be
/// written, because everything that makes room, a checkpoint and an election included, goes through
/// it. So it is what is let in that stops at the bound; what was let in before may go beyond it.
#[derive(Debug)]
pub(crate) struct JournalStatus {
    bytes_max: u64,
    end: AtomicU64,
    used_bytes: AtomicU64,
    /// Whether anything more is let in.
    room: watch::Sender<Room>,
    /// Told when more of it is taken than before.
    pub fuller: Notify,
}

impl JournalStatus {
    pub(crate) fn new(bytes_max: u64) -> JournalStatus {
        JournalStatus {
            bytes_max,
            end: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            room: watch::Sender::new(Room::Open),
            fuller: Notify::new(),
        }
    }

    /// Position behind everything that was appended.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// What the journal's files may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether checkpoints should be hurried.
    pub(crate) fn is_high(&self) -> bool {
        self.used_bytes.load(Ordering::Acquire) > self.bytes_max / 2 || self.is_full()
    }

    /// Whether nothing more is let in.
    pub(crate) fn is_full(&self) -> bool {
        self.room() != Room::Open
    }

    /// Whether anything more is let in, and why not.
    pub(crate) fn room(&self) -> Room {
        *self.room.borrow()
    }

    /// Hears when that changes.
    pub(crate) fn on_room(&self) -> watch::Receiver<Room> {
        self.room.subscribe()
    }

    fn publish(&self, end: u64, used_bytes: u64, blocked: Option<Room>) {
        let before = self.used_bytes.swap(used_bytes, Ordering::AcqRel);
        self.end.store(end, Ordering::Release);
        let over = if used_bytes > self.bytes_max { Room::Full } else { Room::Open };
        let room = blocked.unwrap_or(over);
        let changed = self.room.send_if_modified(|was| std::mem::replace(was, room) != room);
        if used_bytes > before || (changed && room != Room::Open) {
            self.fuller.notify_waiters();
        }
    }
}

/// Something in line.
enum Item {
    Record { shard: ShardId, kind: RecordKind, chunks: Vec<Bytes>, entry: Option<LogId> },
    Done(Completion),
}

enum Completion {
    Flushed(IOFlushed<Config>),
    Told(oneshot::Sender<Result<(), io::Error>>),
}

impl Completion {
    fn complete(self, result: Result<(), io::Error>) {
        match self {
            Completion::Flushed(callback) => callback.io_completed(result),
            Completion::Told(waiter) => {
                let _ = waiter.send(result);
            }
        }
    }
}

/// What became of an attempt to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// Everything in line.
    All,
    /// Not everything: there is no room until checkpoints or the operator make some.
    Blocked(Room, String),
}

/// Bytes that are gathered into one group, so that one write never holds the others up for long. A larger record has one to
/// itself.
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// The journal with what is in line for it.
pub(crate) struct JournalDriver {
    journal: Journal,
    group_bytes_max: usize,
    logs: BTreeMap<ShardId, Arc<ShardLog>>,
    line: VecDeque<Item>,
    /// How far shards have come, in records of these kinds.
    pointers: BTreeMap<(ShardId, RecordKind), LogId>,
    release: bool,
    give_up_spares: bool,
    /// No spare file is made before others have got on: what one would take is needed elsewhere.
    spares_given_up: bool,
    /// The last one could not be made: not tried again before a pause.
    spare_failed: bool,
    /// Appended since the last sync.
    placed: Vec<(ShardId, LogId, Position)>,
    completions: Vec<Completion>,
    unsealed: bool,
    status: Arc<JournalStatus>,
    /// Why the head of the line could not be written.
    blocked: Option<Room>,
}

impl JournalDriver {
    pub(crate) fn new(
        journal: Journal,
        group_bytes_max: usize,
        logs: BTreeMap<ShardId, Arc<ShardLog>>,
        status: Arc<JournalStatus>,
    ) -> JournalDriver {
        let driver = JournalDriver {
            journal,
            group_bytes_max: group_bytes_max.min(GATHERED_BYTES_MAX),
            logs,
            line: VecDeque::new(),
            pointers: BTreeMap::new(),
            release: false,
            give_up_spares: false,
            spares_given_up: false,
            spare_failed: false,
            placed: Vec::new(),
            completions: Vec::new(),
            unsealed: false,
            status,
            blocked: None,
        };
        driver.publish();
        driver
    }

    /// Puts what was taken out of the queue in line.
    pub(crate) fn accept(&mut self, taken: Taken) {
        for request in taken.requests {
            let record =
                |shard, kind, payload| Item::Record { shard, kind, chunks: vec![payload], entry: None };
            match request {
                Request::Append { shard, entries, done } => {
                    self.line.extend(entries.iter().map(|entry| Item::Record {
                        shard,
                        kind: records::ENTRY,
                        chunks: encode_entry(entry),
                        entry: Some(entry.log_id),
                    }));
                    self.line.push_back(Item::Done(Completion::Flushed(done)));
                }
                Request::Truncate { shard, after } => {
                    let payload = records::encode_log_id_record(&after);
                    self.line.push_back(record(shard, records::TRUNCATE, payload));
                }
                Request::Vote { shard, vote, done } => {
                    let payload = records::encode_vote_record(&vote);
                    self.line.push_back(record(shard, records::VOTE, payload));
                    self.line.push_back(Item::Done(Completion::Told(done)));
                }
                Request::Barrier { done } => self.line.push_back(Item::Done(Completion::Told(done))),
            }
        }
        self.pointers.extend(taken.pointers);
        self.release |= taken.release;
        self.give_up_spares |= taken.give_up_spares;
    }

    /// Writes what is in line, without syncing.
    pub(crate) fn write(&mut self) -> Result<Wrote, JournalError> {
        while !self.line.is_empty() {
            match self.write_group() {
                Ok(()) => {}
                Err(error) => match clears_by_itself(&error) {
                    Some(room) => return Ok(Wrote::Blocked(room, error.to_string())),
                    None => return Err(error),
                },
            }
        }
        Ok(Wrote::All)
    }

    /// Writes one group from the head of the line, and tells nobody.
    fn write_group(&mut self) -> Result<(), JournalError> {
        let mut bytes = GROUP_OVERHEAD_BYTES;
        let mut count = 0;
        let mut group: Vec<JournalRecord<'_>> = Vec::new();
        for item in &self.line {
            if let Item::Record { shard, kind, chunks, .. } = item {
                bytes += RECORD_OVERHEAD_BYTES + chunks.iter().map(Bytes::len).sum::<usize>();
                if !group.is_empty() && bytes > self.group_bytes_max {
                    break;
                }
                group.push(JournalRecord { shard: *shard, kind: *kind, chunks });
            }
            count += 1;
        }
        // How far shards have come rides along behind the entries that it speaks of, if there is room.
        let all = count == self.line.len() && !group.is_empty();
        bytes += self.pointers.len() * (RECORD_OVERHEAD_BYTES + 32);
        let riding: Vec<((ShardId, RecordKind), [Bytes; 1])> = if all && bytes <= self.group_bytes_max {
            let encoded = |id: &LogId| [records::encode_log_id_record(&Some(*id))];
            self.pointers.iter().map(|(key, id)| (*key, encoded(id))).collect()
        } else {
            Vec::new()
        };
        group.extend(riding.iter().map(|((shard, kind), chunks)| JournalRecord {
            shard: *shard,
            kind: *kind,
            chunks,
        }));
        let positions = if group.is_empty() { Vec::new() } else { self.journal.append(&group)? };
        drop(group);
        if !riding.is_empty() {
            self.pointers.clear();
        }
        self.unsealed |= !positions.is_empty();
        let mut positions = positions.into_iter();
        for item in self.line.drain(..count) {
            match item {
                Item::Record { shard, entry, .. } => {
                    let position = positions.next();
                    if let (Some(entry), Some(position)) = (entry, position) {
                        self.placed.push((shard, entry, position));
                    }
                }
                Item::Done(completion) => self.completions.push(completion),
            }
        }
        Ok(())
    }

    /// Makes what was written durable and tells those who wait for it.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        self.journal.sync()?;
        let mut placed = self.placed.as_slice();
        while let Some((shard, ..)) = placed.first() {
            let run = placed.iter().take_while(|(other, ..)| other == shard).count();
            let (these, behind) = placed.split_at(run);
            if let Some(log) = self.logs.get(shard) {
                log.set_durable(these.iter().map(|(_, id, position)| (*id, *position)));
            }
            placed = behind;
        }
        self.placed.clear();
        for completion in self.completions.drain(..) {
            completion.complete(Ok(()));
        }
        if std::mem::take(&mut self.give_up_spares) {
            self.spares_given_up = true;
            if let Err(error) = self.journal.remove_spares() {
                tracing::warn!(%error, "a spare file of the journal could not be removed");
            }
        }
        if self.release {
            self.release = false;
            self.release_unneeded()?;
        }
        self.publish();
        Ok(())
    }

    /// Gives files back that no shard needs any more.
    fn release_unneeded(&mut self) -> Result<(), JournalError> {
        let end = self.journal.end();
        let needed = self.logs.values().filter_map(|log| log.needed_from()).min().unwrap_or(end);
        tracing::debug!(needed = needed.0, end = end.0, "the journal before is not needed any more");
        match self.journal.release_below(needed) {
            // Names that could not be changed now are changed another time.
            Err(JournalError::Disk(error)) => {
                tracing::warn!(%error, "a file of the journal could not be given back");
                self.release = true;
                Ok(())
            }
            result => result.map(|()| self.spares_given_up = false),
        }
    }

    /// Nothing has come for a while: writes down what nobody waits for, and how far all is durable.
    pub(crate) fn idle(&mut self) -> Result<(), JournalError> {
        if !self.pointers.is_empty() && self.line.is_empty() {
            let pointers = std::mem::take(&mut self.pointers);
            self.line.extend(pointers.into_iter().map(|((shard, kind), id)| Item::Record {
                shard,
                kind,
                chunks: vec![records::encode_log_id_record(&Some(id))],
                entry: None,
            }));
            self.write()?;
            self.sync()?;
        }
        let sealed = match self.journal.seal() {
            Err(JournalError::Disk(error)) => {
                tracing::warn!(%error, "the journal could not be sealed");
                Ok(())
            }
            result => result.map(|_| self.unsealed = false),
        };
        sealed?;
        self.spare_failed = false;
        self.publish();
        Ok(())
    }

    /// A spare file to be made beside the journal, when nothing else is to be done or the current file is half
    /// full: whoever begins the next file and has none waits for 64 MiB of zeroes.
    fn order_spare(&mut self, idle: bool) -> Option<Arc<SpareOrder>> {
        let (filled, capacity) = self.journal.filled();
        let due = idle || (!self.spare_failed && filled >= capacity / 2);
        if self.spares_given_up || !due {
            return None;
        }
        self.journal.order_spare().map(Arc::new)
    }

    fn spare_made(&mut self, order: &SpareOrder, made: Result<(), JournalError>) -> Result<(), JournalError> {
        match self.journal.spare_made(order, made) {
            Err(error @ JournalError::Disk(_)) => {
                tracing::debug!(%error, "no spare file was made");
                self.spare_failed = true;
            }
            result => result?,
        }
        if self.spares_given_up {
            // Asked for while it was being made.
            if let Err(error) = self.journal.remove_spares() {
                tracing::warn!(%error, "a spare file of the journal could not be removed");
            }
        }
        Ok(())
    }

    /// Makes a spare file here and now, where there are no threads.
    fn make_spare(&mut self, idle: bool) -> Result<(), JournalError> {
        match self.order_spare(idle) {
            Some(order) => {
                let made = order.make(&mut || {});
                self.spare_made(&order, made)
            }
            None => Ok(()),
        }
    }

    /// Whether a pause should be used for [`JournalDriver::idle`].
    pub(crate) fn wants_idle(&self) -> bool {
        self.unsealed || !self.pointers.is_empty()
    }

    /// Tells everybody in line that it will not be.
    fn fail(&mut self, reason: &str) {
        let line = self.line.drain(..).filter_map(|item| match item {
            Item::Done(completion) => Some(completion),
            Item::Record { .. } => None,
        });
        for completion in self.completions.drain(..).chain(line) {
            completion.complete(Err(io::Error::other(reason.to_owned())));
        }
    }

    fn publish(&self) {
        let used_bytes = self.journal.pressure().used_bytes;
        self.status.publish(self.journal.end().0, used_bytes, self.blocked);
    }

    /// Notes what came of an attempt to write; returns whether the journal is blocked.
    fn settle(&mut self, wrote: Wrote) -> bool {
        let was_blocked = self.blocked;
        self.blocked = match wrote {
            Wrote::All => None,
            Wrote::Blocked(room, why) => {
                if was_blocked.is_none() {
                    tracing::warn!(why, "the journal waits");
                }
                // Whatever the checkpoints have freed may be had by asking again.
                self.release = true;
                Some(room)
            }
        };
        if self.blocked != was_blocked {
            self.publish();
        }
        self.blocked.is_some()
    }
}

/// What is missing, if there may be room later for what there is none for now. Nothing was appended.
fn clears_by_itself(error: &JournalError) -> Option<Room> {
    match error {
        JournalError::Full { .. } => Some(Room::Full),
        JournalError::Disk(error) if error.is_no_space() => Some(Room::NoSpace),
        JournalError::Disk(error) if error.clears_by_itself() => Some(Room::Full),
        _ => None,
    }
}

/// Ends everything: what follows a failed sync can only be told by a new process.
fn die(driver: &mut JournalDriver, queue: &JournalQueue, on_fatal: &OnFatal, error: &JournalError) {
    let reason = format!("the journal failed, and what the disk holds is not known any more: {error}");
    tracing::error!(reason);
    // Nobody may hear of anything before the process has been told to end.
    on_fatal.call(&reason);
    queue.fail(&reason);
    driver.accept(queue.take());
    driver.fail(&reason);
}

/// The thread that makes a spare file. It has ended before the journal's owner goes on: nobody else may
/// have the file meanwhile.
#[derive(Default)]
struct SpareMaker(Option<Making>);

struct Making {
    order: Arc<SpareOrder>,
    thread: thread::JoinHandle<Result<(), JournalError>>,
}

impl SpareMaker {
    fn begin(&mut self, order: Arc<SpareOrder>, driver: &mut JournalDriver) -> Result<(), JournalError> {
        let theirs = Arc::clone(&order);
        let work = move || theirs.make(&mut || thread::sleep(SPARE_PAUSE));
        match thread::Builder::new().name("journal-spare".to_owned()).spawn(work) {
            Ok(thread) => {
                self.0 = Some(Making { order, thread });
                Ok(())
            }
            // Without a thread of its own it is made here, at this thread's cost.
            Err(_) => {
                let made = order.make(&mut || {});
                driver.spare_made(&order, made)
            }
        }
    }

    /// Hands over what is finished, if anything is.
    fn finish(&mut self, driver: &mut JournalDriver) -> Result<(), JournalError> {
        match self.0.take_if(|making| making.thread.is_finished()) {
            Some(Making { order, thread }) => {
                let made =
                    thread.join().unwrap_or(Err(JournalError::Options("a spare file's thread panicked")));
                driver.spare_made(&order, made)
            }
            None => Ok(()),
        }
    }
}

impl Drop for SpareMaker {
    fn drop(&mut self) {
        if let Some(making) = self.0.take() {
            let _ = making.thread.join();
        }
    }
}

/// Drives the journal from a thread, until the queue is closed and empty.
pub(crate) fn run_thread(
    mut driver: JournalDriver,
    queue: &JournalQueue,
    idle: Duration,
    on_fatal: &OnFatal,
) {
    let result = (|| {
        let mut blocked = false;
        let mut spare = SpareMaker::default();
        loop {
            let patience = match (blocked, driver.wants_idle()) {
                (true, _) => Some(FULL_RETRY),
                (false, true) => Some(idle),
                (false, false) => None,
            };
            let woken = queue.wait_blocking(patience);
            spare.finish(&mut driver)?;
            match woken {
                Woken::Failed => {
                    driver.accept(queue.take());
                    driver.fail("the journal was given up");
                    return Ok(());
                }
                Woken::Closed => {
                    if blocked {
                        driver.fail("the journal is full, and the node is shutting down");
                    } else {
                        driver.idle()?;
                    }
                    return Ok(());
                }
                Woken::Idle if !blocked => {
                    driver.idle()?;
                    if let Some(order) = driver.order_spare(true) {
                        spare.begin(order, &mut driver)?;
                    }
                }
                Woken::Work | Woken::Idle => {
                    driver.accept(queue.take());
                    let wrote = driver.write()?;
                    driver.sync()?;
                    blocked = driver.settle(wrote);
                    if let Some(order) = driver.order_spare(false) {
                        spare.begin(order, &mut driver)?;
                    }
                    if blocked {
                        std::thread::sleep(FULL_RETRY / 4);
                    }
                }
            }
        }
    })();
    if let Err(error) = result {
        die(&mut driver, queue, on_fatal, &error);
    }
}

/// Drives the journal from a task, a sync taking as long as is said.
pub(crate) async fn run_task(
    mut driver: JournalDriver,
    queue: Arc<JournalQueue>,
    idle: Duration,
    sync_latency: Duration,
    on_fatal: OnFatal,
) {
    let result = async {
        let mut blocked = false;
        loop {
            let patience = match (blocked, driver.wants_idle()) {
                (true, _) => Some(FULL_RETRY),
                (false, true) => Some(idle),
                (false, false) => None,
            };
            match queue.wait(patience).await {
                Woken::Failed => {
                    driver.accept(queue.take());
                    driver.fail("the journal was given up");
                    return Ok(());
                }
                Woken::Closed => {
                    if blocked {
                        driver.fail("the journal is full, and the node is shutting down");
                    } else {
                        driver.idle()?;
                    }
                    return Ok(());
                }
                Woken::Idle if !blocked => {
                    driver.idle()?;
                    driver.make_spare(true)?;
                }
                Woken::Work | Woken::Idle => {
                    driver.accept(queue.take());
                    let wrote = driver.write()?;
                    tokio::time::sleep(sync_latency).await;
                    driver.sync()?;
                    blocked = driver.settle(wrote);
                    driver.make_spare(false)?;
                    if blocked {
                        tokio::time::sleep(FULL_RETRY / 4).await;
                    }
                }
            }
        }
    }
    .await;
    if let Err(error) = result {
        die(&mut driver, &queue, &on_fatal, &error);
    }
}
