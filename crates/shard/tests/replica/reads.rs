//! Reads against a naive record of what was appended, while everything moves.

use weir_shard::{BatchPosition, ReadError};

use super::support::{Expected, Replica, Traffic, append, batch, open_partition, trim};

fn check_read(replica: &Replica, traffic: &mut Traffic) {
    let partitions = replica.shard.view().partitions();
    let Some(partition) = partitions.get(traffic.below(partitions.len().max(1) as i64) as usize) else {
        return;
    };
    let log = &replica.expected[&partition.id()];
    let offset = traffic.below(log.next_offset + 3) - 1;
    let max_bytes = traffic.below(3_000) as usize;
    let cached_only = traffic.chance(2);
    let read = partition.read(offset, max_bytes, cached_only);
    if !(log.log_start..=log.next_offset).contains(&offset) {
        let (log_start, next_offset) = (log.log_start, log.next_offset);
        assert_eq!(read, Err(ReadError::OutOfRange { log_start, next_offset }));
        return;
    }
    let read = match read {
        // A file that is not open cannot be looked into without waiting.
        Err(ReadError::WouldBlock) if cached_only => partition.read(offset, max_bytes, false).unwrap(),
        read => read.unwrap(),
    };
    let got: Vec<u8> = read.chunks.concat();
    let wanted = log.bytes_from(offset);
    assert!(wanted.starts_with(&got));
    assert_eq!(got.len(), read.bytes);
    let behind: Vec<_> = log.batches.iter().filter(|batch| batch.last_offset >= offset).collect();
    assert_eq!(read.batches == 0, behind.is_empty(), "at least one batch if there is one");
    let taken: usize = behind[..read.batches].iter().map(|batch| batch.len()).sum();
    assert_eq!(taken, read.bytes);
    assert!(read.batches <= 1 || read.bytes <= max_bytes);
    if let Some(next) = behind.get(read.batches)
        && !cached_only
    {
        assert!(read.batches > 0 && taken + next.len() > max_bytes, "more would have fitted");
    }
    assert_eq!(read.next_offset, behind[..read.batches].last().map_or(offset, |b| b.last_offset + 1));
}

fn find(log: &Expected, at: i64) -> Option<BatchPosition> {
    let mut left = log.batches.iter().filter(|batch| batch.last_offset >= log.log_start);
    left.find(|batch| batch.max_timestamp >= at).map(|batch| BatchPosition {
        base_offset: batch.base_offset,
        last_offset: batch.last_offset,
        max_timestamp: batch.max_timestamp,
        leader_epoch: batch.leader_epoch,
    })
}

fn check_lookups(replica: &Replica, traffic: &mut Traffic) {
    for partition in replica.shard.view().partitions() {
        let log = &replica.expected[&partition.id()];
        let newest = log.batches.iter().map(|batch| batch.max_timestamp).max().unwrap_or(0);
        let at = newest - traffic.below(20_000) + 100;
        assert_eq!(partition.find_timestamp(at).unwrap(), find(log, at));
        for batch in log.batches.iter().filter(|batch| batch.last_offset >= log.log_start) {
            let offset = batch.last_offset;
            assert_eq!(partition.epoch_at(offset), batch.leader_epoch);
        }
    }
}

#[test]
fn reads_see_what_was_appended_wherever_it_is() {
    for seed in 0..15 {
        let mut traffic = Traffic::new(seed);
        let mut replica = Replica::new(seed);
        for _ in 0..250 {
            let entry = traffic.entry();
            replica.apply_entry(entry);
            match traffic.below(20) {
                0..=5 => drop(replica.writer.run_once().unwrap()),
                6 => drop(replica.checkpoint().unwrap()),
                7 => replica.reopen(),
                8 => check_lookups(&replica, &mut traffic),
                _ => {}
            }
            for _ in 0..4 {
                check_read(&replica, &mut traffic);
            }
        }
        replica.check();
    }
}

#[test]
fn a_read_goes_on_from_files_into_the_tail() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20)]);
    for _ in 0..3 {
        replica.apply(vec![append(1, batch(2, 100, 0, None))]);
    }
    replica.write().unwrap();
    replica.apply(vec![append(1, batch(2, 100, 0, None))]);
    let partition = replica.partition(1);
    assert!(partition.unwritten_bytes() > 0);
    let read = partition.read(0, 1 << 20, true).unwrap();
    assert_eq!((read.batches, read.next_offset), (4, 8));
    assert_eq!(read.bytes as u64, partition.bytes());
    replica.check();
}

#[test]
fn what_the_disk_must_be_waited_for_is_not_read_unless_asked_for() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20), append(1, batch(2, 100, 0, None))]);
    let partition = replica.partition(1);
    replica.disk.set_cached(false);
    assert_eq!(partition.read(0, 100, true).unwrap().batches, 1, "the tail is in memory");
    replica.write().unwrap();
    assert_eq!(partition.read(0, 100, true), Err(ReadError::WouldBlock));
    assert_eq!(partition.read(0, 100, false).unwrap().batches, 1);
}

#[test]
fn records_of_a_batch_that_is_cut_by_the_log_start_come_with_it() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20), append(1, batch(10, 10, 0, None)), trim(1, 4)]);
    let partition = replica.partition(1);
    assert_eq!(partition.log_start(), 4);
    let read = partition.read(4, 1, false).unwrap();
    assert_eq!((read.batches, read.next_offset), (1, 10));
    assert!(matches!(
        partition.read(3, 1, false),
        Err(ReadError::OutOfRange { log_start: 4, next_offset: 10 })
    ));
}

#[test]
fn a_closed_partition_says_so() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20), append(1, batch(1, 10, 0, None))]);
    let partition = replica.partition(1);
    replica.apply(vec![super::support::close(1)]);
    assert_eq!(partition.read(0, 1, false), Err(ReadError::Closed));
    assert_eq!(partition.find_timestamp(0), Err(ReadError::Closed));
    assert!(partition.is_closed());
}

#[test]
fn epochs_answer_as_kafka_does() {
    let mut replica = Replica::new(1);
    let lead = || weir_model::command::Command::Lead { node: weir_model::NodeId(1) };
    let one = || append(1, batch(1, 10, 0, None));
    replica.apply(vec![open_partition(1, 1 << 20), one(), one(), lead(), lead(), one(), lead(), one()]);
    let partition = replica.partition(1);
    assert_eq!(partition.leader_epoch(), 3);
    // Epoch 0 has offsets 0 and 1, epoch 2 has 2, epoch 3 has 3; epoch 1 has none.
    assert_eq!([0, 1, 2, 3].map(|offset| partition.epoch_at(offset)), [0, 0, 2, 3]);
    let ends = [-1, 0, 1, 2, 3, 4].map(|epoch| partition.end_offset_for_epoch(epoch));
    assert_eq!(ends, [(-1, -1), (0, 2), (0, 2), (2, 3), (3, 4), (-1, -1)]);
    replica.apply(vec![trim(1, 2)]);
    assert_eq!(partition.end_offset_for_epoch(0), (0, 2));
    replica.checkpoint().unwrap();
    replica.reopen();
    assert_eq!(replica.partition(1).end_offset_for_epoch(2), (2, 3));
    assert_eq!(replica.partition(1).leader_epoch(), 3);
}
