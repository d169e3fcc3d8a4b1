//! Commands of the meta shard that concern queues, exchanges and bindings.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::command::{Outcome, Refusal};
use weir_model::queue::{QueueMeta, full_name, split_name};
use weir_model::routing::{BindingMeta, ExchangeMeta};
use weir_model::{ShardId, TopicId};
use weir_router::RouterError;

use super::meta::limit;
use super::{Context, Effect, Machine};
use crate::limits::{BINDINGS_MAX, EXCHANGES_MAX};
use crate::state::topology::Topology;

impl Machine {
    /// All exchanges and bindings.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    pub(super) fn create_queue(
        &mut self,
        context: Context,
        name: &str,
        topic_id: TopicId,
        placement: &[ShardId],
        config: &BTreeMap<String, String>,
        queue: &QueueMeta,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if queue.lanes.len() != placement.len() {
            return Outcome::Refused(Refusal::PartitionCount(queue.lanes.len() as u32));
        }
        if let Some(refused) = self.check_namespace(split_name(name).0) {
            return refused;
        }
        let outcome = self.create_topic(context, name, topic_id, placement, config, effects);
        if matches!(outcome, Outcome::Topic(_)) && self.catalog().queue(topic_id).is_none() {
            Arc::make_mut(&mut self.catalog).put_queue(topic_id, queue.clone(), context.index);
        }
        outcome
    }

    pub(super) fn add_lanes(
        &mut self,
        context: Context,
        topic_id: TopicId,
        expected: u32,
        placement: &[ShardId],
        lanes: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(queue) = self.catalog().queue(topic_id).cloned() else {
            return Outcome::Refused(Refusal::UnknownTopic(topic_id));
        };
        if lanes.len() != placement.len() || lanes.iter().any(|lane| queue.lanes.contains(lane)) {
            return Outcome::Refused(Refusal::PartitionCount(queue.lanes.len() as u32));
        }
        let outcome = self.add_partitions(context, topic_id, expected, placement, effects);
        if matches!(outcome, Outcome::Topic(_)) {
            let mut queue = QueueMeta::clone(&queue);
            queue.lanes.extend_from_slice(lanes);
            Arc::make_mut(&mut self.catalog).put_queue(topic_id, queue, context.index);
        }
        outcome
    }

    pub(super) fn declare_exchange(
        &mut self,
        context: Context,
        exchange: &ExchangeMeta,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if let Some(known) = self.topology.router(&exchange.namespace).exchange(&exchange.name) {
            return Outcome::Exchange(ExchangeMeta::clone(known));
        }
        if let Some(refused) = self.check_namespace(&exchange.namespace) {
            return refused;
        }
        if self.topology.exchange_count() >= EXCHANGES_MAX {
            return limit("exchanges", EXCHANGES_MAX);
        }
        match Arc::make_mut(&mut self.topology).add_exchange(exchange.clone(), context.index) {
            Ok(()) => {
                effects.push(Effect::TopologyChanged);
                Outcome::Exchange(exchange.clone())
            }
            Err(error) => Outcome::Refused(refusal(error)),
        }
    }

    pub(super) fn delete_exchange(
        &mut self,
        context: Context,
        namespace: &str,
        name: &str,
        if_unused: bool,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let router = self.topology.router(namespace);
        if router.exchange(name).is_none() || Topology::is_predeclared(name) {
            return Outcome::Refused(Refusal::UnknownExchange(name.to_owned()));
        }
        if if_unused && router.binding_count(name) > 0 {
            return Outcome::Refused(Refusal::ExchangeInUse(name.to_owned()));
        }
        Arc::make_mut(&mut self.topology).remove_exchange(namespace, name, context.index);
        effects.push(Effect::TopologyChanged);
        Outcome::Done
    }

    pub(super) fn bind(
        &mut self,
        context: Context,
        binding: &BindingMeta,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if let Some(refused) = self.check_namespace(&binding.namespace) {
            return refused;
        }
        if self.topology.binding_count() >= BINDINGS_MAX {
            return limit("bindings", BINDINGS_MAX);
        }
        let bound = Arc::make_mut(&mut self.topology).bind(binding.clone(), context.index, context.index);
        match bound {
            Ok(()) => {
                effects.push(Effect::TopologyChanged);
                Outcome::Done
            }
            Err(error) => Outcome::Refused(refusal(error)),
        }
    }

    pub(super) fn unbind(
        &mut self,
        context: Context,
        binding: &BindingMeta,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        Arc::make_mut(&mut self.topology).unbind(binding, context.index);
        effects.push(Effect::TopologyChanged);
        Outcome::Done
    }

    /// A topic is there: messages can be routed to it.
    pub(super) fn route_to(&mut self, name: &str, effects: &mut Vec<Effect>) {
        Arc::make_mut(&mut self.topology).add_queue(name);
        effects.push(Effect::TopologyChanged);
    }

    /// A topic goes, and what leads to it.
    pub(super) fn do_not_route_to(&mut self, context: Context, name: &str, effects: &mut Vec<Effect>) {
        Arc::make_mut(&mut self.topology).remove_queue(name, context.index);
        effects.push(Effect::TopologyChanged);
    }
}

fn refusal(error: RouterError) -> Refusal {
    match error {
        RouterError::NoSuchExchange(name) => Refusal::UnknownExchange(name),
        other => Refusal::InvalidBinding(other.to_string()),
    }
}

/// The full name of an exchange, by which chunks are sorted.
pub(super) fn exchange_key(exchange: &ExchangeMeta) -> String {
    full_name(&exchange.namespace, &exchange.name)
}
