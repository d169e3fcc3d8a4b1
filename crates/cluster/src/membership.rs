//! Who has a replica of each shard, and whose votes count in it.
//!
//! The catalog says which nodes there are, and which incarnation of each counts. Every node has a replica of every shard;
//! as many of them vote as there were founders, three at least. Whoever leads a shard compares its membership with that, and
//! takes one step after the other, each a change of the membership that a majority must agree to:
//!
//! * **A node joined.** It is fed, with a copy of the shard or with entries. While too few vote, those who have nearly
//!   everything become voters, to make an odd number: an even one would withstand no more losses.
//! * **A node lost its data.** Its replica forgot what it had voted and acknowledged, and must not take part as if it had
//!   not. So the node is another voter: the meta shard has given it its next incarnation ([`form`](crate::form)), with
//!   which it started its replicas. They have no membership of their own, and wait.
//!
//!   ```text
//!   voters 1, 2.0, 3                    the replica 2.0 is lost
//!   voters 1, 2.0, 3   learner 2.1      it is fed
//!   voters 1, 2.0, 3 and 1, 2.1, 3      it has nearly everything. A majority of both is needed: 1 and 3 are one
//!   voters 1, 2.1, 3
//!   ```
//! * **A node is to leave.** Another one votes in its place, or one less votes; then its replica goes. Once it has none in any
//!   shard, whoever leads the meta shard has the catalog forget it.
//! * **There are more nodes than votes.** Nodes take turns by the shards' numbers, those of different zones beside each other,
//!   so that each votes in about as many shards as any other. One of which nothing was heard for [`AWAY`] gives its votes to
//!   others as long as it is away.
//!
//! # Why nothing is lost and nobody votes twice
//!
//! To Raft a lost replica is a voter that is down for ever, and another that takes its place by joint consensus; nobody ever
//! has an id that somebody had before him. Until the last step, majorities are counted with the lost voter among them, who says
//! nothing: what is acknowledged is on a majority of the others, and what was acknowledged with the lost one's help is
//! there on at least one of those without whom nobody is elected. Every two majorities that follow each other have a voter
//! in common, which remembers. And a message that is meant for one incarnation of a replica is answered by no other, so
//! that neither a vote nor an acknowledgement of one can be taken for one of another.
//!
//! It takes a majority of the voters that still have their data, until the last step is agreed to: who loses a second
//! disk of three before that has lost a majority. Without one nothing here goes on, as nothing else does. A step that takes
//! a voter out is taken only for one that is connected and has nearly all entries, or if a majority of those that stay is;
//! so that afterwards at least as many losses are survived as before, or as many as the operator left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use openraft::impls::EmptyNode;
use openraft::raft::Precondition;
use tokio::sync::watch;
use tokio::time::Instant;
use weir_model::command::{Command, Outcome};
use weir_model::{Incarnation, NodeId, ShardId};
use weir_shard::Nodes;

use crate::handle::ShardHandle;
use crate::identity::list_nodes;
use crate::node::Node;
use crate::raft::member::{Member, latest, learners, voters, voting_nodes};
use crate::raft::types::{Membership, RaftHandle};

/// How often a node looks at the shards that it leads.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a majority may take to agree to a step. If it does so later, the next look finds it done.
const STEP_MAX: Duration = Duration::from_secs(5);

/// A replica that lacks no more entries than this may vote. What it lacks then comes within moments, and nobody waits for
/// it as long as the others are there.
const ENTRIES_BEHIND_MAX: u64 = 1_000;

/// A node of which nothing was heard for this long does not vote if another one can.
const AWAY: Duration = Duration::from_secs(60);

/// Fewest replicas that vote in a shard, where there are as many nodes.
const VOTERS_MIN: usize = 3;

/// A step towards the membership that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Voters are being replaced, and a leader before did not come to the end of it.
    Finish,
    /// These are fed in vain: they are lost, or their node is to leave.
    Forget(BTreeSet<Member>),
    /// This one is to be fed.
    Feed(Member),
    /// These vote as well.
    Promote(BTreeSet<Member>),
    /// This one votes instead of that one, whose replica goes.
    Replace { gone: Member, by: Member },
    /// This one votes instead of that one, whose replica is fed on.
    Swap { voter: Member, by: Member },
    /// This one goes, and nobody votes in its place.
    Retire(Member),
}

/// The nodes of a cluster, as whoever leads a shard sees them.
#[derive(Debug, Default)]
struct Census {
    /// Those that are to have a replica, with the zones in which they stand.
    staying: BTreeMap<NodeId, Option<String>>,
    /// Those of which nothing was heard for long.
    away: BTreeSet<NodeId>,
    /// The incarnations that count, where they are not the first.
    incarnations: BTreeMap<NodeId, Incarnation>,
    /// How many replicas are to vote in a shard.
    votes: usize,
}

impl Census {
    fn incarnation(&self, node: NodeId) -> Incarnation {
        self.incarnations.get(&node).copied().unwrap_or(Incarnation::FIRST)
    }

    /// The replica of a node that counts.
    fn member(&self, node: NodeId) -> Option<Member> {
        Member::new(node, self.incarnation(node))
    }

    fn is_lost(&self, member: Member) -> bool {
        member.incarnation() < self.incarnation(member.node())
    }

    fn is_leaving(&self, member: Member) -> bool {
        !self.staying.contains_key(&member.node())
    }

    /// The nodes that are to vote in a shard, those first that should most.
    fn wanted(&self, shard: ShardId) -> Vec<NodeId> {
        let mut turns = self.turns();
        let first = shard.0 as usize % turns.len().max(1);
        turns.rotate_left(first);
        let (present, away): (Vec<NodeId>, Vec<NodeId>) =
            turns.into_iter().partition(|node| !self.away.contains(node));
        present.into_iter().chain(away).take(self.votes).collect()
    }

    /// All nodes in the order in which they take turns: as long as there are several zones left, two that stand beside
    /// each other are of different ones.
    fn turns(&self) -> Vec<NodeId> {
        let mut zones: BTreeMap<&Option<String>, VecDeque<NodeId>> = BTreeMap::new();
        for (node, zone) in &self.staying {
            zones.entry(zone).or_default().push_back(*node);
        }
        let mut turns = Vec::new();
        while turns.len() < self.staying.len() {
            turns.extend(zones.values_mut().filter_map(VecDeque::pop_front));
        }
        turns
    }
}

/// Since when nothing was heard of nodes.
#[derive(Debug, Default)]
struct Silence(BTreeMap<NodeId, Instant>);

impl Silence {
    /// The nodes of these that were silent for long.
    fn look(&mut self, node: &Node, nodes: &Nodes) -> BTreeSet<NodeId> {
        let silent = |id: &NodeId| !is_connected(node, *id);
        self.0.retain(|id, _| silent(id));
        for id in nodes.iter().map(|node| node.meta.id).filter(silent) {
            self.0.entry(id).or_insert_with(Instant::now);
        }
        self.0.iter().filter(|(_, since)| since.elapsed() >= AWAY).map(|(id, _)| *id).collect()
    }
}

/// Keeps the members of the shards that this node leads those that there are to be, until the node is gone.
pub(crate) async fn keep_members_always(node: Weak<Node>, mut stop: watch::Receiver<bool>) {
    let mut silence = Silence::default();
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let Some(node) = node.upgrade() else { return };
        let nodes = node.registry();
        let away = silence.look(&node, &nodes);
        for shard in node.replicated_shards() {
            if let Some(raft) = node.raft_of(shard.id())
                && shard.leadership().ready
            {
                take_next_step(&node, &nodes, &away, shard, raft).await;
            }
            if *stop.borrow() {
                return;
            }
        }
        forget_who_left(&node, &nodes).await;
    }
}

async fn take_next_step(
    node: &Node,
    nodes: &Nodes,
    away: &BTreeSet<NodeId>,
    shard: &ShardHandle,
    raft: &RaftHandle,
) {
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
    let census = census(nodes, away, membership, node.founders());
    let own = node.node_id();
    let is_current = |member: Member| {
        member.node() == own || is_connected(node, member.node()) && has_nearly_all(raft, member)
    };
    let shard_id = shard.id();
    let Some(step) = next_step(membership, shard_id, &census, is_current) else { return };
    if let Some(next) = next_leader(&step, membership, own, is_current) {
        // Whoever leads next takes the step. Where he does not take it over, the shard is asked for again.
        let given = tokio::time::timeout(STEP_MAX, shard.transfer_leadership(next)).await;
        tracing::info!(shard = %shard_id, to = %next, ?given, "a shard is given away by a node that is to vote in it no more");
        return;
    }
    // Only what follows from what was looked at: another change may be on its way.
    let seen = Precondition::LastMembershipLogId { last_membership_log_id: *known.log_id() };
    let taken = raft.change_membership_if(change(&step, membership), step.keeps_replicas(), [seen]);
    match tokio::time::timeout(STEP_MAX, taken).await {
        Ok(Ok(_)) => say(&step, shard_id),
        Ok(Err(error)) => {
            tracing::debug!(shard = %shard_id, ?step, %error, "the members of a shard change later")
        }
        Err(_) => {
            tracing::debug!(shard = %shard_id, ?step, "no majority has agreed yet to a change of a shard's members");
        }
    }
}

/// The nodes as a shard's members are to follow from them. Voters that never said anything of themselves count as well.
fn census(nodes: &Nodes, away: &BTreeSet<NodeId>, membership: &Membership, founders: usize) -> Census {
    let mut staying: BTreeMap<NodeId, Option<String>> =
        voting_nodes(membership).into_iter().map(|node| (node, None)).collect();
    staying.extend(nodes.iter().map(|node| (node.meta.id, node.meta.zone.clone())));
    let is_leaving = |id: &NodeId| nodes.is_removed(*id) || nodes.node(*id).is_some_and(|node| node.leaving);
    staying.retain(|id, _| !is_leaving(id));
    Census {
        staying,
        away: away.clone(),
        incarnations: nodes.given_incarnations().map(|(id, given)| (id, given.incarnation)).collect(),
        votes: founders.max(VOTERS_MIN),
    }
}

/// Who is to lead in place of this node, if the step takes its vote and somebody else has one.
fn next_leader(
    step: &Step,
    membership: &Membership,
    own: NodeId,
    is_current: impl Fn(Member) -> bool,
) -> Option<NodeId> {
    let (Step::Replace { gone: voter, .. } | Step::Swap { voter, .. } | Step::Retire(voter)) = step else {
        return None;
    };
    if voter.node() != own {
        return None;
    }
    let others = voters(membership).into_iter().filter(|other| other.node() != own);
    others.filter(|other| is_current(*other)).map(Member::node).next()
}

/// Has the catalog forget the nodes that were to leave and have no replica any more, if this node leads it.
async fn forget_who_left(node: &Node, nodes: &Nodes) {
    let Some(meta) = node.shard(ShardId::META).filter(|meta| meta.leadership().ready) else { return };
    for leaving in nodes.iter().filter(|node| node.leaving).map(|node| node.meta.id) {
        let is_member = |shard: &ShardHandle| {
            node.raft_of(shard.id()).is_none_or(|raft| {
                let metrics = raft.server_metrics();
                let known = metrics.borrow_watched();
                let configs = [&known.membership_config, &known.committed_membership_config];
                configs.iter().any(|config| latest(config.membership(), leaving).is_some())
            })
        };
        if node.replicated_shards().any(is_member) {
            continue;
        }
        let forgotten = meta.propose(Command::ForgetNode { node: leaving });
        match tokio::time::timeout(STEP_MAX, forgotten).await {
            Ok(Ok(Outcome::Done)) => tracing::info!(node = %leaving, "a node has left the cluster"),
            other => tracing::debug!(node = %leaving, ?other, "a node that has left is forgotten later"),
        }
    }
}

fn say(step: &Step, shard: ShardId) {
    let of = |member: &Member| (member.node(), member.incarnation());
    match step {
        Step::Finish => tracing::info!(%shard, "a change of the voters is finished"),
        Step::Forget(_) => {
            tracing::info!(%shard, "a replica is not fed any more: it is lost, or its node leaves")
        }
        Step::Feed(member) => {
            let (node, incarnation) = of(member);
            tracing::info!(%shard, %node, %incarnation, "a replica is filled");
        }
        Step::Promote(members) => {
            let nodes = list_nodes(&members.iter().map(|member| member.node()).collect::<Vec<_>>());
            tracing::info!(%shard, nodes, "replicas that have caught up vote as well");
        }
        Step::Replace { gone, by } => {
            let ((node, incarnation), gone) = (of(by), gone.node());
            tracing::info!(%shard, %node, %incarnation, %gone, "a replica votes in place of one that is lost or leaves");
        }
        Step::Swap { voter, by } => {
            let (node, before) = (by.node(), voter.node());
            tracing::info!(%shard, %node, %before, "another node votes");
        }
        Step::Retire(member) => {
            let node = member.node();
            tracing::info!(%shard, %node, "a node that leaves votes no more");
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

/// What is to be done next, if anything is; `is_current` says whether a replica is there and as far as one must be to vote.
fn next_step(
    membership: &Membership,
    shard: ShardId,
    census: &Census,
    is_current: impl Fn(Member) -> bool,
) -> Option<Step> {
    if membership.get_joint_config().len() > 1 {
        return Some(Step::Finish);
    }
    let (voters, learners) = (voters(membership), learners(membership));
    let in_vain: BTreeSet<Member> =
        learners.iter().copied().filter(|one| census.is_lost(*one) || census.is_leaving(*one)).collect();
    if !in_vain.is_empty() {
        return Some(Step::Forget(in_vain));
    }
    // Whoever knows of a later incarnation than this node knows better.
    let lacks = |member: &Member| latest(membership, member.node()).is_none_or(|known| known < *member);
    if let Some(missing) = census.staying.keys().filter_map(|node| census.member(*node)).find(lacks) {
        return Some(Step::Feed(missing));
    }

    // Those that could vote and do not, those first that should.
    let wanted: Vec<Member> =
        census.wanted(shard).into_iter().filter_map(|node| census.member(node)).collect();
    let spare = |member: &&Member| learners.contains(member) && is_current(**member);
    let spares =
        wanted.iter().chain(learners.iter().filter(|one| !wanted.contains(one))).filter(spare).copied();
    let lost_alone = |voter: &Member| census.is_lost(*voter) && !census.is_leaving(*voter);
    for gone in voters.iter().copied().filter(lost_alone) {
        let by = census.member(gone.node());
        if let Some(by) = by.filter(|by| learners.contains(by) && is_current(*by)) {
            return Some(Step::Replace { gone, by });
        }
    }
    let is_lost_somewhere = |member: &Member| voters.iter().any(|voter| voter.node() == member.node());
    // A replica whose node has another vote to take over is not there for others.
    let mut spares = spares.filter(|member| !is_lost_somewhere(member));
    for gone in voters.iter().copied().filter(|voter| census.is_leaving(*voter)) {
        if let Some(by) = spares.next() {
            return Some(Step::Replace { gone, by });
        }
        let others = voters.iter().filter(|other| **other != gone);
        let current = others.clone().filter(|other| is_current(**other)).count();
        if 2 * current > others.count() {
            return Some(Step::Retire(gone));
        }
    }
    if voters.iter().any(|voter| census.is_lost(*voter) || census.is_leaving(*voter)) {
        return None;
    }

    let spares: Vec<Member> = spares.filter(|member| wanted.contains(member)).collect();
    let possible = (voters.len() + spares.len()).min(census.votes);
    if voters.len() < census.votes {
        let odd = possible.saturating_sub(usize::from(possible.is_multiple_of(2)));
        let more = odd.saturating_sub(voters.len());
        return (more > 0).then(|| Step::Promote(spares.into_iter().take(more).collect()));
    }
    let by = spares.first().copied()?;
    let voter = voters.iter().copied().find(|voter| !wanted.contains(voter))?;
    Some(Step::Swap { voter, by })
}

impl Step {
    /// Whether those that vote no more are fed on.
    fn keeps_replicas(&self) -> bool {
        matches!(self, Step::Swap { .. })
    }
}

/// A step in the library's terms.
fn change(step: &Step, membership: &Membership) -> ChangeMembers<u64, EmptyNode> {
    let without = |gone: &Member| {
        let gone = gone.raft_id();
        membership.voter_ids().filter(move |voter| *voter != gone)
    };
    match step {
        // Whatever is asked for, a joint membership becomes its latter part first.
        Step::Finish => ChangeMembers::AddVoterIds(BTreeSet::new()),
        Step::Forget(members) => {
            ChangeMembers::RemoveNodes(members.iter().map(|member| member.raft_id()).collect())
        }
        Step::Feed(member) => ChangeMembers::AddNodes(BTreeMap::from([(member.raft_id(), EmptyNode::new())])),
        Step::Promote(members) => {
            ChangeMembers::AddVoterIds(members.iter().map(|member| member.raft_id()).collect())
        }
        Step::Replace { gone, by } | Step::Swap { voter: gone, by } => {
            ChangeMembers::ReplaceAllVoters(without(gone).chain([by.raft_id()]).collect())
        }
        Step::Retire(gone) => ChangeMembers::ReplaceAllVoters(without(gone).collect()),
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

    /// Nodes 1 to 3, and those that are named, of which the second is of that incarnation.
    fn census(second: u32, more: &[u64]) -> Census {
        Census {
            staying: (1..=3).chain(more.iter().copied()).map(|node| (NodeId(node), None)).collect(),
            away: BTreeSet::new(),
            incarnations: [
                (NodeId(2), Incarnation(second)),
                (NodeId(4), Incarnation(1)),
                (NodeId(5), Incarnation(1)),
            ]
            .into(),
            votes: 3,
        }
    }

    /// What follows where node 2 is of that incarnation, and these are as far as a voter must be.
    fn next(membership: &Membership, second: u32, current: &[Member]) -> Option<Step> {
        next_step(membership, ShardId(0), &census(second, &[]), |member| current.contains(&member))
    }

    #[test]
    fn a_lost_replica_is_fed_and_then_votes_and_then_there_is_nothing_more_to_do() {
        let before = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[]);
        assert_eq!(next(&before, 0, &[]), None);
        assert_eq!(next(&before, 1, &[member(2, 1)]), Some(Step::Feed(member(2, 1))));
        let fed = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(2, 1)]);
        assert_eq!(next(&fed, 1, &[]), None, "it has not caught up");
        let replace = Step::Replace { gone: member(2, 0), by: member(2, 1) };
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
        assert_eq!(next(&fed, 2, &[member(2, 3)]), None);
    }

    #[test]
    fn of_two_that_are_lost_the_one_that_may_vote_does_not_wait_for_the_other() {
        let all = (1..=5).map(|node| (NodeId(node), None)).collect();
        let incarnations = (2..=5).map(|node| (NodeId(node), Incarnation(1))).collect();
        let census = Census { staying: all, incarnations, votes: 5, ..Census::default() };
        let five = &[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)];
        let fed = membership(&[five], &[(2, 1), (3, 1), (4, 1), (5, 1)]);
        let step = next_step(&fed, ShardId(1), &census, |member| member.node() == NodeId(4));
        assert_eq!(step, Some(Step::Replace { gone: member(4, 0), by: member(4, 1) }));
    }

    /// What comes of a membership if every replica that is not away catches up at once: the steps, and where they end.
    fn settle(mut known: Membership, shard: u32, census: &Census) -> (Vec<Step>, Membership) {
        let mut steps = Vec::new();
        while let Some(step) =
            next_step(&known, ShardId(shard), census, |one| !census.away.contains(&one.node()))
        {
            let (mut voting, mut fed) = (voters(&known), learners(&known));
            match &step {
                Step::Finish => unreachable!("a step is carried out whole here"),
                Step::Forget(members) => fed.retain(|one| !members.contains(one)),
                Step::Feed(member) => assert!(fed.insert(*member)),
                Step::Promote(members) => {
                    assert!(members.iter().all(|member| fed.remove(member)));
                    voting.extend(members);
                }
                Step::Replace { gone, by } => {
                    assert!(voting.remove(gone) && fed.remove(by));
                    voting.insert(*by);
                }
                Step::Swap { voter, by } => {
                    assert!(voting.remove(voter) && fed.remove(by));
                    voting.insert(*by);
                    fed.insert(*voter);
                }
                Step::Retire(gone) => assert!(voting.remove(gone)),
            }
            let raft_ids =
                |all: &BTreeSet<Member>| all.iter().map(|one| one.raft_id()).collect::<BTreeSet<u64>>();
            let nodes: BTreeMap<u64, EmptyNode> = raft_ids(&voting)
                .into_iter()
                .chain(raft_ids(&fed))
                .map(|id| (id, EmptyNode::new()))
                .collect();
            known = Membership::new(vec![raft_ids(&voting)], nodes).expect("a membership");
            steps.push(step);
            assert!(steps.len() < 100, "it does not come to rest: {steps:?}");
        }
        (steps, known)
    }

    fn voting(membership: &Membership) -> Vec<u64> {
        voting_nodes(membership).into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn votes_become_more_only_to_make_an_odd_number() {
        let alone = membership(&[&[(1, 0)]], &[]);
        let census = |nodes: u64| Census {
            staying: (1..=nodes).map(|node| (NodeId(node), None)).collect(),
            incarnations: (2..=nodes).map(|node| (NodeId(node), Incarnation(1))).collect(),
            votes: 3,
            ..Census::default()
        };
        let (steps, two) = settle(alone, 0, &census(2));
        assert_eq!(steps, [Step::Feed(member(2, 1))]);
        assert_eq!(voting(&two), [1]);
        let (steps, three) = settle(two, 0, &census(3));
        let both = Step::Promote([member(2, 1), member(3, 1)].into());
        assert_eq!(steps, [Step::Feed(member(3, 1)), both]);
        assert_eq!(voting(&three), [1, 2, 3]);
        // Two that founded a cluster stay two until a third is there.
        let pair = membership(&[&[(1, 0), (2, 1)]], &[]);
        let (steps, three) = settle(pair, 0, &census(3));
        assert_eq!(steps, [Step::Feed(member(3, 1)), Step::Promote([member(3, 1)].into())]);
        assert_eq!(voting(&three), [1, 2, 3]);
    }

    #[test]
    fn where_there_are_more_nodes_than_votes_they_take_turns() {
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for shard in 0..20 {
            let founders = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[]);
            let (_, settled) = settle(founders, shard, &census(0, &[4, 5]));
            assert_eq!(listening_of(&settled).len(), 2, "all others have a replica");
            for node in voting(&settled) {
                *votes.entry(node).or_default() += 1;
            }
        }
        assert_eq!(votes, (1..=5).map(|node| (node, 12)).collect());
    }

    fn listening_of(membership: &Membership) -> BTreeSet<NodeId> {
        crate::raft::member::listening(membership)
    }

    #[test]
    fn zones_share_the_votes_of_a_shard_as_long_as_there_are_enough() {
        let zone = |node: u64| Some(["east", "north", "west"][(node as usize - 1) / 2].to_owned());
        let census = Census {
            staying: (1..=6).map(|node| (NodeId(node), zone(node))).collect(),
            votes: 3,
            ..Census::default()
        };
        for shard in 0..12 {
            let zones: BTreeSet<_> =
                census.wanted(ShardId(shard)).into_iter().map(|node| zone(node.0)).collect();
            assert_eq!(zones.len(), 3, "shard {shard}");
        }
    }

    #[test]
    fn a_node_that_leaves_is_replaced_or_retired_and_its_replica_goes() {
        let four = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(4, 1)]);
        let mut leaving = census(0, &[4]);
        leaving.staying.remove(&NodeId(2));
        let (steps, settled) = settle(four, 0, &leaving);
        assert_eq!(steps, [Step::Replace { gone: member(2, 0), by: member(4, 1) }]);
        assert_eq!(voting(&settled), [1, 3, 4]);

        let three = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[]);
        let mut leaving = census(0, &[]);
        leaving.staying.remove(&NodeId(2));
        let (steps, settled) = settle(three.clone(), 0, &leaving);
        assert_eq!(steps, [Step::Retire(member(2, 0))]);
        assert_eq!(voting(&settled), [1, 3]);
        // Also if it is gone for ever; but not if that left no majority of those that stay.
        let gone = Census { away: [NodeId(2)].into(), ..leaving };
        assert_eq!(settle(three.clone(), 0, &gone).0, [Step::Retire(member(2, 0))]);
        let both = Census { away: [NodeId(2), NodeId(3)].into(), ..gone };
        assert_eq!(settle(three, 0, &both).0, []);
        // A replica that only listens goes at once.
        let learning = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(4, 1)]);
        assert_eq!(settle(learning, 0, &census(0, &[])).0, [Step::Forget([member(4, 1)].into())]);
    }

    #[test]
    fn the_votes_of_a_node_that_is_away_for_long_are_lent_and_come_back() {
        let four = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(4, 1)]);
        let there = census(0, &[4]);
        let away = Census { away: [NodeId(3)].into(), ..census(0, &[4]) };
        let (steps, lent) = settle(four.clone(), 0, &away);
        assert_eq!(steps, [Step::Swap { voter: member(3, 0), by: member(4, 1) }]);
        let (steps, back) = settle(lent, 0, &there);
        assert_eq!(steps, [Step::Swap { voter: member(4, 1), by: member(3, 0) }]);
        assert_eq!(back, four);
        // Where there is no other it stays as it is.
        let three = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[]);
        let away = Census { away: [NodeId(3)].into(), ..census(0, &[]) };
        assert_eq!(settle(three, 0, &away).0, []);
    }

    #[test]
    fn a_leader_whose_vote_is_taken_gives_the_shard_away_if_somebody_else_votes() {
        let three = membership(&[&[(1, 0), (2, 0), (3, 0)]], &[(4, 1)]);
        let step = Step::Swap { voter: member(1, 0), by: member(4, 1) };
        let next = |own: u64, current: &[u64]| {
            next_leader(&step, &three, NodeId(own), |one| current.contains(&one.node().0))
        };
        assert_eq!(next(1, &[1, 3, 4]), Some(NodeId(3)));
        assert_eq!(next(1, &[1, 4]), None);
        assert_eq!(next(2, &[1, 2, 3]), None, "it is not its own");
    }
}
