//! Who a replica is to the consensus library: a node, and how often it has begun with nothing.
//!
//! ```text
//! id u64 = incarnation in the upper 32 bits, the node's number in the lower 32
//! ```
//!
//! A voter must remember every vote that it gave and every entry that it has acknowledged. A node that lost its data does
//! not, so it is another voter from then on, with an id that nobody had before; and it is nobody's voter until those that
//! are left have agreed to it. Everything outside of this directory speaks of nodes: this is the only place where one is
//! made of the other.

use std::collections::BTreeSet;

use weir_model::{Incarnation, NodeId};

use super::types::Membership;

/// Highest number of a node: it and an incarnation share the library's id.
pub(crate) const NODE_NUMBER_MAX: u64 = u32::MAX as u64;

const NODE_BITS: u32 = 32;

/// A replica of a shard: a node in one of its incarnations. Ordered by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    number: u32,
    incarnation: Incarnation,
}

impl Member {
    /// None if the node's number is above [`NODE_NUMBER_MAX`].
    pub(crate) fn new(node: NodeId, incarnation: Incarnation) -> Option<Member> {
        Some(Member { number: u32::try_from(node.0).ok()?, incarnation })
    }

    /// Whom the library means.
    pub(crate) fn of(raft_id: u64) -> Member {
        Member { number: raft_id as u32, incarnation: Incarnation((raft_id >> NODE_BITS) as u32) }
    }

    /// How the library calls it.
    pub(crate) fn raft_id(self) -> u64 {
        u64::from(self.incarnation.0) << NODE_BITS | u64::from(self.number)
    }

    pub(crate) fn node(self) -> NodeId {
        NodeId(u64::from(self.number))
    }

    pub(crate) fn incarnation(self) -> Incarnation {
        self.incarnation
    }
}

/// The members that vote.
pub(crate) fn voters(membership: &Membership) -> BTreeSet<Member> {
    membership.voter_ids().map(Member::of).collect()
}

/// The members that only listen.
pub(crate) fn learners(membership: &Membership) -> BTreeSet<Member> {
    membership.learner_ids().map(Member::of).collect()
}

/// The nodes that vote, in the order of their numbers, in whichever incarnation.
pub(crate) fn voting_nodes(membership: &Membership) -> Vec<NodeId> {
    let nodes: BTreeSet<NodeId> = voters(membership).into_iter().map(Member::node).collect();
    nodes.into_iter().collect()
}

/// The member that a node is by now: its latest incarnation.
pub(crate) fn latest(membership: &Membership, node: NodeId) -> Option<Member> {
    membership.nodes().map(|(id, _)| Member::of(*id)).filter(|member| member.node() == node).max()
}

/// The nodes whose replica was lost and whose new one does not have its place yet: either it does not vote, or majorities are
/// still counted with the lost one among them.
pub(crate) fn catching_up(membership: &Membership) -> BTreeSet<NodeId> {
    let all: BTreeSet<Member> = membership.nodes().map(|(id, _)| Member::of(*id)).collect();
    let voting: BTreeSet<NodeId> = voters(membership).into_iter().map(Member::node).collect();
    let twice = all.iter().zip(all.iter().skip(1)).filter(|(one, next)| one.node() == next.node());
    twice.map(|(one, _)| one.node()).filter(|node| voting.contains(node)).collect()
}

/// The nodes that have a replica which does not vote.
pub(crate) fn listening(membership: &Membership) -> BTreeSet<NodeId> {
    let voting: BTreeSet<NodeId> = voters(membership).into_iter().map(Member::node).collect();
    learners(membership).into_iter().map(Member::node).filter(|node| !voting.contains(node)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use openraft::impls::EmptyNode;
    use proptest::prelude::*;

    use super::*;

    fn member(node: u64, incarnation: u32) -> Member {
        Member::new(NodeId(node), Incarnation(incarnation)).expect("a small number")
    }

    fn membership(voters: &[&[(u64, u32)]], learners: &[(u64, u32)]) -> Membership {
        let id = |(node, incarnation): &(u64, u32)| member(*node, *incarnation).raft_id();
        let configs: Vec<BTreeSet<u64>> = voters.iter().map(|all| all.iter().map(id).collect()).collect();
        let nodes: BTreeMap<u64, EmptyNode> = configs
            .iter()
            .flatten()
            .copied()
            .chain(learners.iter().map(id))
            .map(|id| (id, EmptyNode::new()))
            .collect();
        Membership::new(configs, nodes).expect("a membership")
    }

    #[test]
    fn the_first_incarnation_is_called_as_the_node_was_before_there_were_any() {
        assert_eq!(member(3, 0).raft_id(), 3);
        assert_eq!(Member::of(3), member(3, 0));
        assert_eq!(member(3, 2).raft_id(), (2 << 32) + 3);
        assert_eq!(Member::new(NodeId(NODE_NUMBER_MAX + 1), Incarnation(0)), None);
        assert!(Member::new(NodeId(NODE_NUMBER_MAX), Incarnation(u32::MAX)).is_some());
    }

    #[test]
    fn nodes_are_counted_once_in_whichever_incarnation_they_are() {
        let all = membership(&[&[(1, 0), (2, 0), (3, 7)]], &[(2, 1)]);
        assert_eq!(voting_nodes(&all), [1, 2, 3].map(NodeId));
        assert_eq!(catching_up(&all), [NodeId(2)].into());
        assert_eq!(latest(&all, NodeId(2)), Some(member(2, 1)));
        assert_eq!(latest(&all, NodeId(3)), Some(member(3, 7)));
        assert_eq!(latest(&all, NodeId(4)), None);
        let between = membership(&[&[(1, 0), (2, 0), (3, 7)], &[(1, 0), (2, 1), (3, 7)]], &[]);
        assert_eq!(voting_nodes(&between), [1, 2, 3].map(NodeId));
        assert_eq!(catching_up(&between), [NodeId(2)].into());
        let after = membership(&[&[(1, 0), (2, 1), (3, 7)]], &[]);
        assert_eq!(catching_up(&after), [].into());
        // One that joined has nothing to catch up with that counts.
        let joined = membership(&[&[(1, 0), (2, 1), (3, 7)]], &[(4, 1)]);
        assert_eq!(catching_up(&joined), [].into());
        assert_eq!((listening(&joined), listening(&all)), ([NodeId(4)].into(), [].into()));
        assert_eq!(voting_nodes(&Membership::default()), []);
    }

    proptest! {
        #[test]
        fn every_id_is_somebodys(raft_id in any::<u64>()) {
            let member = Member::of(raft_id);
            prop_assert_eq!(member.raft_id(), raft_id);
            prop_assert_eq!(Member::new(member.node(), member.incarnation()), Some(member));
        }
    }
}
