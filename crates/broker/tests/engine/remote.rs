//! Three nodes: sessions of one use queues that another leads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use weir_broker::queues::{ConsumerId, OwnerId, QueueDeliveries, QueueDelivery, QueueFigures, QueueRef};
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{Clock, Drive, LocalTransport, Node, NodeOptions, OnFatal};
use weir_dispatch::{Gate, NewConsumer, SubscribeError};
use weir_log::disk::SimDisk;
use weir_model::batch::BatchBuilder;
use weir_model::queue::QueueMeta;
use weir_model::routing::{ArgumentValue, BindingMeta, Destination};
use weir_model::subscription::Disposition;
use weir_model::{NodeId, ShardId, TimestampMs};

use crate::support::EPOCH;
use crate::support::topology::{NAMESPACE, arguments, record, text, value};

const SHARD: ShardId = ShardId(1);

struct StandingClock;

impl Clock for StandingClock {
    fn now_ms(&self) -> TimestampMs {
        EPOCH
    }
}

/// Three nodes, each with its broker. The first leads, until told otherwise.
struct Three {
    transport: LocalTransport,
    nodes: Vec<Arc<Node>>,
    brokers: Vec<Arc<Broker>>,
    connected: watch::Sender<BTreeSet<NodeId>>,
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
        let connected = watch::Sender::new(voters.into_iter().collect());
        let mut three = Three { transport, nodes, brokers: Vec::new(), connected };
        three.lead(ShardId::META, 0).await;
        three.lead(SHARD, 0).await;
        for node in &three.nodes {
            let mut options = BrokerOptions::new("three", [node.node_id().0 as u8; 32]);
            options.connected = Some(three.connected.subscribe());
            options.spread_leaders = false;
            let broker = Broker::start(node.clone(), Arc::new(StandingClock), options).await;
            three.brokers.push(broker.expect("it starts"));
        }
        three
    }

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

    /// Declares a durable queue, as the leader of all.
    async fn declare(&self, name: &str, list: &[(&str, ArgumentValue)]) {
        let meta = QueueMeta { durable: true, arguments: arguments(list), ..QueueMeta::default() };
        self.brokers[0].create_queue(NAMESPACE, name, meta).await.expect("it is declared");
    }

    /// The queue as sessions of a node use it.
    async fn queue(&self, at: usize, name: &str) -> QueueRef {
        let info = self.brokers[at].find_queue(NAMESPACE, name).expect("asked").expect("it is known");
        self.brokers[at].open_queue(&info).await.expect("somebody leads it")
    }

    /// Publishes by the broker of a node.
    async fn publish(&self, at: usize, name: &str, texts: &[String]) {
        let destinations = self.brokers[at].destinations(NAMESPACE, [name], None, 0).expect("it is there");
        assert!(!destinations.is_empty());
        let mut builder = BatchBuilder::new();
        for text in texts {
            builder.push(EPOCH, None, record(text, &[]).value.as_deref(), &[]);
        }
        let publishing = self.brokers[at].publish_to(&destinations, builder.build()).await.expect("sent");
        publishing.await.expect("published");
    }

    async fn figures(&self, at: usize, name: &str) -> QueueFigures {
        let info = self.brokers[at].find_queue(NAMESPACE, name).expect("asked").expect("it is known");
        self.brokers[at].queue_figures(&info).await.expect("somebody knows")
    }

    /// Waits until a queue's figures are so.
    async fn until(&self, at: usize, name: &str, are_so: impl Fn(QueueFigures) -> bool) {
        for _ in 0..1_000 {
            if are_so(self.figures(at, name).await) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("'{name}' has {:?}", self.figures(at, name).await);
    }

    /// Cuts a node off from all others, or lets it through again.
    fn isolate(&self, at: usize, cut: bool) {
        let all: Vec<NodeId> = self.nodes.iter().map(|node| node.node_id()).collect();
        self.transport.isolate(all[at], &all, cut);
    }

    /// A node is gone as if it had crashed.
    async fn abandon(&self, at: usize) {
        self.transport.disconnect(self.nodes[at].node_id());
        self.isolate(at, true);
        self.nodes[at].abandon().await;
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:05}")).collect()
}

fn consumer(owner: OwnerId, credit: Option<u32>) -> NewConsumer {
    NewConsumer { owner, credit, priority: 0, exclusive: false, settled: false, gate: None }
}

async fn subscribe(queue: &QueueRef, consumer: NewConsumer) -> (ConsumerId, QueueDeliveries) {
    queue.subscribe(consumer).await.expect("it is there").expect("it may")
}

/// The next records, which must be there.
async fn take(deliveries: &mut QueueDeliveries, count: usize) -> Vec<QueueDelivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(30), deliveries.next()).await;
        taken.extend(next.expect("records come").expect("the queue is there"));
    }
    assert_eq!(taken.len(), count);
    taken
}

/// Nothing comes for a while.
async fn assert_nothing_comes(deliveries: &mut QueueDeliveries) {
    let next = tokio::time::timeout(Duration::from_secs(3), deliveries.next()).await;
    assert_eq!(next.ok().flatten(), None);
}

fn texts(taken: &[QueueDelivery]) -> Vec<String> {
    taken.iter().map(|delivery| value(&delivery.record.record)).collect()
}

fn places(taken: &[QueueDelivery]) -> Vec<weir_broker::queues::Place> {
    taken.iter().map(|delivery| delivery.place).collect()
}

#[tokio::test(start_paused = true)]
async fn a_session_elsewhere_gets_what_there_is_in_order_and_settles_it() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    let queue = three.queue(1, "q").await;
    let owner = three.brokers[1].new_owner();
    let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(100))).await;
    three.publish(0, "q", &numbered(250)).await;
    let mut got = Vec::new();
    while got.len() < 250 {
        let taken = deliveries.next().await.expect("it is there");
        assert!(taken.len() <= 100 && taken.iter().all(|delivery| delivery.owner == owner));
        got.extend(texts(&taken));
        queue.settle(owner, places(&taken), Disposition::Accept).await.expect("settled");
        queue.add_credit(taken[0].consumer.expect("a consumer's"), taken.len() as u32).await.expect("more");
    }
    assert_eq!(got, numbered(250));
    for at in 0..3 {
        three.until(at, "q", |figures| (figures.ready, figures.leased, figures.consumers) == (0, 0, 1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn credit_is_all_that_a_consumer_elsewhere_gets() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    three.publish(0, "q", &numbered(3)).await;
    let queue = three.queue(2, "q").await;
    let owner = three.brokers[2].new_owner();
    let (id, mut deliveries) = subscribe(&queue, consumer(owner, Some(1))).await;
    let first = take(&mut deliveries, 1).await;
    assert_nothing_comes(&mut deliveries).await;
    // Somebody at the leader has the next one.
    let here = three.brokers[0].new_owner();
    let other = three.queue(0, "q").await.get(here, false).await.expect("asked").expect("it waits");
    assert_eq!(value(&other.record.record), "00001");
    queue.settle(owner, places(&first), Disposition::Release { failed: true }).await.expect("given back");
    queue.add_credit(id, 1).await.expect("more");
    let again = take(&mut deliveries, 1).await;
    assert_eq!(
        (texts(&again), again[0].redelivered, again[0].marks.failures),
        (vec!["00000".into()], true, 1)
    );
    queue.cancel(id).await.expect("cancelled");
    assert_eq!(deliveries.next().await, None, "nothing more comes");
    three.until(0, "q", |figures| (figures.ready, figures.leased, figures.consumers) == (1, 2, 0)).await;
    queue.close_owner(owner, false).await.expect("closed");
    three.until(0, "q", |figures| (figures.ready, figures.leased) == (2, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_a_queue_elsewhere_is_answered() {
    let three = Three::started().await;
    three
        .declare("q", &[("x-max-length", ArgumentValue::Integer(6)), ("x-overflow", text("reject-publish"))])
        .await;
    three.publish(0, "q", &numbered(5)).await;
    let info = three.brokers[2].find_queue(NAMESPACE, "q").unwrap().unwrap();
    assert_eq!(three.figures(2, "q").await.ready, 5, "without being woken");
    let queue = three.queue(2, "q").await;
    let owner = three.brokers[2].new_owner();
    let got = queue.get(owner, false).await.expect("asked").expect("it waits");
    assert_eq!(value(&got.record.record), "00000");
    let settled = queue.get(owner, true).await.expect("asked").expect("it waits");
    assert_eq!(value(&settled.record.record), "00001");
    // Nobody waits for that to be durable.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let figures = queue.figures().await.expect("figures");
    assert_eq!((figures.ready, figures.leased), (3, 1));
    let browsed = three.brokers[2].browse(&info, 10).await.expect("browsed");
    let browsed: Vec<String> = browsed.iter().map(|browsed| value(&browsed.record)).collect();
    assert_eq!(browsed, ["00000", "00002", "00003", "00004"], "one is leased, one is settled");
    assert_eq!(queue.purge().await, Ok(3));
    queue
        .settle_durably(owner, vec![got.place], Disposition::Release { failed: false })
        .await
        .expect("durable");
    let again = queue.get(owner, false).await.expect("asked").expect("it is back");
    assert!(again.redelivered);
    assert_eq!(queue.get(owner, false).await, Ok(None));
    let alone = NewConsumer { exclusive: true, ..consumer(owner, None) };
    let (_, _deliveries) = subscribe(&queue, alone).await;
    let other = three.queue(1, "q").await.subscribe(consumer(three.brokers[1].new_owner(), None)).await;
    assert_eq!(other.expect("asked").map(|_| ()), Err(SubscribeError::Exclusive));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_takes_nothing_is_sent_only_so_much() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    let queue = three.queue(1, "q").await;
    let owner = three.brokers[1].new_owner();
    let flood = NewConsumer { settled: true, ..consumer(owner, None) };
    let (_, mut deliveries) = subscribe(&queue, flood).await;
    for part in numbered(30_000).chunks(1_000) {
        three.publish(0, "q", part).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let left = three.figures(0, "q").await.ready;
    assert!((12_000..30_000).contains(&left), "{left} records are left in the queue");
    let got = take(&mut deliveries, 30_000).await;
    assert_eq!(texts(&got), numbered(30_000));
    assert_eq!(three.figures(0, "q").await.ready, 0);
}

/// A bound that two consumers share.
#[derive(Default)]
struct Slots {
    limit: AtomicU32,
    taken: AtomicU32,
}

impl Gate for Slots {
    fn take(&self) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        let free = |taken| (limit == 0 || taken < limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_ok()
    }

    fn is_limited(&self) -> bool {
        self.limit.load(Ordering::SeqCst) > 0
    }

    fn count(&self, records: u32) {
        self.taken.fetch_add(records, Ordering::SeqCst);
    }

    fn give_back(&self, records: u32) {
        self.taken.fetch_sub(records, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bound_that_consumers_share_holds_and_keeps_nothing_from_others() {
    let three = Three::started().await;
    three.declare("a", &[]).await;
    three.declare("b", &[]).await;
    let slots = Arc::new(Slots::default());
    slots.limit.store(2, Ordering::SeqCst);
    let owner = three.brokers[1].new_owner();
    let gated = || NewConsumer { gate: Some(slots.clone() as Arc<dyn Gate>), ..consumer(owner, None) };
    let (a, b) = (three.queue(1, "a").await, three.queue(1, "b").await);
    let (_, mut from_a) = subscribe(&a, gated()).await;
    let (id, mut from_b) = subscribe(&b, gated()).await;
    three.publish(0, "a", &numbered(1)).await;
    let of_a = take(&mut from_a, 1).await;
    three.publish(0, "b", &numbered(3)).await;
    let of_b = take(&mut from_b, 1).await;
    assert_nothing_comes(&mut from_b).await;
    assert_eq!(slots.taken.load(Ordering::SeqCst), 2, "no room is kept by a queue that has nothing");
    // The others are not stuck: somebody else takes them.
    let other = three.brokers[2].new_owner();
    let theirs = three.queue(2, "b").await.get(other, true).await.expect("asked").expect("it waits");
    assert_eq!(value(&theirs.record.record), "00001");
    // Room that the one queue gives back is for the other.
    a.settle(owner, places(&of_a), Disposition::Accept).await.expect("settled");
    slots.give_back(1);
    a.wake();
    b.wake();
    let next = take(&mut from_b, 1).await;
    assert_eq!(texts(&next), ["00002"]);
    // Without a limit all comes, and is counted.
    slots.limit.store(0, Ordering::SeqCst);
    a.wake();
    b.wake();
    three.publish(0, "b", &numbered(100)).await;
    take(&mut from_b, 100).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(slots.taken.load(Ordering::SeqCst), 102);
    b.cancel(id).await.expect("cancelled");
    b.settle(owner, places(&of_b), Disposition::Accept).await.expect("settled");
    a.close_owner(owner, false).await.expect("closed");
}

#[tokio::test(start_paused = true)]
async fn when_the_leader_is_gone_sessions_keep_what_they_have_and_what_they_settled_is_settled() {
    for is_abandoned in [true, false] {
        let three = Three::started().await;
        three.declare("q", &[]).await;
        three.publish(0, "q", &numbered(10)).await;
        let queue = three.queue(1, "q").await;
        let owner = three.brokers[1].new_owner();
        let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(8))).await;
        let taken = take(&mut deliveries, 8).await;
        queue.settle_durably(owner, places(&taken[..2]), Disposition::Accept).await.expect("durable");
        // The leader will not hear of this.
        match is_abandoned {
            true => three.abandon(0).await,
            false => three.isolate(0, true),
        }
        queue.settle(owner, places(&taken[2..3]), Disposition::Accept).await.expect("noted");
        let ended = tokio::time::timeout(Duration::from_secs(5), deliveries.next()).await;
        assert_eq!(ended, Ok(None), "its consumer hears of it");
        assert!(queue.is_gone());
        queue.settle(owner, places(&taken[3..4]), Disposition::Accept).await.expect("noted");
        // Somebody on a third node is the first to consume from the next leader.
        let (third, other) = (three.queue(2, "q").await, three.brokers[2].new_owner());
        let (_, mut others) = subscribe(&third, consumer(other, None)).await;
        let came = take(&mut others, 2).await;
        assert_eq!(texts(&came), numbered(10)[8..], "the rest is settled, or with its owner");
        queue.settle_durably(owner, places(&taken[4..5]), Disposition::Accept).await.expect("durable");
        let queue = three.queue(1, "q").await;
        queue.settle(owner, places(&taken[5..6]), Disposition::Release { failed: true }).await.expect("back");
        let came = take(&mut others, 1).await;
        assert_eq!(
            (texts(&came), came[0].redelivered, came[0].marks.failures),
            (vec!["00005".into()], true, 1)
        );
        queue.close_owner(owner, false).await.expect("closed");
        assert_eq!(texts(&take(&mut others, 2).await), numbered(10)[6..8]);
        assert_nothing_comes(&mut others).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_leads_no_more_keeps_what_its_own_sessions_have() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    three.publish(0, "q", &numbered(6)).await;
    let queue = three.queue(0, "q").await;
    let owner = three.brokers[0].new_owner();
    let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(4))).await;
    let taken = take(&mut deliveries, 4).await;
    let (third, other) = (three.queue(2, "q").await, three.brokers[2].new_owner());
    let theirs = third.get(other, false).await.expect("asked").expect("it waits");
    assert_eq!(value(&theirs.record.record), "00004");
    three.lead(SHARD, 1).await;
    queue.settle(owner, places(&taken[..1]), Disposition::Accept).await.expect("told, or noted");
    let (second, another) = (three.queue(1, "q").await, three.brokers[1].new_owner());
    let (_, mut others) = subscribe(&second, consumer(another, None)).await;
    assert_eq!(texts(&take(&mut others, 1).await), ["00005"]);
    assert_nothing_comes(&mut others).await;
    // A handle that has ended is good for settling and closing.
    queue.settle_durably(owner, places(&taken[1..2]), Disposition::Accept).await.expect("durable");
    queue.close_owner(owner, false).await.expect("closed");
    third.close_owner(other, false).await.expect("closed");
    let mut came = texts(&take(&mut others, 3).await);
    came.sort_unstable();
    assert_eq!(came, numbered(6)[2..5]);
    // It leads again, and its session's next records are known to the one that leads after it.
    three.lead(SHARD, 0).await;
    let back = three.queue(0, "q").await;
    assert_eq!(back.get(three.brokers[0].new_owner(), true).await, Ok(None), "all is with somebody");
    second.close_owner(another, true).await.expect("closed");
    three.until(0, "q", |figures| (figures.ready, figures.leased) == (4, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn what_sessions_had_over_a_link_that_hangs_the_next_leader_hears() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    three.publish(0, "q", &numbered(5)).await;
    let queue = three.queue(1, "q").await;
    let owner = three.brokers[1].new_owner();
    let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(4))).await;
    let taken = take(&mut deliveries, 4).await;
    let (one, two) = (three.nodes[0].node_id(), three.nodes[1].node_id());
    three.transport.isolate(one, &[two], true);
    queue.settle(owner, places(&taken[..2]), Disposition::Accept).await.expect("told");
    three.lead(SHARD, 2).await;
    // Somebody on the same node is the first to use it over another link.
    let again = three.queue(1, "q").await;
    let other = three.brokers[2].new_owner();
    let (_, mut others) = subscribe(&three.queue(2, "q").await, consumer(other, None)).await;
    assert_eq!(texts(&take(&mut others, 1).await), ["00004"]);
    assert_nothing_comes(&mut others).await;
    again.settle_durably(owner, places(&taken[2..3]), Disposition::Accept).await.expect("durable");
    queue.close_owner(owner, true).await.expect("closed");
    assert_eq!(texts(&take(&mut others, 1).await), ["00003"]);
    assert_nothing_comes(&mut others).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_begins_does_not_wait_for_ever_for_who_says_nothing() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    three.publish(0, "q", &numbered(3)).await;
    let (third, other) = (three.queue(2, "q").await, three.brokers[2].new_owner());
    let taken = third.get(other, false).await.expect("asked").expect("it waits");
    // What it has is with it as long as it can be; then others get it.
    three.isolate(2, true);
    three.lead(SHARD, 1).await;
    let started = tokio::time::Instant::now();
    let here = three.brokers[1].new_owner();
    let first = three.queue(1, "q").await.get(here, false).await.expect("asked").expect("it waits");
    assert_eq!(first.place, taken.place);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    three.isolate(2, false);
    // It has come too late, and what it settles is somebody else's.
    third.settle(other, vec![taken.place], Disposition::Accept).await.expect("noted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let back = Disposition::Release { failed: false };
    three.queue(1, "q").await.settle_durably(here, vec![first.place], back).await.expect("durable");
    three.until(0, "q", |figures| (figures.ready, figures.leased) == (3, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_node_had_that_is_gone_comes_back() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    three.publish(0, "q", &numbered(4)).await;
    let queue = three.queue(1, "q").await;
    let owner = three.brokers[1].new_owner();
    let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(3))).await;
    assert_eq!(take(&mut deliveries, 3).await.len(), 3);
    three.abandon(1).await;
    three.until(0, "q", |figures| (figures.ready, figures.leased, figures.consumers) == (4, 0, 0)).await;
    let here = three.brokers[0].new_owner();
    let first = three.queue(0, "q").await.get(here, false).await.expect("asked").expect("it is back");
    assert_eq!(
        (value(&first.record.record), first.redelivered, first.marks.failures),
        ("00000".into(), true, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn over_the_next_link_sessions_keep_what_they_have() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    three.publish(0, "q", &numbered(5)).await;
    let queue = three.queue(1, "q").await;
    let (owner, closed) = (three.brokers[1].new_owner(), three.brokers[1].new_owner());
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(queue.get(owner, false).await.expect("asked").expect("it waits"));
    }
    queue.get(closed, false).await.expect("asked").expect("it waits");
    let (one, two) = (three.nodes[0].node_id(), three.nodes[1].node_id());
    three.transport.isolate(one, &[two], true);
    queue.settle(owner, places(&taken[..1]), Disposition::Accept).await.expect("noted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(queue.figures().await.is_err(), "nobody knows what has arrived");
    queue.settle(owner, places(&taken[1..2]), Disposition::Accept).await.expect("noted");
    queue.close_owner(closed, true).await.expect("noted");
    three.transport.isolate(one, &[two], false);
    // One is settled, one has been so since, one is with its owner, one has come back, and one always waited.
    three.until(1, "q", |figures| (figures.ready, figures.leased) == (2, 1)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let here = three.brokers[0].new_owner();
    let (_, mut deliveries) = subscribe(&three.queue(0, "q").await, consumer(here, None)).await;
    let came = take(&mut deliveries, 2).await;
    assert_eq!(texts(&came), numbered(5)[3..]);
    assert_eq!((came[0].redelivered, came[1].redelivered), (true, false));
    queue.settle_durably(owner, places(&taken[2..]), Disposition::Accept).await.expect("durable");
    queue.close_owner(owner, true).await.expect("closed");
    assert_nothing_comes(&mut deliveries).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_on_its_way_over_a_link_that_broke_is_not_lost() {
    let three = Three::started().await;
    three.declare("q", &[]).await;
    let queue = three.queue(1, "q").await;
    let owner = three.brokers[1].new_owner();
    let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(10))).await;
    let (one, two) = (three.nodes[0].node_id(), three.nodes[1].node_id());
    three.transport.isolate(one, &[two], true);
    // The leader hands them out; they do not arrive.
    three.publish(0, "q", &numbered(4)).await;
    three.until(0, "q", |figures| figures.leased == 4).await;
    three.transport.isolate(one, &[two], false);
    while let Some(early) = deliveries.next().await {
        let places = places(&early);
        queue.settle(owner, places, Disposition::Accept).await.expect("settled");
    }
    let queue = three.queue(1, "q").await;
    let (_, mut deliveries) = subscribe(&queue, consumer(owner, Some(10))).await;
    let figures = three.figures(0, "q").await;
    let came = take(&mut deliveries, (figures.ready + figures.leased) as usize).await;
    queue.settle_durably(owner, places(&came), Disposition::Accept).await.expect("durable");
    three.until(0, "q", |figures| (figures.ready, figures.leased) == (0, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_for_a_queue_of_another_node_goes_there_in_order() {
    let three = Three::started().await;
    // Exclusive queues live where their connection is. That other nodes can declare is not looked at here.
    let meta = QueueMeta { exclusive: true, ..QueueMeta::default() };
    for name in ["mine", "mine too"] {
        three.brokers[0].create_queue(NAMESPACE, name, meta.clone()).await.expect("declared");
    }
    let mut sent = Vec::new();
    for text in numbered(50) {
        let names = ["mine", "mine too"];
        let destinations = three.brokers[1].destinations(NAMESPACE, names, None, 0).expect("found");
        let mut builder = BatchBuilder::new();
        builder.push(EPOCH, None, Some(text.as_bytes()), &[]);
        sent.push(three.brokers[1].publish_to(&destinations, builder.build()).await.expect("sent"));
    }
    for publishing in sent {
        publishing.await.expect("published");
    }
    for name in ["mine", "mine too"] {
        let queue = three.queue(0, name).await;
        let owner = three.brokers[0].new_owner();
        let (_, mut deliveries) = subscribe(&queue, consumer(owner, None)).await;
        assert_eq!(texts(&take(&mut deliveries, 50).await), numbered(50));
    }
    assert_eq!(three.figures(2, "mine").await.leased, 50, "seen from a third node");
    // One that cannot be reached takes nothing, and keeps nobody waiting.
    let destinations = three.brokers[1].destinations(NAMESPACE, ["mine"], None, 0).expect("found");
    three.isolate(0, true);
    let mut builder = BatchBuilder::new();
    builder.push(EPOCH, None, Some(b"lost"), &[]);
    let lost = three.brokers[1].publish_to(&destinations, builder.build()).await.expect("sent");
    assert_eq!(lost.await, Ok(()));
    three.connected.send_modify(|connected| {
        connected.remove(&three.nodes[0].node_id());
    });
    assert!(three.brokers[1].destinations(NAMESPACE, ["mine"], None, 0).expect("found").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_declared_is_known_everywhere_when_that_is_answered() {
    let three = Three::started().await;
    for number in 0..20 {
        let name = format!("q{number}");
        three.declare(&name, &[]).await;
        let found = |at: usize| three.brokers[at].find_queue(NAMESPACE, &name).expect("asked").is_some();
        assert!(found(1) && found(2), "{name} is not known");
        let (exchange, queue) = ("amq.direct".to_owned(), Destination::Queue(name.clone()));
        let key = name.clone().into_bytes().into();
        let binding = BindingMeta::new(NAMESPACE.to_owned(), exchange, queue, key, vec![]);
        three.brokers[0].bind(binding).await.expect("bound");
    }
    // Who does not answer is not waited for for long.
    three.isolate(2, true);
    let before = tokio::time::Instant::now();
    three.declare("late", &[]).await;
    assert!(before.elapsed() < Duration::from_secs(2));
    assert!(three.brokers[1].find_queue(NAMESPACE, "late").expect("asked").is_some());
}
