//! The registry of nodes: the state of the meta shard by which every node tells clients of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::NodeId;
use weir_model::node::{NodeMeta, RegisteredNode};

use super::chunk::Chunk;

pub(crate) type NodeChunk = Chunk<BTreeMap<NodeId, Arc<RegisteredNode>>>;

/// A snapshot of all nodes that are registered.
#[derive(Clone, Debug)]
pub struct Nodes {
    nodes: NodeChunk,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes { nodes: Chunk::new(BTreeMap::new(), 0) }
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

    pub(crate) fn len(&self) -> usize {
        self.nodes.get().len()
    }

    /// Stores what a node says of itself. Whether it is draining stays.
    pub(crate) fn register(&mut self, meta: NodeMeta, index: u64) {
        let draining = self.node(meta.id).is_some_and(|node| node.draining);
        self.load(RegisteredNode { meta, draining }, index);
    }

    /// Says whether a node is draining. Nothing happens if it is not registered.
    pub(crate) fn set_draining(&mut self, id: NodeId, draining: bool, index: u64) {
        if let Some(node) = self.nodes.change(index).get_mut(&id) {
            Arc::make_mut(node).draining = draining;
        }
    }

    /// Stores a node as it stands in a checkpoint.
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
}
