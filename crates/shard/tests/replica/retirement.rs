//! Files of what was trimmed or closed go when a durable checkpoint does not name them, not earlier.

use super::support::{Replica, append, batch, close, content, names, open_partition, shard_dir, trim};
use weir_log::disk::{Disk, OpenMode};

fn logs(replica: &Replica, partition: u64) -> Vec<String> {
    let mut names = names(&replica.disk, &partition.to_string());
    names.retain(|name| name.ends_with(".log"));
    names
}

/// A partition with segments at 0, 10 and 20.
fn with_three_segments() -> Replica {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(7, 1024)]);
    for _ in 0..3 {
        replica.apply(vec![append(7, batch(10, 60, 0, None))]);
    }
    replica
}

#[test]
fn trimmed_segments_go_with_the_next_checkpoint() {
    let mut replica = with_three_segments();
    replica.checkpoint().unwrap();
    assert_eq!(logs(&replica, 7).len(), 3);
    replica.apply(vec![trim(7, 20)]);
    replica.write().unwrap();
    assert_eq!(logs(&replica, 7).len(), 3, "a restart would need them");
    replica.reopen();
    replica.check();
    replica.checkpoint().unwrap();
    assert_eq!(logs(&replica, 7), ["00000000000000000020.log"]);
    replica.check();
    replica.reopen();
    replica.check();
}

#[test]
fn a_partition_of_which_everything_is_trimmed_goes_on_behind() {
    let mut replica = with_three_segments();
    replica.apply(vec![trim(7, 30)]);
    replica.checkpoint().unwrap();
    assert_eq!(logs(&replica, 7), Vec::<String>::new());
    replica.reopen();
    replica.apply(vec![append(7, batch(1, 60, 0, None))]);
    replica.write().unwrap();
    assert_eq!(logs(&replica, 7), ["00000000000000000030.log"]);
    replica.check();
    replica.checkpoint().unwrap();
    replica.reopen();
    replica.check();
}

#[test]
fn a_trim_behind_a_checkpoint_that_was_begun_keeps_what_that_names() {
    let mut replica = with_three_segments();
    let task = replica.shard.begin_checkpoint(Default::default());
    replica.apply(vec![trim(7, 30), close(7)]);
    replica.write().unwrap();
    task.run().unwrap();
    assert_eq!(logs(&replica, 7).len(), 3);
    // Only that checkpoint, without what came behind it.
    replica.disk.crash();
    let (shard, _, recovered) = super::support::open(&replica.disk).unwrap();
    assert_eq!(recovered.applied_index, 4);
    let partition = shard.view().partition(weir_model::PartitionId(7)).unwrap();
    assert_eq!(super::support::read_all(&partition, 0, 100).len() as u64, partition.bytes());
}

#[test]
fn a_closed_partition_leaves_with_the_next_checkpoint() {
    let mut replica = with_three_segments();
    replica.apply(vec![open_partition(8, 1024), append(8, batch(1, 10, 0, None))]);
    replica.checkpoint().unwrap();
    replica.apply(vec![close(7)]);
    assert_eq!(logs(&replica, 7).len(), 3);
    replica.checkpoint().unwrap();
    assert!(!names(&replica.disk, "").contains(&"7".to_owned()));
    replica.reopen();
    replica.check();
}

#[test]
fn a_closed_partition_whose_files_outlived_the_process_leaves_at_the_next_start() {
    let mut replica = with_three_segments();
    replica.checkpoint().unwrap();
    replica.apply(vec![close(7)]);
    replica.checkpoint().unwrap();
    // As if the process had died right behind the manifest.
    let dir = shard_dir().join("7");
    replica.disk.create_dir_all(&dir).unwrap();
    replica.disk.open(&dir.join("00000000000000000000.log"), OpenMode::CreateNew).unwrap();
    replica.disk.create_dir_all(&shard_dir().join("99")).unwrap();
    replica.reopen();
    let left = names(&replica.disk, "");
    assert!(!left.contains(&"7".to_owned()));
    assert!(left.contains(&"99".to_owned()), "what is not known is left alone");
}

#[test]
fn somebody_who_reads_keeps_what_is_trimmed_readable() {
    let mut replica = with_three_segments();
    replica.checkpoint().unwrap();
    let partition = replica.partition(7);
    let read = partition.read(0, 1 << 20, false).unwrap();
    replica.apply(vec![trim(7, 30)]);
    replica.checkpoint().unwrap();
    assert_eq!(read.chunks.concat(), replica.expected[&partition.id()].bytes_from(0));
}

#[test]
fn files_of_a_partition_that_was_opened_behind_the_checkpoint_are_written_anew() {
    let mut replica = with_three_segments();
    replica.write().unwrap();
    let before = content(&replica.disk, "7/00000000000000000010.log");
    replica.reopen();
    replica.write().unwrap();
    assert_eq!(content(&replica.disk, "7/00000000000000000010.log"), before);
    replica.checkpoint().unwrap();
    let names = names(&replica.disk, "7");
    assert!(names.iter().all(|name| !name.ends_with(".aside")), "{names:?}");
    replica.check();
}
