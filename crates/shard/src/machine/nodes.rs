//! Commands of the meta shard that concern nodes.

use std::sync::Arc;

use weir_model::command::{Outcome, Refusal};
use weir_model::node::{GivenIncarnation, NODE_BYTES_MAX, NODES_MAX, NodeMeta};
use weir_model::{Incarnation, NodeId};

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

    /// Whether the node is there is not known here: whoever proposes this has looked.
    pub(super) fn new_incarnation(
        &mut self,
        context: Context,
        node: NodeId,
        token: u64,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let last = match self.nodes.given_incarnation(node) {
            // It asks again, because it has not heard of it.
            Some(given) if given.token == token => return Outcome::Incarnation(given.incarnation),
            None if self.nodes.given_incarnations().count() >= NODES_MAX => return limit("nodes", NODES_MAX),
            given => given.map_or(Incarnation::FIRST, |given| given.incarnation),
        };
        let Some(next) = last.0.checked_add(1).map(Incarnation) else {
            return limit("incarnations of a node", u32::MAX as usize);
        };
        let given = GivenIncarnation { incarnation: next, token };
        Arc::make_mut(&mut self.nodes).give_incarnation(node, given, context.index);
        effects.push(Effect::NodesChanged);
        Outcome::Incarnation(next)
    }
}
