//! A node that lost its disk comes back as another voter, in all shards, and nothing is lost on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep};
use weir_cluster::{Line, Node, NodeOptions, Transport, TransportFuture};
use weir_log::disk::SimDisk;
use weir_model::command::{Command, Outcome};
use weir_model::{Incarnation, NodeId, ShardId};

use crate::support::{SHARD, append, open_partition, run};
use crate::three::{Between, Cluster};

/// By the runtime's clock, which does not wait for anything that happens.
const LONG: Duration = Duration::from_secs(60);

/// Bytes of a vote request behind what says between whom it goes: kind, vote, log id, whether it is a transfer.
fn vote_request(term: u64, candidate: u64) -> Vec<u8> {
    let vote = [&[2][..], &term.to_le_bytes(), &candidate.to_le_bytes(), &[0]].concat();
    [&vote[..], &[0, 0]].concat()
}

fn first(request: &[u8]) -> Bytes {
    [&[1], request].concat().into()
}

fn between(from: u32, to: u32, request: &[u8]) -> Bytes {
    [&[2][..], &from.to_le_bytes(), &to.to_le_bytes(), request].concat().into()
}

/// What an answer is, by its second byte.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    OtherIncarnation,
    Vote { is_granted: bool },
}

async fn ask(node: &Arc<Node>, from: u64, request: Bytes) -> Said {
    let answer = node.handle_call(NodeId(from), Line::Shard(SHARD), request).await;
    match answer[1] {
        9 => Said::OtherIncarnation,
        2 => Said::Vote { is_granted: answer[19] == 1 },
        _ => panic!("an answer to another question: {answer:?}"),
    }
}

impl Cluster {
    /// The machine is gone with its disk, and there is another one in its place. The disk is given back, for a scenario in
    /// which it is found again.
    async fn lose(&mut self, id: NodeId, seed: u64) -> SimDisk {
        self.kill(id, true).await;
        let machine = self.machines.get_mut(&id).expect("a machine");
        std::mem::replace(&mut machine.disk, SimDisk::new(seed))
    }

    /// What the others agree that the node is from here on.
    async fn give(&mut self, id: NodeId, token: u64) -> Incarnation {
        let began = Instant::now();
        let given = loop {
            let asked = self.nodes.values().next().expect("a node");
            let command = Command::NewIncarnation { node: id, token };
            match asked.shard(ShardId::META).expect("the meta shard").relay(command).await {
                Ok(Outcome::Incarnation(incarnation)) => break incarnation,
                other => assert!(began.elapsed() < LONG, "it came to {other:?}"),
            }
        };
        self.set(id, given);
        given
    }

    fn set(&mut self, id: NodeId, incarnation: Incarnation) {
        let machine = self.machines.get_mut(&id).expect("a machine");
        let before = Arc::clone(&machine.tune);
        machine.tune = Arc::new(move |options: &mut NodeOptions| {
            before(options);
            options.incarnation = incarnation;
        });
    }

    /// Loses a node's disk and starts it again, as whatever it is then.
    async fn lose_and_come_back(&mut self, id: NodeId, token: u64) -> Incarnation {
        self.lose(id, 900 + token).await;
        let given = self.give(id, token).await;
        self.boot(id).await;
        given
    }

    fn shards(&self) -> Vec<ShardId> {
        vec![ShardId::META, SHARD, ShardId(2)]
    }

    /// Waits until the node votes in all shards, and whoever leads knows.
    async fn votes_everywhere(&self, id: NodeId) {
        let began = Instant::now();
        for shard in self.shards() {
            let all_know = || {
                self.nodes
                    .values()
                    .map(|node| node.shard(shard).expect("a shard"))
                    .all(|handle| handle.catching_up().is_empty() && handle.voters() == [1, 2, 3].map(NodeId))
            };
            while !self.nodes[&id].shard(shard).expect("a shard").votes() || !all_know() {
                assert!(began.elapsed() < LONG, "node {id} does not vote in shard {shard}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Appends with whoever leads, and returns what was acknowledged.
    async fn write(&self, prefix: &str, count: usize) -> Vec<String> {
        let leader = self.leader().await;
        self.append_many(leader, prefix, count).await
    }
}

/// Counts what is said about snapshots to those that came back, and lets all through.
struct Counting {
    inner: Arc<dyn Transport>,
    snapshots: Arc<AtomicUsize>,
}

impl Transport for Counting {
    fn call(&self, to: NodeId, line: Line, request: Vec<Bytes>) -> TransportFuture<'_> {
        let head = &request[0];
        if line == Line::Shard(SHARD) && head[0] == 2 && head[9] == 5 {
            self.snapshots.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.call(to, line, request)
    }
}

/// Three voters with some records, and what these are.
async fn begin(seed: u64, tune: fn(&mut NodeOptions)) -> (Cluster, Vec<String>) {
    begin_counting(seed, tune, &Arc::default()).await
}

async fn begin_counting(
    seed: u64,
    tune: fn(&mut NodeOptions),
    snapshots: &Arc<AtomicUsize>,
) -> (Cluster, Vec<String>) {
    let snapshots = Arc::clone(snapshots);
    let between: Between =
        Arc::new(move |_, inner| Arc::new(Counting { inner, snapshots: Arc::clone(&snapshots) }));
    let cluster = Cluster::start_between(seed, tune, Some(between)).await;
    let leader = cluster.leader().await;
    open_partition(cluster.nodes[&leader].shard(SHARD).expect("the shard")).await;
    let acknowledged = cluster.write("before", 100).await;
    assert_eq!(acknowledged.len(), 100);
    (cluster, acknowledged)
}

/// So small a journal that whoever has nothing needs a copy of the shard.
fn recycled(options: &mut NodeOptions) {
    options.journal.journal_bytes_max = 1 << 20;
    options.checkpoint_bytes = 64 << 10;
}

#[test]
fn a_node_that_lost_its_disk_votes_again_in_all_shards_and_its_vote_counts() {
    run(async {
        for (seed, tune) in [(700, (|_| {}) as fn(&mut NodeOptions)), (701, recycled)] {
            let snapshots = Arc::default();
            let (mut cluster, mut acknowledged) = begin_counting(seed, tune, &snapshots).await;
            let leader = cluster.leader().await;
            let lost = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
            // With the smaller journal enough that its start is gone.
            let many = if seed == 700 { 50 } else { 12_000 };
            acknowledged.extend(cluster.write("more", many).await);
            cluster.lose(lost, 1).await;
            acknowledged.extend(cluster.write("meanwhile", 50).await);
            assert_eq!(cluster.give(lost, 5).await, Incarnation(1));
            cluster.boot(lost).await;
            assert_eq!(cluster.nodes[&lost].incarnation(), Incarnation(1));
            acknowledged.extend(cluster.write("while it comes back", 200).await);
            cluster.votes_everywhere(lost).await;
            cluster.nodes[&lost].ready().await.expect("it is ready");
            assert_eq!(snapshots.load(Ordering::SeqCst) > 0, seed == 701, "a copy where entries are gone");
            cluster.settle().await;
            cluster.check(&acknowledged);

            // Its vote counts: with it, one of the other two may be gone, whichever it is.
            for gone in [1, 2, 3].map(NodeId).into_iter().filter(|id| *id != lost) {
                cluster.kill(gone, true).await;
                acknowledged.extend(cluster.write(&format!("without {gone}"), 50).await);
                cluster.boot(gone).await;
                cluster.settle().await;
            }
            // And what it has now stays when it is only switched off.
            cluster.kill(lost, true).await;
            acknowledged.extend(cluster.write("without it", 50).await);
            cluster.boot(lost).await;
            cluster.votes_everywhere(lost).await;
            cluster.settle().await;
            cluster.check(&acknowledged);
            cluster.stop().await;
        }
    });
}

#[test]
fn a_leader_that_lost_its_disk_comes_back_as_well_and_every_node_may_do_so_in_turn() {
    run(async {
        let (mut cluster, mut acknowledged) = begin(702, |_| {}).await;
        for round in 0..2 {
            for lost in [1, 2, 3].map(NodeId) {
                let given = cluster.lose_and_come_back(lost, 10 * round + lost.0).await;
                assert_eq!(given, Incarnation(round as u32 + 1));
                acknowledged.extend(cluster.write(&format!("{round} {lost}"), 30).await);
                cluster.votes_everywhere(lost).await;
                let leader = cluster.leader().await;
                assert_eq!(
                    cluster.nodes[&leader].shard(SHARD).expect("it").leadership().leader,
                    Some(leader)
                );
            }
        }
        cluster.settle().await;
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}

#[test]
fn one_that_is_lost_again_while_it_catches_up_is_replaced_by_the_next() {
    run(async {
        for after_ms in [0, 300, 600, 900, 1200, 1500] {
            let (mut cluster, mut acknowledged) = begin(703, recycled).await;
            let lost = NodeId(2);
            assert_eq!(cluster.lose_and_come_back(lost, 1).await, Incarnation(1));
            acknowledged.extend(cluster.write("first", 20).await);
            sleep(Duration::from_millis(after_ms)).await;
            assert_eq!(cluster.lose_and_come_back(lost, 2).await, Incarnation(2));
            acknowledged.extend(cluster.write("second", 20).await);
            cluster.votes_everywhere(lost).await;
            cluster.kill(NodeId(1), true).await;
            acknowledged.extend(cluster.write("without the first", 20).await);
            cluster.boot(NodeId(1)).await;
            cluster.settle().await;
            cluster.check(&acknowledged);
            cluster.stop().await;
        }
    });
}

#[test]
fn leaders_that_die_in_the_middle_of_it_leave_it_to_the_next() {
    run(async {
        for seed in 0..8 {
            let mut random = SmallRng::seed_from_u64(seed);
            let (mut cluster, mut acknowledged) = begin(710 + seed, |_| {}).await;
            let lost = NodeId(random.random_range(1..=3));
            cluster.lose_and_come_back(lost, 1).await;
            for round in 0..4 {
                sleep(Duration::from_millis(random.random_range(0..700))).await;
                // Not so that two of the voters that count are down at a time.
                let leader = cluster.leader().await;
                cluster.kill(leader, random.random_bool(0.5)).await;
                sleep(Duration::from_millis(random.random_range(0..300))).await;
                cluster.boot(leader).await;
                acknowledged.extend(cluster.write(&format!("round {round}"), 10).await);
            }
            cluster.votes_everywhere(lost).await;
            cluster.settle().await;
            cluster.check(&acknowledged);
            cluster.stop().await;
        }
    });
}

#[test]
fn what_is_for_another_incarnation_or_of_one_that_was_replaced_is_answered_by_nobody() {
    run(async {
        let (mut cluster, _) = begin(704, |_| {}).await;
        let old = cluster.lose(NodeId(2), 1).await;
        cluster.give(NodeId(2), 7).await;
        cluster.boot(NodeId(2)).await;
        cluster.votes_everywhere(NodeId(2)).await;
        cluster.settle().await;
        let high = 1_000;
        // The new one neither votes nor speaks for the old one, nor for one that is yet to come.
        let returned = &cluster.nodes[&NodeId(2)];
        assert_eq!(ask(returned, 1, first(&vote_request(high, 1))).await, Said::OtherIncarnation);
        assert_eq!(ask(returned, 1, between(0, 2, &vote_request(high, 1))).await, Said::OtherIncarnation);
        let answered = ask(returned, 1, between(0, 1, &vote_request(1, 1))).await;
        assert_eq!(answered, Said::Vote { is_granted: false });
        // The old one is nobody's candidate any more, and the others are not their own successors.
        let other = &cluster.nodes[&NodeId(1)];
        assert_eq!(ask(other, 2, first(&vote_request(high, 2))).await, Said::OtherIncarnation);
        assert_eq!(ask(other, 2, between(1, 1, &vote_request(high, 2))).await, Said::OtherIncarnation);
        let new = (1 << 32) + 2;
        assert!(matches!(ask(other, 2, between(1, 0, &vote_request(1, new))).await, Said::Vote { .. }));

        // The disk is found, and put in again in place of the new one: it has no say, and disturbs nobody.
        cluster.kill(NodeId(2), true).await;
        let leader = cluster.leader().await;
        let before = cluster.nodes[&leader].shard(SHARD).expect("the shard").leadership();
        let machine = cluster.machines.get_mut(&NodeId(2)).expect("a machine");
        let new_disk = std::mem::replace(&mut machine.disk, old);
        cluster.set(NodeId(2), Incarnation::FIRST);
        cluster.boot(NodeId(2)).await;
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            for shard in cluster.shards() {
                let found = cluster.nodes[&NodeId(2)].shard(shard).expect("the shard").leadership();
                assert_eq!((found.leader, found.is_leader), (None, false));
            }
        }
        let after = cluster.nodes[&leader].shard(SHARD).expect("the shard").leadership();
        assert_eq!(after, before);
        let acknowledged = cluster.write("beside the old one", 20).await;
        assert_eq!(acknowledged.len(), 20);
        // The new one takes its place again.
        cluster.kill(NodeId(2), true).await;
        cluster.machines.get_mut(&NodeId(2)).expect("a machine").disk = new_disk;
        cluster.set(NodeId(2), Incarnation(1));
        cluster.boot(NodeId(2)).await;
        cluster.votes_everywhere(NodeId(2)).await;
        cluster.settle().await;
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}

#[test]
fn without_a_majority_of_those_that_have_their_data_nobody_comes_back_and_nothing_goes_on() {
    run(async {
        let (mut cluster, acknowledged) = begin(705, |_| {}).await;
        cluster.settle().await;
        cluster.lose(NodeId(2), 1).await;
        let third = cluster.lose(NodeId(3), 2).await;
        let meta = cluster.nodes[&NodeId(1)].shard(ShardId::META).expect("the meta shard").clone();
        let given = meta.relay(Command::NewIncarnation { node: NodeId(2), token: 1 }).await;
        assert!(given.is_err(), "it came to {given:?}");
        // Were they to start all the same, they would still be nobody's voters.
        for id in [2, 3].map(NodeId) {
            cluster.set(id, Incarnation(1));
            cluster.boot(id).await;
        }
        for _ in 0..200 {
            sleep(Duration::from_millis(100)).await;
            for node in cluster.nodes.values() {
                let shard = node.shard(SHARD).expect("the shard");
                assert!(!shard.leadership().ready);
            }
        }
        let appended =
            cluster.nodes[&NodeId(1)].shard(SHARD).expect("the shard").propose(append("lost")).await;
        assert!(appended.is_err(), "it came to {appended:?}");
        // One of the disks is found, and with it there is a majority again.
        cluster.kill(NodeId(3), true).await;
        cluster.machines.get_mut(&NodeId(3)).expect("a machine").disk = third;
        cluster.set(NodeId(3), Incarnation::FIRST);
        cluster.boot(NodeId(3)).await;
        // It is the first incarnation that was given to nobody else, since nobody else has asked.
        assert_eq!(cluster.give(NodeId(2), 2).await, Incarnation(1));
        cluster.votes_everywhere(NodeId(2)).await;
        cluster.settle().await;
        cluster.check(&acknowledged);
        cluster.stop().await;
    });
}
