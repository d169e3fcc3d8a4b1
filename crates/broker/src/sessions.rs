//! Who is connected to this node. Sessions are facts of the fronts: each registers its connections here with what
//! does not change about them, and answers when it is asked what it is doing. Nothing here costs a message anything:
//! what changes often is counted by the connection for itself, or told when somebody asks.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use weir_model::TimestampMs;
use weir_model::routing::Arguments;

use crate::broker::Broker;

/// Asks that wait for one session. Whoever has more to ask waits.
const ASKS_MAX: usize = 8;

/// Sessions that are asked at the same time, where all are.
const ASKED_AT_ONCE: usize = 64;

/// How long a session may take to answer. One that is busy for longer is passed over.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// What does not change about a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFacts {
    /// What it speaks, in RabbitMQ's words where it has some: `AMQP 0-9-1`.
    pub protocol: &'static str,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// Who the client is; none where nobody says so.
    pub user: Option<String>,
    /// Where it works.
    pub namespace: String,
    /// Since when, in milliseconds since 1970.
    pub connected_at: TimestampMs,
    /// What it says of itself.
    pub client_properties: Arguments,
    /// By which mechanism it said who it is.
    pub auth_mechanism: Option<String>,
    /// Channels that it may open.
    pub channels_max: Option<u32>,
    /// Largest frame, in bytes.
    pub frame_bytes_max: Option<u32>,
    /// Seconds between signs of life; 0 for none.
    pub heartbeat_seconds: Option<u32>,
}

impl SessionFacts {
    /// The connection's name, as RabbitMQ makes it: `client:port -> server:port`.
    pub fn name(&self) -> String {
        format!("{} -> {}", self.peer, self.local)
    }
}

/// What a connection counts for itself, at no cost to speak of: by read, by write, by channel.
#[derive(Debug, Default)]
pub struct SessionCounters {
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    channels: AtomicU32,
}

impl SessionCounters {
    /// So many bytes came.
    pub fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many bytes went.
    pub fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many channels are open.
    pub fn set_channels(&self, count: usize) {
        self.channels.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Bytes that came.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that went.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Channels that are open.
    pub fn channels(&self) -> u32 {
        self.channels.load(Ordering::Relaxed)
    }
}

/// A channel of a connection, as it is when its session is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelState {
    /// Its number within the connection.
    pub number: u16,
    /// Messages that each new consumer may have unsettled; 0 for no limit.
    pub prefetch: u32,
    /// Messages that all its consumers together may have unsettled; 0 for no limit.
    pub shared_prefetch: u32,
    /// Messages that its client has not settled.
    pub unsettled: u64,
    /// Whether messages are confirmed.
    pub confirms: bool,
    /// Messages that are not confirmed yet.
    pub unconfirmed: u64,
    /// Whether it is in a transaction.
    pub transactional: bool,
    /// Messages that wait for their transaction's end.
    pub uncommitted: u64,
    /// Settlements that wait for their transaction's end.
    pub uncommitted_settlements: u64,
    /// Its consumers.
    pub consumers: Vec<ConsumerState>,
}

/// A consumer of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerState {
    /// Its name within the connection.
    pub tag: String,
    /// The queue, in the connection's namespace.
    pub queue: String,
    /// Whether it settles what it gets.
    pub settles: bool,
    /// Whether it has the queue to itself.
    pub exclusive: bool,
    /// Messages that it may have unsettled; 0 for no limit.
    pub prefetch: u32,
    /// What it was declared with.
    pub arguments: Arguments,
}

/// What a session is asked by whoever administers the broker.
#[derive(Debug)]
pub enum SessionAsk {
    /// End, and tell the client why.
    Close(String),
    /// Say which channels there are.
    Describe(oneshot::Sender<Vec<ChannelState>>),
}

/// A connection that is there, or was a moment ago.
#[derive(Clone)]
pub struct Session {
    facts: Arc<SessionFacts>,
    counters: Arc<SessionCounters>,
    asks: mpsc::Sender<SessionAsk>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("name", &self.facts.name()).finish_non_exhaustive()
    }
}

impl Session {
    /// What does not change about it.
    pub fn facts(&self) -> &SessionFacts {
        &self.facts
    }

    /// What it has counted.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }

    /// Ends it, for a reason that its client is told. Returns when the session has taken note; one that is
    /// busy for long takes note later.
    pub async fn close(&self, reason: String) {
        let told = self.asks.send(SessionAsk::Close(reason));
        if tokio::time::timeout(ANSWERS_WITHIN, told).await.is_err() {
            tracing::warn!(session = self.facts.name(), "a session that is to be closed does not listen");
        }
    }

    /// Its channels; none if it has ended or does not answer in time.
    pub async fn channels(&self) -> Option<Vec<ChannelState>> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.asks.send(SessionAsk::Describe(reply)).await.ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(ANSWERS_WITHIN, asked).await.ok()?
    }
}

/// The sessions of this node.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Arc<Mutex<Open>>,
}

/// By number, in the order in which they came.
#[derive(Debug, Default)]
struct Open {
    sessions: BTreeMap<u64, Session>,
    last: u64,
}

/// A front's end of a registered session. The session is forgotten when this is dropped.
#[derive(Debug)]
pub struct SessionSeat {
    number: u64,
    open: Arc<Mutex<Open>>,
    counters: Arc<SessionCounters>,
    asks: mpsc::Receiver<SessionAsk>,
}

impl SessionSeat {
    /// The next thing that somebody asks. It never ends, and may be dropped and waited for again.
    pub async fn asked(&mut self) -> SessionAsk {
        match self.asks.recv().await {
            Some(ask) => ask,
            // The registry holds a sender for as long as this is there.
            None => std::future::pending().await,
        }
    }

    /// Where the connection counts.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }
}

impl Drop for SessionSeat {
    fn drop(&mut self) {
        self.open.lock().sessions.remove(&self.number);
    }
}

impl Broker {
    /// Registers a connection. How many there are is bounded by the fronts.
    pub fn open_session(&self, facts: SessionFacts, counters: Arc<SessionCounters>) -> SessionSeat {
        let (sender, asks) = mpsc::channel(ASKS_MAX);
        let session = Session { facts: Arc::new(facts), counters: Arc::clone(&counters), asks: sender };
        let open = Arc::clone(&self.sessions.open);
        let number = {
            let mut open = open.lock();
            open.last += 1;
            let number = open.last;
            open.sessions.insert(number, session);
            number
        };
        SessionSeat { number, open, counters, asks }
    }

    /// Everybody who is connected to this node, the oldest first.
    pub fn sessions(&self) -> Vec<Session> {
        self.sessions.open.lock().sessions.values().cloned().collect()
    }

    /// How many are connected to this node.
    pub fn session_count(&self) -> usize {
        self.sessions.open.lock().sessions.len()
    }

    /// The session of this name.
    pub fn session(&self, name: &str) -> Option<Session> {
        // The newest: one of the same name may still be ending.
        self.sessions().into_iter().rev().find(|session| session.facts.name() == name)
    }

    /// The channels of these sessions. Those that have ended meanwhile, or do not answer in time, are left out.
    pub async fn channels_of(&self, sessions: Vec<Session>) -> Vec<(Session, Vec<ChannelState>)> {
        let asked = stream::iter(sessions.into_iter().map(|session| async move {
            let channels = session.channels().await?;
            Some((session, channels))
        }));
        asked.buffered(ASKED_AT_ONCE).filter_map(std::future::ready).collect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(port: u16) -> SessionFacts {
        SessionFacts {
            protocol: "AMQP 0-9-1",
            peer: SocketAddr::from(([127, 0, 0, 1], port)),
            local: SocketAddr::from(([127, 0, 0, 1], 5672)),
            user: None,
            namespace: "/".into(),
            connected_at: 0,
            client_properties: Vec::new(),
            auth_mechanism: None,
            channels_max: None,
            frame_bytes_max: None,
            heartbeat_seconds: None,
        }
    }

    fn seat(open: &Arc<Mutex<Open>>, port: u16) -> (SessionSeat, Session) {
        let (sender, asks) = mpsc::channel(ASKS_MAX);
        let counters = Arc::new(SessionCounters::default());
        let session = Session { facts: Arc::new(facts(port)), counters: Arc::clone(&counters), asks: sender };
        open.lock().sessions.insert(u64::from(port), session.clone());
        (SessionSeat { number: u64::from(port), open: Arc::clone(open), counters, asks }, session)
    }

    #[test]
    fn a_session_has_rabbitmqs_name() {
        assert_eq!(facts(50_000).name(), "127.0.0.1:50000 -> 127.0.0.1:5672");
    }

    #[tokio::test]
    async fn a_session_answers_until_its_seat_is_dropped() {
        let open = Arc::default();
        let (mut seat, session) = seat(&open, 50_000);
        let asking = tokio::spawn({
            let session = session.clone();
            async move { session.channels().await }
        });
        match seat.asked().await {
            SessionAsk::Describe(reply) => {
                reply.send(vec![ChannelState { number: 3, ..ChannelState::default() }]).unwrap();
            }
            SessionAsk::Close(reason) => panic!("{reason}"),
        }
        let channels = asking.await.unwrap().unwrap();
        assert_eq!(channels.iter().map(|channel| channel.number).collect::<Vec<_>>(), [3]);
        session.close("enough".into()).await;
        assert!(matches!(seat.asked().await, SessionAsk::Close(reason) if reason == "enough"));
        drop(seat);
        assert!(open.lock().sessions.is_empty());
        assert_eq!(session.channels().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_does_not_listen_holds_nobody_up() {
        let open = Arc::default();
        let (_seat, session) = seat(&open, 50_001);
        assert_eq!(session.channels().await, None);
        for _ in 0..=ASKS_MAX {
            session.close("enough".into()).await;
        }
    }
}
