//! The nodes of the cluster: what this one says of itself, what is known of the others, and which of them lead.
//!
//! What nodes say of themselves is in the meta shard. Whether one is there right now is not: that is what this node
//! sees of its own connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_cluster::ShardHandle;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::node::{HostPort, NodeMeta, RegisteredNode};
use weir_model::{NodeId, ShardId};

use crate::broker::Broker;
use crate::errors::{AdminError, refused};
use crate::info::{ClusterInfo, NodeInfo, ShardInfo};
use crate::listeners::ListenerInfo;
use crate::read::PartitionRef;

/// How often this node looks whether the others are still told what it says of itself.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A follower that lacks more entries than this is not read from: what it has would be old.
const READ_BEHIND_MAX: u64 = 1_000;

/// How long it waits before it tells them again, when that failed.
const RETRY: Duration = Duration::from_secs(1);

impl Broker {
    /// Tells the other nodes what this one says of itself whenever it is something else than they know, again and
    /// again until they do. Before its listeners are open it has nothing to say.
    pub(crate) async fn register_always(self: Arc<Broker>) {
        let mut listeners = self.listeners.subscribe();
        loop {
            let own = listeners.borrow_and_update().as_ref().map(|listeners| self.own_meta(listeners));
            let told = match own {
                Some(own) => self.register(own).await,
                None => true,
            };
            let pause = if told { LOOK_EVERY } else { RETRY };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // It fails only if the sender, which is ours, is gone.
                _ = listeners.changed() => {}
                () = self.stopped() => return,
            }
        }
    }

    /// Whether the others know what this node says of itself, or never will.
    async fn register(&self, own: NodeMeta) -> bool {
        let Ok(meta) = self.meta() else { return false };
        if meta.view().nodes().node(own.id).is_some_and(|known| known.meta == own) {
            return true;
        }
        match self.propose_meta(Command::RegisterNode { node: own }).await {
            Ok(Outcome::Done) => true,
            Ok(outcome) => {
                let error = refused(outcome);
                tracing::error!(%error, "the other nodes cannot be told what this one says of itself");
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the other nodes are told later what this one says of itself");
                false
            }
        }
    }

    /// What this node says of itself. Where it listens on all addresses of its machine, nobody else can be told which.
    fn own_meta(&self, listeners: &[ListenerInfo]) -> NodeMeta {
        let mut advertised = self.options.advertised.clone();
        for listener in listeners.iter().filter(|listener| !listener.address.ip().is_unspecified()) {
            let host = listener.address.ip().to_canonical().to_string();
            let at = HostPort { host, port: listener.address.port() };
            advertised.entry(listener.protocol.to_owned()).or_insert(at);
        }
        NodeMeta {
            id: self.node.node_id(),
            advertised,
            zone: self.options.zone.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The cluster as this node sees it: every node that ever said something of itself, and those that vote.
    pub fn cluster(&self) -> ClusterInfo {
        let here = self.node.node_id();
        let meta = self.node.shard(ShardId::META);
        let silent = |id| NodeInfo {
            id,
            advertised: BTreeMap::new(),
            zone: None,
            version: None,
            draining: false,
            leaving: false,
            live: self.is_live(id),
        };
        let mut nodes: BTreeMap<NodeId, NodeInfo> = BTreeMap::new();
        if let Some(meta) = meta {
            nodes.extend(meta.voters().into_iter().map(|id| (id, silent(id))));
            for node in meta.view().nodes().iter() {
                let said = node.meta.clone();
                let live = self.is_live(said.id);
                let info = NodeInfo {
                    id: said.id,
                    advertised: said.advertised,
                    zone: said.zone,
                    version: Some(said.version),
                    draining: node.draining,
                    leaving: node.leaving,
                    live,
                };
                nodes.insert(said.id, info);
            }
        }
        // What this node says of itself it knows best, also before anybody was told.
        let own = self.own_meta(&self.listeners());
        let wanted = nodes.get(&here).map(|node| (node.draining, node.leaving));
        let (draining, leaving) = wanted.unwrap_or_default();
        let (zone, version) = (own.zone, Some(own.version));
        let this =
            NodeInfo { id: here, advertised: own.advertised, zone, version, draining, leaving, live: true };
        nodes.insert(here, this);
        ClusterInfo {
            cluster_id: self.options.cluster_id.clone(),
            node_id: here,
            nodes: nodes.into_values().collect(),
            controller: meta.and_then(|meta| self.leader_of(meta)),
        }
    }

    /// The replicated shards as this node sees them, in the order of their numbers.
    pub fn shards(&self) -> Vec<ShardInfo> {
        let handles = self.replicated_shards();
        let shown = handles.map(|handle| ShardInfo {
            id: handle.id(),
            leader: self.leader_of(handle),
            term: handle.leadership().term,
            voters: handle.voters(),
            catching_up: handle.catching_up(),
            listening: handle.listening(),
            applied_index: handle.view().applied_index(),
        });
        shown.collect()
    }

    /// Says whether a node is to lead nothing. It gives away what it leads by and by, and leads again some time after
    /// it may.
    pub async fn set_draining(&self, node: NodeId, draining: bool) -> Result<(), AdminError> {
        match self.propose_meta(Command::SetDraining { node, draining }).await? {
            Outcome::Done => Ok(()),
            Outcome::Refused(Refusal::UnknownNode(node)) => Err(AdminError::UnknownNode(node)),
            other => Err(refused(other)),
        }
    }

    /// Says whether a node is to leave the cluster. It gives away what it leads, loses its votes and replicas, and is
    /// forgotten; until then it may stay after all.
    pub async fn set_leaving(&self, node: NodeId, leaving: bool) -> Result<(), AdminError> {
        let stays = |other: &NodeInfo| other.id != node && !other.leaving;
        if leaving && !self.cluster().nodes.iter().any(stays) {
            return Err(AdminError::LastNode(node));
        }
        match self.propose_meta(Command::SetLeaving { node, leaving }).await? {
            Outcome::Done => Ok(()),
            Outcome::Refused(Refusal::UnknownNode(node)) => Err(AdminError::UnknownNode(node)),
            other => Err(refused(other)),
        }
    }

    /// A node of that zone from which a partition can be read as well as from this one, which leads it; none if this one
    /// does not, or is of that zone itself, or none there has nearly everything.
    pub fn replica_in(&self, partition: &PartitionRef, zone: &str) -> Option<NodeId> {
        if self.options.zone.as_deref() == Some(zone) || partition.ready().is_err() {
            return None;
        }
        let nodes = self.meta().ok()?.view().nodes();
        let is_there = |node: &&Arc<RegisteredNode>| {
            node.meta.zone.as_deref() == Some(zone) && !node.leaving && self.is_live(node.meta.id)
        };
        let nearly_all = |node: &NodeId| {
            partition.handle().entries_behind_of_any(*node).is_some_and(|behind| behind <= READ_BEHIND_MAX)
        };
        let there: Vec<NodeId> =
            nodes.iter().filter(is_there).map(|node| node.meta.id).filter(nearly_all).collect();
        // Those of a zone share the partitions.
        let turn = partition.id().0 as usize % there.len().max(1);
        there.get(turn).copied()
    }

    /// Every shard that is not a temporary one.
    pub(crate) fn replicated_shards(&self) -> impl Iterator<Item = &ShardHandle> {
        let shards = std::iter::once(ShardId::META).chain(self.node.data_shards());
        shards.filter_map(|shard| self.node.shard(shard))
    }

    /// Whether this node sees another one; those whose connections nobody watches are taken to be there.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        node == self.node.node_id()
            || self.connected.as_ref().is_none_or(|connected| connected.borrow().contains(&node))
    }

    /// Who leads a shard, as far as that is good for anything: not a node that cannot be reached from here, and not
    /// this one if it cannot reach a majority. Until an election is over, the nodes believe in the leader of before.
    pub(crate) fn leader_of(&self, shard: &ShardHandle) -> Option<NodeId> {
        let leader = shard.leadership().leader?;
        if leader == self.node.node_id() {
            let (voters, silent) = (shard.voters(), shard.catching_up());
            let answers = |voter: &&NodeId| self.is_live(**voter) && !silent.contains(*voter);
            let reached = voters.iter().filter(answers).count();
            return (2 * reached > voters.len()).then_some(leader);
        }
        self.is_live(leader).then_some(leader)
    }
}
