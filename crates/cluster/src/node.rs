//! One process's replicas over one journal: how they start, and how they end.

mod start;

pub(crate) use start::command_bytes_max;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use weir_log::disk::Disk;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::entry::ENTRY_BYTES_MAX;
use weir_model::node::{CLUSTER_LISTENER, HostPort, NodeMeta};
use weir_model::{Incarnation, NodeId, PartitionId, SegmentId, ShardId};
use weir_shard::{Nodes, PIECE_BYTES_MAX, Snapshots};

use crate::admission::DiskSpace;
use crate::blocking::Blocking;
use crate::checkpoint::Checkpointer;
use crate::clock::Clock;
use crate::errors::{ProposeError, StartError};
use crate::gathering::COMMANDS_WAITING_MAX;
use crate::handle::ShardHandle;
use crate::journal::driver::JournalStatus;
use crate::journal::queue::JournalQueue;
use crate::leadership::Leadership;
use crate::membership;
use crate::options::{Drive, NodeOptions, OnFatal};
use crate::raft::member::{Member, NODE_NUMBER_MAX};
use crate::raft::network;
use crate::raft::rpc::{Answer, Between, Request};
use crate::raft::snapshot::SnapshotReceiver;
use crate::raft::types::{RaftHandle, Runtime};
use crate::relay;
use crate::replica::Replica;
use crate::segments::SegmentQueue;
use crate::takeover;
use crate::transport::{Line, PeerService, Transport, TransportError};

/// How long a node that is shutting down waits for what is on its way.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How long it waits for each shard's last checkpoint.
const LAST_CHECKPOINT_MAX: Duration = Duration::from_secs(30);

/// How long a majority may take to agree to a node's next incarnation. It asks again.
const GIVING_MAX: Duration = Duration::from_secs(2);

/// How long a node that came back with nothing waits before it asks a leader again how far it has to come.
const CATCH_UP_STEP: Duration = Duration::from_millis(100);

/// How often it looks.
const DRAIN_STEP: Duration = Duration::from_millis(2);

/// One process's replicas over one journal.
pub struct Node {
    id: NodeId,
    incarnation: Incarnation,
    founders: usize,
    on_removed: OnFatal,
    seed: u64,
    drive: Drive,
    shards: BTreeMap<ShardId, Running>,
    temporary: ShardHandle,
    transport: Arc<dyn Transport>,
    service: OnceLock<Arc<dyn PeerService>>,
    journal: Arc<JournalQueue>,
    segments: Arc<SegmentQueue>,
    space: Arc<DiskSpace>,
    status: Arc<JournalStatus>,
    stop: watch::Sender<bool>,
    workers: Mutex<Workers>,
}

/// One shard that runs.
struct Running {
    handle: ShardHandle,
    replica: Arc<Replica>,
    raft: RaftHandle,
    snapshot_receiver: Arc<SnapshotReceiver>,
    snapshots: Snapshots,
    checkpointer: Checkpointer,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
    /// Runs of commands that this node has brought to the leader.
    relayed_in_flight: Arc<AtomicUsize>,
}

/// Whatever works for the node.
#[derive(Default)]
struct Workers {
    /// Of the shards, to be ended before the journal.
    tasks: Vec<JoinHandle<()>>,
    journal: Option<Worker>,
    segments: Option<Worker>,
}

enum Worker {
    Thread(thread::JoinHandle<()>),
    Task(JoinHandle<()>),
}

impl Worker {
    async fn join(self) {
        match self {
            Worker::Task(task) => drop(task.await),
            Worker::Thread(thread) => {
                let joined = tokio::task::spawn_blocking(move || drop(thread.join()));
                drop(joined.await);
            }
        }
    }
}

impl Node {
    /// Opens the journal and the shards, applies again what no checkpoint covers, and begins to take
    /// part. The time that takes depends on the journal's tail, never on the backlog.
    pub async fn start(
        options: NodeOptions,
        disk: Arc<dyn Disk>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        drive: Drive,
    ) -> Result<Arc<Node>, StartError> {
        options.check()?;
        let (seed, has_others) = (options.seed, options.has_others());
        let connected = transport.connected();
        let node = start::start(options, disk, transport, clock, drive);
        let node = Arc::new(Runtime::scope(seed, node).await?);
        if let Some(connected) = connected {
            let watching = takeover::watch_leaders(Arc::downgrade(&node), connected, node.stop.subscribe());
            node.workers.lock().tasks.push(tokio::spawn(watching));
        }
        if has_others {
            let keeping = membership::keep_members_always(Arc::downgrade(&node), node.stop.subscribe());
            node.workers.lock().tasks.push(tokio::spawn(keeping));
        }
        Ok(node)
    }

    /// This node.
    pub fn node_id(&self) -> NodeId {
        self.id
    }

    /// How often it has begun with nothing.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether the disk has room for records beyond those that are on their way. Who can wait with more of them should,
    /// where it has none.
    pub fn has_disk_space(&self) -> bool {
        self.space.has_room()
    }

    /// Where blocking work is done, for what is built on top.
    pub fn drive(&self) -> Drive {
        self.drive
    }

    /// A shard, if this node has a replica of it.
    pub fn shard(&self, id: ShardId) -> Option<&ShardHandle> {
        if id == self.temporary.id() {
            return Some(&self.temporary);
        }
        self.shards.get(&id).map(|running| &running.handle)
    }

    /// The shard for what does not outlive this node's next start. It is empty when the node has started; nothing
    /// of it is in the journal, and what is too much for memory is in files that are never synced.
    pub fn temporary(&self) -> ShardId {
        self.temporary.id()
    }

    /// The other nodes with which there is a live connection; none where nobody watches that.
    pub fn connected(&self) -> Option<watch::Receiver<BTreeSet<NodeId>>> {
        self.transport.connected()
    }

    pub(crate) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// The shards that another node leads, as far as this one knows.
    pub(crate) fn led_by(&self, node: NodeId) -> Vec<ShardId> {
        let led = self.shards.iter().filter(|(_, running)| running.handle.leadership().leader == Some(node));
        led.map(|(shard, _)| *shard).collect()
    }

    pub(crate) fn voters_of(&self, shard: ShardId) -> Vec<NodeId> {
        self.shards.get(&shard).map(|running| running.handle.voters()).unwrap_or_default()
    }

    /// Which incarnation of a node counts, as far as this node knows: those before it are replaced.
    pub(crate) fn incarnation_of(&self, node: NodeId) -> Incarnation {
        let meta = self.shards.get(&ShardId::META);
        meta.map_or(Incarnation::FIRST, |meta| meta.replica.view.nodes().incarnation(node))
    }

    /// The nodes of the cluster, as far as this node knows.
    pub(crate) fn registry(&self) -> Arc<Nodes> {
        let meta = self.shards.get(&ShardId::META);
        meta.map(|meta| meta.replica.view.nodes()).unwrap_or_default()
    }

    /// The nodes that the cluster was founded by.
    pub(crate) fn founders(&self) -> usize {
        self.founders
    }

    /// This node is of no use to its cluster any more.
    pub(crate) fn is_of_no_use(&self, why: &str) {
        self.on_removed.call(why);
    }

    /// The shards that have replicas on other nodes.
    pub(crate) fn replicated_shards(&self) -> impl Iterator<Item = &ShardHandle> {
        self.shards.values().map(|running| &running.handle)
    }

    pub(crate) fn raft_of(&self, shard: ShardId) -> Option<&RaftHandle> {
        self.shards.get(&shard).map(|running| &running.raft)
    }

    /// The shards that partitions and groups are placed on.
    pub fn data_shards(&self) -> Vec<ShardId> {
        self.shards.keys().copied().filter(|id| *id != ShardId::META).collect()
    }

    /// Waits until every shard has a leader, and what this node knows of it is no older than what it
    /// knew before it was started, if it lost that as well.
    pub async fn ready(&self) -> Result<(), ProposeError> {
        for running in self.shards.values() {
            let replica = &running.replica;
            let mut leadership = replica.leadership.subscribe();
            let settled = |leadership: &Leadership| {
                if leadership.is_leader { leadership.ready } else { leadership.leader.is_some() }
            };
            if leadership.wait_for(settled).await.is_err() {
                return Err(replica.stopped("it has stopped"));
            }
            let recovered = running.raft.wait_for_recovery(None).await;
            recovered.map_err(|error| replica.stopped(&error.to_string()))?;
            // What it knew before is gone with its data, and that was no more than what is committed.
            while !running.handle.votes() && running.handle.catch_up().await.is_err() {
                replica.closed().map_or(Ok(()), Err)?;
                tokio::time::sleep(CATCH_UP_STEP).await;
            }
        }
        Ok(())
    }

    /// Asks another node's [`PeerService`]. Nothing bounds how long that takes but the transport's connection.
    pub async fn call_peer(&self, to: NodeId, request: Vec<Bytes>) -> Result<Bytes, TransportError> {
        let answer = self.transport.call(to, Line::Service, request).await?;
        match answer.is_empty() {
            true => Err(TransportError::Failed { to, why: "it could make nothing of the call".into() }),
            false => Ok(answer),
        }
    }

    /// From here on other nodes' calls to the service of this one are answered by it. The first one stays.
    pub fn serve_peers(&self, service: Arc<dyn PeerService>) {
        let _ = self.service.set(service);
    }

    /// Takes a call of another node; the transport has made sure that it is who it says. What must happen in the order
    /// in which calls arrive has happened when this returns.
    pub fn handle_call(
        self: &Arc<Node>,
        from: NodeId,
        line: Line,
        request: Bytes,
    ) -> Pin<Box<dyn Future<Output = Bytes> + Send>> {
        match line {
            Line::Shard(shard) => {
                let node = Arc::clone(self);
                Box::pin(async move { node.handle_rpc(from, shard, request).await })
            }
            Line::Service => match self.service.get() {
                Some(service) => service.take_call(from, request),
                None => Box::pin(std::future::ready(Bytes::new())),
            },
        }
    }

    async fn handle_rpc(&self, from: NodeId, shard: ShardId, request: Bytes) -> Bytes {
        let Some(running) = self.shards.get(&shard) else {
            return Answer::Refused(format!("node {} has no replica of shard {shard}", self.id)).encode();
        };
        let (between, request) = match Request::decode_between(request) {
            Ok(decoded) => decoded,
            Err(error) => return Answer::Refused(error.to_string()).encode(),
        };
        if request.is_for_the_group()
            && let Some(why) = self.is_not_meant(from, between)
        {
            return Answer::OtherIncarnation(why).encode();
        }
        match request {
            Request::Relay(command) => {
                Answer::Relay(relay::take(&running.replica, from, command).await).encode()
            }
            Request::HearsOf(node) => {
                let connected = self.transport.connected();
                let hears = node == self.id || connected.is_none_or(|nodes| nodes.borrow().contains(&node));
                Answer::HearsOf(hears).encode()
            }
            Request::Segment { partition, segment, from, to } => {
                self.read_segment(running, partition, segment, from, to).await.encode()
            }
            Request::ReadIndex => Answer::ReadIndex(running.handle.read_index().await).encode(),
            request => {
                // What the library draws here has a seed of its own, whoever polls this.
                let seed = self.seed ^ (from.0 << 32) ^ u64::from(shard.0);
                // With a full journal a shard takes in what it needs to get on: one that cannot apply
                // what it has makes no checkpoint, and would keep the journal full for ever.
                let log = &running.checkpointer.log;
                let full = self.status.is_full() && log.unapplied_bytes() >= ENTRY_BYTES_MAX as u64;
                let receiver = &running.snapshot_receiver;
                let answer = network::answer(&running.raft, receiver, request, full, seed);
                Runtime::scope(seed, answer).await
            }
        }
    }

    /// Bytes of a segment's file, for a node whose own is damaged. It checks what comes of them.
    async fn read_segment(
        &self,
        running: &Running,
        partition: PartitionId,
        segment: SegmentId,
        from: u64,
        to: u64,
    ) -> Answer {
        let Some(view) = running.replica.view.partition(partition) else {
            return Answer::Refused(format!("node {} has no partition {partition}", self.id));
        };
        let length = to.saturating_sub(from).min(PIECE_BYTES_MAX as u64) as usize;
        let read = Blocking::new(self.drive).run(move || view.segment_bytes(segment, from, length)).await;
        match read.map_err(|why| why.to_string()).and_then(|read| read.map_err(|error| error.to_string())) {
            Ok(Some(bytes)) => Answer::Segment { crc: crc32c::crc32c(&bytes), bytes },
            Ok(None) => Answer::Refused(format!("node {} has no such segment", self.id)),
            Err(why) => Answer::Refused(why),
        }
    }

    /// Why a message to a replica must not be taken, if so: a replica answers for itself only, and for none that its node
    /// had before; and what one has said that was replaced does not count any more.
    fn is_not_meant(&self, from: NodeId, between: Between) -> Option<String> {
        let (id, own) = (self.id, self.incarnation);
        if between.to != own {
            return Some(format!("this is incarnation {own} of node {id}, and {} is meant", between.to));
        }
        let counts = self.incarnation_of(from);
        (between.from < counts)
            .then(|| format!("incarnation {} of node {from} was replaced by {counts}", between.from))
    }

    /// Gives a node that came back without its data its next incarnation, if nobody sees that it is there; `token` tells
    /// the process that asks from all others. What is said otherwise is meant for the operator.
    pub(crate) async fn give_incarnation(&self, node: NodeId, token: u64) -> Result<Incarnation, String> {
        let given = self.ask_for_incarnation(node, Command::NewIncarnation { node, token }).await?;
        tracing::warn!(%node, incarnation = %given, "a node came back without its data; it is to be filled anew");
        Ok(given)
    }

    /// Takes a node into the cluster that others reach at that address, if nobody sees that one of its number is there.
    /// What is said otherwise is meant for the operator.
    pub(crate) async fn admit(&self, node: NodeId, address: &str, token: u64) -> Result<Incarnation, String> {
        if Member::new(node, self.incarnation).is_none() || node.0 == 0 {
            return Err(format!("nodes have numbers from 1 to {NODE_NUMBER_MAX}, not {node}"));
        }
        let Some(address) = HostPort::parse(address) else {
            return Err(format!("'{address}' is no address at which the others could reach node {node}"));
        };
        let advertised = BTreeMap::from([(CLUSTER_LISTENER.to_owned(), address)]);
        let meta = NodeMeta { id: node, advertised, ..NodeMeta::default() };
        let given = self.ask_for_incarnation(node, Command::AdmitNode { node: meta, token }).await?;
        tracing::info!(%node, incarnation = %given, "a node joins the cluster");
        Ok(given)
    }

    async fn ask_for_incarnation(&self, node: NodeId, command: Command) -> Result<Incarnation, String> {
        let Some(meta) = self.shard(ShardId::META) else { return Err("there is no meta shard".to_owned()) };
        let sees_it = node == self.id
            || self.transport.connected().is_some_and(|connected| connected.borrow().contains(&node));
        let others = meta.voters().into_iter().filter(|other| *other != self.id && *other != node);
        let asked = others.map(|other| takeover::hears_of(&self.transport, other, ShardId::META, node));
        if sees_it || join_all(asked).await.contains(&Some(true)) {
            return Err(format!("node {node} is there: another process has its number, with its data"));
        }
        match tokio::time::timeout(GIVING_MAX, meta.relay(command)).await {
            Ok(Ok(Outcome::Incarnation(incarnation))) => Ok(incarnation),
            Ok(Ok(Outcome::Refused(Refusal::UnknownNode(_)))) => {
                Err(format!("node {node} was removed from the cluster"))
            }
            Ok(Ok(Outcome::Refused(refusal))) => Err(refusal.to_string()),
            Ok(Ok(outcome)) => Err(format!("it came to {outcome:?}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no majority has agreed to it in time".to_owned()),
        }
    }

    /// Takes no more commands, waits for those on their way, makes last checkpoints, seals the
    /// journal, and ends.
    pub async fn shutdown(&self) {
        for running in self.shards.values() {
            running.replica.close(ProposeError::ShuttingDown);
        }
        self.temporary.close(ProposeError::ShuttingDown);
        let drained = async {
            while !self.shards.values().all(Running::is_drained) {
                tokio::time::sleep(DRAIN_STEP).await;
            }
        };
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            tracing::warn!("commands are still on their way; they may or may not be applied");
        }
        // Ends the checkpoints that come by themselves, so that the last ones find their turn.
        self.stop.send_replace(true);
        for (shard, running) in &self.shards {
            let made = tokio::time::timeout(LAST_CHECKPOINT_MAX, running.checkpointer.make()).await;
            if let Err(why) = made.unwrap_or_else(|_| Err("it took too long".to_owned())) {
                tracing::warn!(%shard, why, "the last checkpoint was not made; the next start takes longer");
            }
        }
        self.end_shards().await;
        let (segments, journal) = {
            let mut workers = self.workers.lock();
            (workers.segments.take(), workers.journal.take())
        };
        self.segments.close();
        if let Some(segments) = segments {
            segments.join().await;
        }
        self.journal.close();
        if let Some(journal) = journal {
            journal.join().await;
        }
    }

    /// Stops everything where it stands and writes nothing more, as a crash would.
    pub async fn abandon(&self) {
        let why = ProposeError::Stopped("the node was abandoned".to_owned());
        for running in self.shards.values() {
            running.replica.close(why.clone());
        }
        self.temporary.close(why);
        self.journal.fail("the node was abandoned");
        self.stop.send_replace(true);
        self.end_shards().await;
        self.segments.close();
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in [workers.segments, workers.journal].into_iter().flatten() {
            worker.join().await;
        }
    }

    async fn end_shards(&self) {
        for running in self.shards.values() {
            if let Err(error) = running.raft.shutdown().await {
                tracing::warn!(%error, "a replica did not end in order");
            }
        }
        let tasks = std::mem::take(&mut self.workers.lock().tasks);
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Running {
    fn is_drained(&self) -> bool {
        let nothing_waits = self.replica.submitted.capacity() == COMMANDS_WAITING_MAX;
        let nothing_is_brought = self.relayed_in_flight.load(Ordering::Acquire) == 0;
        nothing_waits && nothing_is_brought && self.in_flight.available_permits() == self.in_flight_max
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.segments.close();
        self.journal.close();
        for task in self.workers.get_mut().tasks.drain(..) {
            task.abort();
        }
    }
}

/// What starting a thread for a worker may fail with, in words.
fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Worker, StartError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    let thread =
        thread.map_err(|error| StartError::Options(format!("the thread '{name}' cannot start: {error}")))?;
    Ok(Worker::Thread(thread))
}

/// Whether workers are threads, and if not, how long a sync takes.
fn sync_latency(drive: Drive) -> Option<Duration> {
    match drive {
        Drive::Threads => None,
        Drive::Tasks { sync_latency } => Some(sync_latency),
    }
}
