//! Queues of three nodes: what becomes of them when another node leads.

use std::sync::Arc;
use std::time::Duration;

use weir_broker::queues::{QueueDelivery, QueueRef};
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{Clock, Drive, LocalTransport, Node, NodeOptions, OnFatal};
use weir_dispatch::{NewConsumer, OwnerId};
use weir_log::disk::SimDisk;
use weir_model::batch::BatchBuilder;
use weir_model::queue::QueueMeta;
use weir_model::subscription::Disposition;
use weir_model::{NodeId, ShardId, SubscriptionId, TimestampMs};

use crate::support::EPOCH;
use crate::support::topology::{NAMESPACE, record, value};

struct StandingClock;

impl Clock for StandingClock {
    fn now_ms(&self) -> TimestampMs {
        EPOCH
    }
}

/// Three nodes, each with its broker.
struct Three {
    transport: LocalTransport,
    nodes: Vec<Arc<Node>>,
    brokers: Vec<Arc<Broker>>,
}

impl Three {
    async fn started() -> Three {
        let transport = LocalTransport::new();
        let voters: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut nodes = Vec::new();
        for (seed, &id) in voters.iter().enumerate() {
            let mut options = NodeOptions::new(id, "/data", OnFatal::new(|_| {}));
            options.data_shards = 1;
            options.voters.clone_from(&voters);
            options.disk_reserve_bytes = 0;
            options.seed = seed as u64;
            let disk = SimDisk::new(seed as u64);
            let drive = Drive::Tasks { sync_latency: Duration::from_micros(100) };
            let (end, clock) = (transport.end(id), Arc::new(StandingClock));
            let node = Node::start(options, disk.shared(), end, clock, drive).await.expect("it starts");
            transport.connect(&node);
            nodes.push(node);
        }
        let mut three = Three { transport, nodes, brokers: Vec::new() };
        // Who leads all shards can declare something.
        three.lead(ShardId::META, 0).await;
        three.lead(ShardId(1), 0).await;
        for node in &three.nodes {
            let options = BrokerOptions::new("three", [node.node_id().0 as u8; 32]);
            let broker = Broker::start(node.clone(), Arc::new(StandingClock), options).await;
            three.brokers.push(broker.expect("it starts"));
        }
        three
    }

    /// Has a node lead a shard.
    async fn lead(&self, shard: ShardId, to: usize) {
        let handles: Vec<_> = self.nodes.iter().map(|node| node.shard(shard).expect("the shard")).collect();
        while !handles[to].leadership().ready {
            let others = handles.iter().enumerate().filter(|(at, _)| *at != to);
            for (_, leader) in others.filter(|(_, handle)| handle.leadership().is_leader) {
                leader.transfer_leadership(self.nodes[to].node_id()).await.expect("it is asked");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn queue(&self, at: usize) -> QueueRef {
        loop {
            if let Ok(Some(info)) = self.brokers[at].find_queue(NAMESPACE, "q")
                && let Ok(queue) = self.brokers[at].open_queue(&info).await
            {
                return queue;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn take(&self, at: usize, owner: OwnerId) -> Option<QueueDelivery> {
        self.queue(at).await.get(owner, false).await.ok().flatten()
    }

    /// Declares the queue, and publishes to it.
    async fn publish(&self, texts: &[&str]) {
        let meta = QueueMeta { durable: true, ..QueueMeta::default() };
        self.brokers[0].create_queue(NAMESPACE, "q", meta).await.expect("it is declared");
        for text in texts {
            let destinations = self.brokers[0].destinations(NAMESPACE, ["q"], None, 0).expect("it is there");
            let mut builder = BatchBuilder::new();
            builder.push(EPOCH, None, record(text, &[]).value.as_deref(), &[]);
            let publishing = self.brokers[0].publish_to(&destinations, builder.build()).await.expect("sent");
            publishing.await.expect("published");
        }
    }

    /// Lets no node reach another, or all of them again.
    fn cut(&self, cut: bool) {
        let all: Vec<NodeId> = self.nodes.iter().map(|node| node.node_id()).collect();
        all.iter().for_each(|node| self.transport.isolate(*node, &all, cut));
    }

    /// Records that nobody has settled, as the shard has it.
    fn unsettled(&self) -> u64 {
        let view = self.nodes[0].shard(ShardId(1)).expect("the shard").view();
        let partition = view.partitions()[0].clone();
        let state = view.subscription(partition.id(), SubscriptionId::QUEUE).expect("a subscription");
        state.unsettled(partition.next_offset())
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_while_there_was_no_majority_is_settled_or_comes_again() {
    for cut_ms in [100, 700, 1_500, 3_000] {
        let three = Three::started().await;
        three.publish(&["a", "b"]).await;
        let owner = three.brokers[0].new_owner();
        let taken = three.take(0, owner).await.expect("it waits");
        three.cut(true);
        tokio::time::sleep(Duration::from_millis(cut_ms)).await;
        let _ = three.queue(0).await.settle(owner, vec![taken.place], Disposition::Accept).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        three.cut(false);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let leader =
            (0..3).find(|at| three.nodes[*at].shard(ShardId(1)).is_some_and(|s| s.leadership().ready));
        let leader = leader.expect("somebody leads");
        let left = three.unsettled();
        let owner = three.brokers[leader].new_owner();
        let mut comes = 0;
        while three.take(leader, owner).await.is_some() {
            comes += 1;
        }
        assert_eq!(comes, left, "cut for {cut_ms} ms: what is not settled comes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_at_another_leader_does_not_come_again_at_the_first_one() {
    let three = Three::started().await;
    three.publish(&["a", "b", "c"]).await;
    // Its dispatcher knows all three, has handed out one, and sleeps.
    let owner = three.brokers[0].new_owner();
    let consumer =
        NewConsumer { owner, credit: Some(1), priority: 0, exclusive: false, settled: false, gate: None };
    let first = three.queue(0).await;
    let (_, mut deliveries) = first.subscribe(consumer).await.expect("it is there").expect("it may");
    assert_eq!(deliveries.next().await.expect("one").len(), 1);
    three.lead(ShardId(1), 1).await;
    let other = three.brokers[1].new_owner();
    for text in ["a", "b"] {
        let taken = three.take(1, other).await.expect("it waits at the new leader");
        assert_eq!(value(&taken.record.record), text);
        let queue = three.queue(1).await;
        queue.settle_durably(other, vec![taken.place], Disposition::Accept).await.expect("settled");
    }
    three.lead(ShardId(1), 0).await;
    // Soon after: nothing has woken the dispatcher of the first leadership.
    assert!(!first.is_gone(), "this shows nothing if it was woken");
    assert!(first.get(owner, false).await.is_err(), "it is not the leader any more that it was");
    let owner = three.brokers[0].new_owner();
    let taken = three.take(0, owner).await.expect("one is left");
    assert_eq!(value(&taken.record.record), "c");
    assert_eq!(three.take(0, owner).await, None);
    assert_eq!(deliveries.next().await, None, "its consumers hear of it");
}
