//! Commands of the meta shard that concern nodes.

use std::sync::Arc;

use weir_model::NodeId;
use weir_model::command::{Outcome, Refusal};
use weir_model::node::{NODE_BYTES_MAX, NODES_MAX, NodeMeta};

use super::meta::limit;
use super::{Context, Effect, Machine};
use crate::state::nodes::Nodes;

impl Machine {
    /// All nodes that are registered.
    pub fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    pub(super) fn register_node(
        &mut self,
        context: Context,
        node: &NodeMeta,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if node.encoded_bytes() > NODE_BYTES_MAX {
            return limit("bytes of what a node says of itself", NODE_BYTES_MAX);
        }
        match self.nodes.node(node.id) {
            // It says so again.
            Some(known) if known.meta == *node => return Outcome::Done,
            None if self.nodes.len() >= NODES_MAX => return limit("nodes", NODES_MAX),
            _ => {}
        }
        Arc::make_mut(&mut self.nodes).register(node.clone(), context.index);
        effects.push(Effect::NodesChanged);
        Outcome::Done
    }

    pub(super) fn set_draining(
        &mut self,
        context: Context,
        node: NodeId,
        draining: bool,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(known) = self.nodes.node(node) else {
            return Outcome::Refused(Refusal::UnknownNode(node));
        };
        if known.draining != draining {
            Arc::make_mut(&mut self.nodes).set_draining(node, draining, context.index);
            effects.push(Effect::NodesChanged);
        }
        Outcome::Done
    }
}
