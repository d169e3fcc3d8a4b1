//! One node of the simulated cluster: the real replicas and the real broker over a simulated disk, answering the other
//! nodes on one port and clients on another.

mod answers;
mod opening;
mod publishing;
mod sessions;
mod survey;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use parking_lot::Mutex;
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{
    Clock, Drive, Line, Node, NodeOptions, OnFatal, Transport, TransportError, TransportFuture,
};
use weir_log::disk::{Fault, FaultKind, Operation, SimDisk};
use weir_model::{NodeId, ShardId, TimestampMs};

use crate::net::{Peer, serve};
use crate::queues::History;
use crate::scenario::{NODES, SHARDS};
use crate::wrong::Wrong;

use sessions::Sessions;

pub use survey::Survey;

/// Port on which a node answers clients.
pub const CLIENT_PORT: u16 = 9092;

/// Port on which a node answers the other nodes.
const CLUSTER_PORT: u16 = 9348;

/// How often retention looks, so that a run sees segments trimmed and written anew.
const RETENTION_MS: u64 = 1_000;

/// A disk of this size is never full unless a fault says so, in bytes.
const ROOMY: u64 = 8 << 30;

/// Small files, so that a run sees them recycled.
const JOURNAL_FILE_BYTES: u64 = 1 << 20;

/// Frequent checkpoints, so that crashes fall into them.
const CHECKPOINT_BYTES: u64 = 256 << 10;

/// What admission leaves free for what must go on when the disk is full.
const DISK_RESERVE_BYTES: u64 = 64 << 20;

/// What a sync seems to take.
const SYNC_LATENCY: Duration = Duration::from_micros(500);

/// A node across all its restarts: its disk outlives its process.
#[derive(Clone)]
pub struct SimNode {
    index: usize,
    disk: SimDisk,
    fatal: Arc<AtomicBool>,
    start_error: Arc<Mutex<Option<String>>>,
    /// The process that runs, if one does.
    running: Arc<Mutex<Weak<Node>>>,
    history: Arc<Mutex<History>>,
    wrong: Option<Wrong>,
}

/// What a node's process consists of, for those who answer clients.
#[derive(Clone)]
struct Process {
    index: usize,
    node: Arc<Node>,
    /// There as soon as it has started.
    broker: Arc<OnceLock<Arc<Broker>>>,
    sessions: Arc<Sessions>,
    history: Arc<Mutex<History>>,
    wrong: Option<Wrong>,
}

/// The name of a node's host in the simulated network.
pub fn host(node: usize) -> String {
    format!("node-{node}")
}

impl SimNode {
    /// A node with an empty disk.
    pub fn new(index: usize, seed: u64, history: Arc<Mutex<History>>, wrong: Option<Wrong>) -> SimNode {
        let disk = SimDisk::new(seed.wrapping_mul(31).wrapping_add(index as u64));
        disk.set_capacity(Some(ROOMY));
        SimNode {
            index,
            disk,
            fatal: Arc::default(),
            start_error: Arc::default(),
            running: Arc::default(),
            history,
            wrong,
        }
    }

    /// From 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether the node has ended its process since this was last asked.
    pub fn take_fatal(&self) -> bool {
        self.fatal.swap(false, Ordering::SeqCst)
    }

    /// The machine lost its power: what was not synced survives in part.
    pub fn disk_lost_power(&self) {
        self.disk.crash();
    }

    /// Planned faults are over.
    pub fn disk_mended(&self) {
        self.disk.heal();
    }

    /// The next sync fails.
    pub fn fail_next_sync(&self) {
        self.disk.fail(Fault { operation: Operation::Sync, after: 0, kind: FaultKind::Io });
    }

    /// The disk has less space left than the reserve that admission keeps, or has enough again.
    pub fn disk_full(&self, full: bool) {
        let used = ROOMY - self.disk.shared().available_space(Path::new("/")).unwrap_or(ROOMY);
        self.disk.set_capacity(Some(if full { used + DISK_RESERVE_BYTES - 1 } else { ROOMY }));
    }
}

/// The simulated wall clock: the simulation's own, the same on every node.
struct SimClock;

impl Clock for SimClock {
    fn now_ms(&self) -> TimestampMs {
        now_ms()
    }
}

/// The simulated time of day, in milliseconds since 1970.
pub fn now_ms() -> TimestampMs {
    turmoil::since_epoch().map_or(0, |since| since.as_millis() as TimestampMs)
}

/// In a frame, in place of a shard's number.
const SERVICE: u32 = u32::MAX;

/// Calls between nodes over the simulated network.
struct SimTransport {
    from: NodeId,
    peers: Vec<Peer>,
}

impl Transport for SimTransport {
    fn call(&self, to: NodeId, line: Line, request: Vec<Bytes>) -> TransportFuture<'_> {
        async move {
            let peer = self.peers.get(to.0 as usize - 1).ok_or(TransportError::Unreachable(to))?;
            let mut frame = BytesMut::new();
            frame.put_u64(self.from.0);
            frame.put_u32(match line {
                Line::Shard(shard) => shard.0,
                Line::Service => SERVICE,
            });
            request.iter().for_each(|chunk| frame.extend_from_slice(chunk));
            match peer.call(frame.freeze()).await {
                // An empty answer says that the other side could make nothing of the call.
                Some(answer) if answer.is_empty() => {
                    Err(TransportError::Failed { to, why: "refused".into() })
                }
                Some(answer) => Ok(answer),
                None => Err(TransportError::Unreachable(to)),
            }
        }
        .boxed()
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(index as u64 + 1)
}

impl SimNode {
    /// Runs the node's process until it is crashed.
    pub async fn serve(self) -> turmoil::Result {
        let fatal = self.fatal.clone();
        let index = self.index;
        let on_fatal = OnFatal::new(move |reason| {
            tracing::info!(index, reason, "the process must end");
            fatal.store(true, Ordering::SeqCst);
        });
        let mut options = NodeOptions::new(node_id(self.index), PathBuf::from("/data"), on_fatal.clone());
        options.data_shards = SHARDS;
        options.voters = (0..NODES).map(node_id).collect();
        options.journal.file_bytes = JOURNAL_FILE_BYTES;
        options.journal.group_bytes_max = JOURNAL_FILE_BYTES as usize / 2;
        options.checkpoint_bytes = CHECKPOINT_BYTES;
        options.disk_reserve_bytes = DISK_RESERVE_BYTES;
        options.digest_interval = Duration::from_secs(2);
        options.scrub_interval = Duration::from_secs(5);
        options.seed = self.index as u64 + 1;
        let transport = Arc::new(SimTransport {
            from: node_id(self.index),
            peers: (0..NODES).map(|node| Peer::new(&host(node), CLUSTER_PORT)).collect(),
        });
        let drive = Drive::Tasks { sync_latency: SYNC_LATENCY };
        let node = match Node::start(options, self.disk.shared(), transport, Arc::new(SimClock), drive).await
        {
            Ok(node) => node,
            Err(error) => {
                // As a real process would: say why, and end.
                tracing::info!(index, %error, "the node does not start");
                self.start_failed(error.to_string());
                return std::future::pending().await;
            }
        };
        *self.running.lock() = Arc::downgrade(&node);
        let process = Process {
            index,
            node: Arc::clone(&node),
            broker: Arc::default(),
            sessions: Arc::default(),
            history: self.history.clone(),
            wrong: self.wrong,
        };
        tokio::spawn(opening::open_partitions(Arc::clone(&node)));
        tokio::spawn(start_broker(process.clone()));
        tokio::spawn(process.clone().close_silent_sessions());
        let rpcs = serve(CLUSTER_PORT, move |frame| answer_rpc(node.clone(), frame).boxed());
        let clients = serve(CLIENT_PORT, move |frame| process.clone().answer(frame).boxed());
        tokio::try_join!(rpcs, clients)?;
        Ok(())
    }

    fn start_failed(&self, why: String) {
        *self.start_error.lock() = Some(why);
        self.fatal.store(true, Ordering::SeqCst);
    }

    /// Why the node did not start, if it did not since this was last asked.
    pub fn take_start_error(&self) -> Option<String> {
        self.start_error.lock().take()
    }
}

/// The broker begins as soon as the shards have leaders, while the node serves the others already.
async fn start_broker(process: Process) {
    let mut options = BrokerOptions::new("sim", [process.index as u8 + 1; 32]);
    options.auto_create_topics = false;
    options.retention_check_interval_ms = RETENTION_MS;
    match Broker::start(process.node.clone(), Arc::new(SimClock), options).await {
        Ok(broker) => drop(process.broker.set(broker)),
        Err(error) => tracing::info!(index = process.index, %error, "the broker does not start"),
    }
}

async fn answer_rpc(node: Arc<Node>, mut frame: Bytes) -> Bytes {
    if frame.len() < 12 {
        return Bytes::new();
    }
    let (from, line) = (NodeId(frame.get_u64()), frame.get_u32());
    let line = if line == SERVICE { Line::Service } else { Line::Shard(ShardId(line)) };
    node.handle_call(from, line, frame).await
}
