//! Any node's commands reach whoever leads, once and in order, whatever happens to leaders meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use weir_cluster::{Line, Node, ProposeError};
use weir_model::NodeId;
use weir_model::command::Outcome;

use crate::support::{SHARD, append, open_partition, run, values};
use crate::three::Cluster;

/// Values that one writer has on their way at a time.
const AT_ONCE: usize = 8;

/// Writes numbered values through a node, one behind the other; how many were acknowledged, and whether all were.
fn write(node: &Arc<Node>, name: String, count: usize) -> JoinHandle<(usize, bool)> {
    let shard = node.shard(SHARD).expect("the shard").clone();
    tokio::spawn(async move {
        let mut acknowledged = 0;
        for chunk in (0..count).collect::<Vec<_>>().chunks(AT_ONCE) {
            let mut pending = Vec::new();
            for number in chunk {
                let command = append(&format!("{name} {number}"));
                let Ok(admission) = shard.admit_relayed(command.admitted_bytes()).await else {
                    return (acknowledged, false);
                };
                match shard.relay_admitted(admission, command) {
                    Ok(outcome) => pending.push(outcome),
                    Err(_) => return (acknowledged, false),
                }
            }
            for outcome in pending {
                match outcome.await {
                    Ok(Outcome::Appended(_)) => acknowledged += 1,
                    _ => return (acknowledged, false),
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (acknowledged, true)
    })
}

/// What is there of a writer's values, which must be once each and in order.
fn of(all: &[String], name: &str) -> Vec<usize> {
    let prefix = format!("{name} ");
    let numbers: Vec<usize> =
        all.iter().filter_map(|value| value.strip_prefix(&prefix)?.parse().ok()).collect();
    assert!(numbers.iter().enumerate().all(|(at, number)| at == *number), "{name} wrote {numbers:?}");
    numbers
}

async fn prepared(seed: u64) -> (Cluster, NodeId) {
    let cluster = Cluster::start(seed).await;
    let leader = cluster.leader().await;
    open_partition(cluster.nodes[&leader].shard(SHARD).expect("the shard")).await;
    (cluster, leader)
}

#[test]
fn every_node_may_write_and_reads_what_it_has_written() {
    run(async {
        let (cluster, _) = prepared(40).await;
        for (id, node) in &cluster.nodes {
            let shard = node.shard(SHARD).expect("the shard");
            let value = format!("from {id}");
            let outcome = shard.relay(append(&value)).await;
            assert!(matches!(outcome, Ok(Outcome::Appended(_))), "{outcome:?}");
            assert!(values(shard).contains(&value), "it is there when it is acknowledged");
        }
        cluster.settle().await;
        cluster.stop().await;
    });
}

#[test]
fn leaders_that_go_lose_double_and_reorder_nothing_of_the_others() {
    run(async {
        for seed in 41..47 {
            let (mut cluster, _) = prepared(seed).await;
            for round in 0..3 {
                let leader = cluster.leader().await;
                let writers: Vec<_> = cluster
                    .nodes
                    .iter()
                    .filter(|(id, _)| **id != leader)
                    .map(|(id, node)| (format!("{round} {id}"), write(node, format!("{round} {id}"), 160)))
                    .collect();
                tokio::time::sleep(Duration::from_millis(10 + 7 * seed)).await;
                cluster.kill(leader, round == 1).await;
                for (name, writer) in writers {
                    let (acknowledged, all) = writer.await.expect("a writer");
                    assert!(all, "{name} was refused something, seed {seed}");
                    assert_eq!(acknowledged, 160);
                    let next = cluster.leader().await;
                    assert_eq!(of(&values(cluster.nodes[&next].shard(SHARD).expect("it")), &name).len(), 160);
                }
                cluster.boot(leader).await;
                cluster.settle().await;
            }
            cluster.stop().await;
        }
    });
}

#[test]
fn what_a_leader_itself_has_written_goes_on_when_it_leads_no_more() {
    run(async {
        for seed in 50..54 {
            let (cluster, leader) = prepared(seed).await;
            let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
            let writer = write(&cluster.nodes[&leader], "old".to_owned(), 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
            cluster.transport.isolate(leader, &all, true);
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster.transport.isolate(leader, &all, false);
            assert_eq!(writer.await.expect("a writer"), (200, true), "seed {seed}");
            cluster.settle().await;
            let now = cluster.leader().await;
            assert_eq!(of(&values(cluster.nodes[&now].shard(SHARD).expect("it")), "old").len(), 200);
            cluster.stop().await;
        }
    });
}

#[test]
fn a_node_that_starts_again_does_not_go_on_with_its_old_line() {
    run(async {
        let (mut cluster, leader) = prepared(55).await;
        let other = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        assert_eq!(write(&cluster.nodes[&other], "first".to_owned(), 20).await.expect("it"), (20, true));
        cluster.kill(other, true).await;
        cluster.boot(other).await;
        assert_eq!(write(&cluster.nodes[&other], "second".to_owned(), 20).await.expect("it"), (20, true));
        cluster.settle().await;
        let all = values(cluster.nodes[&leader].shard(SHARD).expect("the shard"));
        assert_eq!((of(&all, "first").len(), of(&all, "second").len()), (20, 20));
        cluster.stop().await;
    });
}

#[test]
fn without_a_majority_whoever_waits_is_told_in_time_and_it_is_not_written_later_over_the_same_line() {
    run(async {
        let (cluster, leader) = prepared(56).await;
        let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
        let other = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        let shard = cluster.nodes[&other].shard(SHARD).expect("the shard").clone();
        assert!(shard.relay(append("before")).await.is_ok());
        for id in &all {
            cluster.transport.isolate(*id, &all, true);
        }
        let began = tokio::time::Instant::now();
        assert_eq!(shard.relay(append("in vain")).await, Err(ProposeError::Timeout));
        assert!(began.elapsed() < Duration::from_secs(60));
        for id in &all {
            cluster.transport.isolate(*id, &all, false);
        }
        assert!(shard.relay(append("after")).await.is_ok());
        cluster.settle().await;
        let there = values(&shard);
        assert!(there.iter().filter(|value| *value == "in vain").count() <= 1);
        assert_eq!(there.iter().filter(|value| *value == "after").count(), 1);
        cluster.stop().await;
    });
}

#[test]
fn a_follower_catches_up_before_it_answers() {
    run(async {
        let (cluster, leader) = prepared(57).await;
        let acknowledged = cluster.append_many(leader, "value", 50).await;
        let other = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        let shard = cluster.nodes[&other].shard(SHARD).expect("the shard");
        assert_eq!(shard.catch_up().await, Ok(()));
        assert_eq!(values(shard).len(), acknowledged.len());
        let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
        cluster.transport.isolate(other, &all, true);
        assert!(shard.catch_up().await.is_err(), "nobody vouches for it");
        cluster.stop().await;
    });
}

#[test]
fn nobody_brings_commands_in_another_nodes_name() {
    run(async {
        let (cluster, leader) = prepared(58).await;
        let node = &cluster.nodes[&leader];
        // A call that says what it is in its first two bytes, and brings an entry of one command that opens a line of node 1.
        let entry = weir_model::entry::Entry {
            time: 0,
            commands: vec![weir_model::command::Command::OpenRelay { node: NodeId(1), token: 5 }],
        };
        let mut call = vec![1, 6];
        entry.encode().iter().for_each(|chunk| call.extend_from_slice(chunk));
        let before = node.shard(SHARD).expect("the shard").view().applied_index();
        let answer = node.handle_call(NodeId(2), Line::Shard(SHARD), call.into()).await;
        assert_eq!(answer.first_chunk(), Some(&[1, 6, 3]), "it is refused in words");
        assert_eq!(node.shard(SHARD).expect("the shard").view().applied_index(), before);
        cluster.stop().await;
    });
}
