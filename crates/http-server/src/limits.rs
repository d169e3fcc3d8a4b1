//! Connections are bounded, and one on which nothing moves is closed: a client that never finishes its
//! request costs a place for a while and nothing more.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener as Accepting};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use weir_socket::{Listener, Stream};

/// How long to wait before accepting again after it failed, for want of file descriptors mostly.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A listener that accepts no more than so many connections at once.
pub(crate) struct LimitedListener {
    listener: Listener,
    places: Arc<Semaphore>,
    idle: Duration,
}

impl LimitedListener {
    pub(crate) fn new(listener: Listener, connections_max: usize, idle: Duration) -> LimitedListener {
        LimitedListener { listener, places: Arc::new(Semaphore::new(connections_max)), idle }
    }
}

impl Accepting for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, peer) = loop {
            match self.listener.accept().await {
                Ok(accepted) => break accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        };
        let idle_at = Box::pin(tokio::time::sleep(self.idle));
        (Connection { stream, idle: self.idle, idle_at, _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.listener.local_addr())
    }
}

/// The address at the other end of the connection that a request came on.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

impl Connected<IncomingStream<'_, LimitedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

/// A connection that holds its place, and ends when nothing has moved for long.
pub(crate) struct Connection {
    stream: Stream,
    idle: Duration,
    idle_at: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// What the stream says, unless it is silent and has been for too long.
    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.idle_at.as_mut().reset(Instant::now() + self.idle);
            return polled;
        }
        match self.idle_at.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watch(polled, context)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(polled, context)
    }
}
