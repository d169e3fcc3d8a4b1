//! What a connection runs on: a socket, or a stream that stands for one.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
use weir_broker::FileRange;
use weir_socket::Stream;

/// A stream that can also take a range of a file.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Sends from a range as much as the peer takes now, and leaves that out of it.
    fn poll_send(&mut self, context: &mut Context<'_>, range: &mut FileRange) -> Poll<io::Result<usize>>;
}

/// The kernel hands the file's pages to the connection; nothing is copied on the broker's side. Half the CPU of
/// reading and writing, measured over loopback.
fn send_file(
    stream: &TcpStream,
    context: &mut Context<'_>,
    range: &mut FileRange,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_io(Interest::WRITABLE, || range.send(stream.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return Poll::Ready(sent),
        }
    }
}

/// Over TLS the bytes have to pass through memory, where they are encrypted.
impl Socket for Stream {
    fn poll_send(&mut self, context: &mut Context<'_>, range: &mut FileRange) -> Poll<io::Result<usize>> {
        match self.as_tcp() {
            Some(stream) => send_file(stream, context, range),
            None => poll_copy(self, context, range),
        }
    }
}

fn poll_copy<S: AsyncWrite + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    range: &mut FileRange,
) -> Poll<io::Result<usize>> {
    let bytes = range.first(COPY_BYTES)?;
    let sent = ready!(Pin::new(stream).poll_write(context, &bytes))?;
    range.advance(sent);
    Poll::Ready(Ok(sent))
}

/// Any other stream gets the bytes through memory.
#[derive(Debug)]
pub(crate) struct Copying<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for Copying<S> {
    fn poll_send(&mut self, context: &mut Context<'_>, range: &mut FileRange) -> Poll<io::Result<usize>> {
        poll_copy(&mut self.0, context, range)
    }
}

/// Bytes read at a time for a stream that is no socket.
const COPY_BYTES: usize = 64 << 10;

impl<S: AsyncRead + Unpin> AsyncRead for Copying<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Copying<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
