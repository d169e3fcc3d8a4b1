//! Three voters in one process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_cluster::{LocalTransport, Node, NodeOptions, ProposeError, Transport};
use weir_log::disk::OpenMode;
use weir_model::NodeId;
use weir_model::command::Outcome;

use crate::support::{Machine, SHARD, append, open_partition, put, run, values};

pub(super) struct Cluster {
    pub(super) transport: LocalTransport,
    pub(super) machines: BTreeMap<NodeId, Machine>,
    pub(super) nodes: BTreeMap<NodeId, Arc<Node>>,
    /// What stands between a node and its end of the transport.
    pub(super) between: Option<Between>,
}

/// Puts something between a node and its end of the transport.
pub(super) type Between = Arc<dyn Fn(NodeId, Arc<dyn Transport>) -> Arc<dyn Transport>>;

impl Cluster {
    pub(super) async fn start(seed: u64) -> Cluster {
        Cluster::start_tuned(seed, |_| {}).await
    }

    pub(super) async fn start_tuned(
        seed: u64,
        tune: impl Fn(&mut NodeOptions) + Send + Sync + Clone + 'static,
    ) -> Cluster {
        Cluster::start_between(seed, tune, None).await
    }

    pub(super) async fn start_between(
        seed: u64,
        tune: impl Fn(&mut NodeOptions) + Send + Sync + Clone + 'static,
        between: Option<Between>,
    ) -> Cluster {
        let ids: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let machine = |id: &NodeId| Machine {
            id: *id,
            voters: ids.clone(),
            ..Machine::alone(seed * 10 + id.0).tuned(tune.clone())
        };
        let machines = ids.iter().map(|id| (*id, machine(id))).collect();
        let transport = LocalTransport::new();
        let mut cluster = Cluster { transport, machines, nodes: BTreeMap::new(), between };
        for id in ids {
            cluster.boot(id).await;
        }
        cluster
    }

    pub(super) async fn boot(&mut self, id: NodeId) {
        let end = self.transport.end(id);
        let end = self.between.as_ref().map_or(Arc::clone(&end), |between| between(id, end));
        let node = self.machines[&id].try_start(end).await.expect("the node starts");
        self.transport.connect(&node);
        self.nodes.insert(id, node);
    }

    /// The process dies, and with `power` the machine with it.
    pub(super) async fn kill(&mut self, id: NodeId, power: bool) {
        self.transport.disconnect(id);
        let machine = &self.machines[&id];
        if power {
            machine.disk.crash();
        } else {
            machine.disk.kill_process();
        }
        if let Some(node) = self.nodes.remove(&id) {
            node.abandon().await;
        }
    }

    /// Waits for a leader of the shard that may say what is not there.
    pub(super) async fn leader(&self) -> NodeId {
        for _ in 0..2000 {
            for (id, node) in &self.nodes {
                if node.shard(SHARD).expect("the shard").leadership().ready {
                    return *id;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody leads within twenty seconds");
    }

    /// Waits until all nodes have applied the same.
    pub(super) async fn settle(&self) {
        for _ in 0..2000 {
            let applied: Vec<u64> = self
                .nodes
                .values()
                .map(|node| node.shard(SHARD).expect("the shard").view().applied_index())
                .collect();
            let unwritten: usize = self
                .nodes
                .values()
                .map(|node| node.shard(SHARD).expect("the shard").view().unwritten_bytes())
                .sum();
            if applied.iter().all(|index| *index == applied[0]) && unwritten == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the replicas do not come to agree");
    }

    /// All bytes of the segment files of the shard on a node.
    pub(super) fn segment_files(&self, id: NodeId) -> BTreeMap<String, Vec<u8>> {
        let disk = self.machines[&id].disk.shared();
        let dir = std::path::PathBuf::from(format!("/data/shards/{SHARD}/7"));
        let mut files = BTreeMap::new();
        for entry in disk.list(&dir).expect("the partition's directory") {
            if entry.name.ends_with(".log") {
                let file = disk.open(&dir.join(&entry.name), OpenMode::Read).expect("a segment file");
                let mut bytes = vec![0; entry.len as usize];
                let read = file.read_at(&mut bytes, 0).expect("its bytes");
                bytes.truncate(read);
                files.insert(entry.name, bytes);
            }
        }
        files
    }

    pub(super) async fn append_many(&self, leader: NodeId, prefix: &str, count: usize) -> Vec<String> {
        let shard = self.nodes[&leader].shard(SHARD).expect("the shard");
        let mut acknowledged = Vec::new();
        for chunk in (0..count).collect::<Vec<_>>().chunks(16) {
            let pending: Vec<_> = chunk
                .iter()
                .filter_map(|i| {
                    let value = format!("{prefix} {i}");
                    shard.submit(append(&value)).ok().map(|pending| (value, pending))
                })
                .collect();
            for (value, pending) in pending {
                if matches!(pending.await, Ok(Outcome::Appended(_))) {
                    acknowledged.push(value);
                }
            }
        }
        acknowledged
    }

    pub(super) fn check(&self, acknowledged: &[String]) {
        let mut all = Vec::new();
        for (id, node) in &self.nodes {
            let values = values(node.shard(SHARD).expect("the shard"));
            for value in acknowledged {
                let copies = values.iter().filter(|other| *other == value).count();
                assert_eq!(copies, 1, "copies of '{value}' on node {id}");
            }
            all.push((*id, values));
        }
        assert!(all.iter().all(|(_, values)| *values == all[0].1), "the same records in the same order");
        let files: Vec<_> = self.nodes.keys().map(|id| self.segment_files(*id)).collect();
        assert!(files.iter().all(|other| *other == files[0]), "segment files are the same byte by byte");
        assert!(files[0].values().any(|bytes| !bytes.is_empty()), "there are segment files");
    }

    pub(super) async fn stop(self) {
        for node in self.nodes.values() {
            node.abandon().await;
        }
    }
}

#[test]
fn all_replicas_hold_the_same_bytes() {
    run(async {
        let cluster = Cluster::start(1).await;
        let leader = cluster.leader().await;
        open_partition(cluster.nodes[&leader].shard(SHARD).expect("the shard")).await;
        let acknowledged = cluster.append_many(leader, "value", 200).await;
        assert_eq!(acknowledged.len(), 200);
        cluster.settle().await;
        cluster.check(&acknowledged);
        let other = cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        let refused = put(cluster.nodes[other].shard(SHARD).expect("the shard"), "no").await;
        assert_eq!(refused, Err(ProposeError::NotLeader { leader: Some(leader) }));
        cluster.stop().await;
    });
}

#[test]
fn another_leads_when_the_leader_dies_and_nothing_acknowledged_is_lost() {
    run(async {
        let mut cluster = Cluster::start(2).await;
        let first = cluster.leader().await;
        open_partition(cluster.nodes[&first].shard(SHARD).expect("the shard")).await;
        let mut acknowledged = cluster.append_many(first, "first", 100).await;
        cluster.kill(first, true).await;

        let second = cluster.leader().await;
        assert_ne!(second, first);
        acknowledged.extend(cluster.append_many(second, "second", 100).await);
        assert_eq!(acknowledged.len(), 200);

        // The one that was down has logs of the first term only, and the leader's span both.
        cluster.boot(first).await;
        cluster.settle().await;
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}

#[test]
fn a_leader_that_restarts_with_logs_of_two_terms_brings_a_follower_up_to_date() {
    run(async {
        let mut cluster = Cluster::start(3).await;
        let first = cluster.leader().await;
        open_partition(cluster.nodes[&first].shard(SHARD).expect("the shard")).await;
        let mut acknowledged = cluster.append_many(first, "first", 50).await;
        cluster.kill(first, true).await;
        let second = cluster.leader().await;
        acknowledged.extend(cluster.append_many(second, "second", 50).await);
        // Both that have everything restart, and only then the one that lacks the second half.
        let both: Vec<NodeId> = cluster.nodes.keys().copied().collect();
        for id in &both {
            cluster.kill(*id, true).await;
        }
        for id in &both {
            cluster.boot(*id).await;
        }
        let third = cluster.leader().await;
        acknowledged.extend(cluster.append_many(third, "third", 50).await);
        cluster.boot(first).await;
        cluster.settle().await;
        assert_eq!(acknowledged.len(), 150);
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}

#[test]
fn all_lose_power_at_once_and_all_that_was_acknowledged_is_there() {
    run(async {
        for seed in 10..16 {
            let mut cluster = Cluster::start(seed).await;
            let leader = cluster.leader().await;
            open_partition(cluster.nodes[&leader].shard(SHARD).expect("the shard")).await;
            let mut acknowledged = Vec::new();
            for round in 0..3 {
                let leader = cluster.leader().await;
                acknowledged.extend(cluster.append_many(leader, &format!("round {round}"), 60).await);
                let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
                for id in &all {
                    cluster.kill(*id, true).await;
                }
                for id in &all {
                    cluster.boot(*id).await;
                }
            }
            cluster.leader().await;
            cluster.settle().await;
            assert_eq!(acknowledged.len(), 180, "seed {seed}");
            cluster.check(&acknowledged);
            cluster.stop().await;
        }
    });
}

#[test]
fn a_leader_that_is_cut_off_acknowledges_nothing() {
    run(async {
        let cluster = Cluster::start(4).await;
        let leader = cluster.leader().await;
        let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
        let shard = cluster.nodes[&leader].shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;
        let mut acknowledged = cluster.append_many(leader, "before", 20).await;
        cluster.transport.isolate(leader, &all, true);
        let lost = shard.submit(append("cut off"));
        let answer = match lost {
            Ok(pending) => tokio::time::timeout(Duration::from_secs(10), pending).await.ok(),
            Err(error) => Some(Err(error)),
        };
        assert!(!matches!(answer, Some(Ok(_))), "acknowledged without a majority: {answer:?}");
        assert!(shard.linearize().await.is_err(), "a leader that is cut off cannot vouch for its reads");
        let mut next = leader;
        while next == leader {
            tokio::time::sleep(Duration::from_millis(50)).await;
            for (id, node) in &cluster.nodes {
                if *id != leader && node.shard(SHARD).expect("the shard").leadership().ready {
                    next = *id;
                }
            }
        }
        acknowledged.extend(cluster.append_many(next, "after", 20).await);
        cluster.transport.isolate(leader, &all, false);
        cluster.settle().await;
        assert_eq!(acknowledged.len(), 40);
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}

#[test]
fn a_follower_that_is_behind_is_fed_from_the_journals_files() {
    run(async {
        let mut cluster = Cluster::start_tuned(6, |options| options.log_cache_bytes = 1 << 10).await;
        let leader = cluster.leader().await;
        open_partition(cluster.nodes[&leader].shard(SHARD).expect("the shard")).await;
        let behind = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        cluster.kill(behind, false).await;
        let acknowledged = cluster.append_many(leader, "value", 500).await;
        assert_eq!(acknowledged.len(), 500);
        cluster.boot(behind).await;
        cluster.settle().await;
        cluster.check(&acknowledged);
        let leader = cluster.leader().await;
        assert_eq!(cluster.nodes[&leader].shard(SHARD).expect("the shard").linearize().await, Ok(()));
        cluster.stop().await;
    });
}

#[test]
fn a_leadership_is_handed_over_on_request() {
    run(async {
        let cluster = Cluster::start(7).await;
        let leader = cluster.leader().await;
        let shard = cluster.nodes[&leader].shard(SHARD).expect("the shard");
        open_partition(shard).await;
        let mut acknowledged = cluster.append_many(leader, "before", 20).await;
        let other = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        shard.transfer_leadership(other).await.expect("is asked for");
        for _ in 0..500 {
            if cluster.nodes[&other].shard(SHARD).expect("the shard").leadership().ready {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(cluster.leader().await, other);
        acknowledged.extend(cluster.append_many(other, "after", 20).await);
        cluster.settle().await;
        assert_eq!(acknowledged.len(), 40);
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}

/// What a run came to: by the clock, by the disks, and by the state.
async fn trace(seed: u64) -> Vec<u64> {
    let began = tokio::time::Instant::now();
    let mut cluster = Cluster::start(seed).await;
    let first = cluster.leader().await;
    open_partition(cluster.nodes[&first].shard(SHARD).expect("the shard")).await;
    cluster.append_many(first, "first", 50).await;
    cluster.kill(first, true).await;
    let second = cluster.leader().await;
    cluster.append_many(second, "second", 50).await;
    cluster.boot(first).await;
    cluster.settle().await;
    let mut trace = vec![first.0, second.0, began.elapsed().as_micros() as u64];
    for (id, node) in &cluster.nodes {
        let shard = node.shard(SHARD).expect("the shard");
        trace.extend([shard.view().applied_index(), shard.leadership().term]);
        trace.push(cluster.machines[id].disk.operations());
    }
    cluster.stop().await;
    trace
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 20..23 {
        assert_eq!(run(trace(seed)), run(trace(seed)), "seed {seed}");
    }
}
