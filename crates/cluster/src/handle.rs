//! What the broker holds of a shard: it proposes commands, looks at the state, and asks who leads.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use openraft::Instant as _;
use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{LinearizableReadError, RaftError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use weir_model::command::{Command, Outcome};
use weir_model::{NodeId, ShardId};
use weir_shard::ShardView;

use crate::admission::Admission;
use crate::errors::ProposeError;
use crate::gathering::{CommandReply, Submitted};
use crate::leadership::Leadership;
use crate::raft::member::{self, Member};
use crate::raft::rpc::{Answer, Refused, Request};
use crate::replica::{Agreement, Replica};
use crate::transport::Line;

/// How long a leader may take to say up to where everything is committed, and this node to apply that.
const READ_INDEX_MAX: Duration = Duration::from_secs(5);

/// A shard, as far as this node has to do with it. Cheap to clone.
#[derive(Clone)]
pub struct ShardHandle {
    replica: Arc<Replica>,
}

impl ShardHandle {
    pub(crate) fn new(replica: Arc<Replica>) -> ShardHandle {
        ShardHandle { replica }
    }

    /// Which shard it is.
    pub fn id(&self) -> ShardId {
        self.replica.shard
    }

    /// Waits for room, submits, and waits until the command is committed and applied here.
    pub async fn propose(&self, command: Command) -> Result<Outcome, ProposeError> {
        self.check()?;
        self.check_size(&command)?;
        let admission = self.replica.gate.admit_command(&command).await?;
        self.submit_admitted(admission, command)?.await
    }

    /// Waits until an append of that many bytes may be submitted: while more than the shard admits
    /// is between acceptance and segment write, this is where producers wait. Fails at once when the
    /// disk has no room.
    pub async fn admit(&self, bytes: usize) -> Result<Admission, ProposeError> {
        self.check()?;
        self.replica.gate.admit(bytes).await
    }

    /// Puts a command in the shard's line, at once. The order of calls is the order in which
    /// commands are applied. Fails if there is no room for it right now.
    pub fn submit(&self, command: Command) -> Result<PendingOutcome, ProposeError> {
        self.check()?;
        let admission = self.replica.gate.try_admit(&command)?;
        self.submit_admitted(admission, command)
    }

    /// As [`ShardHandle::submit`], for a command that was admitted before.
    pub fn submit_admitted(
        &self,
        admission: Admission,
        command: Command,
    ) -> Result<PendingOutcome, ProposeError> {
        let (reply, outcome) = oneshot::channel();
        self.send(Submitted { command, admission, reply: CommandReply::Applied(reply) })?;
        Ok(PendingOutcome { outcome, replica: Arc::clone(&self.replica) })
    }

    /// Puts a command in the shard's line. What it gives back resolves as soon as this node, as the
    /// leader, has queued the command for its journal; nobody learns what came of it.
    pub fn submit_async(&self, command: Command) -> Result<PendingQueued, ProposeError> {
        self.check()?;
        let admission = self.replica.gate.try_admit(&command)?;
        self.submit_async_admitted(admission, command)
    }

    /// As [`ShardHandle::submit_async`], for a command that was admitted before.
    pub fn submit_async_admitted(
        &self,
        admission: Admission,
        command: Command,
    ) -> Result<PendingQueued, ProposeError> {
        let (reply, queued) = oneshot::channel();
        self.send(Submitted { command, admission, reply: CommandReply::Queued(reply) })?;
        Ok(PendingQueued { queued, replica: Arc::clone(&self.replica) })
    }

    /// As [`ShardHandle::propose`], whoever leads: the command is brought to him, once, behind those that were brought
    /// before, for as long as that may take a bounded time. It is committed and applied here when this returns.
    pub async fn relay(&self, command: Command) -> Result<Outcome, ProposeError> {
        if self.replica.relayed.is_none() {
            return self.propose(command).await;
        }
        self.check_open()?;
        self.check_size(&command)?;
        let admission = self.replica.gate.admit_command(&command).await?;
        self.relay_admitted(admission, command)?.await
    }

    /// As [`ShardHandle::admit`], for what is to be brought to whoever leads.
    pub async fn admit_relayed(&self, bytes: usize) -> Result<Admission, ProposeError> {
        if self.replica.relayed.is_none() {
            return self.admit(bytes).await;
        }
        self.check_open()?;
        self.replica.gate.admit(bytes).await
    }

    /// Puts a command behind those that are brought to whoever leads, at once. The order of calls is the order in which
    /// commands are applied.
    pub fn relay_admitted(
        &self,
        admission: Admission,
        command: Command,
    ) -> Result<PendingOutcome, ProposeError> {
        let Some(relayed) = &self.replica.relayed else {
            return self.submit_admitted(admission, command);
        };
        self.check_size(&command)?;
        let (reply, outcome) = oneshot::channel();
        let submitted = Submitted { command, admission, reply: CommandReply::Applied(reply) };
        self.send_to(relayed, submitted)?;
        Ok(PendingOutcome { outcome, replica: Arc::clone(&self.replica) })
    }

    /// Waits until everything that was committed anywhere before this call is applied here, whoever leads.
    pub async fn catch_up(&self) -> Result<(), ProposeError> {
        self.check_open()?;
        if self.replica.leadership.borrow().is_leader {
            return self.linearize().await;
        }
        let Agreement::Group { raft, transport, .. } = &self.replica.agreement else { return Ok(()) };
        let leader = self.replica.leadership.borrow().leader;
        let leader = leader.ok_or(ProposeError::NotLeader { leader })?;
        let call = transport.call(leader, Line::Shard(self.id()), Request::ReadIndex.encode());
        let answer = match tokio::time::timeout(READ_INDEX_MAX, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => return Err(ProposeError::Timeout),
        };
        let index = match Answer::decode(answer) {
            Ok(Answer::ReadIndex(Ok(index))) => index,
            Ok(Answer::ReadIndex(Err(Refused::NotLeader(leader)))) => {
                return Err(ProposeError::NotLeader { leader });
            }
            _ => return Err(ProposeError::Timeout),
        };
        let waiting = raft.wait(Some(READ_INDEX_MAX));
        let applied = waiting.applied_index_at_least(Some(index), "what is read").await;
        applied.map(drop).map_err(|_| ProposeError::Timeout)
    }

    /// Up to where others must have applied to know all that was committed by now, if this node leads.
    pub(crate) async fn read_index(&self) -> Result<u64, Refused> {
        match self.linearize().await {
            // Applied here, so that it is committed.
            Ok(()) => Ok(self.replica.view.applied_index()),
            Err(ProposeError::NotLeader { leader }) => Err(Refused::NotLeader(leader)),
            Err(error) => Err(Refused::Other(error.to_string())),
        }
    }

    /// Whether the disk has no room for records: those that come are refused.
    pub fn is_disk_full(&self) -> bool {
        self.replica.gate.is_disk_full()
    }

    /// The shard's applied state.
    pub fn view(&self) -> &ShardView {
        &self.replica.view
    }

    /// Who leads the shard as far as this node knows right now.
    pub fn leadership(&self) -> Leadership {
        *self.replica.leadership.borrow()
    }

    /// Whether a majority has heard of this node as the leader within the shortest time in which it could elect another one
    /// that is only silent. Who leads without it may have been followed already, and not know that. It is no proof: where
    /// the others know that a leader is gone they elect at once ([`ShardHandle::linearize`] proves it).
    pub fn holds_lease(&self) -> bool {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return true };
        let lease = Duration::from_millis(raft.config().election_timeout_min);
        let acknowledged = raft.data_metrics().borrow_watched().last_quorum_acked;
        let is_recent = acknowledged.is_some_and(|at| at.elapsed() < lease);
        // Nobody else can be elected where there is nobody else.
        self.replica.leadership.borrow().is_leader && (is_recent || self.voters().len() < 2)
    }

    /// The nodes that vote in this shard, as far as this node knows.
    pub fn voters(&self) -> Vec<NodeId> {
        let raft = match &self.replica.agreement {
            Agreement::Group { raft, .. } => raft,
            Agreement::Alone(node) => return vec![*node],
        };
        let metrics = raft.server_metrics();
        let known = metrics.borrow_watched();
        member::voting_nodes(known.membership_config.membership())
    }

    /// Those nodes whose replica was lost and is filled anew, as far as this node knows. Among [`ShardHandle::voters`]
    /// they are all the same: until they have caught up and a majority has agreed that they vote again, majorities are
    /// counted with them, and they say nothing.
    pub fn catching_up(&self) -> BTreeSet<NodeId> {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return BTreeSet::new() };
        let metrics = raft.server_metrics();
        let known = metrics.borrow_watched();
        let committed = member::catching_up(known.committed_membership_config.membership());
        &committed | &member::catching_up(known.membership_config.membership())
    }

    /// The nodes that have a replica which does not vote, as far as this node knows.
    pub fn listening(&self) -> BTreeSet<NodeId> {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return BTreeSet::new() };
        let metrics = raft.server_metrics();
        let known = metrics.borrow_watched();
        member::listening(known.membership_config.membership())
    }

    /// Whether this node's own replica votes, as far as it knows.
    pub fn votes(&self) -> bool {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return true };
        let metrics = raft.server_metrics();
        let known = metrics.borrow_watched();
        known.membership_config.voter_ids().any(|voter| voter == known.id)
    }

    /// Hears of every change of leadership.
    pub fn on_leadership(&self) -> watch::Receiver<Leadership> {
        self.replica.leadership.subscribe()
    }

    /// Waits until everything that was committed anywhere before this call is applied here, and it
    /// is certain that this node still led after the call began.
    pub async fn linearize(&self) -> Result<(), ProposeError> {
        self.check()?;
        // Alone a node answers nobody before it has applied.
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return Ok(()) };
        match raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to))) => {
                Err(ProposeError::NotLeader { leader: to.leader_id.map(|id| Member::of(id).node()) })
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(ProposeError::Timeout),
            Err(RaftError::Fatal(fatal)) => Err(self.replica.stopped(&fatal.to_string())),
        }
    }

    /// Gives the leadership to another voter, as far as it lies in this node's hands: it ends when
    /// the other one is elected, or goes on. Where there is no other it stays.
    pub async fn transfer_leadership(&self, to: NodeId) -> Result<(), ProposeError> {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return Ok(()) };
        let Some(to) = self.voter_of(to) else { return Ok(()) };
        let transfer = raft.trigger().transfer_leader(to.raft_id()).await;
        transfer.map_err(|fatal| self.replica.stopped(&fatal.to_string()))
    }

    /// How many entries a follower lacks of those that this node has; none if this node does not lead the shard, or has
    /// not heard of the follower yet, or if the follower does not vote.
    pub fn entries_behind(&self, follower: NodeId) -> Option<u64> {
        self.entries_that_lacks(self.voter_of(follower)?)
    }

    /// As [`ShardHandle::entries_behind`], also for a node whose replica does not vote.
    pub fn entries_behind_of_any(&self, follower: NodeId) -> Option<u64> {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return None };
        let latest = {
            let metrics = raft.server_metrics();
            let known = metrics.borrow_watched();
            member::latest(known.membership_config.membership(), follower)?
        };
        self.entries_that_lacks(latest)
    }

    fn entries_that_lacks(&self, follower: Member) -> Option<u64> {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return None };
        let metrics = raft.data_metrics();
        let known = metrics.borrow_watched();
        let has = (*known.replication.as_ref()?.get(&follower.raft_id())?).map_or(0, |id| id.index);
        Some(known.last_log.map_or(0, |id| id.index).saturating_sub(has))
    }

    /// The member that a node is by now, if it votes.
    fn voter_of(&self, node: NodeId) -> Option<Member> {
        let Agreement::Group { raft, .. } = &self.replica.agreement else { return None };
        let metrics = raft.server_metrics();
        let known = metrics.borrow_watched();
        let membership = known.membership_config.membership();
        member::latest(membership, node).filter(|latest| member::voters(membership).contains(latest))
    }

    /// Takes no commands any more.
    pub(crate) fn close(&self, why: ProposeError) {
        self.replica.close(why);
    }

    fn check_open(&self) -> Result<(), ProposeError> {
        self.replica.closed().map_or(Ok(()), Err)
    }

    fn check(&self) -> Result<(), ProposeError> {
        self.check_open()?;
        let leadership = self.replica.leadership.borrow();
        if leadership.is_leader { Ok(()) } else { Err(ProposeError::NotLeader { leader: leadership.leader }) }
    }

    fn check_size(&self, command: &Command) -> Result<(), ProposeError> {
        let (bytes, bytes_max) = (command.approximate_bytes(), self.replica.command_bytes_max);
        if bytes > bytes_max { Err(ProposeError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }

    fn send(&self, submitted: Submitted) -> Result<(), ProposeError> {
        self.check_size(&submitted.command)?;
        self.send_to(&self.replica.submitted, submitted)
    }

    fn send_to(&self, line: &mpsc::Sender<Submitted>, submitted: Submitted) -> Result<(), ProposeError> {
        line.try_send(submitted).map_err(|error| match error {
            TrySendError::Full(_) => ProposeError::Overloaded,
            TrySendError::Closed(_) => self.replica.stopped("it takes no commands any more"),
        })
    }
}

/// What will come of a submitted command. Dropping it does not take the command back.
#[must_use = "without awaiting it nobody knows whether the command was applied"]
pub struct PendingOutcome {
    outcome: oneshot::Receiver<Result<Outcome, ProposeError>>,
    replica: Arc<Replica>,
}

impl Future for PendingOutcome {
    type Output = Result<Outcome, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.outcome).poll(context));
        Poll::Ready(answer.unwrap_or_else(|_| Err(self.replica.stopped("it stopped before it answered"))))
    }
}

/// Whether a command stands in the leader's journal's line.
#[must_use = "without awaiting it nobody knows whether the command was taken"]
pub struct PendingQueued {
    queued: oneshot::Receiver<Result<(), ProposeError>>,
    replica: Arc<Replica>,
}

impl Future for PendingQueued {
    type Output = Result<(), ProposeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.queued).poll(context));
        Poll::Ready(answer.unwrap_or_else(|_| Err(self.replica.stopped("it stopped before it answered"))))
    }
}
