//! Who leads a shard, as far as this node knows.

use weir_model::NodeId;

/// Who leads a shard, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Who leads; none while an election is on.
    pub leader: Option<NodeId>,
    /// Whether it is this node.
    pub is_leader: bool,
    /// Whether this node leads and its `Lead` command is applied here: only then is what it does not
    /// find known not to be there.
    pub ready: bool,
    /// The Raft term.
    pub term: u64,
}
