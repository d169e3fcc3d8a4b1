//! Three nodes: clients of one of them, while the leader of their queues is another, and changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use weir_amqp_wire::Method;
use weir_amqp_wire::methods::basic;
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{Clock, Drive, LocalTransport, Node, NodeOptions, OnFatal};
use weir_log::disk::SimDisk;
use weir_model::{NodeId, ShardId};

use super::support::{TestClock, World};

/// Enough for a change of leaders.
const LONG: Duration = Duration::from_secs(5);

/// Three nodes. The first leads, until told otherwise.
struct Three {
    transport: LocalTransport,
    worlds: Vec<World>,
}

impl Three {
    async fn started() -> Three {
        let transport = LocalTransport::new();
        let voters: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let clock: Arc<dyn Clock> = Arc::new(TestClock { began: Instant::now() });
        let mut nodes = Vec::new();
        for (seed, &id) in voters.iter().enumerate() {
            let mut options = NodeOptions::new(id, "/data", OnFatal::new(|_| {}));
            options.data_shards = 1;
            options.voters.clone_from(&voters);
            options.disk_reserve_bytes = 0;
            options.seed = seed as u64;
            let disk = SimDisk::new(seed as u64).shared();
            let drive = Drive::Tasks { sync_latency: Duration::from_micros(100) };
            let node = Node::start(options, disk, transport.end(id), clock.clone(), drive).await;
            let node = node.expect("it starts");
            transport.connect(&node);
            nodes.push(node);
        }
        lead(&nodes, 0).await;
        let (_, connected) = watch::channel(voters.into_iter().collect::<BTreeSet<_>>());
        let mut worlds = Vec::new();
        for node in nodes {
            let mut options = BrokerOptions::new("three", [node.node_id().0 as u8; 32]);
            options.connected = Some(connected.clone());
            options.spread_leaders = false;
            let broker = Broker::start(node.clone(), clock.clone(), options).await;
            worlds.push(World::over(node, broker.expect("it starts")).await);
        }
        Three { transport, worlds }
    }

    /// Has another node lead everything.
    async fn lead(&self, to: usize) {
        let nodes: Vec<Arc<Node>> = self.worlds.iter().map(|world| world.node.clone()).collect();
        lead(&nodes, to).await;
    }

    /// A node is gone as if it had crashed; another one leads then.
    async fn abandon(&self, at: usize) {
        let nodes: Vec<NodeId> = self.worlds.iter().map(|world| world.node.node_id()).collect();
        self.transport.disconnect(nodes[at]);
        self.transport.isolate(nodes[at], &nodes, true);
        self.worlds[at].node.abandon().await;
    }
}

async fn lead(nodes: &[Arc<Node>], to: usize) {
    for shard in [ShardId::META, ShardId(1)] {
        let handles: Vec<_> = nodes.iter().map(|node| node.shard(shard).expect("the shard")).collect();
        while !handles[to].leadership().ready {
            for (at, leader) in handles.iter().enumerate() {
                if at != to && leader.leadership().is_leader {
                    leader.transfer_leadership(nodes[to].node_id()).await.expect("it is asked");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn prefetch(count: u16) -> basic::Qos {
    basic::Qos { prefetch_count: count, ..basic::Qos::default() }
}

#[tokio::test(start_paused = true)]
async fn consumers_go_on_at_the_next_leader_with_what_they_have() {
    let three = Three::started().await;
    let mut publisher = three.worlds[0].client().await;
    publisher.declare("q").await;
    // One client is where the leader is, the other one is not.
    let (mut near, mut far) = (three.worlds[0].client().await, three.worlds[1].client().await);
    for client in [&mut near, &mut far] {
        assert!(matches!(client.call(1, prefetch(1)).await, Method::BasicQosOk(_)));
        assert!(matches!(client.consume(1, "q", "tag").await, Method::BasicConsumeOk(_)));
    }
    for body in ["a", "b", "c", "d"] {
        publisher.publish("q", body.as_bytes()).await;
    }
    let (_, near_tag, near_has) = near.delivery().await;
    let (_, far_tag, far_has) = far.delivery().await;
    assert_eq!(BTreeSet::from([&near_has[..], &far_has[..]]), BTreeSet::from([&b"a"[..], &b"b"[..]]));
    three.lead(2).await;
    // No more than one at a time, also from another leader.
    assert!(near.is_silent(LONG).await && far.is_silent(LONG).await);
    near.ack(1, near_tag).await;
    far.ack(1, far_tag).await;
    let mut left = Vec::new();
    for client in [&mut near, &mut far] {
        let (tag, number, body) = client.delivery().await;
        assert_eq!(tag, "tag");
        left.push(body);
        client.ack(1, number).await;
    }
    left.sort();
    assert_eq!(left, ["c", "d"], "what was settled late does not come again");
    assert!(near.is_silent(LONG).await && far.is_silent(LONG).await);
    let mut publisher = three.worlds[2].client().await;
    assert_eq!(publisher.ready("q").await, 0);
    publisher.publish("q", b"e").await;
    publisher.publish("q", b"f").await;
    let (e, f) = (near.delivery().await.2, far.delivery().await.2);
    assert_eq!(BTreeSet::from([&e[..], &f[..]]), BTreeSet::from([&b"e"[..], &b"f"[..]]));
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_stays_with_its_client_and_is_settled_at_the_next_leader() {
    let three = Three::started().await;
    let mut publisher = three.worlds[0].client().await;
    publisher.declare("q").await;
    for body in ["settled", "refused", "kept"] {
        publisher.publish("q", body.as_bytes()).await;
    }
    assert_eq!(publisher.ready("q").await, 3);
    let mut client = three.worlds[1].client().await;
    let (first, _) = client.get("q").await.expect("it waits");
    let (second, _) = client.get("q").await.expect("it waits");
    client.get("q").await.expect("it waits");
    assert_eq!(client.get("q").await, None);
    three.abandon(0).await;
    assert!(client.is_silent(LONG).await);
    let mut other = three.worlds[2].client().await;
    client.ack(1, first).await;
    assert!(client.is_silent(LONG).await);
    assert_eq!(other.get("q").await, None, "all of it is with the client");
    let back = basic::Nack { delivery_tag: second, requeue: true, ..Default::default() };
    client.send(1, back).await;
    assert!(client.is_silent(LONG).await);
    let (again, body) = other.get("q").await.expect("it is back");
    assert_eq!(body, "refused");
    other.ack(1, again).await;
    assert_eq!(other.get("q").await, None);
    drop(client);
    tokio::time::sleep(LONG).await;
    assert_eq!(other.get("q").await.map(|(_, body)| body), Some("kept".into()));
    assert_eq!(other.get("q").await, None, "and nothing else");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_elsewhere_is_told_that_its_queue_is_deleted() {
    let three = Three::started().await;
    let mut owner = three.worlds[0].client().await;
    owner.declare("q").await;
    let mut client = three.worlds[1].client().await;
    client.consume(1, "q", "tag").await;
    let delete = weir_amqp_wire::methods::queue::Delete {
        queue: weir_amqp_wire::ShortStr::from_static("q"),
        ..Default::default()
    };
    assert!(matches!(owner.call(1, delete).await, Method::QueueDeleteOk(_)));
    let told = client.method().await;
    assert!(matches!(&told, Method::BasicCancel(cancel) if cancel.consumer_tag == "tag"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bound_of_a_channel_holds_over_queues_that_are_led_elsewhere() {
    let three = Three::started().await;
    let mut publisher = three.worlds[0].client().await;
    publisher.declare("a").await;
    publisher.declare("b").await;
    let mut client = three.worlds[1].client().await;
    client.consume(1, "a", "a").await;
    client.consume(1, "b", "b").await;
    let shared = basic::Qos { global: true, ..prefetch(2) };
    assert!(matches!(client.call(1, shared).await, Method::BasicQosOk(_)));
    for body in ["1", "2", "3"] {
        publisher.publish("a", body.as_bytes()).await;
        publisher.publish("b", body.as_bytes()).await;
    }
    let mut got = Vec::new();
    let mut tags = vec![client.delivery().await, client.delivery().await];
    assert!(client.is_silent(LONG).await, "no more than two");
    while let Some((queue, tag, body)) = tags.pop() {
        got.push((queue, body));
        client.ack(1, tag).await;
        if got.len() <= 4 {
            tags.insert(0, client.delivery().await);
        }
    }
    got.sort();
    let all = ["a", "b"].into_iter().flat_map(|q| ["1", "2", "3"].map(|body| (q.to_owned(), body.into())));
    assert_eq!(got, all.collect::<Vec<_>>());
}
