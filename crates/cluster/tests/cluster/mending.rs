//! Segment files in which a bit has changed are mended with what other replicas have, whoever finds it first.

use std::path::PathBuf;
use std::time::Duration;

use weir_cluster::NodeOptions;
use weir_model::NodeId;

use crate::support::{PARTITION, SHARD, open_partition, run, values};
use crate::three::Cluster;

/// Longer than a damaged place waits for being looked at, and than it takes to mend it.
const A_WHILE: Duration = Duration::from_secs(3);

/// Three voters with some segments, and what is in them.
async fn filled(
    seed: u64,
    tune: impl Fn(&mut NodeOptions) + Send + Sync + Clone + 'static,
) -> (Cluster, Vec<String>) {
    let cluster = Cluster::start_tuned(seed, tune).await;
    let leader = cluster.leader().await;
    let shard = cluster.nodes[&leader].shard(SHARD).expect("the shard");
    open_partition(shard).await;
    let all = cluster.append_many(leader, "record", 300).await;
    cluster.settle().await;
    (cluster, all)
}

fn first_segment() -> PathBuf {
    format!("/data/shards/{SHARD}/{PARTITION}/00000000000000000000.log").into()
}

impl Cluster {
    fn flip(&self, node: u64, byte: u64) {
        assert!(self.machines[&NodeId(node)].disk.flip_bit(&first_segment(), byte, 3));
    }

    /// Whether a node can read everything from its first record on.
    fn reads(&self, node: u64) -> Result<(), String> {
        let shard = self.nodes[&NodeId(node)].shard(SHARD).expect("the shard");
        let partition = shard.view().partition(PARTITION).expect("the partition");
        let (mut offset, end) = partition.offsets();
        while offset < end {
            offset = partition.read(offset, 1 << 20, false).map_err(|error| error.to_string())?.next_offset;
        }
        Ok(())
    }
}

#[test]
fn what_a_read_finds_damaged_is_whole_a_moment_later() {
    run(async {
        let (cluster, all) = filled(61, |_| {}).await;
        let sound = cluster.segment_files(NodeId(1));
        for (node, byte) in [(1, 100), (2, 5_000), (3, 20)] {
            cluster.flip(node, byte);
            let found = cluster.reads(node).expect_err("the damage is told");
            assert!(found.contains("corrupt"), "{found}");
            tokio::time::sleep(A_WHILE).await;
            assert_eq!(cluster.segment_files(NodeId(node)), sound, "node {node}");
            assert_eq!(values(cluster.nodes[&NodeId(node)].shard(SHARD).expect("the shard")), all);
            let disk = cluster.machines[&NodeId(node)].disk.shared();
            let left = disk.list(&PathBuf::from(format!("/data/shards/{SHARD}"))).expect("a directory");
            assert!(left.iter().all(|entry| entry.name != "mending"), "nothing is left of it");
        }
    });
}

#[test]
fn what_nobody_reads_is_found_and_mended_by_the_scrubber() {
    run(async {
        let (cluster, _) = filled(62, |options| options.scrub_interval = Duration::from_secs(5)).await;
        let sound = cluster.segment_files(NodeId(1));
        // Several places, in one of which the length of a batch is another.
        [40, 9, 7_000].into_iter().for_each(|byte| cluster.flip(2, byte));
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(cluster.segment_files(NodeId(2)), sound);
    });
}

#[test]
fn one_that_is_damaged_itself_helps_nobody_and_another_does() {
    run(async {
        let (cluster, _) = filled(63, |_| {}).await;
        let sound = cluster.segment_files(NodeId(1));
        let leader = cluster.leader().await.0;
        let follower = (1..=3).find(|node| *node != leader).expect("a follower");
        // The leader is asked first.
        cluster.flip(leader, 100);
        cluster.flip(follower, 200);
        cluster.reads(follower).expect_err("the damage is told");
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(cluster.segment_files(NodeId(follower)), sound);
        assert_ne!(cluster.segment_files(NodeId(leader)), sound, "nobody has looked there yet");
    });
}

#[test]
fn where_no_other_has_it_the_damage_stays_and_is_told_again() {
    run(async {
        let (mut cluster, all) = filled(64, |_| {}).await;
        let sound = cluster.segment_files(NodeId(1));
        for node in [2, 3] {
            cluster.kill(NodeId(node), false).await;
        }
        cluster.flip(1, 100);
        for _ in 0..3 {
            cluster.reads(1).expect_err("the damage is told");
            tokio::time::sleep(A_WHILE).await;
        }
        assert_ne!(cluster.segment_files(NodeId(1)), sound);
        // When the others are back it is tried again, as soon as somebody reads.
        cluster.boot(NodeId(2)).await;
        cluster.leader().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        cluster.reads(1).expect_err("the damage is told");
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(cluster.segment_files(NodeId(1)), sound);
        assert_eq!(values(cluster.nodes[&NodeId(1)].shard(SHARD).expect("the shard")), all);
    });
}
