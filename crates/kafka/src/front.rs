//! The listener: accepts connections up to a bound, serves each in a task of its own, and drains.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_broker::Broker;
use weir_broker::sessions::{SessionAsk, SessionFacts};
use weir_kafka_wire::ApiVersion;
use weir_model::queue::DEFAULT_NAMESPACE;
use weir_socket::{Listener, Stream};

use crate::apis;
use crate::budget::Budget;
use crate::connection::{self, Closed, ConnectionLimits};
use crate::fetch_sessions::FetchSessions;
use crate::metrics::KafkaMetrics;
use crate::pipeline::InFlightLimits;
use crate::request_memory::RequestMemory;
use crate::session::{Caller, Session};
use crate::socket::{Copying, Socket};

/// Pause after accepting failed, so that a shortage of file descriptors does not become a busy loop.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A flood of connections is one line in the log this often.
const REFUSALS_SAID_EVERY: Duration = Duration::from_secs(1);

/// What an operator may set on the front. The names in parentheses are Kafka's.
#[derive(Debug, Clone)]
pub struct KafkaFrontOptions {
    /// Name of the protocol, under which nodes advertise where they listen.
    pub protocol: &'static str,
    /// Largest request in bytes (`socket.request.max.bytes`).
    pub frame_bytes_max: usize,
    /// Connections at once; one more is closed as soon as it is accepted (`max.connections`).
    pub connections_max: usize,
    /// A connection without traffic and without a request under way is closed after this long
    /// (`connections.max.idle.ms`).
    pub idle: Duration,
    /// Requests of one connection under way at once.
    pub in_flight_requests_max: usize,
    /// Bytes of requests of one connection under way at once; one larger request passes alone.
    pub in_flight_bytes_max: usize,
    /// Bytes that the requests of all connections may take together, small ones aside
    /// (`queued.max.request.bytes`, which Kafka does not bound by default).
    pub request_memory_bytes_max: usize,
    /// Largest answer to a fetch in bytes, unless its first batch is larger (`fetch.max.bytes`).
    pub fetch_bytes_max: usize,
    /// Bytes that all answers to fetches may hold together while their readers take them. As it fills,
    /// answers become smaller.
    pub fetch_memory_bytes_max: usize,
    /// Fetch sessions at once (`max.incremental.fetch.session.cache.slots`).
    pub fetch_sessions_max: usize,
    /// A fetch session that was unused for so long gives way to a new one
    /// (`min.incremental.fetch.session.eviction.ms`).
    pub fetch_session_unused: Duration,
    /// How long a metadata request waits for a topic that it creates.
    pub topic_creation_wait: Duration,
    /// How long connections may take to finish what is under way when the front stops.
    pub drain: Duration,
    /// Seed of fetch session ids. Random in production, fixed in tests.
    pub seed: u64,
}

impl Default for KafkaFrontOptions {
    /// Kafka's own defaults where it has them.
    fn default() -> Self {
        KafkaFrontOptions {
            protocol: "kafka",
            frame_bytes_max: 100 << 20,
            connections_max: 50_000,
            idle: Duration::from_secs(600),
            in_flight_requests_max: 64,
            in_flight_bytes_max: 16 << 20,
            request_memory_bytes_max: 512 << 20,
            fetch_bytes_max: 55 << 20,
            fetch_memory_bytes_max: 512 << 20,
            fetch_sessions_max: 1_000,
            fetch_session_unused: Duration::from_secs(120),
            topic_creation_wait: Duration::from_secs(5),
            drain: Duration::from_secs(10),
            seed: 0,
        }
    }
}

/// What all connections of the front share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) broker: Arc<Broker>,
    pub(crate) options: KafkaFrontOptions,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) fetch_budget: Arc<Budget>,
    pub(crate) request_memory: Arc<RequestMemory>,
    pub(crate) metrics: KafkaMetrics,
    /// The APIs that are served, as clients are told.
    pub(crate) served: Vec<ApiVersion>,
    /// When it was said last that a client is nobody.
    unknown_said: parking_lot::Mutex<Option<Instant>>,
    /// Set when the front stops: requests that only wait are answered then.
    pub(crate) draining: CancellationToken,
}

/// The Kafka front, listening.
#[derive(Debug)]
pub struct KafkaFront {
    listener: Listener,
    front: Arc<Front>,
}

impl KafkaFront {
    /// Opens a listener for TCP. Port 0 takes a free one; see [`KafkaFront::local_addr`].
    pub async fn bind(
        addr: SocketAddr,
        broker: Arc<Broker>,
        options: KafkaFrontOptions,
    ) -> io::Result<KafkaFront> {
        Ok(KafkaFront::on(Listener::bind(addr, None).await?, broker, options))
    }

    /// The front on a listener that is open.
    pub fn on(listener: Listener, broker: Arc<Broker>, options: KafkaFrontOptions) -> KafkaFront {
        let metrics = KafkaMetrics::new(broker.metrics(), options.protocol);
        let front = Front {
            fetch_sessions: FetchSessions::new(
                options.fetch_sessions_max,
                options.fetch_session_unused,
                options.seed,
            ),
            fetch_budget: Budget::new(options.fetch_memory_bytes_max),
            request_memory: RequestMemory::new(options.request_memory_bytes_max),
            metrics,
            served: apis::TABLE.iter().map(|api| ApiVersion::from(api.key)).collect(),
            unknown_said: parking_lot::Mutex::default(),
            draining: CancellationToken::new(),
            broker,
            options,
        };
        KafkaFront { listener, front: Arc::new(front) }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` resolves, then accepts and begins nothing more, finishes what is under
    /// way, and returns; at the latest after [`KafkaFrontOptions::drain`].
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        let mut refusals = Refusals::default();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => report_panic(ended),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) if connections.len() < self.front.options.connections_max => {
                        connections.spawn(serve_accepted(self.front.clone(), stream, peer));
                    }
                    Ok((_, peer)) => refusals.note(peer, self.front.options.connections_max),
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection failed");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        }
        drop(self.listener);
        self.front.draining.cancel();
        let drained = async {
            while let Some(ended) = connections.join_next().await {
                report_panic(ended);
            }
        };
        if tokio::time::timeout(self.front.options.drain, drained).await.is_err() {
            tracing::warn!(connections = connections.len(), "connections did not finish in time and are cut");
            connections.shutdown().await;
        }
    }

    /// Serves one connection on a stream that somebody else has accepted, such as a simulated one.
    /// Returns when it has ended.
    pub fn serve_stream<S>(
        &self,
        stream: S,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        serve(self.front.clone(), Copying(stream), local, peer)
    }
}

impl Front {
    /// Says that a client is refused everything because it did not authenticate, and what to do about it; once for many.
    pub(crate) fn note_unknown(&self, peer: SocketAddr) {
        let mut said_at = self.unknown_said.lock();
        if said_at.is_none_or(|at| at.elapsed() >= REFUSALS_SAID_EVERY) {
            *said_at = Some(Instant::now());
            tracing::warn!(
                %peer,
                "a Kafka client did not authenticate, which everybody has to since users were created, and is refused; \
                 give it security.protocol=SASL_PLAINTEXT (SASL_SSL over TLS), sasl.mechanism=SCRAM-SHA-256 or PLAIN, and a \
                 user's name and password"
            );
        }
    }
}

/// Connections that were refused, and when that was said last.
#[derive(Default)]
struct Refusals {
    unsaid: u64,
    said_at: Option<Instant>,
}

impl Refusals {
    fn note(&mut self, peer: SocketAddr, limit: usize) {
        self.unsaid += 1;
        if self.said_at.is_none_or(|at| at.elapsed() >= REFUSALS_SAID_EVERY) {
            let refused = std::mem::take(&mut self.unsaid);
            let why = "connections were refused: there are as many as max.connections allows";
            tracing::warn!(%peer, refused, limit, "{why}");
            self.said_at = Some(Instant::now());
        }
    }
}

/// A task that panicked has a bug worth a line in the log; the other connections go on.
fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}

async fn serve_accepted(front: Arc<Front>, stream: Stream, peer: SocketAddr) {
    match stream.local_addr() {
        Ok(local) => serve(front, stream, local, peer).await,
        Err(error) => tracing::debug!(%peer, %error, "the connection ended before it was served"),
    }
}

async fn serve<S: Socket>(front: Arc<Front>, stream: S, local: SocketAddr, peer: SocketAddr) {
    let limits = ConnectionLimits {
        frame_bytes_max: front.options.frame_bytes_max,
        in_flight: InFlightLimits {
            requests: front.options.in_flight_requests_max,
            bytes: front.options.in_flight_bytes_max,
        },
        idle: front.options.idle,
    };
    let closing = front.draining.child_token();
    let mut seat = front.broker.open_session(facts(&front, local, peer), Arc::default());
    let memory = front.request_memory.clone();
    front.metrics.front.connections.inc();
    let _open = CountedConnection(front.clone());
    let session = Session::new(front, Caller { local, peer });
    let mut serving = pin!(connection::serve(stream, session, limits, memory, closing.clone()));
    let closed = loop {
        tokio::select! {
            biased;
            closed = &mut serving => break closed,
            ask = seat.asked() => match ask {
                SessionAsk::Close(reason) => {
                    tracing::info!(%peer, reason, "connection closed by an operator");
                    closing.cancel();
                }
                // There are no channels. Whoever asked may have gone.
                SessionAsk::Describe(reply) => drop(reply.send(Vec::new())),
            }
        }
    };
    match closed {
        Closed::Protocol(why) => tracing::warn!(%peer, "connection closed: {why}"),
        Closed::Idle => tracing::debug!(%peer, "connection closed: nothing moved on it"),
        Closed::ByPeer | Closed::Draining => {}
    }
}

/// What the broker's list of sessions says of a connection. Kafka's clients name neither themselves nor a namespace.
fn facts(front: &Front, local: SocketAddr, peer: SocketAddr) -> SessionFacts {
    SessionFacts {
        protocol: "Kafka",
        peer,
        local,
        user: None,
        namespace: DEFAULT_NAMESPACE.to_owned(),
        connected_at: front.broker.now_ms(),
        client_properties: Vec::new(),
        auth_mechanism: None,
        channels_max: None,
        frame_bytes_max: None,
        heartbeat_seconds: None,
    }
}

/// Takes its connection out of the count however the task ends.
struct CountedConnection(Arc<Front>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.metrics.front.connections.dec();
    }
}
