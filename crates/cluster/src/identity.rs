//! Who a node is, as its data directory says, and how far it is with becoming part of a cluster.
//!
//! ```text
//! identity = node u64, phase u8 (0 empty, 1 forming, 2 formed), cluster string, founders (count u32, node u64*),
//!            incarnation u32 and shards u32, which may be left out, the latter alone as well, where they are 0
//! ```

use std::collections::BTreeSet;

use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Incarnation, NodeId};

/// Most data shards that a node may have.
pub const DATA_SHARDS_MAX: u32 = 1024;

/// Most nodes that a cluster is founded by.
pub const FOUNDERS_MAX: usize = 64;

/// Longest cluster id, in bytes.
pub const CLUSTER_ID_BYTES_MAX: usize = 64;

/// How far a node is with becoming part of a cluster. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing was ever agreed on.
    Empty,
    /// The cluster has its id, but not every founder is known to have taken it. Nobody has voted yet.
    Forming,
    /// A member, which may have voted.
    Formed,
}

/// Who a node is, as its data directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// How far it is.
    pub phase: Phase,
    /// The cluster's id, from 1 to [`CLUSTER_ID_BYTES_MAX`] bytes; empty while the phase is [`Phase::Empty`].
    pub cluster: String,
    /// The nodes that the cluster is founded by, at most [`FOUNDERS_MAX`]: this one is among them, unless it joined later.
    pub founders: BTreeSet<NodeId>,
    /// How often it has begun with nothing: for one that joined, after its cluster was founded, that is once at least. Other
    /// than the first only in [`Phase::Formed`].
    pub incarnation: Incarnation,
    /// How many data shards its cluster has; 0 where that is not told.
    pub shards: u32,
}

impl Identity {
    /// A node that is of no cluster yet.
    pub fn empty(node: NodeId, founders: BTreeSet<NodeId>) -> Identity {
        let incarnation = Incarnation::FIRST;
        Identity { node, phase: Phase::Empty, cluster: String::new(), founders, incarnation, shards: 0 }
    }

    /// A member of a cluster that is there. A node that is alone has itself as the only founder.
    pub fn formed(node: NodeId, cluster: String, founders: BTreeSet<NodeId>) -> Identity {
        let incarnation = Incarnation::FIRST;
        Identity { node, phase: Phase::Formed, cluster, founders, incarnation, shards: 0 }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.node.0);
        out.u8(match self.phase {
            Phase::Empty => 0,
            Phase::Forming => 1,
            Phase::Formed => 2,
        });
        out.str(&self.cluster);
        let founders: Vec<u64> = self.founders.iter().map(|node| node.0).collect();
        out.list(&founders, |out, node| out.u64(*node));
        out.u32(self.incarnation.0);
        out.u32(self.shards);
    }

    pub(crate) fn decode(r: &mut Reader) -> Result<Identity, DecodeError> {
        let node = NodeId(r.u64()?);
        let phase = match r.u8()? {
            0 => Phase::Empty,
            1 => Phase::Forming,
            2 => Phase::Formed,
            _ => return Err(r.error("the phase of an identity is not known")),
        };
        let cluster = r.str()?;
        if cluster.len() > CLUSTER_ID_BYTES_MAX || cluster.is_empty() != (phase == Phase::Empty) {
            return Err(r.error("the cluster's id does not go with the phase"));
        }
        let founders: BTreeSet<NodeId> = r.list(8, Reader::u64)?.into_iter().map(NodeId).collect();
        if founders.len() > FOUNDERS_MAX {
            return Err(r.error("too many founders"));
        }
        let incarnation = if r.remaining() == 0 { Incarnation::FIRST } else { Incarnation(r.u32()?) };
        if incarnation != Incarnation::FIRST && phase != Phase::Formed {
            return Err(r.error("only a member comes back"));
        }
        let shards = if r.remaining() == 0 { 0 } else { r.u32()? };
        if shards > DATA_SHARDS_MAX {
            return Err(r.error("too many shards"));
        }
        Ok(Identity { node, phase, cluster, founders, incarnation, shards })
    }
}

/// Where a node's identity is kept. Both functions block; they are called a handful of times, before the node starts.
pub trait IdentityStore: Send + Sync {
    /// What was saved last; none for a data directory in which nothing was saved yet. What cannot be read or
    /// understood is an error: taken for nothing, it would let a node vote that has forgotten its votes.
    fn load(&self) -> Result<Option<Identity>, String>;

    /// Keeps what is [`Phase::Forming`] or [`Phase::Formed`]. It has to be durable when this returns.
    fn save(&self, identity: &Identity) -> Result<(), String>;
}

/// Nodes as an operator reads them.
pub(crate) fn list_nodes<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    let nodes: Vec<String> = nodes.into_iter().map(NodeId::to_string).collect();
    nodes.join(", ")
}
