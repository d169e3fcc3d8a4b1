//! The chunks of the state as bytes, for checkpoints and digests. `docs/formats.md`, "Checkpoint",
//! draws them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use weir_model::access::NamespaceMeta;
use weir_model::command::TopicMeta;
use weir_model::node::{GivenIncarnation, NODES_MAX, RegisteredNode};
use weir_model::policy::{PolicyKey, PolicyMeta};
use weir_model::queue::QueueMeta;
use weir_model::routing::{BindingMeta, ExchangeMeta};
use weir_model::unique::WindowKind;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{NodeId, PartitionId, SubscriptionId, TopicId};

use super::topology::exchange_key;
use super::{Machine, PARTITIONS_PER_CHUNK, RelayLine, Root, SubscriptionKey, WindowKey};
use crate::limits::{DIGESTS_MAX, RELAYS_MAX};
use crate::state::accounts::Account;
use crate::state::catalog::CatalogTopic;
use crate::state::chunk::BucketKey;
use crate::state::closed::ClosedPartitions;
use crate::state::group::GroupState;
use crate::state::partition::PartitionState;
use crate::state::subscription::Subscription;
use crate::state::timers::Timers;
use crate::state::topology::{Bound, key_of};
use crate::state::window::Window;

/// What a chunk holds. The numbers stand in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum ChunkKind {
    Root = 1,
    Topics = 2,
    Partitions = 3,
    Groups = 4,
    Closed = 5,
    Subscriptions = 6,
    Timers = 7,
    Queues = 8,
    Exchanges = 9,
    Bindings = 10,
    /// Says that the next two count, even where they have no chunks.
    Access = 11,
    Namespaces = 12,
    Accounts = 13,
    Policies = 14,
    Nodes = 15,
    Incarnations = 16,
    Windows = 20,
}

/// Which chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkId {
    pub kind: ChunkKind,
    /// A bucket's number, or that of a run of partitions.
    pub key: u64,
}

impl ChunkKind {
    const ALL: [ChunkKind; 17] = [
        ChunkKind::Root,
        ChunkKind::Topics,
        ChunkKind::Partitions,
        ChunkKind::Groups,
        ChunkKind::Closed,
        ChunkKind::Subscriptions,
        ChunkKind::Timers,
        ChunkKind::Queues,
        ChunkKind::Exchanges,
        ChunkKind::Bindings,
        ChunkKind::Access,
        ChunkKind::Namespaces,
        ChunkKind::Accounts,
        ChunkKind::Policies,
        ChunkKind::Nodes,
        ChunkKind::Incarnations,
        ChunkKind::Windows,
    ];

    pub(crate) fn from_number(number: u8) -> Option<ChunkKind> {
        ChunkKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

impl Machine {
    /// All chunks with the index at which each last changed.
    pub(crate) fn chunk_ids(&self) -> Vec<(ChunkId, u64)> {
        let of = |kind| move |(key, changed_at)| (ChunkId { kind, key }, changed_at);
        let root = [(0, self.root.changed_at())].into_iter().map(of(ChunkKind::Root));
        let closed = [(0, self.closed.changed_at())].into_iter().map(of(ChunkKind::Closed));
        let topics = self.catalog.chunks().map(|(key, c)| (key, c.changed_at())).map(of(ChunkKind::Topics));
        let partitions = self.partitions.iter().map(|(key, c)| (*key, c.changed_at()));
        let subscriptions = self.subscriptions.iter().map(|(key, c)| (*key, c.changed_at()));
        let queues = self.catalog.queue_chunks().map(|(key, c)| (key, c.changed_at()));
        let exchanges = self.topology.exchange_chunks().map(|(key, c)| (key, c.changed_at()));
        let bindings = self.topology.binding_chunks().map(|(key, c)| (key, c.changed_at()));
        let access = self.accounts.mark().map(|c| (0, c.changed_at())).into_iter();
        let namespaces = self.accounts.namespace_chunks().map(|(key, c)| (key, c.changed_at()));
        let accounts = self.accounts.account_chunks().map(|(key, c)| (key, c.changed_at()));
        let policies = self.topology.policy_chunk().map(|c| (0, c.changed_at())).into_iter();
        let nodes = self.nodes.chunk().map(|c| (0, c.changed_at())).into_iter();
        let incarnations = self.nodes.incarnation_chunk().map(|c| (0, c.changed_at())).into_iter();
        let timers = self.timers.iter().map(|(key, c)| (*key, c.changed_at()));
        let windows = self.windows.iter().map(|(key, c)| (*key, c.changed_at()));
        let groups = self.groups.chunks().map(|(key, c)| (key, c.changed_at()));
        root.chain(topics)
            .chain(partitions.map(of(ChunkKind::Partitions)))
            .chain(groups.map(of(ChunkKind::Groups)))
            .chain(closed)
            .chain(subscriptions.map(of(ChunkKind::Subscriptions)))
            .chain(timers.map(of(ChunkKind::Timers)))
            .chain(queues.map(of(ChunkKind::Queues)))
            .chain(exchanges.map(of(ChunkKind::Exchanges)))
            .chain(bindings.map(of(ChunkKind::Bindings)))
            .chain(access.map(of(ChunkKind::Access)))
            .chain(namespaces.map(of(ChunkKind::Namespaces)))
            .chain(accounts.map(of(ChunkKind::Accounts)))
            .chain(policies.map(of(ChunkKind::Policies)))
            .chain(nodes.map(of(ChunkKind::Nodes)))
            .chain(incarnations.map(of(ChunkKind::Incarnations)))
            .chain(windows.map(of(ChunkKind::Windows)))
            .collect()
    }

    /// A chunk's bytes; nothing if there is no such chunk.
    pub(crate) fn encode_chunk(&self, id: ChunkId) -> Bytes {
        match id.kind {
            ChunkKind::Root => encode_root(self.root.get()),
            ChunkKind::Closed => encode_closed(self.closed.get()),
            ChunkKind::Topics => {
                { self.catalog.chunks().find(|(key, _)| *key == id.key).map(|(_, c)| encode_topics(c.get())) }
                    .unwrap_or_default()
            }
            ChunkKind::Partitions => {
                self.partitions.get(&id.key).map(|c| encode_partitions(c.get())).unwrap_or_default()
            }
            ChunkKind::Subscriptions => {
                self.subscriptions.get(&id.key).map(|c| encode_subscriptions(c.get())).unwrap_or_default()
            }
            ChunkKind::Timers => self.timers.get(&id.key).map(|c| encode_timers(c.get())).unwrap_or_default(),
            ChunkKind::Windows => {
                self.windows.get(&id.key).map(|c| encode_windows(c.get())).unwrap_or_default()
            }
            ChunkKind::Queues => {
                let found = self.catalog.queue_chunks().find(|(key, _)| *key == id.key);
                found.map(|(_, c)| encode_queues(c.get())).unwrap_or_default()
            }
            ChunkKind::Exchanges => {
                let found = self.topology.exchange_chunks().find(|(key, _)| *key == id.key);
                found.map(|(_, c)| encode_exchanges(c.get())).unwrap_or_default()
            }
            ChunkKind::Bindings => {
                let found = self.topology.binding_chunks().find(|(key, _)| *key == id.key);
                found.map(|(_, c)| encode_bindings(c.get())).unwrap_or_default()
            }
            ChunkKind::Access => self.accounts.mark().map(|_| encode_access()).unwrap_or_default(),
            ChunkKind::Namespaces => {
                let found = self.accounts.namespace_chunks().find(|(key, _)| *key == id.key);
                found.map(|(_, c)| encode_namespaces(c.get())).unwrap_or_default()
            }
            ChunkKind::Accounts => {
                let found = self.accounts.account_chunks().find(|(key, _)| *key == id.key);
                found.map(|(_, c)| encode_accounts(c.get())).unwrap_or_default()
            }
            ChunkKind::Policies => {
                self.topology.policy_chunk().map(|c| encode_policies(c.get())).unwrap_or_default()
            }
            ChunkKind::Nodes => self.nodes.chunk().map(|c| encode_nodes(c.get())).unwrap_or_default(),
            ChunkKind::Incarnations => {
                self.nodes.incarnation_chunk().map(|c| encode_incarnations(c.get())).unwrap_or_default()
            }
            ChunkKind::Groups => self
                .groups
                .chunks()
                .find(|(key, _)| *key == id.key)
                .map(|(_, c)| encode_groups(c.get()))
                .unwrap_or_default(),
        }
    }

    /// Takes a chunk's content over, as of `index`. Nothing of it may be there yet.
    pub(crate) fn load_chunk(&mut self, id: ChunkId, bytes: Bytes, index: u64) -> Result<(), DecodeError> {
        let mut reader = Reader::new("a chunk of state", bytes);
        match id.kind {
            ChunkKind::Root => *self.root.change(index) = decode_root(&mut reader)?,
            ChunkKind::Closed => *self.closed.change(index) = ClosedPartitions::decode(&mut reader)?,
            ChunkKind::Topics => self.load_topics(id.key, &mut reader, index)?,
            ChunkKind::Partitions => self.load_partitions(id.key, &mut reader, index)?,
            ChunkKind::Groups => self.load_groups(id.key, &mut reader, index)?,
            ChunkKind::Subscriptions => self.load_subscriptions(id.key, &mut reader, index)?,
            ChunkKind::Timers => self.load_timers(id.key, &mut reader, index)?,
            ChunkKind::Queues => self.load_queues(id.key, &mut reader, index)?,
            ChunkKind::Exchanges => self.load_exchanges(id.key, &mut reader, index)?,
            ChunkKind::Bindings => self.load_bindings(id.key, &mut reader, index)?,
            ChunkKind::Access => self.load_access(&mut reader, index)?,
            ChunkKind::Namespaces => self.load_namespaces(id.key, &mut reader, index)?,
            ChunkKind::Accounts => self.load_accounts(id.key, &mut reader, index)?,
            ChunkKind::Policies => self.load_policies(&mut reader, index)?,
            ChunkKind::Nodes => self.load_nodes(&mut reader, index)?,
            ChunkKind::Incarnations => self.load_incarnations(&mut reader, index)?,
            ChunkKind::Windows => self.load_windows(id.key, &mut reader, index)?,
        }
        reader.finish()
    }

    fn load_topics(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let topics = reader.list(37, |r| Ok((r.bool()?, TopicMeta::decode(r)?)))?;
        let catalog = Arc::make_mut(&mut self.catalog);
        for (deleting, meta) in topics {
            if meta.id.bucket() as u64 != key {
                return Err(reader.error("a topic is in the wrong chunk"));
            }
            if catalog.entry(meta.id).is_some() || (!deleting && catalog.topic(&meta.name).is_some()) {
                return Err(reader.error("a topic is there twice"));
            }
            if !deleting {
                Arc::make_mut(&mut self.topology).add_queue(&meta.name);
            }
            catalog.load(meta, deleting, index);
        }
        Ok(())
    }

    fn load_partitions(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for (id, state) in reader.list(64, |r| Ok((PartitionId(r.u64()?), PartitionState::decode(r)?)))? {
            if id.0 / PARTITIONS_PER_CHUNK != key {
                return Err(reader.error("a partition is in the wrong chunk"));
            }
            if self.partition(id).is_some() {
                return Err(reader.error("a partition is there twice"));
            }
            self.put_partition(id, Arc::new(state), index);
        }
        Ok(())
    }

    fn load_subscriptions(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let subscriptions = reader.list(44, |r| {
            let place = (PartitionId(r.u64()?), SubscriptionId(r.u64()?));
            Ok((place, Subscription::decode(r)?))
        })?;
        for (place, state) in subscriptions {
            if place.0.0 / PARTITIONS_PER_CHUNK != key {
                return Err(reader.error("a subscription is in the wrong chunk"));
            }
            if !self.put_subscription(place, Arc::new(state), index) {
                return Err(reader.error("a subscription is there twice"));
            }
        }
        Ok(())
    }

    fn load_timers(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for (id, timers) in reader.list(12, |r| Ok((PartitionId(r.u64()?), Timers::decode(r)?)))? {
            if id.0 / PARTITIONS_PER_CHUNK != key || timers.is_empty() {
                return Err(reader.error("a partition's deadlines are in the wrong chunk, or there are none"));
            }
            if !self.put_timers(id, Arc::new(timers), index) {
                return Err(reader.error("a partition's deadlines are there twice"));
            }
        }
        Ok(())
    }

    fn load_windows(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let windows = reader.list(13, |r| Ok((PartitionId(r.u64()?), r.u8()?, Window::decode(r)?)))?;
        for (id, kind, window) in windows {
            let Some(kind) = WindowKind::from_number(kind) else {
                return Err(reader.error("a kind of window is not known to this binary"));
            };
            if id.0 / PARTITIONS_PER_CHUNK != key {
                return Err(reader.error("a window is in the wrong chunk"));
            }
            if !self.put_window((id, kind), Arc::new(window), index) {
                return Err(reader.error("a window is there twice"));
            }
        }
        Ok(())
    }

    fn load_queues(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for (id, queue) in reader.list(16, |r| Ok((TopicId(r.array()?), QueueMeta::decode(r)?)))? {
            if id.bucket() as u64 != key {
                return Err(reader.error("a queue is in the wrong chunk"));
            }
            if self.catalog.queue(id).is_some() {
                return Err(reader.error("a queue is there twice"));
            }
            Arc::make_mut(&mut self.catalog).put_queue(id, queue, index);
        }
        Ok(())
    }

    fn load_exchanges(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for exchange in reader.list(12, ExchangeMeta::decode)? {
            if exchange_key(&exchange).bucket() as u64 != key {
                return Err(reader.error("an exchange is in the wrong chunk"));
            }
            if self.topology.router(&exchange.namespace).exchange(&exchange.name).is_some() {
                return Err(reader.error("an exchange is there twice"));
            }
            if Arc::make_mut(&mut self.topology).add_exchange(exchange, index).is_err() {
                return Err(reader.error("an exchange cannot be declared as it stands there"));
            }
        }
        Ok(())
    }

    fn load_bindings(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for (serial, binding) in reader.list(24, |r| Ok((r.u64()?, BindingMeta::decode(r)?)))? {
            if key_of(&binding).bucket() as u64 != key {
                return Err(reader.error("a binding is in the wrong chunk"));
            }
            if Arc::make_mut(&mut self.topology).bind(binding, serial, index).is_err() {
                return Err(reader.error("a binding leads from or to what is not there"));
            }
        }
        Ok(())
    }

    fn load_access(&mut self, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        if !reader.bool()? {
            return Err(reader.error("the mark that users were changed says that they were not"));
        }
        Arc::make_mut(&mut self.accounts).load_mark(index);
        Ok(())
    }

    fn load_namespaces(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let mut last: Option<String> = None;
        for meta in reader.list(29, NamespaceMeta::decode)? {
            if meta.name.bucket() as u64 != key {
                return Err(reader.error("a namespace is in the wrong chunk"));
            }
            if last.as_ref().is_some_and(|last| *last >= meta.name) {
                return Err(reader.error("namespaces are out of order"));
            }
            last = Some(meta.name.clone());
            Arc::make_mut(&mut self.accounts).put_namespace(meta, index);
        }
        Ok(())
    }

    fn load_accounts(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for account in reader.list(36, Account::decode)? {
            if account.user.name.bucket() as u64 != key {
                return Err(reader.error("a user is in the wrong chunk"));
            }
            if !Arc::make_mut(&mut self.accounts).load_account(account, index) {
                return Err(reader.error("a user is there twice"));
            }
        }
        Ok(())
    }

    fn load_policies(&mut self, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let topology = Arc::make_mut(&mut self.topology);
        for policy in reader.list(28, PolicyMeta::decode)? {
            if topology.policies().last_key_value().is_some_and(|(last, _)| *last >= policy.key) {
                return Err(reader.error("policies are out of order"));
            }
            topology.put_policy(policy, index);
        }
        Ok(())
    }

    fn load_nodes(&mut self, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let nodes = Arc::make_mut(&mut self.nodes);
        for node in reader.list(18, RegisteredNode::decode)? {
            if nodes.iter().last().is_some_and(|last| last.meta.id >= node.meta.id) {
                return Err(reader.error("nodes are out of order"));
            }
            nodes.load(node, index);
        }
        if nodes.len() > NODES_MAX {
            return Err(reader.error("there are more nodes than there may be"));
        }
        Ok(())
    }

    fn load_incarnations(&mut self, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        let nodes = Arc::make_mut(&mut self.nodes);
        let given = reader.list(20, |r| Ok((NodeId(r.u64()?), GivenIncarnation::decode(r)?)))?;
        if given.len() > NODES_MAX {
            return Err(reader.error("there are more nodes than there may be"));
        }
        for (id, given) in given {
            if nodes.given_incarnations().last().is_some_and(|(last, _)| last >= id) {
                return Err(reader.error("incarnations are out of order"));
            }
            nodes.give_incarnation(id, given, index);
        }
        Ok(())
    }

    fn load_groups(&mut self, key: u64, reader: &mut Reader, index: u64) -> Result<(), DecodeError> {
        for (name, group) in reader.list(9, |r| Ok((r.str()?, GroupState::decode(r)?)))? {
            if name.bucket() as u64 != key {
                return Err(reader.error("a group is in the wrong chunk"));
            }
            if self.groups.insert(name, Arc::new(group), index).is_some() {
                return Err(reader.error("a group is there twice"));
            }
        }
        Ok(())
    }
}

pub(super) fn encode_root(root: &Root) -> Bytes {
    let mut out = Writer::new();
    out.u32(root.version);
    out.i64(root.entry_time);
    out.u64(root.leaderships);
    out.u8(u8::from(root.leader.is_some()));
    out.u64(root.leader.unwrap_or_default().0);
    out.u64(root.next_partition);
    out.i64(root.next_producer);
    out.u32(root.digests.len() as u32);
    for (index, digest) in &root.digests {
        out.u64(*index);
        out.u64(*digest);
    }
    // A shard to which no other node has brought anything says nothing of it, as before there were others.
    if !root.relays.is_empty() {
        out.u32(root.relays.len() as u32);
        for (node, line) in &root.relays {
            out.u64(node.0);
            out.u64(line.token);
            out.u64(line.last);
        }
    }
    out.finish()
}

pub(super) fn encode_closed(closed: &ClosedPartitions) -> Bytes {
    let mut out = Writer::new();
    closed.encode(&mut out);
    out.finish()
}

fn decode_root(reader: &mut Reader) -> Result<Root, DecodeError> {
    let version = reader.u32()?;
    let entry_time = reader.i64()?;
    let leaderships = reader.u64()?;
    let led = reader.bool()?;
    let leader = NodeId(reader.u64()?);
    let next_partition = reader.u64()?;
    let next_producer = reader.i64()?;
    let digests: VecDeque<(u64, u64)> = reader.list(16, |r| Ok((r.u64()?, r.u64()?)))?.into();
    if digests.len() > DIGESTS_MAX || next_producer < 0 {
        return Err(reader.error("counters are out of range"));
    }
    let mut relays = BTreeMap::new();
    if reader.remaining() > 0 {
        let line = |r: &mut Reader| Ok((NodeId(r.u64()?), RelayLine { token: r.u64()?, last: r.u64()? }));
        relays.extend(reader.list(24, line)?);
    }
    if relays.len() > RELAYS_MAX {
        return Err(reader.error("more nodes' lines than there may be"));
    }
    Ok(Root {
        version,
        entry_time,
        leaderships,
        leader: led.then_some(leader),
        next_partition,
        next_producer,
        digests,
        relays,
    })
}

pub(super) fn encode_topics(topics: &BTreeMap<TopicId, CatalogTopic>) -> Bytes {
    let mut out = Writer::new();
    out.u32(topics.len() as u32);
    for topic in topics.values() {
        out.u8(u8::from(topic.deleting));
        topic.meta.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_partitions(partitions: &BTreeMap<PartitionId, Arc<PartitionState>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(partitions.len() as u32);
    for (id, state) in partitions {
        out.u64(id.0);
        state.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_subscriptions(subscriptions: &BTreeMap<SubscriptionKey, Arc<Subscription>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(subscriptions.len() as u32);
    for ((partition, id), state) in subscriptions {
        out.u64(partition.0);
        out.u64(id.0);
        state.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_timers(all: &BTreeMap<PartitionId, Arc<Timers>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(all.len() as u32);
    for (id, timers) in all {
        out.u64(id.0);
        timers.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_windows(all: &BTreeMap<WindowKey, Arc<Window>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(all.len() as u32);
    for ((id, kind), window) in all {
        out.u64(id.0);
        out.u8(*kind as u8);
        window.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_queues(queues: &BTreeMap<TopicId, Arc<QueueMeta>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(queues.len() as u32);
    for (id, queue) in queues {
        out.raw(&id.0);
        queue.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_exchanges(exchanges: &BTreeMap<String, Arc<ExchangeMeta>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(exchanges.len() as u32);
    exchanges.values().for_each(|exchange| exchange.encode(&mut out));
    out.finish()
}

pub(super) fn encode_bindings(bindings: &BTreeMap<Vec<u8>, Bound>) -> Bytes {
    let mut out = Writer::new();
    out.u32(bindings.len() as u32);
    for bound in bindings.values() {
        out.u64(bound.serial);
        bound.binding.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_access() -> Bytes {
    let mut out = Writer::new();
    out.u8(1);
    out.finish()
}

pub(super) fn encode_namespaces(namespaces: &BTreeMap<String, Arc<NamespaceMeta>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(namespaces.len() as u32);
    namespaces.values().for_each(|namespace| namespace.encode(&mut out));
    out.finish()
}

pub(super) fn encode_policies(policies: &BTreeMap<PolicyKey, Arc<PolicyMeta>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(policies.len() as u32);
    policies.values().for_each(|policy| policy.encode(&mut out));
    out.finish()
}

pub(super) fn encode_nodes(nodes: &BTreeMap<NodeId, Arc<RegisteredNode>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(nodes.len() as u32);
    nodes.values().for_each(|node| node.encode(&mut out));
    out.finish()
}

pub(super) fn encode_incarnations(given: &BTreeMap<NodeId, GivenIncarnation>) -> Bytes {
    let mut out = Writer::new();
    out.u32(given.len() as u32);
    for (id, given) in given {
        out.u64(id.0);
        given.encode(&mut out);
    }
    out.finish()
}

pub(super) fn encode_accounts(accounts: &BTreeMap<String, Arc<Account>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(accounts.len() as u32);
    accounts.values().for_each(|account| account.encode(&mut out));
    out.finish()
}

pub(super) fn encode_groups(groups: &BTreeMap<String, Arc<GroupState>>) -> Bytes {
    let mut out = Writer::new();
    out.u32(groups.len() as u32);
    for (name, group) in groups {
        out.str(name);
        group.encode(&mut out);
    }
    out.finish()
}
