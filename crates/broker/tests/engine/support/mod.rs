//! A broker over a real node on a simulated disk, with time under control, that can be stopped,
//! killed and started again.

#![allow(dead_code)]

pub mod topology;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_broker::groups::{JoinRequest, Joined, SyncRequest};
use weir_broker::{
    Acks, Broker, BrokerOptions, CreateTopic, PartitionRef, Piece, PublishError, Published, Topic,
};
use weir_cluster::{Clock, Drive, NoTransport, Node, NodeOptions, OnFatal};
use weir_log::disk::SimDisk;
use weir_model::batch::{BatchBuilder, Record, decode_records, verify_batch};
use weir_model::{NodeId, Offset, TimestampMs};
use weir_shard::PartitionView;

/// The time of day at which every test begins.
pub const EPOCH: TimestampMs = 1_700_000_000_000;

/// Wall-clock time that goes with the runtime's clock, which tests hold still, and that can be set.
pub struct TestClock {
    began: Instant,
    offset: AtomicI64,
    was_set: Arc<Notify>,
}

impl TestClock {
    fn new() -> TestClock {
        TestClock { began: Instant::now(), offset: AtomicI64::new(0), was_set: Arc::default() }
    }

    /// Sets it so many milliseconds forward, or back.
    pub fn set(&self, by_ms: i64) {
        self.offset.fetch_add(by_ms, Ordering::SeqCst);
        self.was_set.notify_waiters();
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> TimestampMs {
        EPOCH + self.began.elapsed().as_millis() as i64 + self.offset.load(Ordering::SeqCst)
    }

    fn jumped(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let was_set = Arc::clone(&self.was_set).notified_owned();
        Box::pin(was_set)
    }
}

pub struct World {
    pub disk: SimDisk,
    pub clock: Arc<TestClock>,
    pub options: BrokerOptions,
    pub data_shards: u32,
    starts: u8,
    node: Option<Arc<Node>>,
    broker: Option<Arc<Broker>>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut options = BrokerOptions::new("test-cluster", [seed as u8; 32]);
        options.groups.initial_rebalance_delay_ms = 0;
        World {
            disk: SimDisk::new(seed),
            clock: Arc::new(TestClock::new()),
            options,
            data_shards: 3,
            starts: 0,
            node: None,
            broker: None,
        }
    }

    /// A world whose broker is running.
    pub async fn started(seed: u64) -> World {
        let mut world = World::new(seed);
        world.start().await;
        world
    }

    pub async fn start(&mut self) {
        self.try_start().await.expect("the broker starts");
    }

    pub async fn try_start(&mut self) -> Result<(), String> {
        let mut options = NodeOptions::new(NodeId(1), "/data", OnFatal::new(|_| {}));
        options.data_shards = self.data_shards;
        // Small enough for checkpoints to come by themselves in longer tests.
        options.checkpoint_bytes = 64 << 10;
        options.journal.file_bytes = 1 << 20;
        options.journal.group_bytes_max = 256 << 10;
        options.disk_reserve_bytes = 0;
        options.seed = u64::from(self.starts);
        let drive = Drive::Tasks { sync_latency: Duration::from_micros(100) };
        let node = Node::start(options, self.disk.shared(), Arc::new(NoTransport), self.clock.clone(), drive)
            .await
            .map_err(|error| error.to_string())?;
        self.starts += 1;
        // As a new process would, it draws other ids than the one before.
        self.options.seed[31] = self.starts;
        let broker = tokio::time::timeout(
            Duration::from_secs(60),
            Broker::start(node.clone(), self.clock.clone(), self.options.clone()),
        )
        .await
        .map_err(|_| "the broker does not become ready".to_owned())?
        .map_err(|error| error.to_string())?;
        self.node = Some(node);
        self.broker = Some(broker);
        Ok(())
    }

    pub fn broker(&self) -> &Arc<Broker> {
        self.broker.as_ref().expect("the broker is running")
    }

    pub fn node(&self) -> &Arc<Node> {
        self.node.as_ref().expect("the node is running")
    }

    /// Stops in order.
    pub async fn stop(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.shutdown().await;
        }
        if let Some(node) = self.node.take() {
            node.shutdown().await;
        }
        self.disk.kill_process();
    }

    /// The machine loses power: what was not synced survives in part.
    pub async fn lose_power(&mut self) {
        self.disk.crash();
        self.end().await;
        self.disk.restart();
    }

    /// Ends the tasks of a process that cannot do anything to the disk any more.
    pub async fn end(&mut self) {
        if let Some(node) = self.node.take() {
            node.abandon().await;
        }
        if let Some(broker) = self.broker.take() {
            broker.shutdown().await;
        }
    }

    pub async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }

    pub async fn create(&self, name: &str, partitions: u32) -> Arc<Topic> {
        self.create_with(name, partitions, &[]).await
    }

    pub async fn create_with(&self, name: &str, partitions: u32, config: &[(&str, &str)]) -> Arc<Topic> {
        let create = CreateTopic {
            name: name.into(),
            partitions: Some(partitions),
            replication: None,
            config: config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        self.broker().create_topic(create, false).await.expect("the topic is created")
    }

    pub fn partition(&self, name: &str, index: i32) -> PartitionRef {
        let topic = self.broker().topic(name).expect("the topic exists");
        self.broker().partition(&topic, index).expect("the partition is open")
    }

    /// The partition as its shard has it.
    pub fn stored(&self, partition: &PartitionRef) -> Arc<PartitionView> {
        let shard = self.node().shard(partition.shard()).expect("the shard is here");
        shard.view().partition(partition.id()).expect("the partition is there")
    }

    pub async fn publish(&self, partition: &PartitionRef, batch: Bytes) -> Result<Published, PublishError> {
        self.broker().publish(partition, batch, Acks::All).await?.await
    }

    pub async fn publish_values(&self, topic: &str, index: i32, values: &[&str]) -> Offset {
        let partition = self.partition(topic, index);
        self.publish(&partition, values_batch(values)).await.expect("published").base_offset
    }

    /// All values of a partition from its log start on.
    pub async fn values(&self, topic: &str, index: i32) -> Vec<String> {
        let partition = self.partition(topic, index);
        let records = read_all(&partition).await;
        records.into_iter().map(|r| String::from_utf8(r.value.unwrap().to_vec()).unwrap()).collect()
    }
}

pub fn values_batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(EPOCH, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

/// Every record of a partition, in small reads, with offsets checked for gaps.
pub async fn read_all(partition: &PartitionRef) -> Vec<Record> {
    let records = read_what_is_there(partition).await;
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record.offset, partition.log_start() + at as i64, "offsets are dense");
    }
    records
}

/// Every record of a partition of which some may be gone.
pub async fn read_what_is_there(partition: &PartitionRef) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut offset = partition.log_start();
    while offset < partition.next_offset() {
        let read = partition.read(offset, 1000).await.expect("readable");
        assert!(read.next_offset > offset, "a read that gives nothing at {offset}");
        assert_eq!(read.bytes, read.pieces.iter().map(Piece::len).sum::<usize>());
        let mut bytes = BytesMut::new();
        for piece in read.pieces {
            match piece {
                Piece::Memory(piece) => bytes.extend_from_slice(&piece),
                Piece::Stored(range) => bytes.extend_from_slice(&range.first(range.len()).unwrap()),
            }
        }
        let mut bytes = bytes.freeze();
        while !bytes.is_empty() {
            let header = verify_batch(&bytes).expect("a stored batch verifies");
            let batch = bytes.split_to(header.total_bytes());
            let section = batch.slice(weir_model::batch::BATCH_HEADER_BYTES..);
            let codec = header.compression().unwrap();
            let section = weir_compression::decompress(codec, &section, 1 << 20).unwrap();
            records
                .extend(decode_records(&header, section).map(Result::unwrap).filter(|r| r.offset >= offset));
        }
        offset = read.next_offset;
    }
    records
}

pub fn join_request(group: &str, member_id: &str) -> JoinRequest {
    JoinRequest {
        group: group.into(),
        member_id: member_id.into(),
        client_id: "client".into(),
        client_host: "host".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t"))],
        ..JoinRequest::default()
    }
}

pub fn sync_request(joined: &Joined, group: &str) -> SyncRequest {
    let assign = |member: &weir_broker::groups::JoinedMember| {
        (member.member_id.clone(), Bytes::from(format!("for {}", member.member_id)))
    };
    SyncRequest {
        group: group.into(),
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        assignments: joined.members.iter().map(assign).collect(),
        ..SyncRequest::default()
    }
}

/// Joins and syncs as the only member.
pub async fn join_alone(broker: &Broker, group: &str, member_id: &str) -> Joined {
    let joined = broker.join_group(join_request(group, member_id)).await.expect("joined");
    broker.sync_group(sync_request(&joined, group)).await.expect("synced");
    joined
}
