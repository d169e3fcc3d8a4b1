//! One connection: reads frames, carries out methods in their order, and sends what comes of them.

mod basic;
mod bindings;
mod blocking;
mod close;
mod declare;
mod delay;
mod describe;
mod filter;
mod overdue;
mod permission;
mod publish;
mod queues;
mod replies;
mod resubscribing;
mod streams;
mod transactions;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use weir_amqp_wire::methods::{channel, connection};
use weir_amqp_wire::{
    Command, Content, Frame, FrameType, Method, MethodIds, PROTOCOL_HEADER_BYTES, Parsed, ProtocolHeader,
    ReplyCode, Scope, ShortStr, Writer,
};
use weir_broker::queues::{QueueDeliveries, QueueDelivery, QueueGone, QueueRef};
use weir_broker::sessions::{SessionAsk, SessionCounters, SessionSeat};
use weir_broker::streams::{StreamRecord, StreamRecords};
use weir_broker::{Access, Broker, Forbidden, Pass, Peer};
use weir_model::TopicId;
use weir_model::subscription::Disposition;
use weir_router::Router;

use crate::channel::{Channel, ConsumerKey, Leased, Mode};
use crate::errors::Failure;
use crate::front::{ConnectionId, Front};
use crate::handshake::{self, Agreed, Client, Credentials, FRAME_MAX, Handshake};
use crate::held::Held;
use crate::outbox::{Outbox, outbox};
use crate::replies::{Replies, ReplySender, replies};
use delay::ParkedMessages;
pub(crate) use describe::Ends;
use publish::{Batch, Confirmed};
use resubscribing::Resubscribing;

/// Bytes read at once, at most.
const READ_BYTES: usize = 64 << 10;

/// How long a peer may take nothing of what waits for it: RabbitMQ's send timeout.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of answers that are gathered before they are sent: who asks for messages and takes none is not asked further.
const ANSWERED_AT_ONCE_BYTES: usize = 1 << 20;

/// Largest frame before a size is agreed on, in bytes (RabbitMQ's, from 4.1 on).
const OPENING_FRAME_MAX: u32 = 8_192;

/// How long a peer may take to answer `connection.close`.
const CLOSING: Duration = Duration::from_secs(5);

/// How often a client that is blocked is looked at.
const BLOCKED_STEP: Duration = Duration::from_millis(200);
/// How long a client waits that was refused and does not read why, so that it does not try again at once (RabbitMQ's).
const REFUSED: Duration = Duration::from_secs(3);

/// Heartbeats that a peer may miss.
const HEARTBEATS_MISSED: u32 = 2;

/// The next records of a consumer.
type NextDeliveries = Pin<Box<dyn Future<Output = (Feed, Option<Vec<QueueDelivery>>)> + Send>>;

/// The next records of a consumer that reads by offset.
type NextRecords = Pin<Box<dyn Future<Output = (StreamFeed, Option<Vec<StreamRecord>>)> + Send>>;

/// Why a connection ends.
#[derive(Debug)]
enum Ended {
    /// The peer is gone.
    Gone,
    /// The peer closes it as it should, and waits to be told that it is.
    Closed,
    /// We do: the peer is told why.
    Failed(Failure, u16, u16),
    /// Nothing was heard of the peer for too long.
    Silent,
    /// An operator closed it, for this reason.
    Ordered(String),
    /// The broker stops.
    Draining,
}

pub(super) struct Connection {
    front: Arc<Front>,
    id: ConnectionId,
    /// Its place among the broker's sessions.
    seat: SessionSeat,
    client: Client,
    agreed: Agreed,
    namespace: String,
    /// What the client may do here.
    pass: Pass,
    /// As of which users and permissions.
    access: Access,
    access_changed: watch::Receiver<()>,
    out: Writer,
    outbox: Outbox,
    channels: BTreeMap<u16, Channel>,
    deliveries: FuturesUnordered<NextDeliveries>,
    stream_records: FuturesUnordered<NextRecords>,
    /// Consumers whose queues have changed leaders.
    resubscribing: FuturesUnordered<Resubscribing>,
    confirmed: FuturesUnordered<Pin<Box<dyn Future<Output = Confirmed> + Send>>>,
    /// Messages that go together, of one channel.
    batch: Option<Batch>,
    /// Messages that are parked together, of one channel.
    parked: Option<ParkedMessages>,
    /// Settlements that go together: by queue, owner and what becomes of the records.
    settlements: Vec<Settling>,
    /// Credit that goes together.
    credit: BTreeMap<ConsumerKey, (QueueRef, u32)>,
    /// Taken anew for each burst of frames, and after each change of our own.
    router: Option<Router>,
    route: weir_router::Route,
    /// Exclusive queues of this connection.
    exclusive: Vec<TopicId>,
    /// The shortest time that a delivery may wait to be settled, of all that it was told of.
    least_timeout: Option<Duration>,
    /// Direct replies to this connection's channels.
    replies: Replies,
    /// What its channels hold in transactions.
    held_in_transactions: Held,
    /// What its channels hold of messages that have not come as a whole.
    held_unfinished: Held,
    reply_sender: ReplySender,
    /// A message for which there was no room on the disk. Nothing more is read of the client until it is published.
    blocked: Option<(u16, weir_amqp_wire::methods::basic::Publish, Content)>,
    /// Whether the client was told that it is blocked.
    blocked_told: bool,
    /// State of a small generator, for exchanges that choose at random.
    random: u64,
}

/// What a queue hands to one consumer. It may outlive the consumer, and another may have its tag by then.
struct Feed {
    channel: u16,
    owner: weir_broker::queues::OwnerId,
    tag: ShortStr,
    consumer: ConsumerKey,
    /// Whether what it gets counts in what the channel's consumers share.
    shared: bool,
    queue: QueueRef,
    deliveries: QueueDeliveries,
}

/// What a consumer reads by offset. It may outlive the consumer, and another may have its tag by then.
struct StreamFeed {
    channel: u16,
    owner: weir_broker::queues::OwnerId,
    tag: ShortStr,
    name: ShortStr,
    has_partitions: bool,
    records: StreamRecords,
}

/// Settlements of one queue that go together.
struct Settling {
    topic: TopicId,
    queue: QueueRef,
    owner: weir_broker::queues::OwnerId,
    places: Vec<weir_broker::queues::Place>,
    disposition: Disposition,
    /// Another leader handed these out.
    again: bool,
}

/// Serves one connection until it ends.
pub(crate) async fn serve<S>(front: Arc<Front>, stream: S, ends: Ends)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut read, write) = tokio::io::split(stream);
    let peer = ends.peer;
    let counters = Arc::new(SessionCounters::default());
    let (outbox, writing) = outbox(write, Arc::clone(&counters));
    let writing = tokio::spawn(writing);
    let mut buffer = BytesMut::new();
    let mut out = Writer::new(FRAME_MAX);
    let opening = open(&mut read, &mut buffer, &mut out, &outbox, &front, ends);
    match tokio::time::timeout(front.options.handshake, opening).await {
        Ok(Some(Opened { client, agreed, namespace, pass, access })) => {
            out.set_frame_max(agreed.frame_max);
            tracing::debug!(%peer, user = client.user, namespace, "connection opened");
            let random =
                u64::from_le_bytes(front.broker.random_bytes().first_chunk().copied().unwrap_or_default());
            let (reply_sender, replies) = replies();
            let facts = describe::facts(ends, &client, &agreed, &namespace, front.broker.now_ms());
            let access_changed = front.broker.on_access_change();
            let mut connection = Connection {
                id: front.new_connection(),
                seat: front.broker.open_session(facts, counters),
                front,
                client,
                agreed,
                namespace,
                pass,
                access,
                access_changed,
                out,
                outbox,
                channels: BTreeMap::new(),
                deliveries: FuturesUnordered::new(),
                stream_records: FuturesUnordered::new(),
                resubscribing: FuturesUnordered::new(),
                confirmed: FuturesUnordered::new(),
                batch: None,
                parked: None,
                settlements: Vec::new(),
                credit: BTreeMap::new(),
                router: None,
                route: weir_router::Route::new(),
                exclusive: Vec::new(),
                least_timeout: None,
                replies,
                held_in_transactions: Held::default(),
                held_unfinished: Held::default(),
                reply_sender,
                blocked: None,
                blocked_told: false,
                random,
            };
            let ended = connection.run(&mut read, &mut buffer).await;
            connection.end(ended, &mut read, &mut buffer, peer).await;
        }
        Ok(None) => {
            outbox.send(out.take());
            // Whoever is refused sees the end of the stream behind what it is told.
            drop(outbox);
            let _ =
                tokio::time::timeout(CLOSING, close::until_closed(&mut read, &mut buffer, FRAME_MAX)).await;
        }
        Err(_) => tracing::warn!(%peer, "the connection was not opened in time"),
    }
    // What was sent last still goes out.
    let _ = tokio::time::timeout(CLOSING, writing).await;
}

/// What a handshake comes to.
struct Opened {
    client: Client,
    agreed: Agreed,
    namespace: String,
    pass: Pass,
    access: Access,
}

/// The handshake; none if the connection is to be closed, with what the peer is told in `out`.
async fn open<R: AsyncRead + Unpin>(
    read: &mut R,
    buffer: &mut BytesMut,
    out: &mut Writer,
    outbox: &Outbox,
    front: &Front,
    Ends { peer, is_too_many, .. }: Ends,
) -> Option<Opened> {
    let broker = &front.broker;
    while buffer.len() < PROTOCOL_HEADER_BYTES {
        if read.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    match ProtocolHeader::parse(buffer)? {
        ProtocolHeader::Amqp091 | ProtocolHeader::Amqp09 => {
            let _ = buffer.split_to(PROTOCOL_HEADER_BYTES);
        }
        ProtocolHeader::Amqp10(_) | ProtocolHeader::Other(_) => {
            out.protocol_header(ProtocolHeader::SUPPORTED);
            return None;
        }
    }
    out.method(0, handshake::start()).ok()?;
    let mut state = Handshake::Started;
    loop {
        outbox.send(out.take());
        let frame = next_frame(read, buffer, OPENING_FRAME_MAX).await?;
        let mut ids = (0, 0);
        let method = match frame {
            Ok(Frame { frame_type: FrameType::Heartbeat, .. }) => continue,
            Ok(Frame { frame_type: FrameType::Method, channel: 0, payload }) => {
                ids = Method::ids(&payload);
                Method::decode(payload).map_err(|error| Failure::new(error.reply_code(), error.to_string()))
            }
            Ok(frame) => Err(unexpected(&frame)),
            Err(failure) => Err(failure),
        };
        let next = match method.and_then(|method| state.take(method)) {
            Ok(Handshake::Claimed(credentials)) => {
                let (user, password) = (credentials.client.user.clone(), credentials.password.clone());
                match broker.authenticate(&user, password, Peer::from(peer.ip())).await {
                    Ok(_) => {
                        let (next, tune) = credentials.admit();
                        out.method(0, tune).ok()?;
                        Ok(next)
                    }
                    Err(denied) => {
                        tracing::warn!(%peer, "a log-in was refused: {denied}");
                        return turn_away(read, buffer, out, outbox, &credentials).await;
                    }
                }
            }
            Ok(Handshake::Wanted(..)) if is_too_many => {
                let max = front.options.connections_max;
                let words = format!("connection refused: node connection limit ({max}) is reached");
                Err(Failure::new(ReplyCode::NotAllowed, words))
            }
            Ok(Handshake::Wanted(client, agreed, namespace)) => {
                match enter(broker, &client, &namespace, peer) {
                    Ok((pass, access)) => {
                        out.method(0, connection::OpenOk::default()).ok()?;
                        outbox.send(out.take());
                        return Some(Opened { client, agreed, namespace, pass, access });
                    }
                    Err(failure) => Err(failure),
                }
            }
            other => other,
        };
        match next {
            Ok(next) => state = next,
            Err(failure) => {
                tracing::warn!(%peer, "a connection was refused: {}", failure.words);
                refuse(out, &failure, ids);
                return None;
            }
        }
    }
}

/// A frame that has no place before the connection is open.
fn unexpected(frame: &Frame) -> Failure {
    let Frame { frame_type, channel, .. } = frame;
    let words = format!("a {frame_type} frame came on channel {channel} before the connection was open");
    Failure::new(ReplyCode::UnexpectedFrame, words)
}

/// What a client may do in the namespace that it wants to work in.
fn enter(
    broker: &Broker,
    client: &Client,
    namespace: &str,
    peer: SocketAddr,
) -> Result<(Pass, Access), Failure> {
    let access = broker.access();
    if access.namespace(namespace).is_none() {
        return Err(Failure::new(ReplyCode::NotAllowed, format!("vhost {namespace} not found")));
    }
    // The user may have been deleted since the log-in.
    let forbidden = || Forbidden::Namespace { namespace: namespace.to_owned(), user: client.user.clone() };
    let identity = access.identify(&client.user, Peer::from(peer.ip())).map_err(|_| forbidden())?;
    let pass = identity.enter(namespace)?;
    Ok((pass, access))
}

/// The credentials are wrong. A client that reads that is told; any other waits, and sees the connection close.
async fn turn_away<R: AsyncRead + Unpin>(
    read: &mut R,
    buffer: &mut BytesMut,
    out: &mut Writer,
    outbox: &Outbox,
    credentials: &Credentials,
) -> Option<Opened> {
    if credentials.client.takes_refusal {
        refuse(out, &credentials.refuse(), (0, 0));
        outbox.send(out.take());
    }
    let closed = async { while let Some(Ok(_)) = next_frame(read, buffer, FRAME_MAX).await {} };
    let _ = tokio::time::timeout(REFUSED, closed).await;
    None
}

/// Tells a peer why its connection is not opened.
fn refuse(out: &mut Writer, failure: &Failure, (class_id, method_id): MethodIds) {
    let close = connection::Close {
        reply_code: failure.code.number(),
        reply_text: failure.code.text(&failure.words),
        class_id,
        method_id,
    };
    let _ = out.method(0, close);
}

/// The next frame; none if the peer is gone.
async fn next_frame<R: AsyncRead + Unpin>(
    read: &mut R,
    buffer: &mut BytesMut,
    frame_max: u32,
) -> Option<Result<Frame, Failure>> {
    loop {
        match Frame::parse(buffer, frame_max) {
            Ok(Parsed::Frame(frame)) => return Some(Ok(frame)),
            Ok(Parsed::Missing(_)) => {}
            Err(error) => return Some(Err(Failure::new(error.reply_code(), error.to_string()))),
        }
        buffer.reserve(READ_BYTES);
        if read.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

impl Connection {
    async fn run<R: AsyncRead + Unpin>(&mut self, read: &mut R, buffer: &mut BytesMut) -> Ended {
        let draining = self.front.draining.clone();
        let beat = Duration::from_secs(self.agreed.heartbeat.max(1).into());
        let mut beats = tokio::time::interval(beat / 2);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard_at = Instant::now();
        let mut taken = (0, Instant::now());
        let mut is_held_up = false;
        let mut looked_at = Instant::now();
        let mut is_time_to_look = false;
        loop {
            if std::mem::take(&mut is_time_to_look)
                && let Err(ended) = self.take_back_overdue().await
            {
                return ended;
            }
            let has_more = match self.carry_out_frames(buffer).await {
                Ok(has_more) => has_more,
                Err(ended) => return ended,
            };
            self.flush().await;
            let is_full = self.outbox.is_full();
            let is_blocked = self.blocked.is_some();
            if has_more && !is_full && !is_blocked && !draining.is_cancelled() {
                tokio::task::yield_now().await;
                continue;
            }
            if is_full || is_blocked {
                // Nothing is read meanwhile, its heartbeats included: it is not silent.
                heard_at = Instant::now();
            }
            let was_held_up = std::mem::replace(&mut is_held_up, !self.outbox.is_empty());
            if !(was_held_up && is_held_up) || taken.0 != self.outbox.taken() {
                taken = (self.outbox.taken(), Instant::now());
            } else if taken.1.elapsed() >= SEND_TIMEOUT {
                return Ended::Silent;
            }
            tokio::select! {
                biased;
                () = draining.cancelled() => return Ended::Draining,
                ask = self.seat.asked() => match ask {
                    SessionAsk::Close(reason) => return Ended::Ordered(reason),
                    // Whoever asked may have gone.
                    SessionAsk::Describe(reply) => drop(reply.send(self.describe())),
                },
                came = read.read_buf(buffer), if !is_full && !is_blocked => match came {
                    Ok(bytes @ 1..) => {
                        self.seat.counters().received(bytes);
                        heard_at = Instant::now();
                    }
                    _ => return Ended::Gone,
                },
                Some(confirmed) = self.confirmed.next() => self.confirm(confirmed),
                Some((feed, records)) = self.deliveries.next(), if !is_full => self.deliver(feed, records),
                Some(resubscribed) = self.resubscribing.next() => self.resubscribed(resubscribed).await,
                Some((feed, records)) = self.stream_records.next(), if !is_full => self.deliver_stream(feed, records),
                Some(reply) = self.replies.recv(), if !is_full => self.deliver_reply(reply),
                () = self.outbox.changed() => {}
                () = tokio::time::sleep_until(taken.1 + SEND_TIMEOUT), if is_held_up => {}
                () = tokio::time::sleep(BLOCKED_STEP), if is_blocked => {}
                () = overdue::until_next_look(looked_at, self.least_timeout) => {
                    looked_at = Instant::now();
                    is_time_to_look = true;
                }
                // It is looked at before the next frame is.
                Ok(()) = self.access_changed.changed() => {}
                _ = beats.tick(), if self.agreed.heartbeat > 0 => {
                    if heard_at.elapsed() > beat * HEARTBEATS_MISSED {
                        return Ended::Silent;
                    }
                    self.out.heartbeat();
                }
            }
            if self.outbox.is_gone() {
                return Ended::Gone;
            }
        }
    }

    /// Carries out what has come, as long as its answers are not too much for the peer. Whether there is more of it.
    async fn carry_out_frames(&mut self, buffer: &mut BytesMut) -> Result<bool, Ended> {
        self.router = None;
        self.renew_pass()?;
        if self.outbox.is_full() {
            return Ok(true);
        }
        if !self.go_on_publishing().await? {
            return Ok(false);
        }
        loop {
            if self.out.len() >= ANSWERED_AT_ONCE_BYTES || self.outbox.is_full() {
                return Ok(true);
            }
            let frame = match Frame::parse(buffer, self.agreed.frame_max) {
                Ok(Parsed::Frame(frame)) => frame,
                Ok(Parsed::Missing(_)) => {
                    buffer.reserve(READ_BYTES);
                    return Ok(false);
                }
                Err(error) => {
                    return Err(Ended::Failed(Failure::new(error.reply_code(), error.to_string()), 0, 0));
                }
            };
            match (frame.frame_type, frame.channel) {
                (FrameType::Heartbeat, _) => {}
                (_, 0) => self.on_connection(frame)?,
                (_, number) => self.on_channel(number, frame).await?,
            }
            if self.blocked.is_some() {
                return Ok(false);
            }
        }
    }

    fn on_connection(&mut self, frame: Frame) -> Result<(), Ended> {
        let (class_id, method_id) = Method::ids(&frame.payload);
        let refuse = |code, words: String| Err(Ended::Failed(Failure::new(code, words), class_id, method_id));
        match Method::decode(frame.payload) {
            Ok(Method::ConnectionClose(_)) => Err(Ended::Closed),
            Ok(Method::ConnectionUpdateSecret(_)) => {
                self.send(0, connection::UpdateSecretOk {});
                Ok(())
            }
            Ok(_) => refuse(ReplyCode::ChannelError, "unexpected method in connection state running".into()),
            Err(error) => refuse(error.reply_code(), error.to_string()),
        }
    }

    async fn on_channel(&mut self, number: u16, frame: Frame) -> Result<(), Ended> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.open_channel(number, frame);
        };
        if channel.closing {
            // Nothing but the end of it counts any more. Where both sides close it at once it ends with the peer's answer.
            if frame.frame_type == FrameType::Method {
                match Method::decode(frame.payload) {
                    Ok(Method::ChannelClose(_)) => self.send(number, channel::CloseOk {}),
                    Ok(Method::ChannelCloseOk(_)) => {
                        self.channels.remove(&number);
                        self.count_channels();
                    }
                    _ => {}
                }
            }
            return Ok(());
        }
        let pushed = channel.assembler.push(frame);
        let (class_id, method_id) = channel.assembler.method_ids();
        if let Err(full) = channel.unfinished.set(channel.assembler.held_bytes()) {
            let failure = Failure::new(ReplyCode::ResourceError, full.to_string());
            return Err(Ended::Failed(failure, class_id, method_id));
        }
        let command = match pushed {
            Ok(None) => return Ok(()),
            Ok(Some(command)) => command,
            Err(error) => {
                let failure = Failure::new(error.reply_code(), error.to_string());
                return self.failed(number, failure, class_id, method_id).await;
            }
        };
        let (class_id, method_id) = (command.method.class_id(), command.method.method_id());
        match self.carry_out(number, command).await {
            Ok(()) => Ok(()),
            Err(failure) => self.failed(number, failure, class_id, method_id).await,
        }
    }

    /// A frame came for a channel that is not open: it must open it.
    fn open_channel(&mut self, number: u16, frame: Frame) -> Result<(), Ended> {
        let refuse = |code, words: String, (class_id, method_id): MethodIds| {
            Err(Ended::Failed(Failure::new(code, words), class_id, method_id))
        };
        let (open, most) = (self.channels.len(), self.agreed.channel_max);
        if open >= usize::from(most) {
            let words =
                format!("number of channels opened ({open}) has reached the negotiated channel_max ({most})");
            return refuse(ReplyCode::NotAllowed, words, (0, 0));
        }
        if frame.frame_type != FrameType::Method {
            let words = "expected method frame, got non method frame instead";
            return refuse(ReplyCode::UnexpectedFrame, words.into(), (0, 0));
        }
        let ids = Method::ids(&frame.payload);
        match Method::decode(frame.payload) {
            Ok(Method::ChannelOpen(_)) => {}
            Ok(_) => return refuse(ReplyCode::ChannelError, "expected 'channel.open'".into(), ids),
            Err(error) => return refuse(error.reply_code(), error.to_string(), ids),
        }
        let owner = self.front.broker.new_owner();
        self.channels
            .insert(number, Channel::new(owner, self.front.options.message_bytes_max, &self.held_unfinished));
        self.count_channels();
        self.send(number, channel::OpenOk::default());
        Ok(())
    }

    /// A method failed: its channel ends, or the connection.
    async fn failed(
        &mut self,
        number: u16,
        failure: Failure,
        class_id: u16,
        method_id: u16,
    ) -> Result<(), Ended> {
        if failure.code.scope() == Scope::Connection {
            return Err(Ended::Failed(failure, class_id, method_id));
        }
        tracing::debug!(channel = number, "a channel is closed: {} - {}", failure.code, failure.words);
        self.flush_messages().await;
        self.close_channel(number).await;
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.closing = true;
            // What it held goes now, and not when the peer has answered.
            channel.mode = Mode::default();
        }
        let close = channel::Close {
            reply_code: failure.code.number(),
            reply_text: failure.code.text(&failure.words),
            class_id,
            method_id,
        };
        self.send(number, close);
        Ok(())
    }

    async fn carry_out(&mut self, number: u16, command: Command) -> Result<(), Failure> {
        let Command { method, content } = command;
        if let Method::BasicPublish(publish) = method {
            if !self.front.broker.has_disk_space() {
                self.block(number, publish, content.unwrap_or_default());
                return Ok(());
            }
            return self.publish(number, publish, content.unwrap_or_default()).await;
        }
        if !matches!(method, Method::BasicAck(_) | Method::BasicNack(_) | Method::BasicReject(_)) {
            // Whatever else a client does on its connection sees what it did before.
            self.flush().await;
            self.until_published().await;
        }
        match method {
            Method::ChannelClose(_) => {
                self.close_channel(number).await;
                self.channels.remove(&number);
                self.count_channels();
                self.send(number, channel::CloseOk {});
                Ok(())
            }
            Method::ChannelOpen(_) => {
                Err(Failure::new(ReplyCode::ChannelError, "second 'channel.open' seen"))
            }
            Method::ChannelFlow(flow) if flow.active => {
                self.send(number, channel::FlowOk { active: true });
                Ok(())
            }
            Method::ChannelFlow(_) => Err(Failure::new(ReplyCode::NotImplemented, "active=false")),
            Method::AccessRequest(_) => {
                self.send(number, weir_amqp_wire::methods::access::RequestOk { ticket: 1 });
                Ok(())
            }

            Method::ExchangeDeclare(method) => self.declare_exchange(number, method).await,
            Method::ExchangeDelete(method) => self.delete_exchange(number, method).await,
            Method::ExchangeBind(method) => self.bind_exchange(number, method).await,
            Method::ExchangeUnbind(method) => self.unbind_exchange(number, method).await,
            Method::QueueDeclare(method) => self.declare_queue(number, method).await,
            Method::QueueDelete(method) => self.delete_queue(number, method).await,
            Method::QueueBind(method) => self.bind_queue(number, method).await,
            Method::QueueUnbind(method) => self.unbind_queue(number, method).await,
            Method::QueuePurge(method) => self.purge_queue(number, method).await,

            Method::BasicQos(method) => self.qos(number, &method),
            Method::BasicConsume(method) => self.consume(number, method).await,
            Method::BasicCancel(method) => self.cancel(number, method).await,
            Method::BasicGet(method) => self.get(number, method).await,
            Method::BasicAck(ack) => {
                self.settle(number, ack.delivery_tag, ack.multiple, Disposition::Accept).await
            }
            Method::BasicReject(reject) => {
                self.settle(number, reject.delivery_tag, false, basic::refused(reject.requeue, true)).await
            }
            Method::BasicNack(nack) => {
                let disposition = basic::refused(nack.requeue, false);
                self.settle(number, nack.delivery_tag, nack.multiple, disposition).await
            }
            Method::BasicRecover(recover) => self.recover(number, recover.requeue, true).await,
            Method::BasicRecoverAsync(recover) => self.recover(number, recover.requeue, false).await,
            Method::ConfirmSelect(select) => self.select_confirms(number, select.no_wait),
            Method::TxSelect(_) => self.select_transactions(number),
            Method::TxCommit(_) => self.commit(number).await,
            Method::TxRollback(_) => self.roll_back(number),

            // What only a broker says, or is said on channel 0.
            _ => Err(Failure::new(ReplyCode::CommandInvalid, "unimplemented method")),
        }
    }

    /// Sends a method. What is too large for a frame cannot be sent, and is none of ours.
    fn send(&mut self, number: u16, method: impl Into<Method>) {
        let method = method.into();
        let name = method.name();
        if let Err(error) = self.out.method(number, method) {
            tracing::error!(%error, method = name, "a method could not be written");
        }
    }

    /// The channel that a method came on.
    fn channel(&mut self, number: u16) -> Result<&mut Channel, Failure> {
        let missing = || Failure::new(ReplyCode::ChannelError, format!("channel {number} is not open"));
        self.channels.get_mut(&number).ok_or_else(missing)
    }

    /// Lets everything go that is gathered: messages, settlements, credit, frames.
    async fn flush(&mut self) {
        self.flush_messages().await;
        self.flush_settlements().await;
        self.outbox.send(self.out.take());
    }

    /// A number by which exchanges choose (splitmix64).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    async fn flush_settlements(&mut self) {
        for settling in std::mem::take(&mut self.settlements) {
            // A queue that is not there any more has nothing to settle.
            let _ = settling.tell().await;
        }
        for (key, (queue, credit)) in std::mem::take(&mut self.credit) {
            let _ = queue.add_credit(key.id, credit).await;
        }
    }

    /// Lets settlements go that are gathered, and returns when they are durable, also if that takes another leader. Fails
    /// for a queue of which that cannot be said, although it is there.
    async fn settle_durably(&mut self) -> Result<(), QueueGone> {
        let mut failed = None;
        for settling in std::mem::take(&mut self.settlements) {
            if let Err(gone) = settling.tell_durably().await
                && self.front.broker.topic_by_id(settling.topic).is_some()
            {
                failed = Some(gone);
            }
        }
        self.flush_settlements().await;
        failed.map_or(Ok(()), Err)
    }

    /// Gathers a settlement with others that go the same way.
    fn gather(&mut self, owner: weir_broker::queues::OwnerId, leased: Leased, disposition: Disposition) {
        let Leased { topic, queue, place, again, .. } = leased;
        let same = |settling: &&mut Settling| {
            settling.topic == topic
                && settling.owner == owner
                && settling.disposition == disposition
                && settling.again == again
        };
        // Only the last may grow: what becomes of records must be told in order.
        match self.settlements.last_mut().filter(|settling| same(settling)) {
            Some(settling) => settling.places.push(place),
            None => {
                let places = vec![place];
                self.settlements.push(Settling { topic, queue, owner, places, disposition, again });
            }
        }
    }
}
