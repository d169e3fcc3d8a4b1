//! Topics as fronts see them: the catalog's entry and the settings that follow from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use weir_model::TopicId;
use weir_model::command::TopicMeta;
use weir_model::queue::{QueueMeta, split_name};
use weir_model::routing::Arguments;
use weir_model::settings::PartitionSettings;
use weir_router::Router;
use weir_shard::{Catalog, ShardView, Topology};

use crate::topology::{Applied, InvalidArgument, Policies, QueueArguments};

/// A topic. A snapshot: one that is altered later is another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// As the meta shard knows it.
    pub meta: Arc<TopicMeta>,
    /// Its effective settings: its overrides over the broker's defaults.
    pub settings: Arc<PartitionSettings>,
    /// What makes it a queue, if it is one.
    pub queue: Option<Arc<QueueFacts>>,
}

/// What makes a topic a queue.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFacts {
    /// As the meta shard knows it.
    pub meta: Arc<QueueMeta>,
    /// What its arguments and policies say. They were checked when it was declared; another binary may have done that.
    pub arguments: Result<QueueArguments, InvalidArgument>,
    /// What policies say of it, which is in the arguments.
    pub applied: Applied,
}

impl Topic {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.meta.name
    }

    /// Its identity, which a topic created later under the same name does not share.
    pub fn id(&self) -> TopicId {
        self.meta.id
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> usize {
        self.meta.partitions.len()
    }

    /// Whether clients should hide it; there are no such topics of our own.
    pub fn is_internal(&self) -> bool {
        false
    }
}

/// Topics that are remembered although other nodes have deleted them, beside as many as there are.
const FORGOTTEN_MAX: usize = 1_024;

/// Topics with their settings worked out, kept until the catalog has another entry for them or policies have changed.
#[derive(Debug)]
pub(crate) struct TopicCache {
    defaults: PartitionSettings,
    /// Of the meta shard.
    view: ShardView,
    /// Each with the entry at which the policies were changed last that it goes by.
    topics: RwLock<BTreeMap<TopicId, (u64, Arc<Topic>)>>,
    policies: RwLock<Arc<Policies>>,
    rerouted: Mutex<Rerouted>,
}

/// Routers with what policies say, which is worked out once for each change of the topology.
#[derive(Debug, Default)]
struct Rerouted {
    of: Option<Arc<Topology>>,
    routers: BTreeMap<String, Router>,
}

impl TopicCache {
    pub fn new(defaults: PartitionSettings, view: ShardView) -> TopicCache {
        TopicCache {
            defaults,
            view,
            topics: RwLock::default(),
            policies: RwLock::default(),
            rerouted: Mutex::default(),
        }
    }

    /// The topic of an entry of the catalog.
    pub fn get(&self, catalog: &Catalog, meta: &Arc<TopicMeta>) -> Arc<Topic> {
        if let Some((changed_at, topic)) = self.topics.read().get(&meta.id)
            && *changed_at == self.view.policies_changed_at()
            && Arc::ptr_eq(&topic.meta, meta)
        {
            return topic.clone();
        }
        let settings = Arc::new(effective(&self.defaults, meta));
        let policies = self.policies(&self.view.topology());
        let queue = catalog.queue(meta.id).map(|queue| Arc::new(facts(meta, queue, &policies)));
        let topic = Arc::new(Topic { meta: meta.clone(), settings, queue });
        let mut topics = self.topics.write();
        if topics.len() >= 2 * catalog.topic_count() + FORGOTTEN_MAX {
            // Those that other nodes have deleted.
            topics.retain(|id, _| catalog.topic_by_id(*id).is_some());
        }
        topics.insert(meta.id, (policies.changed_at(), topic.clone()));
        topic
    }

    /// The policies, compiled.
    pub fn policies(&self, topology: &Topology) -> Arc<Policies> {
        let known = self.policies.read().clone();
        if known.changed_at() == topology.policies_changed_at() {
            return known;
        }
        let policies = Arc::new(Policies::of(topology));
        *self.policies.write() = policies.clone();
        policies
    }

    /// The router of a namespace, with what policies say.
    pub fn rerouted(
        &self,
        topology: &Arc<Topology>,
        namespace: &str,
        reroute: impl FnOnce(Router) -> Router,
    ) -> Router {
        let mut rerouted = self.rerouted.lock();
        if !rerouted.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, topology)) {
            *rerouted = Rerouted { of: Some(topology.clone()), routers: BTreeMap::new() };
        }
        if let Some(router) = rerouted.routers.get(namespace) {
            return router.clone();
        }
        let router = reroute(topology.router(namespace));
        rerouted.routers.insert(namespace.to_owned(), router.clone());
        router
    }

    /// Lets go of one.
    pub fn forget(&self, id: TopicId) {
        self.topics.write().remove(&id);
    }

    /// Lets go what the catalog does not have any more.
    pub fn forget_all_but(&self, catalog: &Catalog) {
        self.topics.write().retain(|id, _| catalog.topic_by_id(*id).is_some());
    }
}

fn facts(topic: &TopicMeta, queue: &Arc<QueueMeta>, policies: &Policies) -> QueueFacts {
    let (namespace, name) = split_name(&topic.name);
    let read = |arguments: &Arguments| QueueArguments::read(namespace, name, queue.kind, arguments);
    let applied = policies.of_queue(namespace, name, queue.kind);
    // What policies say may not go with what the queue was declared with: then it goes by that alone.
    let arguments = match applied == Applied::default() {
        true => read(&queue.arguments),
        false => read(&applied.over(&queue.arguments)).or_else(|_| read(&queue.arguments)),
    };
    QueueFacts { meta: queue.clone(), arguments, applied }
}

/// The settings of a topic. Overrides were checked when they were set; if a default that they relied
/// on has changed since so that one is refused now, the others still hold.
pub(crate) fn effective(defaults: &PartitionSettings, meta: &TopicMeta) -> PartitionSettings {
    let majority = 1;
    defaults.with_overrides(&meta.config, majority).unwrap_or_else(|_| {
        let mut settings = defaults.clone();
        for (name, value) in &meta.config {
            let one = BTreeMap::from([(name.clone(), value.clone())]);
            if let Ok(with_it) = settings.with_overrides(&one, u32::MAX) {
                settings = with_it;
            }
        }
        settings
    })
}
