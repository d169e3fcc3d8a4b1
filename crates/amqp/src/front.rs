//! The listener, and what all its connections share.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use weir_broker::Broker;
use weir_model::TopicId;
use weir_socket::Listener;

use crate::connection::{self, Ends};
use crate::replies::Mailboxes;

/// How long to wait before accepting again after it failed, for want of file descriptors mostly.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections beyond those that are allowed which are told so at a time; more are closed as they come.
const TURNED_AWAY_MAX: usize = 32;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct AmqpFrontOptions {
    /// Connections at a time; more are told that there are as many as allowed.
    pub connections_max: usize,
    /// Largest message, in bytes of its body.
    pub message_bytes_max: u64,
    /// How long a delivery may wait for its acknowledgement before its channel is closed; none for ever.
    pub consumer_timeout: Option<Duration>,
    /// How long a client may take to open its connection.
    pub handshake: Duration,
    /// How long connections may take to end when the front stops.
    pub drain: Duration,
}

impl Default for AmqpFrontOptions {
    fn default() -> AmqpFrontOptions {
        AmqpFrontOptions {
            connections_max: 50_000,
            message_bytes_max: 16 << 20,
            consumer_timeout: Some(Duration::from_secs(30 * 60)),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// One connection among all of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId(u64);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Front {
    pub broker: Arc<Broker>,
    pub options: AmqpFrontOptions,
    pub draining: CancellationToken,
    /// Whose the exclusive queues are.
    pub exclusive: Mutex<BTreeMap<TopicId, ConnectionId>>,
    pub mailboxes: Mailboxes,
    next_connection: AtomicU64,
}

/// The AMQP 0-9-1 front, listening.
#[derive(Debug)]
pub struct AmqpFront {
    listener: Listener,
    front: Arc<Front>,
}

impl AmqpFront {
    /// Opens a listener for TCP. Port 0 takes a free one; see [`AmqpFront::local_addr`].
    pub async fn bind(
        addr: SocketAddr,
        broker: Arc<Broker>,
        options: AmqpFrontOptions,
    ) -> io::Result<AmqpFront> {
        Ok(AmqpFront::on(Listener::bind(addr, None).await?, broker, options))
    }

    /// The front on a listener that is open.
    pub fn on(listener: Listener, broker: Arc<Broker>, options: AmqpFrontOptions) -> AmqpFront {
        broker.read_messages_with(Arc::new(weir_amqp_message::Reader));
        let front = Front {
            broker,
            options,
            draining: CancellationToken::new(),
            exclusive: Mutex::default(),
            mailboxes: Mailboxes::default(),
            next_connection: AtomicU64::new(0),
        };
        AmqpFront { listener, front: Arc::new(front) }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` resolves, then accepts nothing more, tells every client that the broker stops, and
    /// returns; at the latest after [`AmqpFrontOptions::drain`].
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        let connections_max = self.front.options.connections_max;
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => report_panic(ended),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) if connections.len() < connections_max + TURNED_AWAY_MAX => {
                        // An address without a port is known when the client has connected.
                        let local = stream.local_addr().unwrap_or(self.listener.local_addr());
                        let is_too_many = connections.len() >= connections_max;
                        let ends = Ends { peer, local, is_too_many };
                        connections.spawn(connection::serve(self.front.clone(), stream, ends));
                    }
                    Ok((_, peer)) => tracing::warn!(%peer, "a connection was refused: there are as many as allowed"),
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
            tracing::warn!(connections = connections.len(), "connections did not end in time and are cut");
            connections.shutdown().await;
        }
    }

    /// Serves one connection on a stream that somebody else has accepted, such as a simulated one. Returns when it has
    /// ended.
    pub fn serve_stream<S>(&self, stream: S, peer: SocketAddr) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        connection::serve(
            self.front.clone(),
            stream,
            Ends { peer, local: self.listener.local_addr(), is_too_many: false },
        )
    }
}

impl Front {
    pub(crate) fn new_connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
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
