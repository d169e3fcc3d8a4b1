//! The shard as the consensus library's state machine.
//!
//! What the library calls a snapshot is our checkpoint. It is made beside the library, by
//! [`crate::checkpoint`], so that one that fails can be made again; the library is told of it when it
//! is durable.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;
use weir_shard::{CheckpointTask, InstallError, Shard, ShardView, StagedSnapshot};

use super::codec::encode_stored_membership;
use super::log::ShardLog;
use super::types::{Config, LogId, SnapshotMeta, StoredMembership, term_of};
use crate::blocking::Blocking;
use crate::journal::queue::JournalQueue;
use crate::options::OnFatal;
use crate::relay::Ear;
use crate::segments::SegmentSignal;

type Snapshot = openraft::alias::SnapshotOf<Config, CheckpointHandle>;

/// Stands for a shard's durable checkpoint, whose files are read when they are sent; or is one of another node that is
/// to be installed.
#[derive(Debug, Default)]
pub(crate) struct CheckpointHandle {
    staged: Option<StagedSnapshot>,
}

impl CheckpointHandle {
    /// A checkpoint of another node that has come here whole.
    pub(crate) fn of(staged: StagedSnapshot) -> CheckpointHandle {
        CheckpointHandle { staged: Some(staged) }
    }
}

/// What others must know of a shard's state machine.
pub(crate) struct MachineStatus {
    /// The last durable checkpoint.
    checkpoint: Mutex<Option<SnapshotMeta>>,
    /// Why nothing is applied any more.
    stopped: Mutex<Option<String>>,
}

impl MachineStatus {
    pub(crate) fn new(checkpoint: Option<SnapshotMeta>) -> MachineStatus {
        MachineStatus { checkpoint: Mutex::new(checkpoint), stopped: Mutex::default() }
    }

    /// The last log id that the durable checkpoint covers.
    pub(crate) fn checkpointed(&self) -> Option<LogId> {
        self.checkpoint.lock().as_ref().and_then(|meta| meta.last_log_id)
    }

    fn checkpoint(&self) -> Option<SnapshotMeta> {
        self.checkpoint.lock().clone()
    }

    fn stop(&self, why: &str) {
        self.stopped.lock().get_or_insert_with(|| why.to_owned());
    }

    /// A checkpoint has become durable.
    pub(crate) fn set_checkpoint(&self, meta: SnapshotMeta) {
        let mut checkpoint = self.checkpoint.lock();
        if checkpoint.as_ref().is_none_or(|last| last.last_log_id < meta.last_log_id) {
            *checkpoint = Some(meta);
        }
    }

    /// Why nothing is applied any more, if so.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.stopped.lock().clone()
    }
}

/// A checkpoint that was begun, and what the library has to know of it.
pub(crate) struct Begun {
    pub task: CheckpointTask,
    pub meta: SnapshotMeta,
}

/// What installing a checkpoint of another node takes.
pub(crate) struct Installing {
    pub queue: Arc<JournalQueue>,
    pub blocking: Blocking,
    pub on_fatal: OnFatal,
}

/// The shard, applying.
pub(crate) struct StateMachine {
    shard: Shard,
    view: ShardView,
    log: Arc<ShardLog>,
    status: Arc<MachineStatus>,
    segments: SegmentSignal,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// Listens for what this node has brought to the leader.
    ear: Option<Ear>,
    /// With more than this unwritten, nothing is applied until the segment writer has caught up.
    unwritten_bytes_max: usize,
    installing: Installing,
}

impl StateMachine {
    /// The shard as its checkpoint has it, of which `status` knows.
    pub(crate) fn new(
        shard: Shard,
        log: Arc<ShardLog>,
        status: Arc<MachineStatus>,
        segments: SegmentSignal,
        ear: Option<Ear>,
        unwritten_bytes_max: usize,
        installing: Installing,
    ) -> StateMachine {
        let view = shard.view();
        let checkpoint = status.checkpoint();
        let applied = checkpoint.as_ref().and_then(|meta| meta.last_log_id);
        let membership = checkpoint.map(|meta| meta.last_membership).unwrap_or_default();
        StateMachine {
            shard,
            view,
            log,
            status,
            segments,
            applied,
            membership,
            ear,
            unwritten_bytes_max,
            installing,
        }
    }

    /// Takes hold of the state as it is now, if there is any.
    pub(crate) fn begin_checkpoint(&mut self) -> Option<Begun> {
        let last_log_id = Some(self.applied?);
        let task = self.shard.begin_checkpoint(encode_stored_membership(&self.membership));
        Some(Begun { task, meta: SnapshotMeta { last_log_id, last_membership: self.membership.clone() } })
    }

    fn apply_entry(&mut self, (entry, responder): EntryResponder<Config>) -> Result<(), io::Error> {
        let (index, term) = (entry.log_id.index, term_of(&entry.log_id));
        let outcomes = match &entry.payload {
            EntryPayload::Normal(proposal) => {
                self.shard.apply(index, term, proposal.entry()).map_err(|error| {
                    let why = format!("entry {} cannot be applied: {error}", entry.log_id);
                    self.status.stop(&why);
                    io::Error::other(why)
                })?
            }
            EntryPayload::Blank => {
                self.shard.set_applied(index, term);
                Vec::new()
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                self.shard.set_applied(index, term);
                Vec::new()
            }
        };
        self.applied = Some(entry.log_id);
        if let (Some(ear), EntryPayload::Normal(proposal)) = (&self.ear, &entry.payload) {
            let carried_out = proposal.entry().commands.iter().zip(&outcomes);
            carried_out.for_each(|(command, outcome)| ear.applied(command, outcome));
        }
        if let Some(responder) = responder {
            responder.send(outcomes);
        }
        Ok(())
    }

    /// The replica stops: it is neither certain what is on its disk, nor may it go on without the checkpoint, which the
    /// library takes for installed.
    fn install_failed(&self, error: &InstallError) -> io::Error {
        let why =
            format!("a checkpoint of the leader could not be installed, which a restart mends: {error}");
        tracing::error!(why);
        self.status.stop(&why);
        if matches!(error, InstallError::Stopped(_)) {
            self.installing.on_fatal.call(&why);
        }
        io::Error::other(why)
    }

    /// Waits while too much is in memory only.
    async fn wait_for_segments(&self) {
        while self.view.unwritten_bytes() > self.unwritten_bytes_max && !self.segments.is_closed() {
            let written = self.segments.written();
            self.segments.hurry();
            written.await;
        }
    }
}

impl RaftStateMachine<Config> for StateMachine {
    type SnapshotData = CheckpointHandle;
    type SnapshotBuilder = CheckpointTeller;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Config>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.try_next().await? {
            if self.view.unwritten_bytes() > self.unwritten_bytes_max {
                self.wait_for_segments().await;
            }
            self.apply_entry(entry)?;
        }
        if let Some(applied) = self.applied {
            self.log.set_applied(applied.index);
        }
        let unwritten = self.view.unwritten_bytes();
        if unwritten > 0 {
            self.segments.wake(unwritten);
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<CheckpointTeller> {
        // There is one whenever the log begins anywhere but at its start.
        self.status.checkpoint.lock().clone().map(|meta| CheckpointTeller { meta })
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointTeller {
        let meta = self.status.checkpoint.lock().clone();
        CheckpointTeller {
            meta: meta
                .unwrap_or(SnapshotMeta { last_log_id: None, last_membership: StoredMembership::default() }),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        handle: CheckpointHandle,
    ) -> Result<(), io::Error> {
        let Some(staged) = handle.staged else {
            let why = format!(
                "the checkpoint at {:?} cannot be installed: it was not sent along",
                meta.last_log_id
            );
            return Err(io::Error::other(why));
        };
        // That entries which contradict it are void must be certain before it is.
        self.installing.queue.barrier().await?;
        let task = self.shard.begin_install(staged);
        let done = self.installing.blocking.run(move || task.run()).await.map_err(io::Error::other)?;
        let installed = done.map_err(|error| self.install_failed(&error))?;
        self.shard.complete_install(installed);
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.status.set_checkpoint(meta.clone());
        if let Some(applied) = self.applied {
            self.log.set_applied(applied.index);
        }
        // Whoever waits for what is not to be written any more.
        self.segments.hurry();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let meta = self.status.checkpoint.lock().clone();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: CheckpointHandle::default() }))
    }
}

/// Tells the library of a checkpoint that is durable already.
pub(crate) struct CheckpointTeller {
    meta: SnapshotMeta,
}

impl RaftSnapshotBuilder<Config> for CheckpointTeller {
    type SnapshotData = CheckpointHandle;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        Ok(Snapshot { meta: self.meta.clone(), snapshot: CheckpointHandle::default() })
    }
}
