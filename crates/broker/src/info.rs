//! What clients are told of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::{NodeId, ShardId};

use crate::options::HostPort;

/// The cluster as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Identity of the cluster.
    pub cluster_id: String,
    /// This node.
    pub node_id: NodeId,
    /// All nodes, in the order of their ids.
    pub nodes: Vec<NodeInfo>,
    /// The node that administrative requests should go to.
    pub controller: Option<NodeId>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its id.
    pub id: NodeId,
    /// What clients of other nodes are told to connect to, by protocol name. Those of this one are told what its options
    /// say, or else the local address of their own connection.
    pub advertised: BTreeMap<String, HostPort>,
    /// Where it stands: Kafka's rack.
    pub zone: Option<String>,
    /// Version of its binary; none if it has not said anything of itself yet.
    pub version: Option<String>,
    /// Whether an operator wants it to lead nothing.
    pub draining: bool,
    /// Whether an operator wants it to be of the cluster no more.
    pub leaving: bool,
    /// Whether it is connected with this node, or is this node.
    pub live: bool,
}

/// A shard, and who leads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Which.
    pub id: ShardId,
    /// The node that leads it; none during an election, and none that cannot be reached from this node.
    pub leader: Option<NodeId>,
    /// The Raft term.
    pub term: u64,
    /// The nodes that vote in it.
    pub voters: Vec<NodeId>,
    /// Those of them whose replica was lost and is filled anew: until it has caught up, they have no vote.
    pub catching_up: BTreeSet<NodeId>,
    /// The nodes that have a replica which does not vote.
    pub listening: BTreeSet<NodeId>,
    /// Index of the last entry that is applied on this node.
    pub applied_index: u64,
}

/// Who serves a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The node that leads it; none during an election.
    pub leader: Option<NodeId>,
    /// Epoch of its leadership.
    pub leader_epoch: i32,
    /// Nodes that have a replica.
    pub replicas: Vec<NodeId>,
}
