//! A node's temporary shard: the same state machine as every shard's, over files that are never synced, and without a
//! log or other voters. A command is answered once it is applied; a start begins with nothing.
//!
//! For queues that nobody expects to find again after a restart: those of one connection, and those that are not
//! durable. Their records cost no write to the journal, and what is too much for memory goes to files all the same.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_log::disk::{Disk, UnsyncedDisk, remove_tree};
use weir_model::command::{Command, Outcome};
use weir_model::entry::{ENTRY_BYTES_MAX, Entry};
use weir_model::{ShardId, TimestampMs};
use weir_shard::{CheckpointError, SegmentWriter, Shard};

use crate::admission::{DiskSpace, Gate};
use crate::blocking::Blocking;
use crate::checkpoint::{GIVE_BACK_AFTER, LOOK_EVERY, WAIT_STEP};
use crate::clock::Clock;
use crate::errors::{ProposeError, StartError};
use crate::gathering::{COMMANDS_WAITING_MAX, Submitted, gather, take_apart};
use crate::handle::ShardHandle;
use crate::journal::driver::JournalStatus;
use crate::leadership::Leadership;
use crate::node::command_bytes_max;
use crate::options::{NodeOptions, OnFatal};
use crate::replica::{Agreement, Replica};
use crate::segments::{SegmentQueue, SegmentSignal, ShardSegments};

/// Where its files are, below the data directory.
const DIRECTORY: &str = "temporary";

/// The one leadership that there ever is.
const TERM: u64 = 1;

/// The shard as it was opened, with nothing in it.
pub(crate) struct Opened {
    id: ShardId,
    shard: Shard,
    writer: SegmentWriter,
}

/// Throws away what an earlier process has left, and opens an empty shard. Blocks.
pub(crate) fn open(options: &NodeOptions, disk: &Arc<dyn Disk>) -> Result<Opened, StartError> {
    let id = ShardId::temporary(options.node)
        .ok_or_else(|| StartError::Options(format!("the node's number {} is too large", options.node)))?;
    let disk = UnsyncedDisk::new(Arc::clone(disk));
    let dir = options.data_dir.join(DIRECTORY);
    remove_tree(&disk, &dir)?;
    let opened = Shard::open(Arc::new(disk), dir, id, options.shard);
    let (shard, writer, _) =
        opened.map_err(|error| StartError::Shard { shard: id, why: error.to_string() })?;
    Ok(Opened { id, shard, writer })
}

impl Opened {
    /// Begins the leadership, and makes what the node needs to run it.
    pub(crate) fn prepare(
        self,
        options: &NodeOptions,
        clock: &Arc<dyn Clock>,
        space: &Arc<DiskSpace>,
        segments: &Arc<SegmentQueue>,
        blocking: Blocking,
    ) -> Result<(Temporary, ShardSegments), StartError> {
        let Opened { id, shard, writer } = self;
        let view = shard.view();
        // Its own journal would never be full: it has none.
        let journal = Arc::new(JournalStatus::new(u64::MAX));
        let gate = Arc::new(Gate::new(options.admission_bytes_max, Arc::clone(space), journal));
        let signal = SegmentSignal::new(id, Arc::clone(segments));
        let (submitted, receiver) = mpsc::channel(COMMANDS_WAITING_MAX);
        let leads = Leadership { leader: Some(options.node), is_leader: true, ready: true, term: TERM };
        let replica = Arc::new(Replica {
            shard: id,
            agreement: Agreement::Alone(options.node),
            view: view.clone(),
            gate: Arc::clone(&gate),
            submitted,
            relayed: None,
            leadership: Arc::new(watch::channel(leads).0),
            command_bytes_max: command_bytes_max(options),
            closed: Mutex::default(),
        });
        let mut temporary = Temporary {
            shard,
            replica,
            submitted: receiver,
            held: None,
            clock: Arc::clone(clock),
            index: 0,
            last_time: 0,
            entry_bytes_max: ENTRY_BYTES_MAX.min(command_bytes_max(options)),
            unwritten_bytes_max: 2 * options.admission_bytes_max,
            signal: signal.clone(),
            space: Arc::clone(space),
            blocking,
            on_fatal: options.on_fatal.clone(),
        };
        temporary
            .apply(vec![Command::Lead { node: options.node }])
            .map_err(|why| StartError::Shard { shard: id, why })?;
        Ok((temporary, ShardSegments { writer, view, gate, signal }))
    }
}

/// The shard, applying.
pub(crate) struct Temporary {
    shard: Shard,
    replica: Arc<Replica>,
    submitted: mpsc::Receiver<Submitted>,
    /// Taken from the line, but for the next entry.
    held: Option<Submitted>,
    clock: Arc<dyn Clock>,
    /// Of the last entry.
    index: u64,
    last_time: TimestampMs,
    entry_bytes_max: usize,
    /// With more than this unwritten, nothing is applied until the segment writer has caught up.
    unwritten_bytes_max: usize,
    signal: SegmentSignal,
    space: Arc<DiskSpace>,
    blocking: Blocking,
    on_fatal: OnFatal,
}

impl Temporary {
    pub(crate) fn id(&self) -> ShardId {
        self.replica.shard
    }

    pub(crate) fn handle(&self) -> ShardHandle {
        ShardHandle::new(Arc::clone(&self.replica))
    }

    /// Applies what is submitted, and gives back the space of what was deleted, until the node stops.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let one_by_one = Arc::new(Semaphore::new(1));
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut last_given_back = Instant::now();
        let mut giving_back: Option<JoinHandle<()>> = None;
        loop {
            self.wait_for_segments().await;
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = looks.tick() => {
                    let is_busy = giving_back.as_ref().is_some_and(|task| !task.is_finished());
                    let is_due = self.space.is_low() || last_given_back.elapsed() >= GIVE_BACK_AFTER;
                    if self.replica.view.holds_retired() && is_due && !is_busy {
                        last_given_back = Instant::now();
                        giving_back = Some(tokio::spawn(self.give_back()));
                    }
                }
                gathered = gather(&mut self.submitted, &mut self.held, &one_by_one, self.entry_bytes_max) => {
                    let Some((submitted, _turn)) = gathered else { return };
                    self.take(submitted);
                }
            }
        }
    }

    /// Applies an entry of these commands and tells everybody.
    fn take(&mut self, submitted: Vec<Submitted>) {
        let (commands, mut asked) = take_apart(submitted);
        let queued = asked.take_queued();
        let outcomes = self.apply(commands).map_err(ProposeError::Stopped);
        for waiter in queued {
            let _ = waiter.send(outcomes.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        if let Err(why) = &outcomes {
            self.replica.close(why.clone());
        }
        asked.answer(outcomes, &self.replica.gate);
        let unwritten = self.replica.view.unwritten_bytes();
        if unwritten > 0 {
            self.signal.wake(unwritten);
        }
    }

    fn apply(&mut self, commands: Vec<Command>) -> Result<Vec<Outcome>, String> {
        self.index += 1;
        self.last_time = self.last_time.max(self.clock.now_ms());
        let entry = Entry { time: self.last_time, commands };
        self.shard.apply(self.index, TERM, &entry).map_err(|error| {
            let why = format!("entry {} of shard {} cannot be applied: {error}", self.index, self.id());
            tracing::error!(why);
            why
        })
    }

    /// Waits while too much is in memory only.
    async fn wait_for_segments(&self) {
        let view = &self.replica.view;
        while view.unwritten_bytes() > self.unwritten_bytes_max && !self.signal.is_closed() {
            let written = self.signal.written();
            self.signal.hurry();
            written.await;
        }
    }

    /// What gives back the space of what was deleted: a checkpoint, after which no file is kept for a restart.
    fn give_back(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let task = self.shard.begin_checkpoint(Bytes::new());
        let (signal, blocking, on_fatal) = (self.signal.clone(), self.blocking, self.on_fatal.clone());
        async move {
            while !task.is_ready() {
                if signal.is_closed() {
                    return;
                }
                signal.hurry();
                tokio::time::sleep(WAIT_STEP).await;
            }
            match blocking.run(move || task.run()).await {
                Ok(Err(error @ CheckpointError::Stopped(_))) => {
                    let reason =
                        format!("temporary files cannot be used any more, which a restart mends: {error}");
                    tracing::error!(reason);
                    on_fatal.call(&reason);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the space of what was deleted is not given back yet")
                }
                Ok(Ok(_)) | Err(_) => {}
            }
        }
    }
}
