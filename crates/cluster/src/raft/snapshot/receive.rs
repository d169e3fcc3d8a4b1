//! The replica's side: what comes is staged, and handed to the consensus library when it is whole.

use std::cmp::Ordering;
use std::sync::Arc;

use openraft::async_runtime::WatchReceiver as _;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::Instant;
use weir_model::ShardId;
use weir_shard::{ShardView, SnapshotError, SnapshotId, Snapshots, Staging};

use super::{IDLE_MAX, Part, SnapshotAnswer, SnapshotRequest};
use crate::blocking::Blocking;
use crate::raft::codec::decode_stored_membership;
use crate::raft::machine::CheckpointHandle;
use crate::raft::types::{RaftHandle, Runtime, SnapshotMeta, StoredMembership, Vote, log_id};

type Snapshot = openraft::alias::SnapshotOf<crate::raft::types::Config, CheckpointHandle>;
type Slot = Option<Incoming>;

/// Takes in snapshots of one shard, one at a time.
pub(crate) struct SnapshotReceiver {
    shard: ShardId,
    snapshots: Snapshots,
    view: ShardView,
    blocking: Blocking,
    stop: watch::Receiver<bool>,
    incoming: Arc<Mutex<Slot>>,
}

/// A snapshot that is under way.
struct Incoming {
    staging: Staging,
    last_call: Instant,
}

impl SnapshotReceiver {
    pub(crate) fn new(
        shard: ShardId,
        snapshots: Snapshots,
        view: ShardView,
        blocking: Blocking,
        stop: watch::Receiver<bool>,
    ) -> Arc<SnapshotReceiver> {
        Arc::new(SnapshotReceiver { shard, snapshots, view, blocking, stop, incoming: Arc::default() })
    }

    /// Answers a call. What it does goes on when nobody waits for the answer any more.
    pub(crate) async fn take(
        self: &Arc<SnapshotReceiver>,
        raft: &RaftHandle,
        request: SnapshotRequest,
        seed: u64,
    ) -> Result<SnapshotAnswer, String> {
        if let Some(higher) = higher_vote(raft, &request.vote) {
            return Ok(SnapshotAnswer::HigherVote(higher));
        }
        if request.id.applied_term > request.vote.leader_id.term {
            return Err("no leader has a checkpoint of a later term than its own".to_owned());
        }
        // An install may be under way.
        let incoming = Arc::clone(&self.incoming).lock_owned().await;
        if *self.stop.borrow() {
            return Err("the node is shutting down".to_owned());
        }
        if self.view.applied_index() >= request.id.applied_index {
            drop(incoming);
            let last_membership = StoredMembership::default();
            let last_log_id = Some(log_id(request.id.applied_term, request.id.applied_index));
            // The library finds that it has as much, and looks at the vote.
            let meta = SnapshotMeta { last_log_id, last_membership };
            return install(raft, request.vote, Snapshot { meta, snapshot: CheckpointHandle::default() })
                .await;
        }
        let (receiver, raft) = (Arc::clone(self), raft.clone());
        let work = async move { Runtime::scope(seed, receiver.work(incoming, &raft, request)).await };
        tokio::spawn(work).await.map_err(|error| error.to_string())?
    }

    async fn work(
        self: Arc<SnapshotReceiver>,
        mut incoming: OwnedMutexGuard<Slot>,
        raft: &RaftHandle,
        request: SnapshotRequest,
    ) -> Result<SnapshotAnswer, String> {
        let SnapshotRequest { vote, id, part } = request;
        let is_known = incoming.as_ref().is_some_and(|incoming| incoming.staging.id() == id);
        if !is_known && part != Part::Offer {
            return Ok(SnapshotAnswer::Unknown);
        }
        // Taken out while it is worked on: what fails does not come back.
        let staging = match incoming.take() {
            Some(known) if is_known => known.staging,
            _ => {
                let staging = self.begin(id).await?;
                self.watch();
                staging
            }
        };
        let staging = self.blocking.run(move || work_on(staging, part)).await?;
        let (staging, installs) = staging.map_err(|error| {
            tracing::warn!(shard = %self.shard, %error, "a snapshot could not be taken in");
            error.to_string()
        })?;
        let answer = match staging.wanted() {
            Some(wanted) => SnapshotAnswer::Wanted(wanted),
            None if installs => return self.install(raft, vote, staging).await,
            None => SnapshotAnswer::Complete,
        };
        *incoming = Some(Incoming { staging, last_call: Instant::now() });
        Ok(answer)
    }

    async fn begin(&self, id: SnapshotId) -> Result<Staging, String> {
        let snapshots = self.snapshots.clone();
        let begun = self.blocking.run(move || snapshots.begin(id)).await?;
        tracing::info!(shard = %self.shard, index = id.applied_index, "a checkpoint of the leader is taken in");
        begun.map_err(|error| error.to_string())
    }

    /// Hands a snapshot that is whole to the library, and waits until it is in its place.
    async fn install(
        &self,
        raft: &RaftHandle,
        vote: Vote,
        staging: Staging,
    ) -> Result<SnapshotAnswer, String> {
        let (id, kept_bytes) = (staging.id(), staging.kept_bytes());
        let Some(staged) = staging.finish() else { return Ok(SnapshotAnswer::Unknown) };
        let last_membership =
            decode_stored_membership(staged.raft_meta().clone()).map_err(|error| error.to_string())?;
        let last_log_id = Some(log_id(id.applied_term, id.applied_index));
        let meta = SnapshotMeta { last_log_id, last_membership };
        let answer = install(raft, vote, Snapshot { meta, snapshot: CheckpointHandle::of(staged) }).await?;
        if matches!(answer, SnapshotAnswer::Installed(_)) {
            tracing::info!(shard = %self.shard, index = id.applied_index, kept_bytes, "a checkpoint of the leader is installed");
        }
        // Also what was not installed because it is not needed any more.
        let snapshots = self.snapshots.clone();
        if let Err(error) = self.blocking.run(move || snapshots.clear()).await? {
            tracing::warn!(shard = %self.shard, %error, "what was staged of a snapshot could not be removed");
        }
        Ok(answer)
    }

    /// Forgets the snapshot that is under way when nobody has gone on with it for long: it holds a state in memory.
    fn watch(self: &Arc<SnapshotReceiver>) {
        let (receiver, mut stop) = (Arc::downgrade(self), self.stop.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep(IDLE_MAX) => {}
                }
                let Some(receiver) = receiver.upgrade() else { return };
                let mut incoming = receiver.incoming.lock().await;
                match &*incoming {
                    Some(known) if known.last_call.elapsed() < IDLE_MAX => continue,
                    None => return,
                    Some(_) => {}
                }
                *incoming = None;
                tracing::warn!(shard = %receiver.shard, "a snapshot was given up: its leader has fallen silent");
                return;
            }
        });
    }
}

/// Does what a part says. Blocks. Returns whether the snapshot is to be installed.
fn work_on(mut staging: Staging, part: Part) -> Result<(Staging, bool), SnapshotError> {
    match part {
        Part::Offer => {}
        Part::Piece { file, from, crc, bytes } => {
            // One that was damaged on its way is wanted again.
            if crc32c::crc32c(&bytes) == crc {
                staging.take_bytes(file, from, &bytes)?;
            }
        }
        Part::Checksum { file, from, to, crc } => staging.take_checksum(file, from, to, crc)?,
        Part::Install => return Ok((staging, true)),
    }
    Ok((staging, false))
}

/// The vote that this replica has given, if it is not behind the one of a call.
fn higher_vote(raft: &RaftHandle, vote: &Vote) -> Option<Vote> {
    let ours = raft.server_metrics().borrow_watched().vote;
    let accepts = matches!(vote.partial_cmp(&ours), Some(Ordering::Greater | Ordering::Equal));
    (!accepts).then_some(ours)
}

async fn install(raft: &RaftHandle, vote: Vote, snapshot: Snapshot) -> Result<SnapshotAnswer, String> {
    let response = raft.install_full_snapshot(vote, snapshot).await.map_err(|fatal| fatal.to_string())?;
    Ok(match response.vote.partial_cmp(&vote) {
        Some(Ordering::Greater) => SnapshotAnswer::HigherVote(response.vote),
        _ => SnapshotAnswer::Installed(response.vote),
    })
}
