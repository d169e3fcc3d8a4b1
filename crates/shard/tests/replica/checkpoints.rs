//! What a checkpoint costs: taking hold of the state a number of pointers, making it durable what has
//! changed.

use bytes::Bytes;
use weir_model::TopicId;
use weir_model::command::{Command, OffsetCommit};
use weir_shard::CheckpointError;

use super::support::{Replica, Traffic, append, batch, names, open_partition};

fn commit(group: &str, partition: i32) -> Command {
    let offset = OffsetCommit {
        topic_id: TopicId([1; 16]),
        partition,
        offset: 1,
        leader_epoch: 0,
        metadata: String::new(),
        committed_at: 0,
    };
    Command::CommitOffsets { group: group.into(), offsets: vec![offset] }
}

#[test]
fn taking_hold_of_the_state_does_not_cost_more_when_there_is_more() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20), open_partition(2, 1 << 20), commit("g", 0)]);
    replica.apply(vec![append(1, batch(1, 0, 0, Some((0, 0, 0))))]);
    let small = replica.shard.begin_checkpoint(Bytes::new()).chunks();
    for producer in 1..2_000 {
        replica.apply(vec![
            append(1, batch(1, 0, 0, Some((producer, 0, 0)))),
            append(2, batch(1, 0, 0, Some((producer, 0, 0)))),
            commit("g", producer as i32),
        ]);
    }
    replica.write().unwrap();
    assert_eq!(replica.shard.begin_checkpoint(Bytes::new()).chunks(), small);
}

#[test]
fn only_what_changed_is_written() {
    let mut replica = Replica::new(1);
    let opens = (0..640).map(|id| open_partition(id, 1 << 20)).collect();
    replica.apply(opens);
    (0..200).for_each(|group| drop(replica.apply(vec![commit(&format!("group-{group}"), 0)])));
    let first = replica.checkpoint().unwrap();
    assert!(first.chunks_written > 100, "{first:?}");
    let idle = replica.checkpoint().unwrap();
    assert_eq!(idle.chunks_written, 0, "{idle:?}");
    replica.apply(vec![append(100, batch(1, 10, 0, None))]);
    let one = replica.checkpoint().unwrap();
    assert_eq!(one.chunks_written, 2, "the root and one chunk of partitions: {one:?}");
    replica.apply(vec![commit("group-3", 0)]);
    let group = replica.checkpoint().unwrap();
    assert_eq!(group.chunks_written, 2, "the root and one chunk of groups: {group:?}");
    replica.reopen();
    assert_eq!(replica.checkpoint().unwrap().chunks_written, 0, "nothing changed over the restart");
}

#[test]
fn state_files_stay_few_and_small() {
    let mut replica = Replica::new(1);
    let mut traffic = Traffic::new(5);
    let opens = (0..6_400).step_by(64).map(|id| open_partition(id, 1 << 20)).collect();
    replica.apply(opens);
    let whole = replica.checkpoint().unwrap().state_bytes;
    for _ in 0..150 {
        let partition = traffic.below(100) as u64 * 64;
        replica.apply(vec![append(partition, batch(1, 0, 0, None))]);
        replica.checkpoint().unwrap();
        let files = names(&replica.disk, "checkpoint");
        assert!(files.len() <= 34, "{files:?}");
    }
    let dir = super::support::shard_dir().join("checkpoint");
    let bytes: u64 = weir_log::disk::Disk::list(&replica.disk, &dir).unwrap().iter().map(|e| e.len).sum();
    assert!(bytes < 6 * whole, "{bytes} bytes for a state of {whole}");
    replica.reopen();
    replica.check();
}

#[test]
fn a_checkpoint_waits_for_the_writer() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20), append(1, batch(1, 10, 0, None))]);
    let task = replica.shard.begin_checkpoint(Bytes::new());
    assert!(!task.is_ready());
    assert_eq!(task.run(), Err(CheckpointError::Unwritten { applied_index: 1 }));
    replica.apply(vec![append(1, batch(1, 10, 0, None))]);
    replica.write().unwrap();
    assert!(task.is_ready());
    assert_eq!(task.run().unwrap().applied_index, 1);
}

#[test]
fn an_older_checkpoint_does_not_replace_a_newer_one() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20)]);
    let old = replica.shard.begin_checkpoint(Bytes::new());
    replica.apply(vec![open_partition(2, 1 << 20)]);
    assert_eq!(replica.checkpoint().unwrap().applied_index, 2);
    assert_eq!(old.run().unwrap().applied_index, 2);
    replica.disk.crash();
    replica.reopen();
    assert_eq!(replica.shard.view().applied_index(), 2);
    replica.check();
}

#[test]
fn blank_entries_count_and_what_the_caller_gave_comes_back() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20)]);
    replica.shard.set_applied(9, 4);
    replica.checkpoint().unwrap();
    replica.disk.kill_process();
    let (_, _, recovered) = super::support::open(&replica.disk).unwrap();
    assert_eq!((recovered.applied_index, recovered.applied_term), (9, 4));
    assert_eq!(recovered.raft_meta, Bytes::from_static(b"raft"));
}

#[test]
fn a_state_that_is_that_of_no_entry_is_never_made_durable() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20)]);
    let commands = vec![open_partition(2, 1 << 20), Command::SetMachineVersion { version: 99 }];
    let entry = weir_model::entry::Entry { time: 0, commands };
    replica.shard.apply(2, 1, &entry).unwrap_err();
    replica.check();
    let checkpoint = replica.shard.begin_checkpoint(Bytes::new()).run();
    assert_eq!(checkpoint, Err(CheckpointError::NotApplied));
    let entry = weir_model::entry::Entry::default();
    assert_eq!(replica.shard.apply(3, 1, &entry), Err(weir_shard::ApplyError::Stopped));
}
