//! Drives the segment writers of all shards of a node: one thread, or in the simulator one task,
//! that writes what `apply` has put into the tails.
//!
//! It lets a little gather, so that writes are large, unless somebody waits for it: a shard with much
//! unwritten, a checkpoint, or whoever wants to be admitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use weir_model::ShardId;
use weir_shard::{SegmentWriter, ShardView, WriteError};

use crate::admission::Gate;
use crate::journal::queue::JournalQueue;
use crate::options::OnFatal;

/// How long a little is left to gather.
const LINGER: Duration = Duration::from_millis(10);

/// With this much unwritten in a shard, nothing is left to gather.
const HURRY_BYTES: usize = 1 << 20;

/// How long a disk that is full is left alone before it is tried again.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// Which shards have something to be written.
#[derive(Default)]
pub(crate) struct SegmentQueue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    arrived_task: Notify,
}

#[derive(Default)]
struct Waiting {
    shards: BTreeSet<ShardId>,
    hurry: bool,
    closed: bool,
}

impl SegmentQueue {
    fn add(&self, shard: ShardId, hurry: bool) {
        let mut waiting = self.waiting.lock();
        let new = waiting.shards.is_empty();
        waiting.shards.insert(shard);
        let hurries = hurry && !waiting.hurry;
        waiting.hurry |= hurry;
        drop(waiting);
        if new || hurries {
            self.wake();
        }
    }

    /// Writes what is left, and then nothing more.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.wake();
    }

    fn wake(&self) {
        self.arrived.notify_one();
        self.arrived_task.notify_one();
    }

    fn take(&self) -> (BTreeSet<ShardId>, bool) {
        let mut waiting = self.waiting.lock();
        waiting.hurry = false;
        (std::mem::take(&mut waiting.shards), waiting.closed)
    }

    fn take_blocking(&self) -> (BTreeSet<ShardId>, bool) {
        let mut waiting = self.waiting.lock();
        while waiting.shards.is_empty() && !waiting.closed {
            self.arrived.wait(&mut waiting);
        }
        while !waiting.hurry && !waiting.closed {
            if self.arrived.wait_for(&mut waiting, LINGER).timed_out() {
                break;
            }
        }
        drop(waiting);
        self.take()
    }

    async fn take_async(&self) -> (BTreeSet<ShardId>, bool) {
        let state = || {
            let waiting = self.waiting.lock();
            (waiting.shards.is_empty() && !waiting.closed, !waiting.hurry && !waiting.closed)
        };
        while state().0 {
            self.arrived_task.notified().await;
        }
        while state().1 {
            if tokio::time::timeout(LINGER, self.arrived_task.notified()).await.is_err() {
                break;
            }
        }
        self.take()
    }
}

/// One shard's way to its segment writer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SegmentSignal {
    shard: ShardId,
    queue: Arc<SegmentQueue>,
    written: Arc<Notify>,
}

impl SegmentSignal {
    pub(crate) fn new(shard: ShardId, queue: Arc<SegmentQueue>) -> SegmentSignal {
        SegmentSignal { shard, queue, written: Arc::new(Notify::new()) }
    }

    /// There are that many bytes to be written.
    pub(crate) fn wake(&self, unwritten: usize) {
        self.queue.add(self.shard, unwritten >= HURRY_BYTES);
    }

    /// Somebody waits for it.
    pub(crate) fn hurry(&self) {
        self.queue.add(self.shard, true);
    }

    /// Resolves when something of the shard was written after this call.
    pub(crate) fn written(&self) -> Notified<'_> {
        self.written.notified()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.waiting.lock().closed
    }
}

/// One shard's writer, with whom to tell.
pub(crate) struct ShardSegments {
    pub writer: SegmentWriter,
    pub view: ShardView,
    pub gate: Arc<Gate>,
    pub signal: SegmentSignal,
}

/// The writers of all shards.
pub(crate) struct SegmentDriver {
    pub shards: BTreeMap<ShardId, ShardSegments>,
    pub journal: Arc<JournalQueue>,
    /// Those whose writes wait for the disk, which is said once.
    pub waiting: BTreeSet<ShardId>,
    pub on_fatal: OnFatal,
}

impl SegmentDriver {
    /// One run of one shard's writer; whether there is more.
    fn run_once(&mut self, id: ShardId) -> Result<bool, WriteError> {
        let Some(shard) = self.shards.get_mut(&id) else { return Ok(false) };
        let progress = shard.writer.run_once()?;
        shard.gate.set_unwritten(shard.view.unwritten_bytes());
        shard.signal.written.notify_waiters();
        Ok(progress.more && progress.bytes > 0)
    }

    /// Runs the writers in turn until the given shards have nothing left. Returns those for which the
    /// disk has no room: what they have to write waits in memory and in the journal.
    fn run(&mut self, mut shards: BTreeSet<ShardId>) -> Result<BTreeSet<ShardId>, WriteError> {
        let mut waiting = BTreeSet::new();
        while !shards.is_empty() {
            for id in shards.clone() {
                match self.run_once(id) {
                    Ok(true) => continue,
                    Ok(false) => {
                        if self.waiting.remove(&id) {
                            tracing::info!(shard = %id, "segment writes go on");
                        }
                    }
                    Err(WriteError::Full(error)) => {
                        if self.waiting.insert(id) {
                            tracing::warn!(shard = %id, %error, "segment writes wait for the disk");
                        }
                        if error.is_no_space() {
                            self.journal.give_up_spares();
                        }
                        waiting.insert(id);
                    }
                    Err(error) => return Err(error),
                }
                shards.remove(&id);
            }
        }
        Ok(waiting)
    }

    fn die(&self, error: &WriteError) {
        let reason = format!("a segment file could not be written, which a restart mends: {error}");
        tracing::error!(reason);
        self.on_fatal.call(&reason);
    }

    /// Drives the writers from a thread until the queue is closed.
    pub(crate) fn run_thread(mut self, queue: &SegmentQueue) {
        loop {
            let (shards, closed) = queue.take_blocking();
            let full = match self.run(shards) {
                Ok(full) => full,
                Err(error) => {
                    queue.close();
                    return self.die(&error);
                }
            };
            if closed {
                return;
            }
            if !full.is_empty() {
                std::thread::sleep(FULL_RETRY);
                full.into_iter().for_each(|id| queue.add(id, false));
            }
        }
    }

    /// Drives the writers from a task until the queue is closed.
    pub(crate) async fn run_task(mut self, queue: Arc<SegmentQueue>) {
        loop {
            let (shards, closed) = queue.take_async().await;
            let full = match self.run(shards) {
                Ok(full) => full,
                Err(error) => {
                    queue.close();
                    return self.die(&error);
                }
            };
            if closed {
                return;
            }
            if !full.is_empty() {
                tokio::time::sleep(FULL_RETRY).await;
                full.into_iter().for_each(|id| queue.add(id, false));
            }
            tokio::task::yield_now().await;
        }
    }
}
