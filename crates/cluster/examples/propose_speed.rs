//! How many durable appends a node alone takes in a second, with so many on their way at once.
//!
//! `cargo run --release -p weir-cluster --example propose_speed -- [DIR] [VALUE_BYTES]`
//!
//! DIR is made, filled and removed again; it should lie on the disk that is asked about.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_cluster::{Clock, Drive, NoTransport, Node, NodeOptions, OnFatal, ShardHandle};
use weir_log::disk::RealDisk;
use weir_model::batch::BatchBuilder;
use weir_model::command::{Command, Outcome};
use weir_model::settings::PartitionSettings;
use weir_model::{NodeId, PartitionId, ShardId, TimestampMs};

const SECONDS: u64 = 3;

/// Counts up: the time of day does not matter here.
struct CountingClock(AtomicI64);

impl Clock for CountingClock {
    fn now_ms(&self) -> TimestampMs {
        1_700_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed) / 1000
    }
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let default = || format!("propose-speed-{}", std::process::id());
    let dir = PathBuf::from(arguments.next().unwrap_or_else(default));
    let value_bytes =
        arguments.next().map_or(Ok(200), |n| n.parse()).map_err(|_| "VALUE_BYTES is no number")?;
    if dir.exists() {
        return Err(format!("{} exists already", dir.display()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let result = runtime.block_on(measure(&dir, value_bytes));
    std::fs::remove_dir_all(&dir).map_err(|error| error.to_string())?;
    result
}

async fn measure(dir: &Path, value_bytes: usize) -> Result<(), String> {
    let on_fatal = OnFatal::new(|reason| eprintln!("fatal: {reason}"));
    let options = NodeOptions::new(NodeId(1), dir, on_fatal);
    let shards = options.data_shards;
    let clock = Arc::new(CountingClock(AtomicI64::new(0)));
    let started = Instant::now();
    let node = Node::start(options, Arc::new(RealDisk), Arc::new(NoTransport), clock, Drive::Threads)
        .await
        .map_err(|error| error.to_string())?;
    node.ready().await.map_err(|error| error.to_string())?;
    println!("ready after {:?}", started.elapsed());

    let mut builder = BatchBuilder::new();
    builder.push(1_700_000_000_000, None, Some(&vec![b'x'; value_bytes]), &[]);
    let batch = builder.build();
    let settings = PartitionSettings::default();
    for shard in 1..=shards {
        let open =
            Command::OpenPartition { partition: PartitionId(1), settings: settings.clone(), epoch_base: 0 };
        handle(&node, shard)?.propose(open).await.map_err(|error| error.to_string())?;
    }
    println!("batches of {} bytes", batch.len());
    for in_flight in [1, 64, 256, 1024] {
        for shards in [1, shards] {
            measure_one(&node, &batch, in_flight, shards).await?;
        }
    }
    node.shutdown().await;
    Ok(())
}

fn handle(node: &Node, shard: u32) -> Result<ShardHandle, String> {
    node.shard(ShardId(shard)).cloned().ok_or_else(|| format!("there is no shard {shard}"))
}

async fn measure_one(node: &Node, batch: &Bytes, in_flight: u32, shards: u32) -> Result<(), String> {
    let count = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let mut lanes = Vec::new();
    for lane in 0..in_flight {
        let shard = handle(node, 1 + lane % shards)?;
        let (batch, count) = (batch.clone(), Arc::clone(&count));
        lanes.push(tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            while Instant::now() < until {
                let began = Instant::now();
                let append = Command::Append { partition: PartitionId(1), batch: batch.clone() };
                match shard.propose(append).await {
                    Ok(Outcome::Appended(_)) => count.fetch_add(1, Ordering::Relaxed),
                    other => return Err(format!("an append came to {other:?}")),
                };
                slowest = slowest.max(began.elapsed());
            }
            Ok(slowest)
        }));
    }
    let mut slowest = Duration::ZERO;
    for lane in lanes {
        slowest = slowest.max(lane.await.map_err(|error| error.to_string())??);
    }
    let rate = count.load(Ordering::Relaxed) as f64 / SECONDS as f64;
    println!("{in_flight:>5} in flight over {shards} shards: {rate:>9.0} appends/s, slowest {slowest:?}");
    Ok(())
}
