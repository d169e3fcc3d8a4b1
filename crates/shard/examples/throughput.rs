//! What the paths of a shard cost on this machine, without network and journal: processor time of applying
//! appends, writing segments and reading them, and how long a checkpoint and a restart take.
//!
//! `cargo run --release -p weir-shard --example throughput -- DIRECTORY`

#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_log::disk::RealDisk;
use weir_model::batch::BatchBuilder;
use weir_model::command::Command;
use weir_model::entry::Entry;
use weir_model::settings::PartitionSettings;
use weir_model::{PartitionId, ShardId};
use weir_shard::{SegmentWriter, Shard, ShardOptions};

const PARTITIONS: u64 = 100;
const COMMANDS_PER_ENTRY: u64 = 100;

fn batch(value: usize, producer: Option<(i64, i32)>) -> Bytes {
    let (id, sequence) = producer.unwrap_or((-1, -1));
    let mut batch = BatchBuilder::new().producer(id, if id < 0 { -1 } else { 0 }, sequence);
    batch.push(1_000, None, Some(&vec![b'v'; value]), &[]);
    batch.build()
}

/// Time that this thread has had a processor: a machine that others use too is measured fairly.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap())
}

fn open(dir: &str) -> (Shard, SegmentWriter) {
    let dir = PathBuf::from(dir).join("shard");
    let (shard, writer, recovered) =
        Shard::open(Arc::new(RealDisk), dir, ShardId(1), ShardOptions::default()).unwrap();
    println!("opened at entry {}", recovered.applied_index);
    (shard, writer)
}

fn rate(what: &str, count: u64, bytes: u64, took: Duration) {
    let (each, mb) = (took.as_nanos() as u64 / count.max(1), bytes as f64 / took.as_secs_f64() / 1e6);
    println!("{what:32} {count:9} in {:8.1} ms: {each:7} ns each, {mb:8.0} MB/s", took.as_secs_f64() * 1e3);
}

fn main() {
    let dir = std::env::args().nth(1).expect("the directory to write to");
    let (mut shard, mut writer) = open(&dir);
    let settings = PartitionSettings::default();
    let opens = (0..PARTITIONS).map(|id| Command::OpenPartition {
        partition: PartitionId(id),
        settings: settings.clone(),
        epoch_base: 0,
    });
    let mut index = shard.view().applied_index() + 1;
    shard.apply(index, 1, &Entry { time: 1, commands: opens.collect() }).unwrap();

    for (what, value, producer, count) in [
        ("1 KiB batches", 1_024, false, 200_000u64),
        ("100-byte batches", 100, false, 1_000_000),
        ("100-byte batches, idempotent", 100, true, 1_000_000),
        ("256 KiB batches", 256 << 10, false, 4_000),
    ] {
        let (mut applying, mut writing, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
        let mut sequence = 0;
        // As much at a time as a shard admits before it is written.
        let per_round = ((32 << 20) / (value as u64 * COMMANDS_PER_ENTRY)).max(1);
        for _ in 0..count.div_ceil(COMMANDS_PER_ENTRY * per_round) {
            let mut entry = || {
                let append = |at| Command::Append {
                    partition: PartitionId(at % PARTITIONS),
                    batch: batch(value, producer.then_some((7, sequence))),
                };
                let commands: Vec<Command> = (0..COMMANDS_PER_ENTRY).map(append).collect();
                sequence += 1;
                Entry { time: 1, commands }
            };
            let entries: Vec<Entry> = (0..per_round).map(|_| entry()).collect();
            let started = cpu_time();
            for entry in &entries {
                index += 1;
                shard.apply(index, 1, entry).unwrap();
            }
            applying += cpu_time() - started;
            bytes += shard.view().unwritten_bytes() as u64;
            let started = cpu_time();
            while writer.run_once().unwrap().more {}
            writing += cpu_time() - started;
        }
        rate(&format!("apply {what}"), sequence as u64 * COMMANDS_PER_ENTRY, bytes, applying);
        rate(&format!("write {what}"), sequence as u64 * COMMANDS_PER_ENTRY, bytes, writing);
    }

    let started = Instant::now();
    let task = shard.begin_checkpoint(Bytes::new());
    let begun = started.elapsed();
    let started = Instant::now();
    let done = task.run().unwrap();
    println!("checkpoint: begun in {begun:?}, {done:?} in {:?}", started.elapsed());
    index += 1;
    let started = Instant::now();
    let entry = Entry {
        time: 1,
        commands: vec![Command::Append { partition: PartitionId(1), batch: batch(1, None) }],
    };
    shard.apply(index, 1, &entry).unwrap();
    println!("the first apply behind it: {:?}", started.elapsed());

    for (what, cached_only) in [("read files, cached only", true), ("read files", false)] {
        let view = shard.view();
        let (mut bytes, mut reads) = (0, 0);
        let started = cpu_time();
        for id in 0..PARTITIONS {
            let partition = view.partition(PartitionId(id)).unwrap();
            let mut offset = 0;
            while let Ok(read) = partition.read(offset, 1 << 20, cached_only) {
                if read.batches == 0 {
                    break;
                }
                (offset, bytes, reads) = (read.next_offset, bytes + read.bytes as u64, reads + 1);
            }
        }
        rate(what, reads, bytes, cpu_time() - started);
    }
    let started = Instant::now();
    drop((shard, writer));
    let _ = open(&dir);
    println!("restart: {:?}", started.elapsed());
}
