//! A whole broker on a simulated disk behind the Kafka front, and a client that speaks through our own
//! codec, over a real socket or a pipe in memory.

#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{Clock, Drive, LocalTransport, Node, NodeOptions, OnFatal};
use weir_kafka::{KafkaFront, KafkaFrontOptions};
use weir_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use weir_kafka_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use weir_kafka_wire::messages::produce::{PartitionProduceData, PartitionProduceResponse, TopicProduceData};
use weir_kafka_wire::{
    CreateTopicsRequest, ErrorCode, FetchRequest, FetchResponse, KafkaStr, ProduceRequest, ProduceResponse,
    Records, RequestMessage, peek_correlation_id,
};
use weir_log::disk::SimDisk;
use weir_model::batch::{BatchBuilder, Record, decode_records, split_batches};
use weir_model::{NodeId, TimestampMs};

/// A time of day that stands still: tests never depend on the clock on the wall.
#[derive(Debug)]
pub struct FixedClock;

/// What [`FixedClock`] says.
pub const NOW_MS: TimestampMs = 1_700_000_000_000;

impl Clock for FixedClock {
    fn now_ms(&self) -> TimestampMs {
        NOW_MS
    }
}

/// How a test wants its broker.
pub struct Setup {
    pub disk: SimDisk,
    pub broker: BrokerOptions,
    pub front: KafkaFrontOptions,
}

impl Default for Setup {
    fn default() -> Self {
        let mut broker = BrokerOptions::new("test-cluster", [7; 32]);
        broker.groups.initial_rebalance_delay_ms = 0;
        Setup { disk: SimDisk::new(7), broker, front: KafkaFrontOptions::default() }
    }
}

/// A broker that serves.
pub struct Served {
    pub disk: SimDisk,
    pub node: Arc<Node>,
    pub broker: Arc<Broker>,
    pub addr: SocketAddr,
    /// A second front on the same broker, for connections in memory.
    pub in_memory: KafkaFront,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// Starts a broker with the defaults.
pub async fn serve() -> Served {
    serve_with(Setup::default()).await
}

/// Starts a broker.
pub async fn serve_with(setup: Setup) -> Served {
    let node_id = NodeId(1);
    let on_fatal = OnFatal::new(|reason| panic!("the node says that it must not go on: {reason}"));
    let mut options = NodeOptions::new(node_id, "/data", on_fatal);
    options.data_shards = 2;
    let transport = LocalTransport::new();
    let drive = Drive::Tasks { sync_latency: Duration::from_micros(10) };
    let clock: Arc<dyn Clock> = Arc::new(FixedClock);
    let node = Node::start(options, setup.disk.shared(), transport.end(node_id), clock.clone(), drive)
        .await
        .expect("the node starts");
    transport.connect(&node);
    let broker = Broker::start(node.clone(), clock, setup.broker).await.expect("the broker starts");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let front = KafkaFront::bind(any, broker.clone(), setup.front.clone()).await.expect("a port is free");
    let in_memory = KafkaFront::bind(any, broker.clone(), setup.front).await.expect("a port is free");
    let addr = front.local_addr();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(front.serve(stop.clone().cancelled_owned()));
    Served { disk: setup.disk, node, broker, addr, in_memory, stop, serving }
}

impl Served {
    /// A client over a real socket.
    pub async fn connect(&self) -> Client {
        Client::to(self.addr).await
    }

    /// A client over a pipe in memory, for tests in which time stands still unless they move it.
    pub fn connect_in_memory(&self) -> Client {
        let (client, server) = tokio::io::duplex(1 << 20);
        let peer = SocketAddr::from(([127, 0, 0, 1], 40_000));
        tokio::spawn(self.in_memory.serve_stream(server, self.addr, peer));
        Client::new(client)
    }

    /// Stops everything in the order of the binary and gives the disk back.
    pub async fn stop(self) -> SimDisk {
        self.stop.cancel();
        self.serving.await.expect("the front does not panic");
        self.broker.shutdown().await;
        self.node.shutdown().await;
        self.disk
    }

    /// Stops the front alone; resolves when it has drained.
    pub async fn drain(&mut self) {
        self.stop.cancel();
        (&mut self.serving).await.expect("the front does not panic");
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A client that does what a test tells it and nothing by itself.
pub struct Client {
    stream: Box<dyn Stream>,
    next_correlation_id: i32,
}

impl Client {
    /// A client over a real socket.
    pub async fn to(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).await.expect("the front listens");
        stream.set_nodelay(true).expect("the socket is open");
        Client::new(stream)
    }

    fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
        Client { stream: Box::new(stream), next_correlation_id: 1 }
    }

    /// Sends a request; the correlation id is returned.
    pub async fn send<R: RequestMessage>(&mut self, version: i16, request: &R) -> i32 {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let client_id = KafkaStr::from_static("test");
        let frame =
            request.encode_request(version, correlation_id, Some(&client_id)).expect("it is writable");
        self.send_raw(&frame.into_contiguous()).await;
        correlation_id
    }

    /// Sends bytes as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the connection is open");
    }

    /// The next frame without its length; none when the connection is closed.
    pub async fn receive_frame(&mut self) -> Option<Bytes> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).expect("a length is not negative")];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    /// The next answer, which must be to this request.
    pub async fn receive<R: RequestMessage>(&mut self, version: i16, correlation_id: i32) -> R::Response {
        let frame = self.receive_frame().await.expect("the connection is open");
        assert_eq!(peek_correlation_id(&frame), Ok(correlation_id), "answers keep the order of requests");
        R::decode_response(version, frame).expect("the answer is well formed").1
    }

    /// Sends a request and awaits its answer.
    pub async fn call<R: RequestMessage>(&mut self, version: i16, request: &R) -> R::Response {
        let correlation_id = self.send(version, request).await;
        self.receive::<R>(version, correlation_id).await
    }

    /// Whether the broker has closed the connection, answers before that aside.
    pub async fn is_closed(&mut self) -> bool {
        self.receive_frame().await.is_none()
    }

    /// Creates a topic.
    pub async fn create_topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let response = self.call(7, &create_topic(name, partitions, configs)).await;
        assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
    }

    /// Produces one batch with acks=all.
    pub async fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> PartitionProduceResponse {
        let mut response = self.call(9, &produce(topic, partition, -1, batch)).await;
        only_partition(&mut response)
    }

    /// Produces one batch that must succeed; its first offset.
    pub async fn append(&mut self, topic: &str, partition: i32, batch: Bytes) -> i64 {
        let produced = self.produce(topic, partition, batch).await;
        assert_eq!(produced.error_code, ErrorCode::NONE, "{:?}", produced.error_message);
        produced.base_offset
    }

    /// Fetches from one partition without waiting and without a session.
    pub async fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData {
        let mut response = self.call(12, &fetch(&[(topic, partition, offset)])).await;
        response.responses.remove(0).partitions.remove(0)
    }
}

/// A request that creates one topic.
pub fn create_topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreateTopicsRequest {
    let configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) });
    CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: -1,
            configs: configs.collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A request that produces one batch.
pub fn produce(topic: &str, partition: i32, acks: i16, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::from(batch)),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The only partition of an answer.
pub fn only_partition(response: &mut ProduceResponse) -> PartitionProduceResponse {
    response.responses.remove(0).partition_responses.remove(0)
}

/// A request that fetches from these (topic, partition, offset) without waiting and without a session.
pub fn fetch(wanted: &[(&str, i32, i64)]) -> FetchRequest {
    let topics = wanted.iter().map(|&(topic, partition, fetch_offset)| FetchTopic {
        topic: topic.into(),
        partitions: vec![FetchPartition {
            partition,
            fetch_offset,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        }],
        ..Default::default()
    });
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 50 << 20,
        topics: topics.collect(),
        ..Default::default()
    }
}

/// All partitions of an answer in its order.
pub fn partitions(response: FetchResponse) -> Vec<(KafkaStr, PartitionData)> {
    let topics = response.responses.into_iter();
    topics
        .flat_map(|topic| topic.partitions.into_iter().map(move |data| (topic.topic.clone(), data)))
        .collect()
}

/// A batch of these values.
pub fn batch(values: &[&str]) -> Bytes {
    batch_at(NOW_MS, values)
}

/// A batch of these values, one millisecond apart from `from` on.
pub fn batch_at(from: i64, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (index, value) in values.iter().enumerate() {
        builder.push(from + index as i64, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

/// A batch of an idempotent producer.
pub fn numbered_batch(producer_id: i64, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new().producer(producer_id, epoch, sequence);
    for value in values {
        builder.push(NOW_MS, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

/// The records of a fetched partition.
pub fn records(data: &PartitionData) -> Vec<Record> {
    let mut all = BytesMut::new();
    for chunk in data.records.iter().flat_map(Records::chunks) {
        all.extend_from_slice(chunk);
    }
    let batches = split_batches(&all.freeze()).expect("whole batches");
    let records = batches.into_iter().flat_map(|(header, batch)| {
        decode_records(&header, batch.slice(weir_model::batch::BATCH_HEADER_BYTES..))
    });
    records.map(|record| record.expect("well-formed records")).collect()
}

/// The offsets and values of a fetched partition.
pub fn values(data: &PartitionData) -> Vec<(i64, String)> {
    let text =
        |record: &Record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
    records(data).iter().map(|record| (record.offset, text(record))).collect()
}

/// The values of a fetched partition.
pub fn texts(data: &PartitionData) -> Vec<String> {
    values(data).into_iter().map(|(_, value)| value).collect()
}
