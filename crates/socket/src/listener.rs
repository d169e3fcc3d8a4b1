//! An address on which connections are accepted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::stream::Stream;
use crate::tls::Tls;

/// A listener, open.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    local_addr: SocketAddr,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Opens a listener, for TLS if there is something to do it with. Port 0 takes a free one; see
    /// [`Listener::local_addr`].
    pub async fn bind(addr: SocketAddr, tls: Option<Arc<Tls>>) -> io::Result<Listener> {
        let tcp = TcpListener::bind(addr).await?;
        let local_addr = tcp.local_addr()?;
        Ok(Listener { tcp, local_addr, tls })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The next connection, and where it comes from.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (stream, peer) = self.tcp.accept().await?;
        // What fronts write is gathered already.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "TCP_NODELAY could not be set");
        }
        let stream = match &self.tls {
            Some(tls) => Stream::tls(stream, peer, tls),
            None => Stream::plain(stream),
        };
        Ok((stream, peer))
    }
}
