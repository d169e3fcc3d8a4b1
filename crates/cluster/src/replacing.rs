//! Giving a node that came back without its data its place in every shard again.
//!
//! A replica that forgot what it had voted and acknowledged must not take part as if it had not. So the node is another
//! voter: the meta shard has given it its next incarnation ([`form`](crate::form)), with which it started its replicas.
//! They have no membership of their own, and wait. Whoever leads a shard sees in the catalog that a voter is of an
//! incarnation that counts no more, and takes these steps, each a change of the membership that a majority must agree to:
//!
//! ```text
//! voters 1, 2.0, 3                    the replica 2.0 is lost
//! voters 1, 2.0, 3   learner 2.1      it is fed: with a copy of the shard, or with entries
//! voters 1, 2.0, 3 and 1, 2.1, 3      it has nearly everything. A majority of both is needed: 1 and 3 are one
//! voters 1, 2.1, 3
//! ```
//!
//! # Why nothing is lost and nobody votes twice
//!
//! To Raft this is a voter that is down for ever, and another that takes its place by joint consensus; nobody ever has an
//! id that somebody had before him. Until the last step, majorities are counted with the lost voter among them, who says
//! nothing: what is acknowledged is on a majority of the others, and what was acknowledged with the lost one's help is
//! there on at least one of those without whom nobody is elected. Every two majorities that follow each other have a voter
//! in common, which remembers. And a message that is meant for one incarnation of a replica is answered by no other, so
//! that neither a vote nor an acknowledgement of one can be taken for one of another.
//!
//! It takes a majority of the voters that still have their data, until the last step is agreed to: who loses a second
//! disk of three before that has lost a majority. Without one nothing here goes on, as nothing else does.
//!
//! # What may fall in between
//!
//! Each step is seen by the next leader, who goes on with it. If the new incarnation is lost as well, the catalog has yet
//! another one: a learner that does not count any more is let go of, and a voter is replaced in turn. The step that takes
//! a voter out is taken only for one that is connected and has nearly all entries, so that afterwards at least as many
//! voters can answer as before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use openraft::impls::EmptyNode;
use openraft::raft::Precondition;
use tokio::sync::watch;
use weir_model::{Incarnation, NodeId};

use crate::handle::ShardHandle;
use crate::node::Node;
use crate::raft::member::{Member, learners, voters};
use crate::raft::types::{Membership, RaftHandle};

/// How often a node looks at the shards that it leads.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a majority may take to agree to a step. If it does so later, the next look finds it done.
const STEP_MAX: Duration = Duration::from_secs(5);

/// A replica that lacks no more entries than this may vote. What it lacks then comes within moments, and nobody waits for
/// it as long as the others are there.
const ENTRIES_BEHIND_MAX: u64 = 1_000;

/// A step towards the membership that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Voters are being replaced, and a leader before did not come to the end of it.
    Finish,
    /// These are fed in vain: they are lost as well.
    Forget(BTreeSet<Member>),
    /// This one is to be fed.
    Feed(Member),
    /// This one votes instead of that one.
    Replace { lost: Member, by: Member },
}

/// Replaces lost replicas of the shards that this node leads, until the node is gone.
pub(crate) async fn replace_always(node: Weak<Node>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let Some(node) = node.upgrade() else { return };
        for shard in node.replicated_shards() {
            if let Some(raft) = node.raft_of(shard.id()) {
                take_next_step(&node, shard, raft).await;
            }
            if *stop.borrow() {
                return;
            }
        }
    }
}

async fn take_next_step(node: &Node, shard: &ShardHandle, raft: &RaftHandle) {
    if !shard.leadership().ready {
        return;
    }
    let (known, committed) = {
        let metrics = raft.server_metrics();
        let metrics = metrics.borrow_watched();
        (metrics.membership_config.clone(), metrics.committed_membership_config.clone())
    };
    if known.log_id() != committed.log_id() {
        // A step is on its way, of this leader or of one before.
        return;
    }
    let membership = known.membership();
    let may_vote = |member: Member| is_connected(node, member.node()) && has_nearly_all(raft, member);
    let Some(step) = next_step(membership, |node_id| node.incarnation_of(node_id), may_vote) else { return };
    let shard = shard.id();
    // Only what follows from what was looked at: another change may be on its way.
    let seen = Precondition::LastMembershipLogId { last_membership_log_id: *known.log_id() };
    let taken = raft.change_membership_if(change(&step, membership), false, [seen]);
    match tokio::time::timeout(STEP_MAX, taken).await {
        Ok(Ok(_)) => say(&step, shard),
        Ok(Err(error)) => tracing::debug!(%shard, ?step, %error, "a replica is replaced later"),
        Err(_) => tracing::debug!(%shard, ?step, "no majority has agreed yet to replacing a replica"),
    }
}

fn say(step: &Step, shard: weir_model::ShardId) {
    match step {
        Step::Finish => tracing::info!(%shard, "the replacement of a replica is finished"),
        Step::Forget(_) => tracing::info!(%shard, "a replica is not fed any more: its node has lost it"),
        Step::Feed(member) => {
            let (node, incarnation) = (member.node(), member.incarnation());
            tracing::info!(%shard, %node, %incarnation, "a replica that was lost is filled anew");
        }
        Step::Replace { by, .. } => {
            let (node, incarnation) = (by.node(), by.incarnation());
            tracing::info!(%shard, %node, %incarnation, "a replica that was lost has caught up, and votes");
        }
    }
}

fn is_connected(node: &Node, other: NodeId) -> bool {
    other == node.node_id() || node.connected().is_none_or(|connected| connected.borrow().contains(&other))
}

/// Whether a replica that this one feeds has nearly everything that this one has.
fn has_nearly_all(raft: &RaftHandle, member: Member) -> bool {
    let metrics = raft.data_metrics();
    let known = metrics.borrow_watched();
    let matched = known.replication.as_ref().and_then(|all| *all.get(&member.raft_id())?);
    let last = known.last_log.map_or(0, |id| id.index);
    matched.is_some_and(|matched| last.saturating_sub(matched.index) <= ENTRIES_BEHIND_MAX)
}

/// What is to be done next, if anything is: `counts` says which incarnation of a node counts, and `may_vote` whether a
/// replica that is fed is as far as it has to be.
fn next_step(
    membership: &Membership,
    counts: impl Fn(NodeId) -> Incarnation,
    may_vote: impl Fn(Member) -> bool,
) -> Option<Step> {
    if membership.get_joint_config().len() > 1 {
        return Some(Step::Finish);
    }
    let is_lost = |member: &Member| member.incarnation() < counts(member.node());
    let learners = learners(membership);
    let in_vain: BTreeSet<Member> = learners.iter().copied().filter(is_lost).collect();
    if !in_vain.is_empty() {
        return Some(Step::Forget(in_vain));
    }
    let replaced = voters(membership).into_iter().filter(is_lost);
    let mut steps = replaced.filter_map(|lost| {
        let by = Member::new(lost.node(), counts(lost.node()))?;
        match learners.contains(&by) {
            false => Some(Step::Feed(by)),
            true => may_vote(by).then_some(Step::Replace { lost, by }),
        }
    });
    steps.next()
}

/// A step in the library's terms.
fn change(step: &Step, membership: &Membership) -> ChangeMembers<u64, EmptyNode> {
    match step {
        // Whatever is asked for, a joint membership becomes its latter part first.
        Step::Finish => ChangeMembers::AddVoterIds(BTreeSet::new()),
        Step::Forget(members) => {
            ChangeMembers::RemoveNodes(members.iter().map(|member| member.raft_id()).collect())
        }
        Step::Feed(member) => ChangeMembers::AddNodes(BTreeMap::from([(member.raft_id(), EmptyNode::new())])),
        Step::Replace { lost, by } => {
            let others = membership.voter_ids().filter(|voter| *voter != lost.raft_id());
            ChangeMembers::ReplaceAllVoters(others.chain([by.raft_id()]).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u64, incarnation: u32) -> Member {
        Member::new(NodeId(node), Incarnation(incarnation)).expect("a small number")
    }

    fn ids(members: &[(u64, u32)]) -> BTreeSet<u64> {
        members.iter().map(|(node, incarnation)| member(*node, *incarnation).raft_id()).collect()
    }

    fn membership(voters: &[&[(u64, u32)]], learners: &[(u64, u32)]) -> Membership {
        let configs: Vec<BTreeSet<u64>> = voters.iter().map(|all| ids(all)).collect();
        let nodes: BTreeMap<u64, EmptyNode> =
            configs.iter().flatten().copied().chain(ids(learners)).map(|id| (id, EmptyNode::new())).collect();
        Membership::new(configs, nodes).expect("a membership")
    }

    /// What follows where node 2 is of that incarnation, and these may vote.
    fn next(membership: &Membership, second: u32, may_vote: &[Member]) -> Option<Step> {
        let counts = |node| if node == NodeId(2) { Incarnation(second) } else { Incarnation::FIRST };
        next_step(membership, counts, |member| may_vote.contains(&member))
    }

    #[test]
    fn a_lost_replica_is_fed_and_then_votes_and_then_there_is_nothing_more_to_do() {
        let before = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[]);
        assert_eq!(next(&before, 0, &[]), None);
        assert_eq!(next(&before, 1, &[member(2, 1)]), Some(Step::Feed(member(2, 1))));
        let fed = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(2, 1)]);
        assert_eq!(next(&fed, 1, &[]), None, "it has not caught up");
        let replace = Step::Replace { lost: member(2, 0), by: member(2, 1) };
        assert_eq!(next(&fed, 1, &[member(2, 1)]), Some(replace.clone()));
        let expected = ChangeMembers::ReplaceAllVoters(ids(&[(1, 0), (2, 1), (3, 0)]));
        assert_eq!(change(&replace, &fed), expected);
        let between = membership(&[&[(1, 0), (2, 0), (3, 0)], &[(1, 0), (2, 1), (3, 0)]], &[]);
        assert_eq!(next(&between, 1, &[]), Some(Step::Finish));
        let after = membership(&[&[(1, 0), (2, 1), (3, 0)]], &[]);
        assert_eq!(next(&after, 1, &[member(2, 1)]), None);
    }

    #[test]
    fn one_that_is_lost_again_is_let_go_of_and_replaced() {
        let fed = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(2, 1)]);
        let forget = Step::Forget(BTreeSet::from([member(2, 1)]));
        assert_eq!(next(&fed, 2, &[member(2, 1)]), Some(forget.clone()));
        assert_eq!(change(&forget, &fed), ChangeMembers::RemoveNodes(ids(&[(2, 1)])));
        let voted = membership(&[&[(1, 0), (2, 1), (3, 0)]], &[]);
        assert_eq!(next(&voted, 2, &[]), Some(Step::Feed(member(2, 2))));
        // In the middle of being replaced: that ends first.
        let between = membership(&[&[(1, 0), (2, 0), (3, 0)], &[(1, 0), (2, 1), (3, 0)]], &[]);
        assert_eq!(next(&between, 2, &[]), Some(Step::Finish));
    }

    #[test]
    fn whoever_knows_less_than_the_membership_says_does_nothing() {
        let after = membership(&[&[(1, 0), (2, 3), (3, 0)]], &[]);
        assert_eq!(next(&after, 2, &[]), None);
        let fed = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(2, 3)]);
        assert_eq!(next(&fed, 2, &[]), Some(Step::Feed(member(2, 2))));
    }

    #[test]
    fn of_two_that_are_lost_the_one_that_may_vote_does_not_wait_for_the_other() {
        let counts = |node| if node == NodeId(1) { Incarnation::FIRST } else { Incarnation(1) };
        let five = &[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)];
        let fed = membership(&[five], &[(2, 1), (3, 1), (4, 1), (5, 1)]);
        let step = next_step(&fed, counts, |member| member.node() == NodeId(4));
        assert_eq!(step, Some(Step::Replace { lost: member(4, 0), by: member(4, 1) }));
    }
}
