//! Commands of the meta shard: topics and producer ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::command::{Outcome, PartitionMeta, Refusal, TopicMeta};
use weir_model::{PartitionId, ShardId, TopicId};

use super::{Context, Effect, Machine};
use crate::limits::{CONFIG_ENTRIES_PER_TOPIC_MAX, PARTITIONS_PER_TOPIC_MAX, TOPICS_MAX};

impl Machine {
    pub(super) fn create_topic(
        &mut self,
        context: Context,
        name: &str,
        topic_id: TopicId,
        placement: &[ShardId],
        config: &BTreeMap<String, String>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if let Some(topic) = self.catalog.topic(name) {
            // Ids are drawn anew for every topic: the same one is the same request, sent again.
            return if topic.id == topic_id {
                Outcome::Topic(TopicMeta::clone(topic))
            } else {
                Outcome::Refused(Refusal::TopicExists(name.to_owned()))
            };
        }
        if topic_id == TopicId::NONE || self.catalog.entry(topic_id).is_some() {
            return Outcome::Refused(Refusal::TopicExists(name.to_owned()));
        }
        if self.catalog.total() >= TOPICS_MAX {
            return limit("topics", TOPICS_MAX);
        }
        if let Some(refused) = check_size(placement.len(), config) {
            return refused;
        }
        let meta = TopicMeta {
            name: name.to_owned(),
            id: topic_id,
            partitions: self.mint_partitions(context, placement),
            config: config.clone(),
            created_at: context.now,
        };
        self.route_to(name, effects);
        self.put_topic(context, meta, effects)
    }

    pub(super) fn delete_topic(
        &mut self,
        context: Context,
        topic_id: TopicId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(topic) = self.catalog.topic_by_id(topic_id) else {
            return Outcome::Refused(Refusal::UnknownTopic(topic_id));
        };
        let meta = TopicMeta::clone(topic);
        self.do_not_route_to(context, &meta.name, effects);
        Arc::make_mut(&mut self.catalog).put(meta, true, context.index);
        effects.push(Effect::CatalogChanged);
        Outcome::Done
    }

    pub(super) fn forget_topic(
        &mut self,
        context: Context,
        topic_id: TopicId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        match self.catalog.entry(topic_id) {
            Some(topic) if topic.deleting => {
                Arc::make_mut(&mut self.catalog).forget(topic_id, context.index);
                effects.push(Effect::CatalogChanged);
                Outcome::Done
            }
            _ => Outcome::Refused(Refusal::UnknownTopic(topic_id)),
        }
    }

    pub(super) fn configure_topic(
        &mut self,
        context: Context,
        topic_id: TopicId,
        config: &BTreeMap<String, String>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(topic) = self.catalog.topic_by_id(topic_id) else {
            return Outcome::Refused(Refusal::UnknownTopic(topic_id));
        };
        if let Some(refused) = check_size(topic.partitions.len(), config) {
            return refused;
        }
        let meta = TopicMeta { config: config.clone(), ..TopicMeta::clone(topic) };
        self.put_topic(context, meta, effects)
    }

    pub(super) fn add_partitions(
        &mut self,
        context: Context,
        topic_id: TopicId,
        expected: u32,
        placement: &[ShardId],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(topic) = self.catalog.topic_by_id(topic_id) else {
            return Outcome::Refused(Refusal::UnknownTopic(topic_id));
        };
        if topic.partitions.len() != expected as usize {
            return Outcome::Refused(Refusal::PartitionCount(topic.partitions.len() as u32));
        }
        if let Some(refused) = check_size(topic.partitions.len() + placement.len(), &topic.config) {
            return refused;
        }
        let mut meta = TopicMeta::clone(topic);
        meta.partitions.extend(self.mint_partitions(context, placement));
        self.put_topic(context, meta, effects)
    }

    pub(super) fn allocate_producer_ids(&mut self, context: Context, count: u32) -> Outcome {
        let first = self.root().next_producer;
        match first.checked_add(i64::from(count.max(1))) {
            Some(next) => {
                self.root.change(context.index).next_producer = next;
                Outcome::ProducerIds { first }
            }
            None => Outcome::Refused(Refusal::Limit { what: "producer ids", limit: i64::MAX as u64 }),
        }
    }

    fn put_topic(&mut self, context: Context, meta: TopicMeta, effects: &mut Vec<Effect>) -> Outcome {
        Arc::make_mut(&mut self.catalog).put(meta.clone(), false, context.index);
        effects.push(Effect::CatalogChanged);
        Outcome::Topic(meta)
    }

    /// Hands out ids that no partition ever had.
    fn mint_partitions(&mut self, context: Context, placement: &[ShardId]) -> Vec<PartitionMeta> {
        let next = &mut self.root.change(context.index).next_partition;
        let mint = |&shard: &ShardId| {
            let id = PartitionId(*next);
            *next += 1;
            PartitionMeta { id, shard }
        };
        placement.iter().map(mint).collect()
    }
}

/// Refuses a topic that would be too large.
fn check_size(partitions: usize, config: &BTreeMap<String, String>) -> Option<Outcome> {
    if partitions > PARTITIONS_PER_TOPIC_MAX {
        return Some(limit("partitions per topic", PARTITIONS_PER_TOPIC_MAX));
    }
    if config.len() > CONFIG_ENTRIES_PER_TOPIC_MAX {
        return Some(limit("settings per topic", CONFIG_ENTRIES_PER_TOPIC_MAX));
    }
    None
}

pub(super) fn limit(what: &'static str, limit: usize) -> Outcome {
    Outcome::Refused(Refusal::Limit { what, limit: limit as u64 })
}
