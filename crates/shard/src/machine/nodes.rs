//! Commands of the meta shard that concern nodes.

use std::sync::Arc;

use weir_model::command::{Outcome, Refusal};
use weir_model::node::{GivenIncarnation, NODE_BYTES_MAX, NODES_MAX, NodeMeta, RegisteredNode};
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
        if self.nodes.is_removed(node.id) {
            return Outcome::Refused(Refusal::UnknownNode(node.id));
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
        self.alter(context, node, |node| std::mem::replace(&mut node.draining, draining) != draining, effects)
    }

    pub(super) fn set_leaving(
        &mut self,
        context: Context,
        node: NodeId,
        leaving: bool,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        self.alter(context, node, |node| std::mem::replace(&mut node.leaving, leaving) != leaving, effects)
    }

    /// Changes what operators want of a node; `alter` says whether it is something else than before.
    fn alter(
        &mut self,
        context: Context,
        id: NodeId,
        alter: impl FnOnce(&mut RegisteredNode) -> bool,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(known) = self.nodes.node(id) else {
            return Outcome::Refused(Refusal::UnknownNode(id));
        };
        let mut node = RegisteredNode::clone(known);
        if alter(&mut node) {
            Arc::make_mut(&mut self.nodes).load(node, context.index);
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
        if token == 0 || self.nodes.is_removed(node) {
            return Outcome::Refused(Refusal::UnknownNode(node));
        }
        self.give_incarnation(context, node, token, effects)
    }

    /// Whether a node of that number is there is not known here either.
    pub(super) fn admit_node(
        &mut self,
        context: Context,
        node: &NodeMeta,
        token: u64,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if token == 0 {
            return Outcome::Refused(Refusal::UnknownNode(node.id));
        }
        if node.encoded_bytes() > NODE_BYTES_MAX {
            return limit("bytes of what a node says of itself", NODE_BYTES_MAX);
        }
        if self.nodes.node(node.id).is_none() && self.nodes.len() >= NODES_MAX {
            return limit("nodes", NODES_MAX);
        }
        let asks_again = self.nodes.given_incarnation(node.id).is_some_and(|given| given.token == token);
        let given = self.give_incarnation(context, node.id, token, effects);
        if matches!(given, Outcome::Incarnation(_)) && !asks_again {
            let nodes = Arc::make_mut(&mut self.nodes);
            let draining = nodes.node(node.id).is_some_and(|known| known.draining);
            // Whoever wanted one of that number to leave meant the one before.
            nodes.load(RegisteredNode { meta: node.clone(), draining, leaving: false }, context.index);
        }
        given
    }

    /// Gives the next incarnation, or the last one again to whoever got it.
    fn give_incarnation(
        &mut self,
        context: Context,
        node: NodeId,
        token: u64,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if let Some(given) = self.nodes.given_incarnation(node)
            && given.token == token
        {
            // It asks again, because it has not heard of it.
            return Outcome::Incarnation(given.incarnation);
        }
        let Some(incarnation) = self.next_incarnation(node) else { return limit("nodes", NODES_MAX) };
        let given = GivenIncarnation { incarnation, token };
        Arc::make_mut(&mut self.nodes).give_incarnation(node, given, context.index);
        effects.push(Effect::NodesChanged);
        Outcome::Incarnation(incarnation)
    }

    /// None if no more nodes can have one, or this node not another one.
    fn next_incarnation(&self, node: NodeId) -> Option<Incarnation> {
        let given = self.nodes.given_incarnation(node);
        if given.is_none() && self.nodes.given_incarnations().count() >= NODES_MAX {
            return None;
        }
        given.map_or(Incarnation::FIRST, |given| given.incarnation).0.checked_add(1).map(Incarnation)
    }

    pub(super) fn forget_node(
        &mut self,
        context: Context,
        node: NodeId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        match self.nodes.node(node) {
            Some(known) if known.leaving => {}
            None if self.nodes.is_removed(node) => return Outcome::Done,
            _ => return Outcome::Refused(Refusal::UnknownNode(node)),
        }
        let Some(next) = self.next_incarnation(node) else { return limit("nodes", NODES_MAX) };
        let nodes = Arc::make_mut(&mut self.nodes);
        nodes.give_incarnation(node, GivenIncarnation::of_nobody(next), context.index);
        nodes.remove(node, context.index);
        effects.push(Effect::NodesChanged);
        Outcome::Done
    }
}
