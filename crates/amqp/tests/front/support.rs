//! A whole broker on a simulated disk behind the AMQP front, and a client that does what a test tells it and nothing by
//! itself. They speak over a pipe in memory, so that time stands still unless a test waits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout};
use weir_amqp::{AmqpFront, AmqpFrontOptions};
use weir_amqp_wire::methods::{basic, channel, connection, queue};
use weir_amqp_wire::{
    Assembler, BasicProperties, Command, Frame, FrameType, Method, Parsed, ProtocolHeader, Secret, ShortStr,
    Table, Writer,
};
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{Clock, Drive, NoTransport, Node, NodeOptions, OnFatal};
use weir_log::disk::SimDisk;
use weir_model::{NodeId, TimestampMs};

/// The time of day at which every test begins.
const EPOCH: TimestampMs = 1_700_000_000_000;

const FRAME_MAX: u32 = 131_072;

/// Bytes that lie between client and broker.
const PIPE_BYTES: usize = 64 << 10;

/// Far beyond anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wall-clock time that goes with the runtime's clock, which tests hold still.
pub struct TestClock {
    pub began: Instant,
}

impl Clock for TestClock {
    fn now_ms(&self) -> TimestampMs {
        EPOCH + self.began.elapsed().as_millis() as i64
    }
}

pub struct World {
    pub broker: Arc<Broker>,
    pub node: Arc<Node>,
    front: AmqpFront,
}

impl World {
    pub async fn started() -> World {
        let mut options = NodeOptions::new(NodeId(1), "/data", OnFatal::new(|reason| panic!("{reason}")));
        options.data_shards = 2;
        let clock: Arc<dyn Clock> = Arc::new(TestClock { began: Instant::now() });
        let drive = Drive::Tasks { sync_latency: Duration::from_micros(100) };
        let disk = SimDisk::new(7).shared();
        let node = Node::start(options, disk, Arc::new(NoTransport), clock.clone(), drive).await;
        let node = node.expect("the node starts");
        let options = BrokerOptions::new("test-cluster", [7; 32]);
        let broker = Broker::start(node.clone(), clock, options).await.expect("the broker starts");
        World::over(node, broker).await
    }

    /// A front over a broker that runs.
    pub async fn over(node: Arc<Node>, broker: Arc<Broker>) -> World {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let front = AmqpFront::bind(any, broker.clone(), AmqpFrontOptions::default()).await;
        World { broker, node, front: front.expect("a port is free") }
    }

    /// A client whose connection is open, with channel 1.
    pub async fn client(&self) -> Client {
        self.client_with(0).await
    }

    /// A client that wants signs of life every so many seconds.
    pub async fn client_with(&self, heartbeat: u16) -> Client {
        let mut client = self.stranger();
        client.raw(&ProtocolHeader::SUPPORTED).await;
        assert!(matches!(client.method().await, Method::ConnectionStart(_)));
        let capabilities = Table::new().with("consumer_cancel_notify", true);
        let start_ok = connection::StartOk {
            client_properties: Table::new().with("capabilities", capabilities),
            mechanism: ShortStr::from_static("PLAIN"),
            response: Secret::from(Bytes::from_static(b"\0guest\0guest")),
            locale: ShortStr::from_static("en_US"),
        };
        assert!(matches!(client.call(0, start_ok).await, Method::ConnectionTune(_)));
        client.send(0, connection::TuneOk { channel_max: 2_047, frame_max: FRAME_MAX, heartbeat }).await;
        let open = connection::Open { virtual_host: ShortStr::from_static("/") };
        assert!(matches!(client.call(0, open).await, Method::ConnectionOpenOk(_)));
        client.open(1).await;
        client
    }

    /// A client that has said nothing yet.
    pub fn stranger(&self) -> Client {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(self.front.serve_stream(far, SocketAddr::from(([127, 0, 0, 1], 40_000))));
        Client {
            stream: near,
            buffer: BytesMut::new(),
            out: Writer::new(FRAME_MAX),
            channels: BTreeMap::new(),
        }
    }

    /// The front stops, which its clients are told; the broker goes on.
    pub fn stop_serving(self) -> Broken {
        Broken {
            serving: tokio::spawn(self.front.serve(std::future::ready(()))),
            broker: self.broker,
            node: self.node,
        }
    }

    pub async fn stop(self) {
        self.broker.shutdown().await;
        self.node.shutdown().await;
    }
}

/// A broker whose front stops.
pub struct Broken {
    serving: tokio::task::JoinHandle<()>,
    broker: Arc<Broker>,
    node: Arc<Node>,
}

impl Broken {
    pub async fn stop(self) {
        self.serving.await.expect("the front stops");
        self.broker.shutdown().await;
        self.node.shutdown().await;
    }
}

pub struct Client {
    stream: DuplexStream,
    buffer: BytesMut,
    out: Writer,
    channels: BTreeMap<u16, Assembler>,
}

impl Client {
    /// Sends bytes as they are.
    pub async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the broker reads");
    }

    /// Reads bytes as they are.
    pub async fn expect_raw(&mut self, expected: &[u8]) {
        let mut came = vec![0; expected.len()];
        let read = timeout(PATIENCE, self.stream.read_exact(&mut came)).await;
        read.expect("the broker says something").expect("the stream is open");
        assert_eq!(came, expected);
    }

    pub async fn heartbeat(&mut self) {
        self.out.heartbeat();
        self.flush().await;
    }

    /// Puts a method with others that are sent together.
    pub fn put(&mut self, channel: u16, method: impl Into<Method>) {
        self.out.method(channel, method).expect("it fits");
    }

    /// Sends what was put together.
    pub async fn flush(&mut self) {
        for chunk in self.out.take() {
            self.raw(&chunk).await;
        }
    }

    pub async fn send(&mut self, channel: u16, method: impl Into<Method>) {
        self.put(channel, method);
        self.flush().await;
    }

    /// The answer to a method.
    pub async fn call(&mut self, channel: u16, method: impl Into<Method>) -> Method {
        self.send(channel, method).await;
        self.method().await
    }

    pub async fn publish_to(&mut self, exchange: &str, key: &str, properties: &BasicProperties, body: &[u8]) {
        let publish = basic::Publish {
            exchange: ShortStr::truncated(exchange),
            routing_key: ShortStr::truncated(key),
            ..basic::Publish::default()
        };
        self.out.content(1, &publish, properties, &Bytes::copy_from_slice(body)).expect("it fits");
        self.flush().await;
    }

    /// Publishes to a queue.
    pub async fn publish(&mut self, queue: &str, body: &[u8]) {
        self.publish_to("", queue, &BasicProperties::default(), body).await;
    }

    /// What the broker says next, and on which channel; none when it has closed the stream. Signs of life are passed
    /// over.
    pub async fn next(&mut self) -> Option<(u16, Command)> {
        loop {
            match Frame::parse(&mut self.buffer, FRAME_MAX).expect("a broker sends frames") {
                Parsed::Frame(Frame { frame_type: FrameType::Heartbeat, .. }) => {}
                Parsed::Frame(frame) => {
                    let channel = frame.channel;
                    let assembler = self.channels.entry(channel).or_insert_with(|| Assembler::new(1 << 30));
                    if let Some(command) = assembler.push(frame).expect("frames are in order") {
                        return Some((channel, command));
                    }
                }
                Parsed::Missing(_) => {
                    let read = timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
                    if read.expect("the broker says something").unwrap_or(0) == 0 {
                        return None;
                    }
                }
            }
        }
    }

    /// The next method.
    pub async fn method(&mut self) -> Method {
        self.next().await.expect("the connection is open").1.method
    }

    /// Whether the broker says nothing for so long.
    pub async fn is_silent(&mut self, wait: Duration) -> bool {
        timeout(wait, self.next()).await.is_err()
    }

    pub async fn open(&mut self, channel: u16) {
        self.channels.remove(&channel);
        let answer = self.call(channel, channel::Open::default()).await;
        assert!(matches!(answer, Method::ChannelOpenOk(_)), "{answer:?}");
    }

    pub async fn declare(&mut self, name: &str) {
        let answer = self.call(1, durable(name)).await;
        assert!(matches!(answer, Method::QueueDeclareOk(_)), "{answer:?}");
    }

    /// Messages of a queue that wait.
    pub async fn ready(&mut self, name: &str) -> u32 {
        let passive = queue::Declare { passive: true, ..durable(name) };
        match self.call(1, passive).await {
            Method::QueueDeclareOk(ok) => ok.message_count,
            other => panic!("{other:?}"),
        }
    }

    /// Begins to consume on a channel.
    pub async fn consume(&mut self, channel: u16, queue: &str, tag: &str) -> Method {
        self.call(channel, consume(queue, tag)).await
    }

    /// The next delivery: its consumer's tag, its own, and its body.
    pub async fn delivery(&mut self) -> (String, u64, Bytes) {
        let (_, Command { method, content }) = self.next().await.expect("the connection is open");
        match method {
            Method::BasicDeliver(deliver) => {
                let body = content.expect("it has content").body.into_contiguous();
                (deliver.consumer_tag.to_string_lossy().into_owned(), deliver.delivery_tag, body)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a message: its tag and its body; none if none waits.
    pub async fn get(&mut self, queue: &str) -> Option<(u64, Bytes)> {
        let get = basic::Get { queue: ShortStr::truncated(queue), ..basic::Get::default() };
        self.send(1, get).await;
        let (_, Command { method, content }) = self.next().await.expect("the connection is open");
        match method {
            Method::BasicGetOk(ok) => {
                Some((ok.delivery_tag, content.expect("it has content").body.into_contiguous()))
            }
            Method::BasicGetEmpty(_) => None,
            other => panic!("{other:?}"),
        }
    }

    pub async fn ack(&mut self, channel: u16, tag: u64) {
        self.send(channel, basic::Ack { delivery_tag: tag, multiple: false }).await;
    }

    /// The code with which the broker closes a channel, to which it is answered, and the channel is opened again.
    pub async fn refused(&mut self, channel: u16, method: impl Into<Method>) -> u16 {
        match self.call(channel, method).await {
            Method::ChannelClose(close) => {
                self.send(channel, channel::CloseOk {}).await;
                self.open(channel).await;
                close.reply_code
            }
            other => panic!("{other:?}"),
        }
    }
}

pub fn durable(name: &str) -> queue::Declare {
    queue::Declare { queue: ShortStr::truncated(name), durable: true, ..queue::Declare::default() }
}

pub fn consume(queue: &str, tag: &str) -> basic::Consume {
    basic::Consume {
        queue: ShortStr::truncated(queue),
        consumer_tag: ShortStr::truncated(tag),
        ..basic::Consume::default()
    }
}
