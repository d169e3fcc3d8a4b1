//! The registry of nodes: the state of the meta shard by which every node tells clients of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::node::{GivenIncarnation, NodeMeta, RegisteredNode};
use weir_model::{Incarnation, NodeId};

use super::chunk::Chunk;

pub(crate) type NodeChunk = Chunk<BTreeMap<NodeId, Arc<RegisteredNode>>>;

pub(crate) type IncarnationChunk = Chunk<BTreeMap<NodeId, GivenIncarnation>>;

/// A snapshot of all nodes that are registered, and of those whose incarnation is not the first.
#[derive(Clone, Debug)]
pub struct Nodes {
    nodes: NodeChunk,
    incarnations: IncarnationChunk,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes { nodes: Chunk::new(BTreeMap::new(), 0), incarnations: Chunk::new(BTreeMap::new(), 0) }
    }
}

impl Nodes {
    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&Arc<RegisteredNode>> {
        self.nodes.get().get(&id)
    }

    /// All nodes in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RegisteredNode>> {
        self.nodes.get().values()
    }

    /// The incarnation of a node that counts, whether it is registered or not: those before are replaced.
    pub fn incarnation(&self, id: NodeId) -> Incarnation {
        self.given_incarnation(id).map_or(Incarnation::FIRST, |given| given.incarnation)
    }

    /// What a node was given when it joined, came back without its data, or was removed, if it ever did.
    pub(crate) fn given_incarnation(&self, id: NodeId) -> Option<GivenIncarnation> {
        self.incarnations.get().get(&id).copied()
    }

    /// All nodes that ever joined, came back without their data, or were removed, in the order of their ids.
    pub fn given_incarnations(&self) -> impl Iterator<Item = (NodeId, GivenIncarnation)> {
        self.incarnations.get().iter().map(|(id, given)| (*id, *given))
    }

    /// Says which incarnation of a node counts from here on.
    pub(crate) fn give_incarnation(&mut self, id: NodeId, given: GivenIncarnation, index: u64) {
        self.incarnations.change(index).insert(id, given);
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.get().len()
    }

    /// Whether a node was of the cluster and is no more.
    pub fn is_removed(&self, id: NodeId) -> bool {
        self.given_incarnation(id).is_some_and(|given| given.is_nobodys())
    }

    /// Stores what a node says of itself. What operators want of it stays.
    pub(crate) fn register(&mut self, meta: NodeMeta, index: u64) {
        let (draining, leaving) =
            self.node(meta.id).map_or((false, false), |node| (node.draining, node.leaving));
        self.load(RegisteredNode { meta, draining, leaving }, index);
    }

    /// Takes a node out of the registry.
    pub(crate) fn remove(&mut self, id: NodeId, index: u64) {
        self.nodes.change(index).remove(&id);
    }

    /// Stores a node, in place of what was known of it.
    pub(crate) fn load(&mut self, node: RegisteredNode, index: u64) {
        self.nodes.change(index).insert(node.meta.id, Arc::new(node));
    }

    /// The chunk of nodes, if there are any: checkpoints from before there was a registry read as they did.
    pub(crate) fn chunk(&self) -> Option<&NodeChunk> {
        Some(&self.nodes).filter(|nodes| !nodes.get().is_empty())
    }

    pub(crate) fn chunk_mut(&mut self) -> Option<&mut NodeChunk> {
        Some(&mut self.nodes).filter(|nodes| !nodes.get().is_empty())
    }

    /// The chunk of incarnations, if a node ever came back without its data.
    pub(crate) fn incarnation_chunk(&self) -> Option<&IncarnationChunk> {
        Some(&self.incarnations).filter(|incarnations| !incarnations.get().is_empty())
    }

    pub(crate) fn incarnation_chunk_mut(&mut self) -> Option<&mut IncarnationChunk> {
        Some(&mut self.incarnations).filter(|incarnations| !incarnations.get().is_empty())
    }
}
