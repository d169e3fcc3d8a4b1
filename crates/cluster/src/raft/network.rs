//! The consensus library's messages over our transport.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend};
use weir_model::ShardId;

use super::machine::CheckpointHandle;
use super::member::Member;
use super::rpc::{Answer, Between, Request};
use super::snapshot::{SnapshotReceiver, SnapshotSender};
use super::types::{Config, RaftHandle, Vote};
use crate::transport::{Line, Transport, TransportError};

/// Appends to one follower that are on their way at the same time.
const APPENDS_IN_FLIGHT_MAX: usize = 16;

/// How long entries that cannot be taken are held before they are refused, so that the leader's next
/// attempt does not come at once.
const FULL_PAUSE: Duration = Duration::from_millis(20);

type Snapshot = openraft::alias::SnapshotOf<Config, CheckpointHandle>;
pub(crate) type RpcResult<T> = Result<T, RPCError<Config>>;

/// Makes connections of one shard to other nodes.
pub(crate) struct Network {
    pub own: Member,
    pub shard: ShardId,
    pub transport: Arc<dyn Transport>,
    pub sender: SnapshotSender,
}

impl RaftNetworkFactory<Config> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _: &EmptyNode) -> Peer {
        Peer {
            from: self.own,
            to: Member::of(target),
            shard: self.shard,
            transport: Arc::clone(&self.transport),
            sender: self.sender.clone(),
        }
    }
}

/// One shard's way to one other node, in one of its incarnations.
#[derive(Clone)]
pub(crate) struct Peer {
    from: Member,
    pub(crate) to: Member,
    pub(crate) shard: ShardId,
    transport: Arc<dyn Transport>,
    sender: SnapshotSender,
}

impl Peer {
    pub(crate) async fn call(
        &self,
        request: Request,
        option: &RPCOption,
        action: RPCTypes,
    ) -> RpcResult<Answer> {
        match self.ask(request, option.hard_ttl(), action).await {
            Ok(Answer::Refused(why)) => Err(network_error(why)),
            answer => answer,
        }
    }

    /// As [`Peer::call`], with a limit of its own; a refusal is an answer.
    pub(crate) async fn ask(&self, request: Request, limit: Duration, action: RPCTypes) -> RpcResult<Answer> {
        let between = Between { from: self.from.incarnation(), to: self.to.incarnation() };
        let request = request.encode_between(between);
        let call = self.transport.call(self.to.node(), Line::Shard(self.shard), request);
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(rpc_error)?,
            Err(_) => {
                return Err(RPCError::Timeout(Timeout {
                    action,
                    id: self.from.raft_id(),
                    target: self.to.raft_id(),
                    timeout: limit,
                }));
            }
        };
        match Answer::decode(answer).map_err(network_error)? {
            // Nobody who could answer is there, and trying again at once would not change that.
            Answer::OtherIncarnation(why) => Err(RPCError::Unreachable(Unreachable::from_string(why))),
            answer => Ok(answer),
        }
    }

    async fn append(
        &self,
        request: AppendEntriesRequest<Config>,
        option: &RPCOption,
    ) -> RpcResult<AppendEntriesResponse<Config>> {
        match self.call(Request::Append(request), option, RPCTypes::AppendEntries).await? {
            Answer::Append(response) => Ok(response),
            _ => Err(unexpected()),
        }
    }
}

fn rpc_error(error: TransportError) -> RPCError<Config> {
    match error {
        TransportError::Unreachable(_) => RPCError::Unreachable(Unreachable::from_string(error.to_string())),
        TransportError::Failed { .. } => network_error(error),
    }
}

pub(crate) fn network_error(why: impl ToString) -> RPCError<Config> {
    RPCError::Network(NetworkError::from_string(why.to_string()))
}

pub(crate) fn unexpected() -> RPCError<Config> {
    network_error("the answer is one to another question")
}

/// An append that was refused for want of entries that had been acknowledged when its answer came: it
/// arrived before the append that brought them, as it may on another connection. Told of a conflict, the
/// library would take the follower for one that has lost what it acknowledged.
fn overtook() -> RPCError<Config> {
    network_error("an append arrived before the one that it follows")
}

impl RaftNetworkV2<Config> for Peer {
    type SnapshotData = CheckpointHandle;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Config>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<Config>> {
        self.append(request, &option).await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<Config>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Config>> + OptionalSend + Unpin + 'static,
    {
        let peer = self.clone();
        let answers = input
            .map(move |request| {
                let (peer, option) = (peer.clone(), option.clone());
                let prev = request.prev_log_id;
                let last = request.entries.last().map(|entry| entry.log_id).or(prev);
                async move {
                    let response = peer.append(request, &option).await?;
                    let whole = match &response {
                        AppendEntriesResponse::PartialSuccess(upto) => *upto == last,
                        response => response.is_success(),
                    };
                    Ok((response.into_stream_result(prev, last), whole))
                }
            })
            .buffered(APPENDS_IN_FLIGHT_MAX);
        // What was sent behind an append that did not go through means nothing.
        let answers = stream::unfold(Some((Box::pin(answers), None)), |going_on| async move {
            let (mut answers, acknowledged) = going_on?;
            match answers.next().await? {
                Ok((Ok(upto), whole)) => {
                    let acknowledged = upto.max(acknowledged);
                    Some((Ok(Ok(upto)), whole.then_some((answers, acknowledged))))
                }
                Ok((Err(StreamAppendError::Conflict(at)), _)) if Some(at) <= acknowledged => {
                    Some((Err(overtook()), None))
                }
                Ok((refused, _)) => Some((Ok(refused), None)),
                Err(error) => Some((Err(error), None)),
            }
        });
        Box::pin(async move { Ok(Box::pin(answers) as BoxStream<'s, _>) })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Config>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<Config>> {
        match self.call(Request::Vote(request), &option, RPCTypes::Vote).await? {
            Answer::Vote(response) => Ok(response),
            _ => Err(unexpected()),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Config>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<Config>> {
        match self.call(Request::PreVote(request), &option, RPCTypes::Vote).await? {
            Answer::Vote(response) => Ok(response),
            _ => Err(unexpected()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Config>, StreamingError<Config>> {
        let _ = option;
        tracing::info!(
            shard = %self.shard,
            node = %self.to.node(),
            checkpoint = ?snapshot.meta.last_log_id.map(|id| id.index),
            "a replica is behind what the journals still have; it is given a copy of the shard"
        );
        self.sender.send(self, vote, &snapshot.meta, cancel).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Config>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<Config>> {
        match self.call(Request::Transfer(request), &option, RPCTypes::TransferLeader).await? {
            Answer::Transfer => Ok(Ok(())),
            _ => Err(unexpected()),
        }
    }
}

/// Answers a request of another node. With `full`, entries are not taken.
pub(crate) async fn answer(
    raft: &RaftHandle,
    receiver: &Arc<SnapshotReceiver>,
    request: Request,
    full: bool,
    seed: u64,
) -> Bytes {
    let answer = match request {
        Request::Append(request) if full && !request.entries.is_empty() => {
            Err(refuse_entries(raft, request).await)
        }
        Request::Append(request) => {
            raft.append_entries(request).await.map(Answer::Append).map_err(|e| e.to_string())
        }
        Request::Vote(request) => raft.vote(request).await.map(Answer::Vote).map_err(|e| e.to_string()),
        Request::PreVote(request) => {
            raft.pre_vote(request).await.map(Answer::Vote).map_err(|e| e.to_string())
        }
        Request::Transfer(request) => match raft.handle_transfer_leader(request).await {
            Ok(Ok(())) => Ok(Answer::Transfer),
            Ok(Err(refused)) => Err(refused.to_string()),
            Err(fatal) => Err(fatal.to_string()),
        },
        Request::Relay(_) | Request::ReadIndex | Request::HearsOf(_) | Request::Segment { .. } => {
            Err("it is not for the group".to_owned())
        }
        Request::Snapshot(request) => receiver.take(raft, request, seed).await.map(Answer::Snapshot),
    };
    answer.unwrap_or_else(Answer::Refused).encode()
}

/// The journal has no room for more entries. What is committed is learned all the same: applying it
/// is what lets checkpoints make room.
async fn refuse_entries(raft: &RaftHandle, mut request: AppendEntriesRequest<Config>) -> String {
    request.entries.clear();
    if let Err(error) = raft.append_entries(request).await {
        return error.to_string();
    }
    // The leader tries again at once.
    tokio::time::sleep(FULL_PAUSE).await;
    "the journal is full until checkpoints make room".to_owned()
}
