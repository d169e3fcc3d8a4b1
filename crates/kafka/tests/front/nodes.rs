//! Two nodes of a cluster: what a client of one is told of the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_broker::{Broker, BrokerOptions, CreateTopic, ListenerInfo, Topic};
use weir_cluster::{Clock, Drive, LocalTransport, Node, NodeOptions, OnFatal};
use weir_kafka::{KafkaFront, KafkaFrontOptions};
use weir_kafka_wire::{DescribeClusterRequest, ErrorCode, FindCoordinatorRequest, MetadataRequest, Uuid};
use weir_log::disk::SimDisk;
use weir_model::{NodeId, ShardId};

use crate::common::{Client, FixedClock, batch, fetch, only_partition, produce};

/// Everything is led by the first, and the client has connected to the second.
struct Two {
    nodes: Vec<Arc<Node>>,
    brokers: Vec<Arc<Broker>>,
    addresses: Vec<SocketAddr>,
    _serving: Vec<tokio_util::sync::DropGuard>,
}

impl Two {
    async fn serve() -> Two {
        let transport = LocalTransport::new();
        let clock: Arc<dyn Clock> = Arc::new(FixedClock);
        let mut nodes = Vec::new();
        for id in [1, 2] {
            let mut options = NodeOptions::new(NodeId(id), "/data", OnFatal::new(|_| {}));
            options.data_shards = 1;
            options.voters = vec![NodeId(1), NodeId(2)];
            options.disk_reserve_bytes = 0;
            options.seed = id;
            let (disk, end) = (SimDisk::new(id).shared(), transport.end(NodeId(id)));
            let drive = Drive::Tasks { sync_latency: Duration::from_micros(10) };
            let node = Node::start(options, disk, end, clock.clone(), drive).await.expect("it starts");
            transport.connect(&node);
            nodes.push(node);
        }
        let mut two = Two { nodes, brokers: vec![], addresses: vec![], _serving: vec![] };
        two.lead_by_the_first().await;
        for node in &two.nodes {
            let mut options = BrokerOptions::new("two", [node.node_id().0 as u8; 32]);
            options.zone = Some(format!("zone-{}", node.node_id()));
            let broker = Broker::start(node.clone(), clock.clone(), options).await.expect("it starts");
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let front = KafkaFront::bind(any, broker.clone(), KafkaFrontOptions::default()).await;
            let front = front.expect("a port is free");
            let address = front.local_addr();
            broker.note_listeners(vec![ListenerInfo { protocol: "kafka", address }]);
            let stop = CancellationToken::new();
            tokio::spawn(front.serve(stop.clone().cancelled_owned()));
            two.addresses.push(address);
            two.brokers.push(broker);
            two._serving.push(stop.drop_guard());
        }
        two.until(|two| !two.brokers[1].cluster().nodes[0].advertised.is_empty()).await;
        two
    }

    async fn lead_by_the_first(&self) {
        for shard in [ShardId::META, ShardId(1)] {
            let [first, second] = [0, 1].map(|at: usize| self.nodes[at].shard(shard).expect("a shard"));
            while !first.leadership().ready || second.leadership().leader != Some(NodeId(1)) {
                if second.leadership().is_leader {
                    second.transfer_leadership(NodeId(1)).await.expect("it is asked");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn until(&self, is: impl Fn(&Two) -> bool) {
        while !is(self) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A topic that the second node knows.
    async fn topic(&self) -> Arc<Topic> {
        let create = CreateTopic { name: "t".into(), partitions: Some(1), ..CreateTopic::default() };
        let topic = self.brokers[0].create_topic(create, false).await.expect("it is created");
        self.until(|two| {
            let known = two.brokers[1].topic("t");
            known.is_some_and(|topic| two.brokers[1].partition(&topic, 0).is_ok())
        })
        .await;
        topic
    }

    async fn connect(&self, at: usize) -> Client {
        Client::to(self.addresses[at]).await
    }

    fn first(&self) -> (i32, String, i32, Option<String>) {
        let address = self.addresses[0];
        (1, address.ip().to_string(), i32::from(address.port()), Some("zone-1".to_owned()))
    }
}

#[tokio::test]
async fn all_nodes_are_listed_with_where_they_are_and_where_they_stand() {
    let two = Two::serve().await;
    let mut client = two.connect(1).await;
    let metadata = client.call(12, &MetadataRequest::default()).await;
    let told: Vec<_> = metadata
        .brokers
        .iter()
        .map(|node| (node.node_id, node.host.to_string(), node.port, node.rack.as_deref().map(str::to_owned)))
        .collect();
    let second = i32::from(two.addresses[1].port());
    assert_eq!(told, [two.first(), (2, "127.0.0.1".to_owned(), second, Some("zone-2".to_owned()))]);
    assert_eq!(metadata.controller_id, 1);
    let described = client.call(2, &DescribeClusterRequest::default()).await;
    let racks: Vec<_> =
        described.brokers.iter().map(|node| node.rack.as_deref().unwrap_or_default()).collect();
    assert_eq!(racks, ["zone-1", "zone-2"]);
    let coordinator = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    let found = client.call(2, &coordinator).await;
    assert_eq!((found.node_id, found.port), (1, i32::from(two.addresses[0].port())));
}

#[tokio::test]
async fn a_producer_that_asks_the_wrong_node_is_told_the_right_one_at_once() {
    let two = Two::serve().await;
    two.topic().await;
    let mut client = two.connect(1).await;
    let mut response = client.call(10, &produce("t", 0, -1, batch(&["a"]))).await;
    let told: Vec<_> = response
        .node_endpoints
        .iter()
        .map(|node| (node.node_id, node.host.to_string(), node.port, node.rack.as_deref().map(str::to_owned)))
        .collect();
    assert_eq!(told, [two.first()]);
    let refused = only_partition(&mut response);
    assert_eq!(refused.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(refused.current_leader.leader_id, 1);
    assert!(refused.current_leader.leader_epoch >= 0);
    let mut response = client.call(9, &produce("t", 0, -1, batch(&["a"]))).await;
    assert_eq!(only_partition(&mut response).error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    // Nothing of it was taken.
    let mut leader = two.connect(0).await;
    assert_eq!(leader.append("t", 0, batch(&["b"])).await, 0);
}

#[tokio::test]
async fn a_follower_gives_what_it_has_and_leaves_to_the_leader_what_there_is_not() {
    let two = Two::serve().await;
    let topic = two.topic().await;
    two.connect(0).await.append("t", 0, batch(&["a"])).await;
    let mut client = two.connect(1).await;
    let mut data = client.fetch("t", 0, 0).await;
    while data.high_watermark < 1 {
        data = client.fetch("t", 0, 0).await;
    }
    assert_eq!(crate::common::texts(&data), ["a"]);
    let mut beyond = fetch(&[("t", 0, 99)]);
    beyond.topics[0].topic_id = Uuid(topic.id().0);
    let response = client.call(16, &beyond).await;
    let data = &response.responses[0].partitions[0];
    assert_eq!(data.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!((data.current_leader.leader_id, response.node_endpoints[0].node_id), (1, 1));
    assert_eq!(response.node_endpoints[0].port, i32::from(two.addresses[0].port()));
    let there = two.connect(0).await.fetch("t", 0, 99).await;
    assert_eq!(there.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
}
