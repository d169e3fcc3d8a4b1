//! Going on without the others, when an operator has said that they are lost.
//!
//! A shard whose voters are no majority any more can decide nothing, not even who else is to vote. Only by force can it go on:
//! an entry behind the last one of this replica says that it is the only voter. Everything that this replica has, committed or
//! not, is kept and becomes committed; what only others have is lost, acknowledged or not. Should they not be lost after all,
//! they are a cluster of their own from then on, which is why the node must have become one of another cluster before
//! ([`NodeOptions::abandons_others`](crate::NodeOptions::abandons_others)).
//!
//! Doing it again changes nothing but the term.

use std::collections::{BTreeMap, BTreeSet};

use openraft::impls::EmptyNode;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt as _};
use openraft::{EntryPayload, RaftLogReader as _};
use weir_model::ShardId;

use super::log::LogStore;
use super::member::Member;
use super::types::{Membership, RaftEntry, Vote, log_id, term_of};

/// Makes a replica that has taken part in something the only voter of its shard. It is durable when this returns.
pub(crate) async fn be_the_only_voter(
    shard: ShardId,
    store: &mut LogStore,
    own: Member,
) -> Result<(), String> {
    let vote = store.read_vote().await.map_err(|error| error.to_string())?;
    let state = store.get_log_state().await.map_err(|error| error.to_string())?;
    let last = state.last_log_id.or(state.last_purged_log_id);
    let Some(last) = last else {
        return Err("this node has nothing of the shard yet, and cannot go on with it alone".to_owned());
    };
    let term = vote.map_or(0, |vote| vote.leader_id.term).max(term_of(&last)) + 1;
    store.save_vote(&Vote::new(term, own.raft_id())).await.map_err(|error| error.to_string())?;
    let alone = BTreeSet::from([own.raft_id()]);
    let nodes = BTreeMap::from([(own.raft_id(), EmptyNode::new())]);
    let membership = Membership::new(vec![alone], nodes).map_err(|error| error.to_string())?;
    let entry =
        RaftEntry { log_id: log_id(term, last.index + 1), payload: EntryPayload::Membership(membership) };
    store.blocking_append([entry]).await.map_err(|error| error.to_string())?;
    tracing::warn!(
        %shard, term, last = last.index,
        "the other replicas are abandoned, as the operator wants it: what only they have is lost"
    );
    Ok(())
}
