//! What does not outlive a node's start: its temporary shard.

use std::path::Path;
use std::time::Duration;

use weir_cluster::{Node, ShardHandle};
use weir_log::disk::{Disk, Fault, FaultKind, Operation};
use weir_model::command::{Command, Outcome};
use weir_model::{NodeId, ShardId};

use crate::support::{Machine, PARTITION, SHARD, open_partition, put, run, values};

/// Where its partition's files are.
const DIR: &str = "/data/temporary/7";

fn temporary(node: &Node) -> &ShardHandle {
    node.shard(node.temporary()).expect("the temporary shard")
}

#[test]
fn it_serves_as_any_shard_does_and_is_empty_after_a_start() {
    run(async {
        let machine = Machine::alone(1);
        let node = machine.start().await;
        assert_eq!(node.temporary().temporary_of(), Some(NodeId(1)));
        assert!(!node.data_shards().contains(&node.temporary()));
        let shard = temporary(&node);
        assert!(shard.leadership().ready);
        assert_eq!(shard.voters(), [NodeId(1)]);
        open_partition(shard).await;
        for round in 0..100 {
            assert_eq!(put(shard, &format!("value {round}")).await, Ok(round));
        }
        assert_eq!(shard.linearize().await, Ok(()));
        assert_eq!(values(shard).len(), 100);
        // Long enough for the segment writer.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shard.view().unwritten_bytes(), 0);
        assert_eq!(values(shard).len(), 100);
        assert!(!machine.disk.list(Path::new(DIR)).expect("a directory").is_empty());

        machine.disk.crash();
        node.abandon().await;
        let node = machine.start().await;
        assert!(temporary(&node).view().partition(PARTITION).is_none());
        assert!(machine.disk.list(Path::new(DIR)).is_err());
        open_partition(temporary(&node)).await;
        assert_eq!(put(temporary(&node), "again").await, Ok(0));
        node.shutdown().await;

        let node = machine.start().await;
        assert!(temporary(&node).view().partition(PARTITION).is_none());
        node.shutdown().await;
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
    });
}

#[test]
fn nothing_of_it_is_synced_or_in_the_journal() {
    run(async {
        let machine = Machine::alone(2);
        let node = machine.start().await;
        let shard = temporary(&node);
        open_partition(shard).await;
        let replicated = node.shard(SHARD).expect("the shard");
        open_partition(replicated).await;
        // The journal is sealed by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        machine.disk.fail(Fault { operation: Operation::Sync, after: 0, kind: FaultKind::Io });
        for round in 0..100 {
            assert_eq!(put(shard, &format!("value {round}")).await, Ok(round));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shard.view().unwritten_bytes(), 0);
        assert_eq!(values(shard).len(), 100);
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
        // The first sync since then is this one's.
        assert!(put(replicated, "value").await.is_err());
        assert_eq!(machine.fatal.lock().len(), 1);
        node.abandon().await;
    });
}

#[test]
fn the_space_of_what_is_deleted_is_given_back() {
    run(async {
        let machine = Machine::alone(3);
        let node = machine.start().await;
        let shard = temporary(&node);
        open_partition(shard).await;
        for round in 0..100 {
            assert_eq!(put(shard, &"x".repeat(1000)).await, Ok(round));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let close = Command::ClosePartition { partition: PARTITION };
        assert_eq!(shard.propose(close).await, Ok(Outcome::Done));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(machine.disk.list(Path::new(DIR)).is_err());
        node.shutdown().await;
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
    });
}

#[test]
fn every_node_has_its_own() {
    assert_ne!(ShardId::temporary(NodeId(1)), ShardId::temporary(NodeId(2)));
    let last = NodeId((1 << 31) - 2);
    assert_eq!(ShardId::temporary(last).and_then(ShardId::temporary_of), Some(last));
    assert_eq!(ShardId::temporary(NodeId((1 << 31) - 1)), None);
    assert_eq!(ShardId(u32::MAX).temporary_of(), None);
    assert_eq!(ShardId(1024).temporary_of(), None);
}
