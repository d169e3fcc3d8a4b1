//! One segment of another replica over a damaged one of the own.

use weir_log::disk::Disk;
use weir_model::{PartitionId, SegmentId};
use weir_shard::{Mending, SnapshotError};

use super::snapshots::fill;
use super::support::{Replica, open_partition, shard_dir};

const PARTITION: PartitionId = PartitionId(1);

/// Two replicas with the same three segments or more.
fn twins() -> (Replica, Replica) {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024)]);
    fill(&mut leader, 1, 30);
    let mut follower = leader.twin(2);
    for replica in [&mut leader, &mut follower] {
        replica.checkpoint().unwrap();
    }
    (leader, follower)
}

fn begin(follower: &Replica) -> Mending {
    let entry = follower.partition(1).segments_in_files()[0];
    follower.shard.snapshots().mend(PARTITION, entry).unwrap()
}

/// Brings what is wanted of the first segment.
fn bring(mending: &mut Mending, leader: &Replica, change: impl Fn(&mut Vec<u8>)) {
    while let Some((from, to)) = mending.wanted() {
        let segment = SegmentId { base: 0, generation: 0 };
        let bytes = leader.partition(1).segment_bytes(segment, from, (to - from) as usize).unwrap().unwrap();
        let mut bytes = bytes.to_vec();
        change(&mut bytes);
        mending.take(&bytes).unwrap();
    }
}

#[test]
fn what_differs_is_written_over_and_nothing_else() {
    let (leader, mut follower) = twins();
    let path = shard_dir().join("1/00000000000000000000.log");
    for bit in [(300, 2), (301, 0), (12, 7)] {
        assert!(follower.disk.flip_bit(&path, bit.0, bit.1));
    }
    let mut mending = begin(&follower);
    bring(&mut mending, &leader, |_| {});
    assert_eq!(mending.finish().unwrap(), 3);
    follower.check();
    // It is durable.
    follower.disk.crash();
    follower.reopen();
    follower.check();
    let mut mending = begin(&follower);
    bring(&mut mending, &leader, |_| {});
    assert_eq!(mending.finish().unwrap(), 0, "what is sound is found to be the same");
}

#[test]
fn what_is_damaged_itself_mends_nothing() {
    let (leader, follower) = twins();
    let path = shard_dir().join("1/00000000000000000000.log");
    assert!(follower.disk.flip_bit(&path, 300, 2));
    let before =
        follower.partition(1).segment_bytes(SegmentId { base: 0, generation: 0 }, 0, 1 << 20).unwrap();
    for (byte, bits) in [(500, 1), (3, 1), (16, 0xff)] {
        let mut mending = begin(&follower);
        bring(&mut mending, &leader, |bytes| bytes[byte] ^= bits);
        let error = mending.finish().unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{error}");
        let after =
            follower.partition(1).segment_bytes(SegmentId { base: 0, generation: 0 }, 0, 1 << 20).unwrap();
        assert_eq!(after, before);
    }
    // An attempt that is given up is in the way of none, and a start takes it away.
    drop(begin(&follower));
    let mut mending = begin(&follower);
    bring(&mut mending, &leader, |_| {});
    drop(mending);
    let mut follower = follower;
    follower.reopen();
    assert!(follower.disk.list(&shard_dir()).unwrap().iter().all(|entry| entry.name != "mending"));
}

#[test]
fn a_segment_that_is_not_there_has_no_bytes() {
    let (leader, _) = twins();
    let bytes = |base, generation, from| {
        leader.partition(1).segment_bytes(SegmentId { base, generation }, from, 100).unwrap()
    };
    assert_eq!(bytes(1, 0, 0), None);
    assert_eq!(bytes(0, 1, 0), None);
    assert_eq!(bytes(0, 0, 1 << 40).map(|bytes| bytes.len()), Some(0));
    assert_eq!(bytes(0, 0, 0).map(|bytes| bytes.len()), Some(100));
}
