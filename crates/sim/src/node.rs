//! One node of the simulated cluster: the real replicas over a simulated disk, answering the other
//! nodes on one port and clients on another.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::sleep;
use weir_cluster::{
    Clock, Drive, Node, NodeOptions, OnFatal, ProposeError, Transport, TransportError, TransportFuture,
};
use weir_log::disk::{Fault, FaultKind, Operation, SimDisk};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::settings::PartitionSettings;
use weir_model::{NodeId, PartitionId, ShardId, TimestampMs};

use crate::clients::{Answer, Ask, CLIENT_PORT, host, partition_id};
use crate::net::{Peer, serve};
use crate::scenario::{NODES, PARTITIONS, SHARDS};

/// Port on which a node answers the other nodes.
const CLUSTER_PORT: u16 = 9348;

/// A disk of this size is never full unless a fault says so, in bytes.
const ROOMY: u64 = 8 << 30;

/// Small files, so that a run sees them recycled.
const JOURNAL_FILE_BYTES: u64 = 1 << 20;

/// Small segments, so that a run sees many of them.
const SEGMENT_BYTES: u32 = 64 << 10;

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
}

impl SimNode {
    /// A node with an empty disk.
    pub fn new(index: usize, seed: u64) -> SimNode {
        let disk = SimDisk::new(seed.wrapping_mul(31).wrapping_add(index as u64));
        disk.set_capacity(Some(ROOMY));
        SimNode { index, disk, fatal: Arc::default(), start_error: Arc::default() }
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
        turmoil::since_epoch().map_or(0, |since| since.as_millis() as TimestampMs)
    }
}

/// Calls between nodes over the simulated network.
struct SimTransport {
    from: NodeId,
    peers: Vec<Peer>,
}

impl Transport for SimTransport {
    fn call(&self, to: NodeId, shard: ShardId, request: Vec<Bytes>) -> TransportFuture<'_> {
        async move {
            let peer = self.peers.get(to.0 as usize - 1).ok_or(TransportError::Unreachable(to))?;
            let mut frame = BytesMut::new();
            frame.put_u64(self.from.0);
            frame.put_u32(shard.0);
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
        tokio::spawn(open_partitions(node.clone()));
        let rpc_node = node.clone();
        let rpcs = serve(CLUSTER_PORT, move |frame| answer_rpc(rpc_node.clone(), frame).boxed());
        let clients = serve(CLIENT_PORT, move |frame| answer_client(node.clone(), frame).boxed());
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

async fn answer_rpc(node: Arc<Node>, mut frame: Bytes) -> Bytes {
    if frame.len() < 12 {
        return Bytes::new();
    }
    let (from, shard) = (NodeId(frame.get_u64()), ShardId(frame.get_u32()));
    node.handle_rpc(from, shard, frame).await
}

/// Makes the partitions known to their shards, whoever leads; a repeat changes nothing.
async fn open_partitions(node: Arc<Node>) {
    for partition in 0..PARTITIONS {
        let settings = PartitionSettings { segment_bytes: SEGMENT_BYTES, ..PartitionSettings::default() };
        let command = Command::OpenPartition { partition: partition_id(partition), settings, epoch_base: 0 };
        loop {
            let Some(shard) = node.shard(shard_of(partition_id(partition))) else { return };
            if shard.view().partition(partition_id(partition)).is_some()
                || matches!(shard.propose(command.clone()).await, Ok(Outcome::Done))
            {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn shard_of(partition: PartitionId) -> ShardId {
    ShardId(1 + (partition.0 % u64::from(SHARDS)) as u32)
}

async fn answer_client(node: Arc<Node>, frame: Bytes) -> Bytes {
    let answer = match Ask::decode(frame) {
        Some(Ask::Append(partition, batch)) => append(&node, partition, batch).await,
        Some(Ask::Read(partition, offset, max_bytes)) => read(&node, partition, offset, max_bytes),
        None => Answer::Refused("not a request".into()),
    };
    answer.encode()
}

async fn append(node: &Node, partition: PartitionId, batch: Bytes) -> Answer {
    let Some(shard) = node.shard(shard_of(partition)) else { return Answer::Retry };
    match shard.propose(Command::Append { partition, batch }).await {
        Ok(Outcome::Appended(appended)) => Answer::Appended(appended.base_offset),
        Ok(Outcome::Refused(Refusal::UnknownPartition(_))) => Answer::Retry,
        Ok(other) => Answer::Refused(format!("{other:?}")),
        Err(ProposeError::TooLarge { .. }) => Answer::Refused("too large".into()),
        Err(_) => Answer::Retry,
    }
}

fn read(node: &Node, partition: PartitionId, offset: i64, max_bytes: u32) -> Answer {
    let Some(shard) = node.shard(shard_of(partition)) else { return Answer::Retry };
    let Some(view) = shard.view().partition(partition) else { return Answer::Retry };
    let end = view.next_offset();
    if offset >= end {
        // A follower may be behind: that is no error, there is only nothing yet.
        return Answer::Batches(end, Bytes::new());
    }
    match view.read(offset, max_bytes as usize, false) {
        Ok(out) => {
            let mut all = BytesMut::with_capacity(out.bytes);
            out.chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
            Answer::Batches(end, all.freeze())
        }
        Err(error) => {
            tracing::info!(%error, offset, "read");
            Answer::Retry
        }
    }
}
