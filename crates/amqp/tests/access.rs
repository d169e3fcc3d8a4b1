//! Who clients are, where they may work and what they may do there, over connections in memory whose time stands still.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;
use weir_amqp::{AmqpFront, AmqpFrontOptions};
use weir_amqp_wire::methods::{basic, channel, connection, exchange, queue};
use weir_amqp_wire::{
    BasicProperties, Frame, FrameType, Method, Parsed, ProtocolHeader, Secret, ShortStr, Table, Writer,
};
use weir_broker::{Broker, BrokerOptions};
use weir_cluster::{Clock, Drive, NoTransport, Node, NodeOptions, OnFatal};
use weir_log::disk::SimDisk;
use weir_model::access::{
    AccessChange, NamespaceMeta, PermissionMeta, TopicPermissionMeta, UserLimits, UserMeta,
};
use weir_model::{NodeId, TimestampMs};

const FRAME_MAX: u32 = 131_072;

struct FixedClock;

impl Clock for FixedClock {
    fn now_ms(&self) -> TimestampMs {
        1_700_000_000_000
    }
}

/// A broker behind the front, with the user `ann`, who may do what begins with her name.
struct Served {
    node: Arc<Node>,
    broker: Arc<Broker>,
    front: AmqpFront,
}

impl Served {
    async fn start() -> Served {
        let mut options = NodeOptions::new(NodeId(1), "/data", OnFatal::new(|reason| panic!("{reason}")));
        options.data_shards = 1;
        let drive = Drive::Tasks { sync_latency: Duration::from_micros(10) };
        let clock: Arc<dyn Clock> = Arc::new(FixedClock);
        let disk = SimDisk::new(7).shared();
        let node = Node::start(options, disk, Arc::new(NoTransport), clock.clone(), drive).await.unwrap();
        let broker = Broker::start(node.clone(), clock, BrokerOptions::new("test", [7; 32])).await.unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let front = AmqpFront::bind(any, broker.clone(), AmqpFrontOptions::default()).await.unwrap();
        let served = Served { node, broker, front };
        let passwords = served.broker.hash_password(Bytes::from_static(b"secret")).await.unwrap();
        let user = UserMeta { name: "ann".into(), passwords, tags: vec![], limits: UserLimits::default() };
        served.change(AccessChange::PutUser { user, new: true }).await;
        served.grant("^ann", "^(ann|amq.default$)", "^ann").await;
        served
    }

    async fn change(&self, change: AccessChange) {
        self.broker.change_access(change).await.unwrap();
    }

    async fn grant(&self, configure: &str, write: &str, read: &str) {
        let permission = PermissionMeta {
            user: "ann".into(),
            namespace: "/".into(),
            configure: configure.into(),
            write: write.into(),
            read: read.into(),
        };
        self.change(AccessChange::PutPermission { permission }).await;
    }

    fn connect(&self, from: [u8; 4]) -> Client {
        let (client, server) = tokio::io::duplex(1 << 20);
        tokio::spawn(self.front.serve_stream(server, SocketAddr::from((from, 40_000))));
        Client { stream: client, buffer: BytesMut::new() }
    }

    async fn stop(self) {
        self.broker.shutdown().await;
        self.node.shutdown().await;
    }
}

/// A client that does what a test tells it and nothing by itself.
struct Client {
    stream: DuplexStream,
    buffer: BytesMut,
}

/// How a client says who it is.
struct Login {
    mechanism: &'static str,
    user: &'static str,
    password: &'static str,
    reads_refusals: bool,
    from: [u8; 4],
}

const ANN: Login =
    Login { mechanism: "PLAIN", user: "ann", password: "secret", reads_refusals: true, from: [127, 0, 0, 1] };

impl Client {
    async fn send(&mut self, channel: u16, method: impl Into<Method>) {
        let mut out = Writer::new(FRAME_MAX);
        out.method(channel, method).unwrap();
        self.stream.write_all(&out.into_contiguous()).await.unwrap();
    }

    async fn publish(&mut self, exchange: &str, key: &str, properties: &BasicProperties) {
        let publish = basic::Publish {
            exchange: ShortStr::truncated(exchange),
            routing_key: ShortStr::truncated(key),
            ..Default::default()
        };
        let mut out = Writer::new(FRAME_MAX);
        out.content(1, &publish, properties, &Bytes::from_static(b"x")).unwrap();
        self.stream.write_all(&out.into_contiguous()).await.unwrap();
    }

    /// The next method; none when the connection is closed.
    async fn receive(&mut self) -> Option<Method> {
        loop {
            match Frame::parse(&mut self.buffer, FRAME_MAX).unwrap() {
                Parsed::Frame(Frame { frame_type: FrameType::Method, payload, .. }) => {
                    return Some(Method::decode(payload).unwrap());
                }
                Parsed::Frame(_) => continue,
                Parsed::Missing(_) => {}
            }
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    async fn introduce(&mut self, login: &Login) {
        self.stream.write_all(&ProtocolHeader::SUPPORTED).await.unwrap();
        assert!(matches!(self.receive().await, Some(Method::ConnectionStart(_))));
        let response = match login.mechanism {
            "AMQPLAIN" => Table::new().with("LOGIN", login.user).with("PASSWORD", login.password).encode(),
            _ => Bytes::from(format!("\0{}\0{}", login.user, login.password)),
        };
        let capabilities = Table::new().with("authentication_failure_close", login.reads_refusals);
        let ok = connection::StartOk {
            client_properties: Table::new().with("capabilities", capabilities),
            mechanism: ShortStr::from_static(login.mechanism),
            response: Secret::from(response),
            locale: ShortStr::from_static("en_US"),
        };
        self.send(0, ok).await;
    }

    /// Opens the connection, and channel 1.
    async fn open(&mut self, login: &Login, namespace: &str) -> Result<(), Option<String>> {
        self.introduce(login).await;
        let tune = self.receive().await;
        if !matches!(tune, Some(Method::ConnectionTune(_))) {
            return Err(tune.map(|method| words(&method)));
        }
        self.send(0, connection::TuneOk { channel_max: 0, frame_max: FRAME_MAX, heartbeat: 0 }).await;
        self.send(0, connection::Open { virtual_host: ShortStr::truncated(namespace) }).await;
        match self.receive().await {
            Some(Method::ConnectionOpenOk(_)) => {}
            other => return Err(other.map(|method| words(&method))),
        }
        self.open_channel().await;
        Ok(())
    }

    async fn open_channel(&mut self) {
        self.send(1, channel::Open::default()).await;
        assert!(matches!(self.receive().await, Some(Method::ChannelOpenOk(_))));
    }

    /// With what words an operation is refused; the channel is open again afterwards.
    async fn refused(&mut self, method: impl Into<Method>) -> String {
        self.send(1, method).await;
        self.refusal().await
    }

    async fn refusal(&mut self) -> String {
        let closed = self.receive().await.unwrap();
        let words = words(&closed);
        assert!(matches!(closed, Method::ChannelClose(_)), "{closed:?}");
        self.send(1, channel::CloseOk {}).await;
        self.open_channel().await;
        words
    }

    async fn done(&mut self, method: impl Into<Method>) {
        self.send(1, method).await;
        let answer = self.receive().await.unwrap();
        assert!(!matches!(answer, Method::ChannelClose(_)), "{}", words(&answer));
    }
}

/// Code and text of a `close`.
fn words(method: &Method) -> String {
    match method {
        Method::ConnectionClose(close) => format!("{} {}", close.reply_code, close.reply_text),
        Method::ChannelClose(close) => format!("{} {}", close.reply_code, close.reply_text),
        other => other.name().to_owned(),
    }
}

fn name(name: &str) -> ShortStr {
    ShortStr::truncated(name)
}

fn declare(queue: &str) -> queue::Declare {
    queue::Declare { queue: name(queue), durable: true, ..Default::default() }
}

fn exchange_declare(exchange: &str, kind: &'static str) -> exchange::Declare {
    exchange::Declare {
        exchange: name(exchange),
        exchange_type: ShortStr::from_static(kind),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_right_password_opens_in_both_mechanisms() {
    let served = Served::start().await;
    for mechanism in ["PLAIN", "AMQPLAIN"] {
        served.connect(ANN.from).open(&Login { mechanism, ..ANN }, "/").await.unwrap();
    }
    served.connect([10, 0, 0, 1]).open(&ANN, "/").await.unwrap();
    let guest = Login { user: "guest", password: "guest", ..ANN };
    served.connect(guest.from).open(&guest, "/").await.unwrap();
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_refusals_is_told_and_any_other_waits() {
    let served = Served::start().await;
    let guest = Login { user: "guest", password: "guest", from: [10, 0, 0, 1], ..ANN };
    let wrong = Login { password: "Secret", ..ANN };
    let unknown = Login { user: "eve", ..ANN };
    for login in [&wrong, &unknown, &guest] {
        let began = Instant::now();
        let refused = served.connect(login.from).open(login, "/").await.unwrap_err().unwrap();
        assert_eq!(
            refused,
            "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the \
             broker logfile."
        );
        assert!(began.elapsed() < Duration::from_secs(1));
        let began = Instant::now();
        let silent = Login { reads_refusals: false, ..*login };
        assert_eq!(served.connect(login.from).open(&silent, "/").await, Err(None));
        assert!((3..4).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn virtual_hosts_are_entered_by_those_who_may() {
    let served = Served::start().await;
    let shop = NamespaceMeta { name: "shop".into(), ..NamespaceMeta::default() };
    served.change(AccessChange::PutNamespace { namespace: shop, new: true }).await;
    let refused =
        async |namespace| served.connect(ANN.from).open(&ANN, namespace).await.unwrap_err().unwrap();
    assert_eq!(refused("nowhere").await, "530 NOT_ALLOWED - vhost nowhere not found");
    assert_eq!(refused("shop").await, "530 NOT_ALLOWED - access to vhost 'shop' refused for user 'ann'");
    let permission = PermissionMeta::everything("ann", "shop");
    served.change(AccessChange::PutPermission { permission }).await;
    let mut client = served.connect(ANN.from);
    client.open(&ANN, "shop").await.unwrap();
    client.done(declare("anything")).await;
    assert!(served.broker.find_queue("shop", "anything").unwrap().is_some());
    assert!(served.broker.find_queue("/", "anything").unwrap().is_none());
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_operation_asks_for_its_permission_in_rabbitmqs_words() {
    let served = Served::start().await;
    let mut client = served.connect(ANN.from);
    client.open(&ANN, "/").await.unwrap();
    client.done(declare("ann-queue")).await;
    client.done(exchange_declare("ann-exchange", "direct")).await;
    let denied = |action: &str, kind: &str, name: &str| {
        format!("403 ACCESS_REFUSED - {action}access to {kind} '{name}' in vhost '/' refused for user 'ann'")
    };
    let (configure, write, read) = ("configure ", "write ", "read ");
    assert_eq!(client.refused(declare("q")).await, denied(configure, "queue", "q"));
    let passive = queue::Declare { passive: true, ..declare("q") };
    assert_eq!(client.refused(passive).await, denied("", "queue", "q"));
    let delete = queue::Delete { queue: name("q"), ..Default::default() };
    assert_eq!(client.refused(delete).await, denied(configure, "queue", "q"));
    let purge = queue::Purge { queue: name("q"), ..Default::default() };
    assert_eq!(client.refused(purge).await, denied(read, "queue", "q"));
    let get = basic::Get { queue: name("q"), ..Default::default() };
    assert_eq!(client.refused(get).await, denied(read, "queue", "q"));
    let consume = basic::Consume { queue: name("q"), ..Default::default() };
    assert_eq!(client.refused(consume).await, denied(read, "queue", "q"));
    assert_eq!(client.refused(exchange_declare("x", "direct")).await, denied(configure, "exchange", "x"));
    let delete = exchange::Delete { exchange: name("x"), ..Default::default() };
    assert_eq!(client.refused(delete).await, denied(configure, "exchange", "x"));
    let bind = |queue: &str, exchange: &str| queue::Bind {
        queue: name(queue),
        exchange: name(exchange),
        ..Default::default()
    };
    assert_eq!(client.refused(bind("q", "ann-exchange")).await, denied(write, "queue", "q"));
    assert_eq!(client.refused(bind("ann-queue", "amq.direct")).await, denied(read, "exchange", "amq.direct"));
    client.done(bind("ann-queue", "ann-exchange")).await;
    let between = exchange::Bind {
        destination: name("ann-exchange"),
        source: name("amq.direct"),
        ..Default::default()
    };
    assert_eq!(client.refused(between).await, denied(read, "exchange", "amq.direct"));
    let dead = Table::new().with("x-dead-letter-exchange", "amq.direct");
    let dead = queue::Declare { arguments: dead, ..declare("ann-dead") };
    assert_eq!(client.refused(dead).await, denied(write, "exchange", "amq.direct"));
    let other = Table::new().with("alternate-exchange", "amq.direct");
    let other = exchange::Declare { arguments: other, ..exchange_declare("ann-other", "fanout") };
    assert_eq!(client.refused(other).await, denied(write, "exchange", "amq.direct"));
    client.publish("amq.direct", "k", &BasicProperties::default()).await;
    assert_eq!(client.refusal().await, denied(write, "exchange", "amq.direct"));
    // What was allowed is not any more, from the next method on.
    served.grant("^ann", "", "").await;
    client.publish("", "ann-queue", &BasicProperties::default()).await;
    assert_eq!(client.refusal().await, denied(write, "exchange", "amq.default"));
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn routing_keys_and_senders_are_checked() {
    let served = Served::start().await;
    let permission = TopicPermissionMeta {
        user: "ann".into(),
        namespace: "/".into(),
        exchange: "ann-topic".into(),
        write: "^{username}\\.".into(),
        read: "^all$".into(),
    };
    served.change(AccessChange::PutTopicPermission { permission }).await;
    let mut client = served.connect(ANN.from);
    client.open(&ANN, "/").await.unwrap();
    client.done(exchange_declare("ann-topic", "topic")).await;
    client.done(declare("ann-queue")).await;
    let denied = |action: &str, key: &str| {
        format!(
            "403 ACCESS_REFUSED - {action} access to topic '{key}' in exchange 'ann-topic' in vhost '/' refused for \
             user 'ann'"
        )
    };
    client.publish("ann-topic", "eve.sold", &BasicProperties::default()).await;
    assert_eq!(client.refusal().await, denied("write", "eve.sold"));
    let copies = Table::new().with("CC", vec![weir_amqp_wire::Value::from("eve.copied")]);
    let properties = BasicProperties { headers: Some(copies), ..BasicProperties::default() };
    client.publish("ann-topic", "ann.sold", &properties).await;
    assert_eq!(client.refusal().await, denied("write", "eve.copied"));
    let bind = |key: &str| queue::Bind {
        queue: name("ann-queue"),
        exchange: name("ann-topic"),
        routing_key: name(key),
        ..Default::default()
    };
    assert_eq!(client.refused(bind("some")).await, denied("read", "some"));
    client.done(bind("all")).await;
    let signed = |user: &'static str| BasicProperties {
        user_id: Some(ShortStr::from_static(user)),
        ..BasicProperties::default()
    };
    client.publish("", "ann-queue", &signed("eve")).await;
    assert_eq!(
        client.refusal().await,
        "406 PRECONDITION_FAILED - user_id property set to 'eve' but authenticated user was 'ann'"
    );
    client.publish("", "ann-queue", &signed("ann")).await;
    client.done(declare("ann-queue")).await;
    client.send(0, connection::UpdateSecret::default()).await;
    assert!(matches!(client.receive().await, Some(Method::ConnectionUpdateSecretOk(_))));
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_deleted_is_sent_away_also_in_silence() {
    let served = Served::start().await;
    let mut client = served.connect(ANN.from);
    client.open(&ANN, "/").await.unwrap();
    served.change(AccessChange::DeleteUser { name: "ann".into() }).await;
    let closed = client.receive().await.unwrap();
    assert_eq!(words(&closed), "320 CONNECTION_FORCED - user 'ann' is deleted");
    served.stop().await;
}
