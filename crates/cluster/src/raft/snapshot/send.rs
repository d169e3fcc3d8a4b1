//! The leader's side: a checkpoint is held, and what the replica wants of it is sent.

use std::future::Future;
use std::sync::Arc;

use openraft::errors::{ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCTypes;
use openraft::raft::SnapshotResponse;
use tokio::time::Instant;
use weir_shard::{SnapshotSource, SnapshotWanted, Snapshots};

use super::{
    CALL_TIMEOUT, NO_PROGRESS_MAX, Pace, Part, REFUSED_PAUSE, RETRY_AFTER, SnapshotAnswer, SnapshotRequest,
};
use crate::blocking::Blocking;
use crate::raft::network::{Peer, RpcResult, network_error, unexpected};
use crate::raft::rpc::{Answer, Request};
use crate::raft::types::{Config, SnapshotMeta, Vote, log_id};

/// What sending a shard's checkpoints takes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SnapshotSender {
    pub snapshots: Snapshots,
    pub blocking: Blocking,
    pub pace: Arc<Pace>,
}

type SendResult = Result<SnapshotResponse<Config>, StreamingError<Config>>;

impl SnapshotSender {
    /// Sends the checkpoint that the library means, and waits until it is installed there.
    pub(crate) async fn send(
        &self,
        peer: &Peer,
        vote: Vote,
        meta: &SnapshotMeta,
        cancel: impl Future<Output = ReplicationClosed>,
    ) -> SendResult {
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.transfer(peer, vote, meta) => sent,
        }
    }

    async fn transfer(&self, peer: &Peer, vote: Vote, meta: &SnapshotMeta) -> SendResult {
        let source = self.open(meta).await?;
        let id = source.id();
        let shard = peer.shard;
        let mut part = Part::Offer;
        let mut last_wanted = None;
        let mut last_progress: Option<Instant> = None;
        let mut sent_bytes = 0;
        loop {
            let request = SnapshotRequest { vote, id, part };
            let answer = match call(peer, request).await {
                Ok(Ok(answer)) => {
                    last_progress.get_or_insert_with(Instant::now);
                    answer
                }
                // It could not make use of what it was sent, and most likely cannot the next time.
                Ok(Err(why)) => {
                    drop(source);
                    tracing::warn!(%shard, node = %peer.to.node(), why, "a replica refuses the shard's checkpoint");
                    tokio::time::sleep(REFUSED_PAUSE).await;
                    return Err(StreamingError::Unreachable(Unreachable::from_string(why)));
                }
                // A replica that was never reached is no reason to hold files.
                Err(error) if last_progress.is_none() => return Err(error.into()),
                Err(error) => {
                    if stands_still(last_progress) {
                        return Err(error.into());
                    }
                    tracing::debug!(%shard, node = %peer.to.node(), %error, "a part of a snapshot did not arrive");
                    tokio::time::sleep(RETRY_AFTER).await;
                    SnapshotAnswer::Unknown
                }
            };
            part = match answer {
                SnapshotAnswer::Wanted(wanted) => {
                    if last_wanted != Some(wanted) {
                        (last_wanted, last_progress) = (Some(wanted), Some(Instant::now()));
                    } else if stands_still(last_progress) {
                        return Err(network_error("the replica wants the same thing again and again").into());
                    }
                    let next = self.read(&source, wanted).await?;
                    if let Part::Piece { bytes, .. } = &next {
                        sent_bytes += bytes.len();
                        self.pace.take(bytes.len()).await;
                    }
                    next
                }
                SnapshotAnswer::Complete => Part::Install,
                SnapshotAnswer::Installed(vote) => {
                    tracing::info!(%shard, node = %peer.to.node(), index = id.applied_index, sent_bytes,
                        "a replica that was behind has the shard's checkpoint");
                    return Ok(SnapshotResponse::new(vote));
                }
                SnapshotAnswer::HigherVote(vote) => return Ok(SnapshotResponse::new(vote)),
                SnapshotAnswer::Unknown if stands_still(last_progress) => {
                    return Err(network_error("the replica does not go on with the snapshot").into());
                }
                SnapshotAnswer::Unknown => Part::Offer,
            };
        }
    }

    async fn open(&self, meta: &SnapshotMeta) -> RpcResult<Arc<SnapshotSource>> {
        let snapshots = self.snapshots.clone();
        let opened = self.blocking.run(move || snapshots.source()).await.map_err(network_error)?;
        let source = opened.map_err(network_error)?;
        let source = source.ok_or_else(|| network_error("the shard has no checkpoint yet"))?;
        let id = source.id();
        // The library takes what it has read for what is sent; it reads again.
        if meta.last_log_id != Some(log_id(id.applied_term, id.applied_index)) {
            return Err(network_error("another checkpoint has become durable meanwhile"));
        }
        Ok(Arc::new(source))
    }

    async fn read(&self, source: &Arc<SnapshotSource>, wanted: SnapshotWanted) -> RpcResult<Part> {
        let source = Arc::clone(source);
        let read = move || match wanted {
            SnapshotWanted::Bytes { file, from, to } => {
                let bytes = source.read(file, from, to)?;
                Ok(Part::Piece { file, from, crc: crc32c::crc32c(&bytes), bytes })
            }
            SnapshotWanted::Checksum { file, from, to } => {
                let crc = source.checksum(file, from, to)?;
                Ok(Part::Checksum { file, from, to, crc })
            }
        };
        let read: Result<Part, weir_shard::SnapshotError> =
            self.blocking.run(read).await.map_err(network_error)?;
        read.map_err(network_error)
    }
}

/// Whether nothing has come of anything for too long.
fn stands_still(last_progress: Option<Instant>) -> bool {
    last_progress.is_some_and(|at| at.elapsed() >= NO_PROGRESS_MAX)
}

/// What the replica says, or why it refuses.
async fn call(peer: &Peer, request: SnapshotRequest) -> RpcResult<Result<SnapshotAnswer, String>> {
    match peer.ask(Request::Snapshot(request), CALL_TIMEOUT, RPCTypes::InstallSnapshot).await? {
        Answer::Snapshot(answer) => Ok(Ok(answer)),
        Answer::Refused(why) => Ok(Err(why)),
        _ => Err(unexpected()),
    }
}
