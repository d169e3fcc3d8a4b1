//! The one value that fronts hold: what it consists of, how it starts and stops, and what is looked
//! up in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_cluster::{Clock, Node, ShardHandle};
use weir_model::batch::Record;
use weir_model::queue::is_hidden;
use weir_model::{NodeId, ShardId, TopicId};

use crate::access::Gate;
use crate::admin::Flights;
use crate::errors::{LookupError, Unavailable};
use crate::groups::Groups;
use crate::ids::IdSource;
use crate::info::PartitionInfo;
use crate::listeners::ListenerInfo;
use crate::metrics::{Metrics, ShardFigures};
use crate::options::{BrokerOptions, SetError};
use crate::parking::{Lots, RoutingProperties};
use crate::peers::{Peers, Service};
use crate::producers::ProducerIds;
use crate::queues::{MessageReader, Queues};
use crate::read::PartitionRef;
use crate::sessions::Sessions;
use crate::topics::{Topic, TopicCache};

/// What a front may ask for. Held as an `Arc` by every front.
pub struct Broker {
    pub(crate) node: Arc<Node>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: BrokerOptions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) gate: Gate,
    pub(crate) topics: TopicCache,
    pub(crate) ids: IdSource,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) groups: Groups,
    pub(crate) queues: Queues,
    pub(crate) peers: Peers,
    /// The other nodes that can be reached.
    pub(crate) connected: Option<watch::Receiver<BTreeSet<NodeId>>>,
    message_reader: OnceLock<Arc<dyn MessageReader>>,
    pub(crate) sessions: Sessions,
    /// Where this node listens.
    pub(crate) listeners: watch::Sender<Option<Vec<ListenerInfo>>>,
    /// It is about to stop, and is to lead nothing.
    pub(crate) leaving: AtomicBool,
    pub(crate) lots: Lots,
    /// Topics that are being created because somebody used them.
    pub(crate) flights: Flights,
    /// Partitions that were placed, by shard, since the catalog was last counted.
    pub(crate) loads: Mutex<BTreeMap<ShardId, u64>>,
    /// One alteration of a topic at a time, so that its partitions see them in the catalog's order.
    pub(crate) alterations: tokio::sync::Mutex<()>,
    /// Something was left half done and must be looked after.
    pub(crate) unfinished: Notify,
    /// For tasks that outlive the call that began them.
    pub(crate) myself: Weak<Broker>,
    /// The catalog and the partitions agree as far as this node has to see to it.
    pub(crate) reconciled: AtomicBool,
    /// Zero of the groups' clock.
    pub(crate) began: Instant,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("cluster_id", &self.options.cluster_id).finish_non_exhaustive()
    }
}

/// Why a broker could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Settings that contradict each other.
    #[error(transparent)]
    Options(#[from] SetError),
    /// The shards below did not become ready.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Broker {
    /// Starts serving what this node leads: waits until every shard has a leader, brings the
    /// partitions into agreement with the catalog, and begins with the recurring work.
    pub async fn start(
        node: Arc<Node>,
        clock: Arc<dyn Clock>,
        options: BrokerOptions,
    ) -> Result<Arc<Broker>, StartError> {
        options.check()?;
        node.ready().await.map_err(Unavailable::from)?;
        let meta = node.shard(ShardId::META).ok_or(Unavailable::NotLeader { leader: None })?.view().clone();
        let metrics = Metrics::new();
        let ids = IdSource::new(options.seed);
        let gate = Gate::new(options.access.clone(), ids.secret());
        let broker = Arc::new_cyclic(|myself| Broker {
            myself: myself.clone(),
            unfinished: Notify::new(),
            topics: TopicCache::new(options.defaults.clone(), meta),
            gate,
            ids,
            producer_ids: ProducerIds::default(),
            groups: Groups::new(&node.data_shards(), &options.groups),
            queues: Queues::default(),
            peers: Peers::default(),
            connected: options.connected.clone().or_else(|| node.connected()),
            message_reader: OnceLock::new(),
            sessions: Sessions::default(),
            listeners: watch::Sender::new(None),
            leaving: AtomicBool::new(false),
            lots: Lots::default(),
            flights: Flights::default(),
            loads: Mutex::default(),
            alterations: tokio::sync::Mutex::default(),
            reconciled: AtomicBool::new(false),
            began: Instant::now(),
            stop: watch::Sender::new(false),
            tasks: Mutex::default(),
            node,
            clock,
            options,
            metrics,
        });
        broker.node.serve_peers(Arc::new(Service(Arc::downgrade(&broker))));
        broker.spawn_tasks();
        broker.until_reconciled().await?;
        if let Err(error) = broker.drop_transient().await {
            tracing::warn!(%error, "not everything that is transient could be deleted");
        }
        Ok(broker)
    }

    fn spawn_tasks(self: &Arc<Broker>) {
        let mut tasks = vec![
            tokio::spawn(self.clone().reconcile_always()),
            tokio::spawn(self.clone().retain_always()),
            tokio::spawn(self.clone().expire_offsets_always()),
            tokio::spawn(self.clone().keep_time()),
            tokio::spawn(self.clone().sweep_temporary_always()),
            tokio::spawn(self.clone().follow_policies()),
            tokio::spawn(self.clone().wake_queues_always(self.node.temporary())),
            tokio::spawn(self.clone().register_always()),
            tokio::spawn(self.clone().carry_holdings_always()),
            tokio::spawn(self.clone().spread_leaders_always()),
        ];
        for shard in self.node.data_shards() {
            tasks.push(tokio::spawn(self.clone().follow_leadership(shard)));
            tasks.push(tokio::spawn(self.clone().attend_lot(shard)));
            tasks.push(tokio::spawn(self.clone().wake_queues_always(shard)));
        }
        self.tasks.lock().extend(tasks);
    }

    /// Stops the recurring work and answers every request that is parked. The fronts stop first.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        self.groups.stop(&Unavailable::ShuttingDown.into());
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A task that panicked has been reported already, and there is nothing left to do for it.
            let _ = task.await;
        }
    }

    /// Resolves when the broker is being stopped.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // It fails only if the sender, which is ours, is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Random bytes, for names that a front makes up.
    pub fn random_bytes(&self) -> [u8; 16] {
        self.ids.bytes()
    }

    /// The time of day, in milliseconds since 1970.
    pub fn now_ms(&self) -> weir_model::TimestampMs {
        self.clock.now_ms()
    }

    /// How long the broker has been running.
    pub fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether records are refused at present, or would be, because the disk is nearly full.
    pub fn is_disk_full(&self) -> bool {
        let shards = self.node.data_shards();
        shards.into_iter().filter_map(|shard| self.node.shard(shard)).any(ShardHandle::is_disk_full)
    }

    /// What an operator has set.
    pub fn options(&self) -> &BrokerOptions {
        &self.options
    }

    /// Counters and gauges, those of the shards brought up to date.
    pub fn metrics(&self) -> &Arc<Metrics> {
        if let Ok(meta) = self.meta() {
            let topics = meta.view().catalog().topics();
            let partitions: usize = topics.iter().map(|topic| topic.partitions.len()).sum();
            self.metrics.topics.set(topics.len() as i64);
            self.metrics.partitions.set(partitions as i64);
        }
        for shard in std::iter::once(ShardId::META).chain(self.shards_of_partitions()) {
            let Some(handle) = self.node.shard(shard) else { continue };
            self.metrics.show_shard(ShardFigures {
                shard,
                leads: handle.leadership().is_leader,
                applied_index: handle.view().applied_index(),
                unwritten_bytes: handle.view().unwritten_bytes(),
            });
        }
        &self.metrics
    }

    /// Whether this node can serve: every shard has a leader, and the catalog's partitions are open.
    pub fn is_ready(&self) -> bool {
        self.not_ready_because().is_none()
    }

    /// Why this node cannot serve, in words; none if it can.
    pub fn not_ready_because(&self) -> Option<String> {
        if self.is_stopping() {
            return Some("the node is shutting down".into());
        }
        for handle in self.replicated_shards() {
            let (shard, leadership) = (handle.id(), handle.leadership());
            if self.leader_of(handle).is_none() {
                return Some(format!("shard {shard} has no leader that this node can reach"));
            }
            if leadership.is_leader && !leadership.ready {
                return Some(format!("shard {shard} has not applied the beginning of its leadership"));
            }
        }
        if !self.reconciled.load(Ordering::Acquire) {
            return Some("the partitions of the catalog are being opened".into());
        }
        None
    }

    /// How records are messages. The first who tells counts.
    pub fn read_messages_with(&self, reader: Arc<dyn MessageReader>) {
        let _ = self.message_reader.set(reader);
    }

    /// The priority of a message, if somebody knows how records are messages.
    pub(crate) fn priority_of(&self, record: &Record) -> Option<u8> {
        self.message_reader.get()?.priority(record)
    }

    /// What exchanges may ask of a message.
    pub(crate) fn routing_properties(&self, record: &Record) -> Option<Box<RoutingProperties>> {
        self.message_reader.get()?.routing_properties(record)
    }

    /// Whether the disk has room for more records. A front that can hold its publishers back does so where it has none.
    pub fn has_disk_space(&self) -> bool {
        self.node.has_disk_space()
    }

    /// The topic of this name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let catalog = self.meta().ok()?.view().catalog();
        catalog.topic(name).filter(|_| !is_hidden(name)).map(|meta| self.topics.get(&catalog, meta))
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        let catalog = self.meta().ok()?.view().catalog();
        let topic = catalog.topic_by_id(id).filter(|meta| !is_hidden(&meta.name));
        topic.map(|meta| self.topics.get(&catalog, meta))
    }

    /// All topics in the order of their names, but the broker's own.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics = self.topics_with_hidden();
        topics.retain(|topic| !is_hidden(topic.name()));
        topics
    }

    /// All topics in the order of their names, and the broker's own, of which clients must not hear.
    pub fn topics_with_hidden(&self) -> Vec<Arc<Topic>> {
        let Ok(meta) = self.meta() else { return Vec::new() };
        let catalog = meta.view().catalog();
        catalog.topics().iter().map(|meta| self.topics.get(&catalog, meta)).collect()
    }

    /// A partition of a topic. Being led by another node is no error here: asking the partition is.
    pub fn partition(&self, topic: &Topic, index: i32) -> Result<PartitionRef, LookupError> {
        let (meta, handle) = self.locate(topic, index)?;
        match handle.view().partition(meta.id) {
            Some(view) => {
                Ok(PartitionRef::new(handle.clone(), view, topic.id(), index, meta, self.blocking()))
            }
            None => Err(LookupError::NotOpen { topic: topic.name().to_owned(), index }),
        }
    }

    /// Who serves a partition of a topic.
    pub fn partition_info(&self, topic: &Topic, index: i32) -> Result<PartitionInfo, LookupError> {
        let (meta, handle) = self.locate(topic, index)?;
        let view = handle.view().partition(meta.id);
        // One that its shard does not have yet, or no longer, is served by nobody.
        let leader = self.leader_of(handle).filter(|_| view.is_some());
        Ok(PartitionInfo {
            leader,
            leader_epoch: view.map_or(0, |view| view.leader_epoch()),
            replicas: handle.voters(),
        })
    }

    fn locate(
        &self,
        topic: &Topic,
        index: i32,
    ) -> Result<(weir_model::command::PartitionMeta, &ShardHandle), LookupError> {
        let found = usize::try_from(index).ok().and_then(|index| topic.meta.partitions.get(index));
        let meta = *found.ok_or_else(|| LookupError::UnknownPartition {
            topic: topic.name().to_owned(),
            index,
            partitions: topic.partition_count(),
        })?;
        Ok((meta, self.shard(meta.shard)?))
    }

    /// The meta shard.
    pub(crate) fn meta(&self) -> Result<&ShardHandle, Unavailable> {
        self.shard(ShardId::META)
    }

    /// The shards of this node that partitions are in: those that topics are placed on, and its temporary one.
    pub(crate) fn shards_of_partitions(&self) -> Vec<ShardId> {
        let mut shards = self.node.data_shards();
        shards.push(self.node.temporary());
        shards
    }

    /// Whether a shard is the temporary one of another node, which alone has to do with it.
    pub(crate) fn is_elsewhere(&self, shard: ShardId) -> bool {
        shard.temporary_of().is_some_and(|node| node != self.node.node_id())
    }

    /// A shard of which this node has a replica.
    pub(crate) fn shard(&self, shard: ShardId) -> Result<&ShardHandle, Unavailable> {
        self.node.shard(shard).ok_or_else(|| Unavailable::NotLeader { leader: shard.temporary_of() })
    }
}
