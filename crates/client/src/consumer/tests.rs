//! Batches into records, and who reads what.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use weir_model::batch::{BatchBuilder, BatchHeader, Compression, StoredBatch};

use super::assign::{Reader, assign};
use super::records::{Batches, next_offset};
use super::{ConsumedRecord, State};

/// A batch of the numbers in this range, at their own offsets.
fn batch(numbers: std::ops::Range<i64>, compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new();
    for number in numbers.clone() {
        builder.push(1000 + number, None, Some(number.to_string().as_bytes()), &[]);
    }
    let section = weir_compression::compress(compression, None, builder.section()).expect("compresses");
    let bytes = builder.build_with(compression, &section);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    StoredBatch::place(&header, bytes, numbers.start, 3).to_contiguous()
}

fn offsets(batches: &[Bytes], from: i64) -> Vec<Result<i64, i64>> {
    let all = batches.iter().fold(BytesMut::new(), |mut all, batch| {
        all.extend_from_slice(batch);
        all
    });
    Batches::new(all.freeze(), from).map(|r| r.map(|r| r.offset).map_err(|e| e.offset)).collect()
}

#[test]
fn records_before_the_offset_asked_for_are_passed_over() {
    for compression in
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let batches = [batch(0..4, compression), batch(4..8, compression)];
        assert_eq!(offsets(&batches, 2), [2, 3, 4, 5, 6, 7].map(Ok));
        assert_eq!(offsets(&batches, 5), [5, 6, 7].map(Ok));
    }
}

#[test]
fn a_batch_that_is_cut_short_is_left_for_the_next_answer() {
    let whole = batch(0..4, Compression::None);
    let cut = batch(4..8, Compression::None);
    for length in [1, 60, 61, cut.len() - 1] {
        let batches = [whole.clone(), cut.slice(..length)];
        assert_eq!(offsets(&batches, 0), [0, 1, 2, 3].map(Ok));
    }
    let both: Bytes = [whole.as_ref(), &cut[..70]].concat().into();
    assert_eq!(next_offset(&both), Some(4));
    assert_eq!(next_offset(&cut.slice(..70)), None);
}

#[test]
fn a_damaged_batch_is_an_error_at_its_place_and_the_end() {
    let mut damaged = batch(4..8, Compression::None).to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let batches = [batch(0..4, Compression::None), damaged.into(), batch(8..12, Compression::None)];
    assert_eq!(offsets(&batches, 0), [Ok(0), Ok(1), Ok(2), Ok(3), Err(4)]);
}

fn reader(member: &str, instance: Option<&str>, topics: &[&str]) -> Reader {
    Reader {
        member_id: member.into(),
        instance_id: instance.map(str::to_owned),
        topics: topics.iter().map(|topic| topic.to_string()).collect(),
    }
}

/// Who reads what, as `member: topic/partitions`.
fn assigned(readers: &[Reader], partitions: &[(&str, usize)]) -> Vec<String> {
    let partitions: BTreeMap<String, usize> =
        partitions.iter().map(|(topic, count)| (topic.to_string(), *count)).collect();
    assign(readers, &partitions)
        .into_iter()
        .map(|(member, topics)| {
            let topics: Vec<String> =
                topics.into_iter().map(|(topic, partitions)| format!("{topic}/{partitions:?}")).collect();
            format!("{member}: {}", topics.join(" "))
        })
        .collect()
}

#[test]
fn partitions_are_shared_out_in_ranges() {
    let readers = [reader("b", None, &["t", "u"]), reader("a", None, &["t"]), reader("c", None, &["t"])];
    assert_eq!(
        assigned(&readers, &[("t", 8), ("u", 2)]),
        ["a: t/[0, 1, 2]", "b: t/[3, 4, 5] u/[0, 1]", "c: t/[6, 7]"]
    );
    let two = [reader("a", None, &["t"]), reader("b", None, &["t"])];
    assert_eq!(assigned(&two, &[("t", 1)]), ["a: t/[0]", "b: "]);
}

#[test]
fn a_static_member_keeps_its_place_whatever_its_id_is() {
    let before = [reader("x", Some("1"), &["t"]), reader("b", Some("2"), &["t"])];
    let after = [reader("x", Some("1"), &["t"]), reader("a", Some("2"), &["t"])];
    assert_eq!(assigned(&before, &[("t", 2)]), ["b: t/[1]", "x: t/[0]"]);
    assert_eq!(assigned(&after, &[("t", 2)]), ["a: t/[1]", "x: t/[0]"]);
}

fn record(epoch: u64, partition: i32, offset: i64) -> ConsumedRecord {
    ConsumedRecord { partition, offset, timestamp_ms: 0, key: None, value: None, headers: Vec::new(), epoch }
}

#[test]
fn only_what_is_acknowledged_is_committed_and_only_under_its_assignment() {
    let mut state = State::default();
    let epoch = state.assign(&BTreeMap::from([(0, 10), (1, 0)]));
    assert_eq!(state.uncommitted(), BTreeMap::new());
    assert!(state.ack(&record(epoch, 0, 12)));
    assert!(state.ack(&record(epoch, 0, 11)), "an earlier one does not move it back");
    assert!(!state.ack(&record(epoch, 5, 1)), "a partition that is not ours");
    assert_eq!(state.uncommitted(), BTreeMap::from([(0, 13)]));
    state.committed(epoch, &BTreeMap::from([(0, 13)]));
    assert_eq!(state.uncommitted(), BTreeMap::new());
    state.revoke();
    assert!(!state.ack(&record(epoch, 0, 13)), "the partition is somebody else's by now");
    let assigned: BTreeSet<i32> = state.positions.keys().copied().collect();
    assert_eq!(assigned, BTreeSet::new());
}
