//! A node as it runs in production: threads, a real file system, a runtime of several workers.

use std::sync::Arc;

use weir_cluster::{Drive, NoTransport, Node, NodeOptions, OnFatal};
use weir_log::disk::RealDisk;
use weir_model::NodeId;
use weir_model::command::Outcome;

use crate::support::{SHARD, TestClock, append, open_partition, small_journal, values};

async fn start(dir: &std::path::Path) -> Arc<Node> {
    let mut options = NodeOptions::new(NodeId(1), dir, OnFatal::new(|reason| panic!("{reason}")));
    options.data_shards = 2;
    options.journal = small_journal();
    options.disk_reserve_bytes = 0;
    options.checkpoint_bytes = 256 << 10;
    let clock = Arc::new(TestClock::default());
    let node = Node::start(options, Arc::new(RealDisk), Arc::new(NoTransport), clock, Drive::Threads).await;
    let node = node.expect("the node starts");
    node.ready().await.expect("the node becomes ready");
    node
}

#[test]
fn a_node_on_threads_and_a_real_disk_keeps_what_it_acknowledged() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let dir = tempfile::tempdir().expect("a directory");
        let node = start(dir.path()).await;
        let shard = node.shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;
        let lanes: Vec<_> = (0..8)
            .map(|lane| {
                let shard = shard.clone();
                tokio::spawn(async move {
                    for round in 0..100 {
                        let value = format!("lane {lane} round {round} {}", "x".repeat(1000));
                        let outcome = shard.propose(append(&value)).await;
                        assert!(matches!(outcome, Ok(Outcome::Appended(_))), "{outcome:?}");
                    }
                })
            })
            .collect();
        for lane in lanes {
            lane.await.expect("no panic");
        }
        let before = values(&shard);
        assert_eq!(before.len(), 800);
        drop(shard);
        node.shutdown().await;
        drop(node);

        let node = start(dir.path()).await;
        assert_eq!(values(node.shard(SHARD).expect("the shard")), before);
        node.shutdown().await;
    });
}
