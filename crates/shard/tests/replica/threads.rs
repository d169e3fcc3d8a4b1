//! Everything at once, as in production: one thread applies, one writes segments, one makes checkpoints, and
//! readers follow. Whatever moves between memory and files meanwhile, a reader misses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use weir_log::disk::SimDisk;
use weir_model::batch::verify_batch;
use weir_model::entry::Entry;
use weir_shard::{PartitionView, ReadError, SegmentWriter, Shard};

use super::support::{append, batch, open, open_partition, trim, write_all};

const BATCHES: i64 = 10_000;

/// What the threads share.
struct Stage {
    shard: Mutex<Shard>,
    writer: Mutex<SegmentWriter>,
    ended: AtomicBool,
    /// Everything below may be trimmed: all readers are past it.
    passed: [AtomicI64; 2],
}

/// Appends batches of two records whose timestamps are their offsets, and trims behind the readers.
fn apply(stage: &Stage) {
    for number in 0..BATCHES {
        let mut commands = vec![append(1, batch(2, 60, 2 * number, None))];
        if number % 50 == 0 {
            let passed = stage.passed.iter().map(|at| at.load(Ordering::Acquire)).min().unwrap();
            commands.push(trim(1, passed));
        }
        stage.shard.lock().apply(number as u64 + 2, 1, &Entry { time: number, commands }).unwrap();
    }
    stage.ended.store(true, Ordering::Release);
}

fn write(stage: &Stage) {
    while !stage.ended.load(Ordering::Acquire) {
        stage.writer.lock().run_once().unwrap();
        std::thread::yield_now();
    }
}

fn make_checkpoints(stage: &Stage) {
    while !stage.ended.load(Ordering::Acquire) {
        let task = stage.shard.lock().begin_checkpoint(Bytes::new());
        while !task.is_ready() {
            stage.writer.lock().run_once().unwrap();
        }
        task.run().unwrap();
    }
}

/// Reads every batch once, in order.
fn follow(stage: &Stage, partition: &PartitionView, reader: usize) {
    let mut offset = 0;
    while offset < 2 * BATCHES {
        let read = match partition.read(offset, 1_000, reader == 0) {
            Err(ReadError::WouldBlock) => partition.read(offset, 1_000, false),
            read => read,
        };
        let mut bytes = Bytes::from(read.unwrap().chunks.concat());
        while !bytes.is_empty() {
            let header = verify_batch(&bytes).unwrap();
            assert_eq!((header.base_offset, header.base_timestamp), (offset, offset));
            offset = header.last_offset() + 1;
            let batch = bytes.split_to(header.total_bytes());
            assert_eq!(batch.len(), header.total_bytes());
        }
        if offset > 0 {
            // What was read is there, so a search by its time must find it, wherever it is by now.
            let found = partition.find_timestamp(offset - 1).unwrap().unwrap();
            assert_eq!((found.base_offset, found.last_offset), (offset - 2, offset - 1));
        }
        // The last one stays, for the search.
        stage.passed[reader].store((offset - 2).max(0), Ordering::Release);
    }
}

#[test]
fn readers_miss_nothing_while_all_runs_at_once() {
    let disk = SimDisk::new(1);
    let (mut shard, writer, _) = open(&disk).unwrap();
    shard.apply(1, 1, &Entry { time: 0, commands: vec![open_partition(1, 2_048)] }).unwrap();
    let partition: Arc<PartitionView> = shard.view().partition(weir_model::PartitionId(1)).unwrap();
    let stage = Stage {
        shard: Mutex::new(shard),
        writer: Mutex::new(writer),
        ended: AtomicBool::new(false),
        passed: Default::default(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| apply(&stage));
        scope.spawn(|| write(&stage));
        scope.spawn(|| make_checkpoints(&stage));
        scope.spawn(|| follow(&stage, &partition, 0));
        scope.spawn(|| follow(&stage, &partition, 1));
    });
    let (mut shard, mut writer) = (stage.shard.into_inner(), stage.writer.into_inner());
    write_all(&mut writer).unwrap();
    shard.begin_checkpoint(Bytes::new()).run().unwrap();
    let digest = shard.machine().clone().digest();
    disk.crash();
    let (shard, _, recovered) = open(&disk).unwrap();
    assert_eq!(recovered.applied_index, BATCHES as u64 + 1);
    assert_eq!(shard.machine().clone().digest(), digest);
}
