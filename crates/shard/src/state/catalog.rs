//! All topics of the cluster: the state of the meta shard that every node looks things up in.

use std::sync::Arc;

use weir_model::TopicId;
use weir_model::command::TopicMeta;
use weir_model::queue::QueueMeta;

use super::chunk::{Buckets, Chunk};

/// A topic, and whether it is on its way out.
#[derive(Clone, Debug)]
pub(crate) struct CatalogTopic {
    pub meta: Arc<TopicMeta>,
    pub deleting: bool,
}

/// A snapshot of all topics: it does not change while somebody holds it.
///
/// A topic that is being deleted is found only by [`Catalog::deleting`], until the last of its
/// partitions is closed and it is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    topics: Buckets<TopicId, CatalogTopic>,
    /// Of topics that are not being deleted.
    names: Buckets<String, TopicId>,
    /// What makes topics queues.
    queues: Buckets<TopicId, Arc<QueueMeta>>,
}

pub(crate) type TopicChunk = Chunk<std::collections::BTreeMap<TopicId, CatalogTopic>>;
pub(crate) type QueueChunk = Chunk<std::collections::BTreeMap<TopicId, Arc<QueueMeta>>>;

impl Catalog {
    /// The topic of this name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicMeta>> {
        self.topic_by_id(*self.names.get(name)?)
    }

    /// The topic with this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicMeta>> {
        self.topics.get(&id).filter(|topic| !topic.deleting).map(|topic| &topic.meta)
    }

    /// All topics by name.
    pub fn topics(&self) -> Vec<Arc<TopicMeta>> {
        let mut topics: Vec<_> =
            self.topics.iter().filter(|(_, t)| !t.deleting).map(|(_, t)| Arc::clone(&t.meta)).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// Topics that are deleted but not forgotten yet, because partitions of theirs may still be open.
    pub fn deleting(&self) -> Vec<Arc<TopicMeta>> {
        self.topics.iter().filter(|(_, t)| t.deleting).map(|(_, t)| Arc::clone(&t.meta)).collect()
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.names.len()
    }

    /// What makes a topic a queue; none if it is not one.
    pub fn queue(&self, id: TopicId) -> Option<&Arc<QueueMeta>> {
        self.queues.get(&id)
    }

    pub(crate) fn put_queue(&mut self, id: TopicId, queue: QueueMeta, index: u64) {
        self.queues.insert(id, Arc::new(queue), index);
    }

    pub(crate) fn queue_chunks(&self) -> impl Iterator<Item = (u64, &QueueChunk)> {
        self.queues.chunks()
    }

    pub(crate) fn queue_chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut QueueChunk)> {
        self.queues.chunks_mut()
    }

    /// Topics, those being deleted included.
    pub(crate) fn total(&self) -> usize {
        self.topics.len()
    }

    pub(crate) fn entry(&self, id: TopicId) -> Option<&CatalogTopic> {
        self.topics.get(&id)
    }

    /// Stores a topic, or replaces it.
    pub(crate) fn put(&mut self, meta: TopicMeta, deleting: bool, index: u64) {
        if deleting {
            self.names.remove(&meta.name, index);
        } else {
            self.names.insert(meta.name.clone(), meta.id, index);
        }
        self.topics.insert(meta.id, CatalogTopic { meta: Arc::new(meta), deleting }, index);
    }

    /// Takes over a topic from a checkpoint. One that is being deleted leaves the names alone, since
    /// another may have its name by now.
    pub(crate) fn load(&mut self, meta: TopicMeta, deleting: bool, index: u64) {
        if !deleting {
            self.names.insert(meta.name.clone(), meta.id, index);
        }
        self.topics.insert(meta.id, CatalogTopic { meta: Arc::new(meta), deleting }, index);
    }

    /// Takes a deleted topic out.
    pub(crate) fn forget(&mut self, id: TopicId, index: u64) {
        self.topics.remove(&id, index);
        self.queues.remove(&id, index);
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u64, &TopicChunk)> {
        self.topics.chunks()
    }

    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut TopicChunk)> {
        self.topics.chunks_mut()
    }
}
