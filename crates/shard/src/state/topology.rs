//! Exchanges and bindings: the state of the meta shard by which every node routes.
//!
//! What is stored are the declarations. The compiled [`Router`] of each namespace follows from them, changes with them,
//! and shares with its predecessors what did not change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_model::policy::{PolicyKey, PolicyMeta};
use weir_model::queue::{full_name, split_name};
use weir_model::routing::{BindingMeta, ExchangeKind, ExchangeMeta, HashSource, RoutingKind};
use weir_model::wire::Writer;
use weir_router::{Removal, Router, RouterError};

use super::chunk::{Buckets, Chunk};

/// Exchanges that every namespace has and nobody declares or deletes (RabbitMQ's).
const PREDECLARED: [(&str, RoutingKind, bool); 6] = [
    ("amq.direct", RoutingKind::Direct, false),
    ("amq.fanout", RoutingKind::Fanout, false),
    ("amq.topic", RoutingKind::Topic, false),
    ("amq.headers", RoutingKind::Headers, false),
    ("amq.match", RoutingKind::Headers, false),
    ("amq.rabbitmq.trace", RoutingKind::Topic, true),
];

/// A binding, and the index of the entry that made it: the order among its exchange's bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub binding: Arc<BindingMeta>,
    pub serial: u64,
}

pub(crate) type ExchangeChunk = Chunk<BTreeMap<String, Arc<ExchangeMeta>>>;
pub(crate) type BindingChunk = Chunk<BTreeMap<Vec<u8>, Bound>>;

pub(crate) type PolicyChunk = Chunk<BTreeMap<PolicyKey, Arc<PolicyMeta>>>;

/// A snapshot of all exchanges, bindings and the routers that follow from them, and of what policies say of them and of
/// queues.
#[derive(Clone, Debug)]
pub struct Topology {
    /// By full name.
    exchanges: Buckets<String, Arc<ExchangeMeta>>,
    /// By their encoding.
    bindings: Buckets<Vec<u8>, Bound>,
    /// By namespace; of those with anything in them.
    routers: BTreeMap<String, Router>,
    policies: PolicyChunk,
}

impl Default for Topology {
    fn default() -> Self {
        Topology {
            exchanges: Buckets::default(),
            bindings: Buckets::default(),
            routers: BTreeMap::new(),
            policies: Chunk::new(BTreeMap::new(), 0),
        }
    }
}

impl Topology {
    /// All policies, by namespace, whose they are, and name.
    pub fn policies(&self) -> &BTreeMap<PolicyKey, Arc<PolicyMeta>> {
        self.policies.get()
    }

    /// At which entry one of them was changed last: as long as this is the same, all of them are.
    pub fn policies_changed_at(&self) -> u64 {
        self.policies.changed_at()
    }

    /// The router of a namespace.
    pub fn router(&self, namespace: &str) -> Router {
        self.routers.get(namespace).cloned().unwrap_or_else(|| new_router(namespace))
    }

    /// Namespaces in which something was declared, or to whose queues messages can be routed.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.routers.keys().map(String::as_str)
    }

    /// Exchanges that were declared.
    pub fn exchange_count(&self) -> usize {
        self.exchanges.len()
    }

    /// Bindings of all exchanges.
    pub fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    /// Whether every namespace has an exchange of this name.
    pub fn is_predeclared(name: &str) -> bool {
        name.is_empty() || PREDECLARED.iter().any(|(known, _, _)| *known == name)
    }

    /// Puts a policy in, in the place of one with the same key.
    pub(crate) fn put_policy(&mut self, policy: PolicyMeta, index: u64) {
        self.policies.change(index).insert(policy.key.clone(), Arc::new(policy));
    }

    /// Takes policies out.
    pub(crate) fn remove_policies(&mut self, which: impl Fn(&PolicyKey) -> bool, index: u64) {
        if self.policies.get().keys().any(&which) {
            self.policies.change(index).retain(|key, _| !which(key));
        }
    }

    /// The chunk of policies, if there are any.
    pub(crate) fn policy_chunk(&self) -> Option<&PolicyChunk> {
        Some(&self.policies).filter(|policies| !policies.get().is_empty())
    }

    pub(crate) fn policy_chunk_mut(&mut self) -> Option<&mut PolicyChunk> {
        Some(&mut self.policies).filter(|policies| !policies.get().is_empty())
    }

    /// Puts a queue in, by its full name.
    pub(crate) fn add_queue(&mut self, full: &str) {
        let (namespace, name) = split_name(full);
        let router = self.router_mut(namespace);
        *router = router.with_queue(name);
    }

    /// Takes a queue out, and all bindings to it.
    pub(crate) fn remove_queue(&mut self, full: &str, index: u64) {
        let (namespace, name) = split_name(full);
        let removal = self.router_mut(namespace).without_queue(name);
        self.removed(namespace, removal, index);
    }

    /// Puts an exchange in that is not there yet.
    pub(crate) fn add_exchange(&mut self, meta: ExchangeMeta, index: u64) -> Result<(), RouterError> {
        let meta = Arc::new(meta);
        let router = self.router_mut(&meta.namespace);
        *router = router.with_exchange(Arc::clone(&meta))?;
        self.exchanges.insert(full_name(&meta.namespace, &meta.name), meta, index);
        Ok(())
    }

    /// Takes an exchange out, with all bindings from it and to it.
    pub(crate) fn remove_exchange(&mut self, namespace: &str, name: &str, index: u64) {
        self.exchanges.remove(&full_name(namespace, name), index);
        let removal = self.router_mut(namespace).without_exchange(name);
        self.removed(namespace, removal, index);
    }

    /// Takes a namespace out that has no queues any more, with its exchanges, bindings and policies.
    pub(crate) fn remove_namespace(&mut self, namespace: &str, index: u64) {
        self.remove_policies(|key| key.namespace == namespace, index);
        let Some(router) = self.routers.remove(namespace) else { return };
        for exchange in router.exchanges() {
            self.exchanges.remove(&full_name(namespace, &exchange.name), index);
        }
        let bindings = self.bindings.iter().filter(|(_, bound)| bound.binding.namespace == namespace);
        let keys: Vec<_> = bindings.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.bindings.remove(key, index)));
    }

    /// Puts a binding in; nothing changes if it is there.
    pub(crate) fn bind(&mut self, binding: BindingMeta, serial: u64, index: u64) -> Result<(), RouterError> {
        let key = key_of(&binding);
        if self.bindings.get(&key).is_some() {
            return Ok(());
        }
        let binding = Arc::new(binding);
        let router = self.router_mut(&binding.namespace);
        *router = router.with_binding(&binding, serial)?;
        self.bindings.insert(key, Bound { binding, serial }, index);
        Ok(())
    }

    /// Takes a binding out, if it is there.
    pub(crate) fn unbind(&mut self, binding: &BindingMeta, index: u64) {
        let removal = self.router_mut(&binding.namespace).without_binding(binding);
        self.removed(&binding.namespace, removal, index);
    }

    /// Takes over what is left, and takes out what fell with what was removed: bindings, and exchanges that
    /// lost their last binding, with which more of both may fall.
    fn removed(&mut self, namespace: &str, removal: Removal, index: u64) {
        let Removal { mut router, bindings, unused } = removal;
        let mut fallen = bindings;
        let mut unused: VecDeque<_> = unused.into();
        while let Some(exchange) = unused.pop_front() {
            // It may have fallen on the way here.
            if self.exchanges.remove(&full_name(namespace, &exchange.name), index).is_none() {
                continue;
            }
            let next = router.without_exchange(&exchange.name);
            router = next.router;
            fallen.extend(next.bindings);
            unused.extend(next.unused);
        }
        fallen.iter().for_each(|binding| drop(self.bindings.remove(&key_of(binding), index)));
        *self.router_mut(namespace) = router;
    }

    fn router_mut(&mut self, namespace: &str) -> &mut Router {
        self.routers.entry(namespace.to_owned()).or_insert_with(|| new_router(namespace))
    }

    pub(crate) fn exchange_chunks(&self) -> impl Iterator<Item = (u64, &ExchangeChunk)> {
        self.exchanges.chunks()
    }

    pub(crate) fn exchange_chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut ExchangeChunk)> {
        self.exchanges.chunks_mut()
    }

    pub(crate) fn binding_chunks(&self) -> impl Iterator<Item = (u64, &BindingChunk)> {
        self.bindings.chunks()
    }

    pub(crate) fn binding_chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut BindingChunk)> {
        self.bindings.chunks_mut()
    }
}

/// What tells a binding from all others, and the same on every replica.
pub(crate) fn key_of(binding: &BindingMeta) -> Vec<u8> {
    let mut out = Writer::new();
    binding.encode(&mut out);
    out.finish().to_vec()
}

/// A namespace in which nothing was declared yet.
fn new_router(namespace: &str) -> Router {
    let exchange = |(name, kind, internal): (&str, RoutingKind, bool)| {
        Arc::new(ExchangeMeta {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: ExchangeKind::Plain(kind),
            durable: true,
            auto_delete: false,
            internal,
            alternate_exchange: None,
            arguments: Vec::new(),
            hash_source: HashSource::RoutingKey,
            owner: None,
        })
    };
    let predeclared = PREDECLARED.into_iter().map(exchange);
    Router::build([], predeclared, []).unwrap_or_default()
}
