//! What may be on its way at once: bytes per shard, and bytes that the disk has room for.
//!
//! Nothing is let in either while the journal takes all that it may, until checkpoints make room; and
//! while the disk has no place for the journal's next file, records are refused.
//!
//! A batch is counted from the moment it is accepted until its segment write, so that the memory of
//! a shard and the space on disk are promised before anything is agreed on: no committed entry ever
//! meets a full disk. Small commands (offsets, deletions, trims) have a place of their own and never
//! count against the disk, so that what makes room goes on when there is none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use weir_model::command::Command;

use crate::errors::ProposeError;
use crate::journal::driver::{JournalStatus, Room};

/// Bytes of commands other than appends that a shard has on their way.
const SMALL_BYTES_MAX: usize = 16 << 20;

/// How often whoever waits for the journal looks whether the node is shutting down.
const JOURNAL_WAIT_STEP: Duration = Duration::from_millis(100);

/// Free bytes, beside those that are promised, from which on whoever can wait with records should.
const ROOM_AHEAD_BYTES: u64 = 32 << 20;

/// Every byte is written to the journal and to a segment.
const WRITTEN_TIMES: u64 = 2;

/// The free space of the disk, what of it is promised, and what stays free.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    /// As of the last poll.
    available: AtomicU64,
    /// Promised and not written yet.
    promised: AtomicU64,
    /// Written since the last poll.
    written: AtomicU64,
    reserve: u64,
    /// Whether records are refused, as of the last poll or since.
    refusing: AtomicBool,
    refused_since_poll: AtomicBool,
}

impl DiskSpace {
    pub(crate) fn new(available: u64, reserve: u64) -> DiskSpace {
        DiskSpace {
            available: AtomicU64::new(available),
            promised: AtomicU64::new(0),
            written: AtomicU64::new(0),
            reserve,
            refusing: AtomicBool::new(false),
            refused_since_poll: AtomicBool::new(false),
        }
    }

    /// Begins a poll; to be called before the space is asked for.
    pub(crate) fn begin_poll(&self) {
        self.written.store(0, Ordering::Release);
    }

    /// Ends a poll.
    pub(crate) fn end_poll(&self, available: u64) {
        self.available.store(available, Ordering::Release);
        if !self.refused_since_poll.swap(false, Ordering::AcqRel) && available > self.reserve {
            self.refusing.store(false, Ordering::Release);
        }
    }

    /// Whether records are refused because there is no room for them.
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }

    /// Whether records would be let in, also the next few.
    pub(crate) fn has_room(&self) -> bool {
        let on_their_way = self.promised.load(Ordering::Acquire) + self.written.load(Ordering::Acquire);
        let needed = self.reserve.saturating_add(on_their_way).saturating_add(ROOM_AHEAD_BYTES);
        !self.is_refusing() && needed <= self.available.load(Ordering::Acquire)
    }

    /// Whether what can be given back should be soon.
    pub(crate) fn is_low(&self) -> bool {
        self.is_refusing() || self.available.load(Ordering::Acquire) <= self.reserve
    }

    /// What stays free, in bytes.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    fn promise(self: &Arc<Self>, bytes: usize) -> Result<Promise, ProposeError> {
        let bytes = WRITTEN_TIMES * bytes as u64;
        let before = self.promised.fetch_add(bytes, Ordering::AcqRel);
        let promise = Promise { space: Arc::clone(self), bytes };
        let available = self.available.load(Ordering::Acquire);
        let needed = self.reserve.saturating_add(before).saturating_add(bytes);
        if needed.saturating_add(self.written.load(Ordering::Acquire)) > available {
            return Err(self.refuse());
        }
        Ok(promise)
    }

    /// Notes that records were refused, and says so.
    fn refuse(&self) -> ProposeError {
        self.refused_since_poll.store(true, Ordering::Release);
        self.refusing.store(true, Ordering::Release);
        ProposeError::DiskFull { available_bytes: self.available.load(Ordering::Acquire) }
    }
}

/// Space that was promised, until it is dropped.
#[derive(Debug)]
struct Promise {
    space: Arc<DiskSpace>,
    bytes: u64,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.space.written.fetch_add(self.bytes, Ordering::AcqRel);
        self.space.promised.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Room for one command, from its acceptance to its segment write. Given back by being dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the room back"]
pub struct Admission {
    _bytes: Option<OwnedSemaphorePermit>,
    _disk: Option<Promise>,
}

impl Admission {
    /// For what has its room already, and keeps it elsewhere.
    pub(crate) fn elsewhere() -> Admission {
        Admission { _bytes: None, _disk: None }
    }
}

/// What a shard admits.
#[derive(Debug)]
pub(crate) struct Gate {
    records: Arc<Semaphore>,
    records_max: usize,
    small: Arc<Semaphore>,
    disk: Arc<DiskSpace>,
    journal: Arc<JournalStatus>,
    /// Applied and not in a segment file yet, the oldest first.
    unwritten: Mutex<Unwritten>,
}

#[derive(Debug, Default)]
struct Unwritten {
    waiting: VecDeque<(usize, Admission)>,
    bytes: usize,
}

impl Gate {
    pub(crate) fn new(records_max: usize, disk: Arc<DiskSpace>, journal: Arc<JournalStatus>) -> Gate {
        Gate {
            records: Arc::new(Semaphore::new(records_max)),
            records_max,
            small: Arc::new(Semaphore::new(SMALL_BYTES_MAX)),
            disk,
            journal,
            unwritten: Mutex::default(),
        }
    }

    /// Whether there is no room for records, whether or not some were refused since.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk.is_low()
    }

    /// Waits for room for an append of that many bytes.
    pub(crate) async fn admit(&self, bytes: usize) -> Result<Admission, ProposeError> {
        self.wait_for_journal().await?;
        let disk = self.disk.promise(bytes)?;
        let room = Arc::clone(&self.records).acquire_many_owned(permits(bytes, self.records_max)).await;
        match room {
            Ok(room) => Ok(Admission { _bytes: Some(room), _disk: Some(disk) }),
            Err(_) => Err(ProposeError::ShuttingDown),
        }
    }

    /// Waits until checkpoints have made room in the journal.
    async fn wait_for_journal(&self) -> Result<(), ProposeError> {
        if self.journal.room() == Room::Open {
            return Ok(());
        }
        let mut room = self.journal.on_room();
        while !self.records.is_closed() {
            match *room.borrow_and_update() {
                Room::Open => return Ok(()),
                Room::NoSpace => return Err(self.disk.refuse()),
                Room::Full => {}
            }
            // Whether it changed or not: looked at again above.
            let _ = tokio::time::timeout(JOURNAL_WAIT_STEP, room.changed()).await;
        }
        Err(ProposeError::ShuttingDown)
    }

    /// Room for a command, or none right now.
    pub(crate) fn try_admit(&self, command: &Command) -> Result<Admission, ProposeError> {
        let bytes = command.admitted_bytes();
        let (semaphore, max, disk) = match self.journal.room() {
            _ if !command.is_append() => (&self.small, SMALL_BYTES_MAX, None),
            Room::Full => return Err(ProposeError::Overloaded),
            Room::NoSpace => return Err(self.disk.refuse()),
            Room::Open => (&self.records, self.records_max, Some(self.disk.promise(bytes)?)),
        };
        match Arc::clone(semaphore).try_acquire_many_owned(permits(bytes, max)) {
            Ok(room) => Ok(Admission { _bytes: Some(room), _disk: disk }),
            Err(TryAcquireError::NoPermits) => Err(ProposeError::Overloaded),
            Err(TryAcquireError::Closed) => Err(ProposeError::ShuttingDown),
        }
    }

    /// Waits for room for any command.
    pub(crate) async fn admit_command(&self, command: &Command) -> Result<Admission, ProposeError> {
        let bytes = command.admitted_bytes();
        if command.is_append() {
            return self.admit(bytes).await;
        }
        match Arc::clone(&self.small).acquire_many_owned(permits(bytes, SMALL_BYTES_MAX)).await {
            Ok(room) => Ok(Admission { _bytes: Some(room), _disk: None }),
            Err(_) => Err(ProposeError::ShuttingDown),
        }
    }

    /// Batches were appended; what they take stays taken until they are written.
    pub(crate) fn appended(&self, admissions: Vec<(usize, Admission)>) {
        let mut unwritten = self.unwritten.lock();
        unwritten.bytes += admissions.iter().map(|(bytes, _)| bytes).sum::<usize>();
        unwritten.waiting.extend(admissions);
    }

    /// So many bytes of the shard are not in its segment files yet: whatever more is taken is free.
    pub(crate) fn set_unwritten(&self, bytes: usize) {
        let mut done = Vec::new();
        let mut unwritten = self.unwritten.lock();
        while unwritten.bytes > bytes {
            let Some((size, admission)) = unwritten.waiting.pop_front() else { break };
            unwritten.bytes -= size;
            done.push(admission);
        }
        drop(unwritten);
        drop(done);
    }

    /// Whoever waits is told that the node is shutting down.
    pub(crate) fn close(&self) {
        self.records.close();
        self.small.close();
    }
}

/// A command larger than all the room there is takes all of it.
fn permits(bytes: usize, max: usize) -> u32 {
    u32::try_from(bytes.clamp(1, max)).unwrap_or(u32::MAX)
}
