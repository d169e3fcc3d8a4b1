//! One connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ServerConfig;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::tls::Tls;

/// How long a client may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection, over TCP or over TLS.
///
/// What was written to TLS may wait in memory until it is flushed.
#[derive(Debug)]
pub struct Stream {
    layer: Layer,
}

enum Layer {
    Plain(TcpStream),
    Agreeing(Box<Agreeing>),
    Secret(Box<TlsStream<TcpStream>>),
    /// TLS was not agreed on; that was said.
    Failed,
}

/// TLS that is being agreed on.
struct Agreeing {
    accept: Accept<TcpStream>,
    peer: SocketAddr,
    too_late: Pin<Box<Sleep>>,
}

impl Stream {
    /// A connection over TCP.
    pub fn plain(stream: TcpStream) -> Stream {
        Stream { layer: Layer::Plain(stream) }
    }

    pub(crate) fn tls(stream: TcpStream, peer: SocketAddr, tls: &Tls) -> Stream {
        let config: Arc<ServerConfig> = tls.config();
        let accept = TlsAcceptor::from(config).accept(stream);
        let too_late = Box::pin(tokio::time::sleep(HANDSHAKE));
        Stream { layer: Layer::Agreeing(Box::new(Agreeing { accept, peer, too_late })) }
    }

    /// The socket itself, if what is written goes out as it is.
    pub fn as_tcp(&self) -> Option<&TcpStream> {
        match &self.layer {
            Layer::Plain(stream) => Some(stream),
            Layer::Agreeing(_) | Layer::Secret(_) | Layer::Failed => None,
        }
    }

    /// The address that the client connected to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.layer {
            Layer::Plain(stream) => stream.local_addr(),
            Layer::Agreeing(agreeing) => match agreeing.accept.get_ref() {
                Some(stream) => stream.local_addr(),
                None => Err(failed()),
            },
            Layer::Secret(stream) => stream.get_ref().0.local_addr(),
            Layer::Failed => Err(failed()),
        }
    }

    /// Goes on with agreeing on TLS, if that is not done.
    fn poll_agreed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut Layer>> {
        if let Layer::Agreeing(agreeing) = &mut self.layer {
            let agreed = match Pin::new(&mut agreeing.accept).poll(context) {
                Poll::Ready(agreed) => agreed,
                Poll::Pending => {
                    ready!(agreeing.too_late.as_mut().poll(context));
                    Err(io::Error::new(io::ErrorKind::TimedOut, format!("it took longer than {HANDSHAKE:?}")))
                }
            };
            match agreed {
                Ok(stream) => self.layer = Layer::Secret(Box::new(stream)),
                Err(error) => {
                    tracing::warn!(peer = %agreeing.peer, %error, "TLS was not agreed on with a client");
                    self.layer = Layer::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &self.layer {
            Layer::Failed => Poll::Ready(Err(failed())),
            _ => Poll::Ready(Ok(&mut self.layer)),
        }
    }
}

fn failed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "TLS was not agreed on")
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(self.poll_agreed(context))? {
            Layer::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Layer::Secret(stream) => Pin::new(stream).poll_read(context, buffer),
            Layer::Agreeing(_) | Layer::Failed => Poll::Ready(Err(failed())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_agreed(context))? {
            Layer::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Layer::Secret(stream) => Pin::new(stream).poll_write(context, bytes),
            Layer::Agreeing(_) | Layer::Failed => Poll::Ready(Err(failed())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_agreed(context))? {
            Layer::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Layer::Secret(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Layer::Agreeing(_) | Layer::Failed => Poll::Ready(Err(failed())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.layer {
            Layer::Plain(stream) => Pin::new(stream).poll_flush(context),
            Layer::Secret(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written yet.
            Layer::Agreeing(_) | Layer::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.layer {
            Layer::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Layer::Secret(stream) => Pin::new(stream).poll_shutdown(context),
            Layer::Agreeing(_) | Layer::Failed => Poll::Ready(Ok(())),
        }
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Layer::Plain(_) => "TCP",
            Layer::Agreeing(_) => "TLS, being agreed on",
            Layer::Secret(_) => "TLS",
            Layer::Failed => "TLS, not agreed on",
        })
    }
}
