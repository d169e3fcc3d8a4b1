//! Decides when a shard's checkpoint is made, makes it, and lets go of the log before it.
//!
//! One is made when the oldest entry that no checkpoint covers lies far enough back in the journal, whoever
//! filled it since: so that a restart has little more than that to read, and an idle shard never pins what the busy ones
//! need room for; and when space that was deleted can be given back. It never covers more than the journal has
//! made durable here.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use weir_log::journal::Position;
use weir_shard::{CheckpointError, ShardView};

use crate::admission::DiskSpace;
use crate::blocking::Blocking;
use crate::journal::driver::JournalStatus;
use crate::journal::queue::JournalQueue;
use crate::options::OnFatal;
use crate::raft::log::ShardLog;
use crate::raft::machine::MachineStatus;
use crate::raft::types::RaftHandle;
use crate::segments::SegmentSignal;

/// How often a shard looks whether a checkpoint is due, when nothing tells it.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What was trimmed or deleted takes its space at most this long, and less where space is short: files are
/// unlinked when a checkpoint no longer names them.
pub(crate) const GIVE_BACK_AFTER: Duration = Duration::from_secs(10);

/// How long one that failed is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long the library may take to take note of a checkpoint.
const NOTE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often what a checkpoint waits for is looked at.
pub(crate) const WAIT_STEP: Duration = Duration::from_millis(5);

/// Makes one shard's checkpoints.
#[derive(Clone)]
pub(crate) struct Checkpointer {
    pub raft: RaftHandle,
    pub log: Arc<ShardLog>,
    pub machine: Arc<MachineStatus>,
    pub segments: SegmentSignal,
    pub journal: Arc<JournalStatus>,
    pub blocking: Blocking,
    /// One at a time on a node: they compete for the disk with the journal.
    pub turn: Arc<Semaphore>,
    pub checkpoint_bytes: u64,
    pub view: ShardView,
    pub space: Arc<DiskSpace>,
    pub queue: Arc<JournalQueue>,
    pub on_fatal: OnFatal,
}

impl Checkpointer {
    /// Makes checkpoints as they become due, for as long as it is polled.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut last_made = Instant::now();
        loop {
            let fuller = self.journal.fuller.notified();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = fuller => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let done = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                done = self.tend(last_made.elapsed()) => done,
            };
            match done {
                Ok(true) => last_made = Instant::now(),
                Ok(false) => {}
                Err(why) => {
                    tracing::warn!(why, "a checkpoint was not made; it will be tried again");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Does what is due; whether a checkpoint was.
    async fn tend(&self, since_last: Duration) -> Result<bool, String> {
        let last = self.machine.checkpointed();
        let unsaved = self.log.needed_behind(last.map(|id| id.index));
        let is_due = self.keeps(unsaved) >= self.checkpoint_bytes
            || (self.view.holds_retired() && (self.space.is_low() || since_last >= GIVE_BACK_AFTER))
            || self.keeps_too_much(unsaved);
        if is_due {
            self.make().await.map(|()| true)
        } else if let Some(last) = last.filter(|_| self.keeps_too_much(self.log.needed_from())) {
            self.purge(last.index).await.map(|()| false)
        } else {
            Ok(false)
        }
    }

    /// How much of the journal an entry at that position keeps, in bytes.
    fn keeps(&self, from: Option<Position>) -> u64 {
        from.map_or(0, |from| self.journal.end().saturating_sub(from.0))
    }

    /// Whether that is more than a shard may.
    fn keeps_too_much(&self, from: Option<Position>) -> bool {
        let share = if self.journal.is_high() { 4 } else { 2 };
        self.keeps(from) >= (self.journal.bytes_max() / share).max(1)
    }

    /// Makes a checkpoint now, if anything was applied since the last one, and purges the log.
    pub(crate) async fn make(&self) -> Result<(), String> {
        let _turn = self.turn.acquire().await.map_err(|_| "the node is shutting down".to_owned())?;
        let begun = self
            .raft
            .with_state_machine(|machine| Box::pin(async move { machine.begin_checkpoint() }))
            .await
            .map_err(|error| error.to_string())?;
        let Some(begun) = begun else { return Ok(()) };
        let Some(last) = begun.meta.last_log_id else { return Ok(()) };
        let before = self.machine.checkpointed();
        if before < Some(last) {
            let task = begun.task;
            while !(task.is_ready() && self.log.is_durable(last.index)) {
                if self.segments.is_closed() && !task.is_ready() {
                    return Err("the segment writer has stopped".to_owned());
                }
                self.segments.hurry();
                tokio::time::sleep(WAIT_STEP).await;
            }
            match self.blocking.run(move || task.run()).await? {
                Ok(_) => {}
                Err(error @ CheckpointError::Stopped(_)) => {
                    // Going on would only let more wait for what cannot be written any more.
                    let reason =
                        format!("a segment file could not be made durable, which a restart mends: {error}");
                    tracing::error!(reason);
                    self.on_fatal.call(&reason);
                    return Err(reason);
                }
                Err(CheckpointError::Disk(error)) if error.is_no_space() => {
                    // What it would free may be all that can be freed, and it needs a little to do so.
                    self.queue.give_up_spares();
                    return Err(error.to_string());
                }
                Err(error) => return Err(error.to_string()),
            }
            tracing::debug!(
                group = self.raft.config().cluster_name,
                index = last.index,
                "a checkpoint is durable"
            );
            self.machine.set_checkpoint(begun.meta);
        }
        self.note(last.index).await?;
        self.purge(last.index).await
    }

    /// Tells the library, and waits until it has taken note.
    async fn note(&self, index: u64) -> Result<(), String> {
        let mut metrics = self.raft.data_metrics();
        if metrics.borrow_watched().snapshot.is_some_and(|id| id.index >= index) {
            return Ok(());
        }
        self.raft.trigger().snapshot().await.map_err(|error| error.to_string())?;
        let noted = async {
            while metrics.borrow_watched().snapshot.is_none_or(|id| id.index < index) {
                metrics.changed().await.map_err(|_| "the replica has stopped".to_owned())?;
            }
            Ok(())
        };
        tokio::time::timeout(NOTE_TIMEOUT, noted)
            .await
            .unwrap_or_else(|_| Err("the consensus library did not take note of it in time".to_owned()))
    }

    /// Lets go of the log that nobody needs: this node has it in its checkpoint, and for followers that
    /// do not have it yet it is kept as long as there is room.
    async fn purge(&self, checkpointed: u64) -> Result<(), String> {
        let replication = self.raft.data_metrics().borrow_watched().replication.clone();
        let upto = match replication {
            _ if self.journal.is_full() => Some(checkpointed),
            // A leader knows what every follower has. Alone it has none.
            Some(followers) => {
                let id = self.raft.node_id();
                let needed = followers.iter().filter(|(node, _)| *node != id);
                let matched = needed.map(|(_, matched)| matched.map(|id| id.index)).min();
                matched.unwrap_or(Some(checkpointed)).map(|index| index.min(checkpointed))
            }
            // A follower may become the leader, and does not know how far behind the others are: it
            // keeps what there is room for.
            None => self.keeps_too_much(self.log.needed_from()).then_some(checkpointed),
        };
        tracing::debug!(
            group = self.raft.config().cluster_name,
            ?upto,
            checkpointed,
            "the log may be purged"
        );
        match upto {
            Some(upto) if upto >= self.log.first_index() => {
                self.raft.trigger().purge_log(upto).await.map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}
