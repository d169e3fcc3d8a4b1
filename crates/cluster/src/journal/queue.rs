//! What waits to be written to the journal, in the order in which it came.
//!
//! Tasks put things in; one thread, or in the simulator one task, takes everything out at once.
//! That is what makes one sync serve all shards: whatever arrives while it runs goes into the next.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::storage::IOFlushed;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};
use weir_log::journal::RecordKind;
use weir_model::ShardId;

use crate::raft::codec::entry_bytes;
use crate::raft::types::{Config, LogId, RaftEntry, Vote};

/// One thing to be written.
pub(crate) enum Request {
    /// Entries of a shard's log.
    Append { shard: ShardId, entries: Vec<RaftEntry>, done: IOFlushed<Config> },
    /// Entries behind a log id are void.
    Truncate { shard: ShardId, after: Option<LogId> },
    /// A vote, which is answered when it is durable.
    Vote { shard: ShardId, vote: Vote, done: oneshot::Sender<Result<(), io::Error>> },
    /// Nothing; it is answered when all before it is durable.
    Barrier { done: oneshot::Sender<Result<(), io::Error>> },
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Request::Append { entries, .. } => 64 + entries.iter().map(entry_bytes).sum::<usize>(),
            Request::Truncate { .. } | Request::Vote { .. } | Request::Barrier { .. } => 64,
        }
    }
}

/// Everything that was taken out at once.
#[derive(Default)]
pub(crate) struct Taken {
    pub requests: Vec<Request>,
    /// How far shards have come, in records of these kinds, which nobody waits for.
    pub pointers: BTreeMap<(ShardId, RecordKind), LogId>,
    /// Some shard needs less of the journal than before.
    pub release: bool,
    /// The disk is full, and space that only makes the journal faster is needed.
    pub give_up_spares: bool,
}

/// Why a waiting driver woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is something to do.
    Work,
    /// Nothing came for as long as it was willing to wait.
    Idle,
    /// Nothing will come any more, and nothing is left.
    Closed,
    /// Nothing is to be written any more, whatever is left.
    Failed,
}

/// The queue. Shared by everybody.
pub(crate) struct JournalQueue {
    waiting: Mutex<Waiting>,
    bytes_max: usize,
    arrived: Condvar,
    arrived_task: Notify,
    space: Notify,
}

#[derive(Default)]
struct Waiting {
    taken: Taken,
    bytes: usize,
    closed: bool,
    /// Why nothing is taken any more.
    failed: Option<Arc<str>>,
}

impl JournalQueue {
    pub(crate) fn new(bytes_max: usize) -> JournalQueue {
        JournalQueue {
            waiting: Mutex::default(),
            bytes_max,
            arrived: Condvar::new(),
            arrived_task: Notify::new(),
            space: Notify::new(),
        }
    }

    /// Puts a request in line; waits while too many bytes are in it already.
    pub(crate) async fn push(&self, request: Request) -> Result<(), io::Error> {
        let bytes = request.bytes();
        loop {
            let space = self.space.notified();
            {
                let mut waiting = self.waiting.lock();
                if let Some(reason) = &waiting.failed {
                    return Err(io::Error::other(reason.to_string()));
                }
                if waiting.closed {
                    return Err(io::Error::other("the journal is closed"));
                }
                if waiting.bytes == 0 || waiting.bytes + bytes <= self.bytes_max {
                    waiting.bytes += bytes;
                    waiting.taken.requests.push(request);
                    break;
                }
            }
            space.await;
        }
        self.wake();
        Ok(())
    }

    /// Waits until all that was put in line before is durable.
    pub(crate) async fn barrier(&self) -> Result<(), io::Error> {
        let (done, durable) = oneshot::channel();
        self.push(Request::Barrier { done }).await?;
        durable.await.unwrap_or_else(|_| Err(io::Error::other("the journal has stopped")))
    }

    /// How far a shard has come, in a record of this kind that is written along with whatever is written next.
    pub(crate) fn set_pointer(&self, shard: ShardId, kind: RecordKind, id: LogId) {
        self.waiting.lock().taken.pointers.insert((shard, kind), id);
    }

    /// Some shard needs less of the journal than before.
    pub(crate) fn release(&self) {
        self.waiting.lock().taken.release = true;
        self.wake();
    }

    /// The disk is full: space that only makes the journal faster is needed elsewhere.
    pub(crate) fn give_up_spares(&self) {
        self.waiting.lock().taken.give_up_spares = true;
        self.wake();
    }

    /// Takes nothing more in.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.wake();
        self.space.notify_waiters();
    }

    /// Nothing will ever be durable again.
    pub(crate) fn fail(&self, reason: &str) {
        self.waiting.lock().failed = Some(reason.into());
        self.wake();
        self.space.notify_waiters();
    }

    fn wake(&self) {
        self.arrived.notify_one();
        self.arrived_task.notify_one();
    }

    /// Takes out everything.
    pub(crate) fn take(&self) -> Taken {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        let taken = std::mem::take(&mut waiting.taken);
        drop(waiting);
        self.space.notify_waiters();
        taken
    }

    /// Blocks the thread until there is something, or the time is over; `None` waits for ever.
    pub(crate) fn wait_blocking(&self, idle: Option<Duration>) -> Woken {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(woken) = waiting.woken() {
                return woken;
            }
            match idle {
                None => self.arrived.wait(&mut waiting),
                Some(idle) => {
                    if self.arrived.wait_for(&mut waiting, idle).timed_out() {
                        return waiting.woken().unwrap_or(Woken::Idle);
                    }
                }
            }
        }
    }

    /// As [`JournalQueue::wait_blocking`], for a task.
    pub(crate) async fn wait(&self, idle: Option<Duration>) -> Woken {
        loop {
            let arrived = self.arrived_task.notified();
            if let Some(woken) = self.waiting.lock().woken() {
                return woken;
            }
            match idle {
                None => arrived.await,
                Some(idle) => {
                    if tokio::time::timeout(idle, arrived).await.is_err() {
                        return self.waiting.lock().woken().unwrap_or(Woken::Idle);
                    }
                }
            }
        }
    }
}

impl Waiting {
    fn woken(&self) -> Option<Woken> {
        if self.failed.is_some() {
            Some(Woken::Failed)
        } else if !self.taken.requests.is_empty() || self.taken.release || self.taken.give_up_spares {
            Some(Woken::Work)
        } else if self.closed {
            Some(Woken::Closed)
        } else {
            None
        }
    }
}
