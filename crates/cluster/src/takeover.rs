//! Taking over from a leader whose process has ended.
//!
//! Followers wait for a leader that is silent: he may only be slow, and an election would disturb him. But the end of a
//! process closes its connections at once. A follower whose connection with the leader has ended asks the other voters
//! whether they still hear of him. If a majority does not, nobody is disturbed, and it stands for election without
//! waiting, as if the leader had asked it to follow him. Voters take turns by the shard's number, so that usually one
//! stands at a time. If nothing comes of it, the silence is noticed as always.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::TransferLeaderRequest;
use tokio::sync::watch;
use weir_model::{NodeId, ShardId};

use crate::handle::ShardHandle;
use crate::node::Node;
use crate::raft::member::Member;
use crate::raft::rpc::{Answer, Request};
use crate::raft::types::RaftHandle;
use crate::transport::{Line, Transport};

/// How long a voter waits for one whose turn comes before its own.
const TURN: Duration = Duration::from_millis(200);

/// How long others may take to say whether they hear of the leader.
const ASK_MAX: Duration = Duration::from_millis(150);

/// Looks who is gone, until the node is.
pub(crate) async fn watch_leaders(
    node: Weak<Node>,
    mut connected: watch::Receiver<BTreeSet<NodeId>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut known = connected.borrow_and_update().clone();
    loop {
        tokio::select! {
            changed = connected.changed() => if changed.is_err() { return },
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let now = connected.borrow_and_update().clone();
        let Some(node) = node.upgrade() else { return };
        for gone in known.difference(&now) {
            for shard in node.led_by(*gone) {
                tokio::spawn(take_over(Arc::downgrade(&node), shard, *gone, connected.clone()));
            }
        }
        known = now;
    }
}

/// Stands for election in a shard, if the one that led it is gone for a majority, and still leads it as far as is known.
async fn take_over(
    node: Weak<Node>,
    shard: ShardId,
    gone: NodeId,
    connected: watch::Receiver<BTreeSet<NodeId>>,
) {
    let Some((here, voters)) = node.upgrade().map(|node| (node.node_id(), node.voters_of(shard))) else {
        return;
    };
    let Some(turn) = turn_of(here, gone, &voters, shard) else { return };
    tokio::time::sleep(TURN * turn as u32).await;
    let Some(node) = node.upgrade() else { return };
    // One that came back with nothing has a number among the voters, and no vote yet.
    let may_stand = |handle: &ShardHandle| handle.votes() && handle.leadership().leader == Some(gone);
    if !node.shard(shard).is_some_and(may_stand) || connected.borrow().contains(&gone) {
        return;
    }
    let others = voters.iter().copied().filter(|voter| *voter != here && *voter != gone);
    let asked = others.map(|voter| hears_of(node.transport(), voter, shard, gone));
    let hears_nothing = join_all(asked).await.into_iter().filter(|hears| *hears == Some(false)).count();
    // This node, and those that said so.
    if (hears_nothing + 1) * 2 <= voters.len() {
        return;
    }
    let Some(raft) = node.raft_of(shard) else { return };
    tracing::info!(%shard, node = %gone, "the leader's process has ended; standing for election");
    stand(raft, gone).await;
}

/// How many voters come before this one, when a leader is gone.
fn turn_of(here: NodeId, gone: NodeId, voters: &[NodeId], shard: ShardId) -> Option<usize> {
    let remaining: BTreeSet<NodeId> = voters.iter().copied().filter(|voter| *voter != gone).collect();
    let at = remaining.iter().position(|voter| *voter == here)?;
    let first = shard.0 as usize % remaining.len();
    Some((at + remaining.len() - first) % remaining.len())
}

/// Whether another node hears of a third; none if it did not say so in time.
pub(crate) async fn hears_of(
    transport: &Arc<dyn Transport>,
    asked: NodeId,
    shard: ShardId,
    of: NodeId,
) -> Option<bool> {
    let call = transport.call(asked, Line::Shard(shard), Request::HearsOf(of).encode());
    let answer = tokio::time::timeout(ASK_MAX, call).await.ok()?.ok()?;
    match Answer::decode(answer) {
        Ok(Answer::HearsOf(hears)) => Some(hears),
        _ => None,
    }
}

/// Stands for election as one whom the leader has asked to follow him: voters do not wait for his silence then.
async fn stand(raft: &RaftHandle, gone: NodeId) {
    let vote = raft.metrics().borrow_watched().vote;
    if Member::of(vote.leader_id.voted_for).node() != gone || !vote.committed {
        return;
    }
    let request = TransferLeaderRequest::new(vote, *raft.node_id(), None);
    if let Err(error) = raft.handle_transfer_leader(request).await {
        tracing::debug!(%error, "nobody stands for election");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_take_turns_by_the_shards_number() {
        let voters = [1, 2, 3].map(NodeId);
        let turns = |shard| [2, 3].map(|node| turn_of(NodeId(node), NodeId(1), &voters, ShardId(shard)));
        assert_eq!(turns(0), [Some(0), Some(1)]);
        assert_eq!(turns(1), [Some(1), Some(0)]);
        assert_eq!(turns(2), [Some(0), Some(1)]);
    }

    #[test]
    fn who_does_not_vote_has_no_turn() {
        assert_eq!(turn_of(NodeId(4), NodeId(1), &[1, 2, 3].map(NodeId), ShardId(0)), None);
        assert_eq!(turn_of(NodeId(1), NodeId(1), &[NodeId(1)], ShardId(0)), None);
    }
}
