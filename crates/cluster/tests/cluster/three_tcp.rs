//! Three voters that call each other over real connections, which are cut again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use weir_cluster::{Node, TcpTransport};
use weir_model::NodeId;
use weir_model::command::Outcome;

use crate::network::{ANYWHERE, LONG, Mode, Wire, addresses, listen, member, run, transport, wait_for_nodes};
use crate::support::{Machine, SHARD, append, open_partition, values};

struct Member {
    node: Arc<Node>,
    transport: Arc<TcpTransport>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

struct Cluster {
    members: BTreeMap<NodeId, Member>,
    /// From each node to each other one.
    wires: Vec<Wire>,
}

impl Cluster {
    async fn start() -> Cluster {
        let ids: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut listening = Vec::new();
        for _ in &ids {
            listening.push(listen(ANYWHERE, None).await);
        }
        let ports: Vec<_> = listening.iter().map(|listening| listening.local_addr()).collect();
        let mut cluster = Cluster { members: BTreeMap::new(), wires: Vec::new() };
        for (id, listening) in ids.iter().zip(listening) {
            let mut peers = Vec::new();
            for (other, port) in ids.iter().zip(&ports).filter(|(other, _)| *other != id) {
                let wire = Wire::to(*port).await;
                peers.push((other.0, wire.address.clone()));
                cluster.wires.push(wire);
            }
            assert_eq!(addresses(&peers).len(), 2);
            let transport = transport(member(id.0), &peers, None);
            let machine = Machine { id: *id, voters: ids.clone(), ..Machine::alone(id.0) };
            let node = machine.try_start(Arc::clone(&transport) as _).await.expect("the node starts");
            let (stop, stopped) = oneshot::channel();
            let serving = tokio::spawn(listening.serve(Arc::clone(&node), Arc::clone(&transport), async {
                let _ = stopped.await;
            }));
            cluster.members.insert(*id, Member { node, transport, stop, serving });
        }
        cluster
    }

    /// A leader that may say what is not there, if there is one.
    fn leader(&self) -> Option<&Arc<Node>> {
        let leads = |node: &&Arc<Node>| node.shard(SHARD).expect("the shard").leadership().ready;
        self.members.values().map(|member| &member.node).find(leads)
    }

    async fn wait_for_leader(&self) -> &Arc<Node> {
        let began = Instant::now();
        loop {
            if let Some(leader) = self.leader() {
                return leader;
            }
            assert!(began.elapsed() < LONG, "nobody leads");
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn mend(&self) {
        self.wires.iter().for_each(|wire| wire.set(Mode::Pass));
    }

    /// Waits until all replicas have the same, with all of these in it once.
    async fn check(&self, acknowledged: &[String]) {
        let began = Instant::now();
        loop {
            let all: Vec<Vec<String>> = self
                .members
                .values()
                .map(|member| values(member.node.shard(SHARD).expect("the shard")))
                .collect();
            let copies = |value: &String| all[0].iter().filter(|other| *other == value).count();
            if all.iter().all(|values| *values == all[0])
                && acknowledged.iter().all(|value| copies(value) == 1)
            {
                return;
            }
            let lost: Vec<_> = acknowledged.iter().filter(|value| copies(value) != 1).collect();
            assert!(began.elapsed() < LONG, "the replicas do not come to agree; not there once: {lost:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn stop(self) {
        for member in self.members.values() {
            member.node.abandon().await;
        }
        for (_, member) in self.members {
            drop(member.stop);
            member.serving.await.expect("it ends in order");
        }
    }
}

#[test]
fn three_nodes_elect_commit_and_know_each_other() {
    run(async {
        let cluster = Cluster::start().await;
        let shard = cluster.wait_for_leader().await.shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;
        let mut acknowledged = Vec::new();
        for number in 0..100 {
            let value = format!("value {number}");
            let outcome = shard.propose(append(&value)).await;
            assert!(matches!(outcome, Ok(Outcome::Appended(_))), "{outcome:?}");
            acknowledged.push(value);
        }
        cluster.check(&acknowledged).await;
        for (id, member) in &cluster.members {
            let others: Vec<u64> = (1..=3).filter(|other| *other != id.0).collect();
            wait_for_nodes(&member.transport, &others).await;
        }
        cluster.stop().await;
    });
}

#[test]
fn nothing_that_was_acknowledged_is_lost_while_connections_are_cut_at_random() {
    run(async {
        let cluster = Cluster::start().await;
        open_partition(cluster.wait_for_leader().await.shard(SHARD).expect("the shard")).await;
        let mut random = SmallRng::seed_from_u64(5);
        let mut acknowledged = Vec::new();
        let end = Instant::now() + Duration::from_secs(10);
        let cutting = async {
            while Instant::now() < end {
                let wire = &cluster.wires[random.random_range(0..cluster.wires.len())];
                let mode = if random.random_bool(0.7) { Mode::Cut } else { Mode::Hold };
                wire.set(mode);
                sleep(Duration::from_millis(random.random_range(1..600))).await;
                wire.set(Mode::Pass);
                sleep(Duration::from_millis(random.random_range(1..200))).await;
            }
        };
        let appending = async {
            let mut number = 0;
            while Instant::now() < end {
                let Some(leader) = cluster.leader() else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                number += 1;
                let value = format!("value {number}");
                let proposed = leader.shard(SHARD).expect("the shard").propose(append(&value));
                let outcome = tokio::time::timeout(Duration::from_secs(5), proposed).await;
                if matches!(outcome, Ok(Ok(Outcome::Appended(_)))) {
                    acknowledged.push(value);
                }
            }
        };
        tokio::join!(cutting, appending);
        cluster.mend();
        assert!(acknowledged.len() > 100, "{} appends were acknowledged", acknowledged.len());
        let leader = cluster.wait_for_leader().await;
        let last = leader.shard(SHARD).expect("the shard").propose(append("last")).await;
        if matches!(last, Ok(Outcome::Appended(_))) {
            acknowledged.push("last".into());
        }
        cluster.check(&acknowledged).await;
        cluster.stop().await;
    });
}
