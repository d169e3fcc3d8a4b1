//! Bounds, and what is shared between a state and a hold on it.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_model::batch::{BatchHeader, StoredBatch};

use super::chunk::{Buckets, Chunk};
use super::closed::ClosedPartitions;
use super::epochs::EpochTable;
use super::partition::PartitionState;
use super::producers::{Producers, Verdict};
use crate::limits::*;
use weir_model::PartitionId;
use weir_model::settings::PartitionSettings;
use weir_model::wire::{Reader, Writer};

fn header(id: i64, sequence: i32) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        batch_length: 49,
        leader_epoch: -1,
        crc: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: id,
        producer_epoch: 0,
        base_sequence: sequence,
        record_count: 1,
    }
}

fn append(producers: &mut Producers, id: i64, sequence: i32, offset: i64, now: i64) {
    let header = header(id, sequence);
    let batch = StoredBatch::place(&header, Bytes::from_static(&[0; 61]), offset, 0);
    producers.appended(&header, &batch, now);
}

#[test]
fn offsets_that_cannot_be_are_an_error() {
    for next_offset in [i64::MIN, -1, i64::MAX] {
        let mut out = Writer::new();
        PartitionSettings::default().encode(&mut out);
        out.i32(0);
        out.u64(0);
        out.i64(0);
        out.i64(next_offset);
        out.u32(0);
        EpochTable::default().encode(&mut out);
        Producers::default().encode(&mut out);
        assert!(PartitionState::decode(&mut Reader::new("a partition", out.finish())).is_err());
    }
}

#[test]
fn the_longest_idle_producers_make_room() {
    let mut producers = Producers::default();
    let count = PRODUCERS_PER_PARTITION_MAX as i64;
    for id in 0..count {
        append(&mut producers, id, 0, id, 1_000 + id);
    }
    // One of the oldest is heard of again.
    append(&mut producers, 3, 1, count, 1_000 + count);
    assert_eq!(producers.len(), PRODUCERS_PER_PARTITION_MAX);
    append(&mut producers, count, 0, count + 1, 2_000 + count);
    assert!(producers.len() <= PRODUCERS_PER_PARTITION_MAX);
    assert!(producers.get(0).is_none());
    assert!(producers.get(3).is_some());
    assert!(producers.get(count).is_some());
    assert!(producers.get(count - 1).is_some());
    // One that was forgotten may begin anywhere.
    assert_eq!(producers.judge(&header(0, 77), 2_000 + count), Verdict::Append);
}

#[test]
fn expired_producers_are_swept_before_others_are_evicted() {
    let mut producers = Producers::default();
    for id in 0..100 {
        append(&mut producers, id, 0, id, 1_000);
    }
    append(&mut producers, 200, 0, 100, 1_000 + PRODUCER_EXPIRY_MS);
    assert_eq!(producers.len(), 1);
}

#[test]
fn epochs_are_bounded_and_the_oldest_go() {
    let mut epochs = EpochTable::default();
    for epoch in 0..=EPOCHS_PER_PARTITION_MAX as i32 {
        epochs.appended(epoch, i64::from(epoch) * 10);
    }
    assert_eq!(epochs.starts().len(), EPOCHS_PER_PARTITION_MAX);
    assert_eq!(epochs.at(5), -1);
    assert_eq!(epochs.at(10), 1);
}

#[test]
fn closed_partitions_are_remembered_within_a_bound() {
    let mut closed = ClosedPartitions::default();
    for id in 0..CLOSED_PARTITIONS_MAX as u64 + 10 {
        closed.insert(PartitionId(2 * id));
    }
    assert!(!closed.may_open(PartitionId(0)), "forgotten one by one, but not as a whole");
    assert!(!closed.may_open(PartitionId(2 * CLOSED_PARTITIONS_MAX as u64)));
    assert!(closed.may_open(PartitionId(2 * CLOSED_PARTITIONS_MAX as u64 + 1)));
    assert!(!closed.contains(PartitionId(0)));
}

#[test]
fn a_hold_on_the_state_shares_every_chunk_until_it_changes() {
    let mut buckets: Buckets<String, u32> = Buckets::default();
    for number in 0..10_000 {
        buckets.insert(format!("key {number}"), number, 1);
    }
    let held = buckets.clone();
    *buckets.change("key 7", 2).unwrap() = 0;
    type Chunks<'a> = BTreeMap<u64, &'a Chunk<BTreeMap<String, u32>>>;
    let (now, then): (Chunks, Chunks) = (buckets.chunks().collect(), held.chunks().collect());
    let copied = now.iter().filter(|(key, chunk)| !chunk.is_shared_with(then[key])).count();
    assert_eq!(copied, 1);
    assert_eq!(held.get("key 7"), Some(&7));
    assert_eq!(now.values().filter(|chunk| chunk.changed_at() == 2).count(), 1);
}
