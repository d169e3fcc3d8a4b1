//! The thin part that owns a socket: reads frames, hands them to the protocol, writes the answers.
//!
//! One task per connection does all of it, so that a request that is answered at once costs one
//! wake-up. While a connection waits it keeps no read buffer: bytes are first read into the stack of
//! whoever polls, and only the rest of a frame that did not fit gets memory of its own.
//!
//! Back-pressure runs from the back to the front. Answers that the peer does not take, and requests
//! that their shards do not admit yet, keep later requests from beginning; frames that may not begin
//! keep the socket from being read; and then the peer's own window closes.

use std::collections::VecDeque;
use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_broker::Piece;

use crate::budget::Held;
use crate::frames::FrameBuffer;
use crate::pipeline::{Answer, Begun, InFlightLimits, Lane, Pipeline};
use crate::request_memory::{RequestMemory, Share};
use crate::socket::Socket;

/// Bytes read at once while it is not known how large the next frame is. They lie on the stack and
/// are copied once, which for so few is cheaper than memory that waits in every idle connection.
const FIRST_READ_BYTES: usize = 32 << 10;
/// Bytes read ahead of a request that may not begin yet: enough to notice that the peer has gone.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// Answers that wait to be written. Above it no further request begins; one larger answer passes.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// How long the end of a connection may take to be said.
const GOODBYE: Duration = Duration::from_secs(1);
/// Slices given to one vectored write.
const WRITE_SLICES: usize = 128;

/// What a connection speaks.
pub(crate) trait Protocol {
    /// Which requests this one may run beside.
    fn lane(&self, frame: &Bytes) -> Lane;

    /// Begins a request. What has an order, such as appending, has happened in it when this returns.
    fn begin(&mut self, frame: Bytes) -> Begun;
}

/// The bounds of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Largest frame that is read (`socket.request.max.bytes`).
    pub(crate) frame_bytes_max: usize,
    /// What may be under way at once.
    pub(crate) in_flight: InFlightLimits,
    /// A connection on which nothing moves and nothing is under way is closed after this long
    /// (`connections.max.idle.ms`).
    pub(crate) idle: Duration,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The peer closed it.
    ByPeer,
    /// The broker is stopping.
    Draining,
    /// Nothing moved for too long.
    Idle,
    /// The peer broke the protocol; in words.
    Protocol(String),
}

/// Serves one connection until it ends. `drain` lets what is under way finish and begins nothing more.
pub(crate) async fn serve<S, P>(
    stream: S,
    protocol: P,
    limits: ConnectionLimits,
    memory: Arc<RequestMemory>,
    drain: CancellationToken,
) -> Closed
where
    S: Socket,
    P: Protocol + Unpin,
{
    let mut connection = Connection {
        stream,
        protocol,
        limits,
        buffer: FrameBuffer::new(limits.frame_bytes_max),
        next: None,
        pipeline: Pipeline::new(limits.in_flight),
        share: Share::new(memory),
        unsent: Unsent::default(),
        unflushed: false,
        state: State::Open,
        condemned: false,
        last_moved: Instant::now(),
    };
    let mut idle = Box::pin(tokio::time::sleep(limits.idle));
    let mut drained = Box::pin(drain.cancelled_owned());
    let closed =
        std::future::poll_fn(|context| connection.poll(context, idle.as_mut(), drained.as_mut())).await;
    if !matches!(closed, Closed::ByPeer) {
        // Over TLS the end of a connection is said. Whoever does not take that is gone as well.
        let _ = tokio::time::timeout(GOODBYE, connection.stream.shutdown()).await;
    }
    closed
}

/// How the end of a connection comes about, in the order of what still happens.
#[derive(Debug)]
enum State {
    /// Reading, processing and writing.
    Open,
    /// What is under way is finished and written; nothing more is read or begun.
    Finishing(Closed),
    /// The peer is gone. Whole produce requests that it had sent are still carried out (nobody who sends
    /// with `acks=0` waits before closing); nothing is written.
    PeerGone,
}

struct Connection<S, P> {
    stream: S,
    protocol: P,
    limits: ConnectionLimits,
    buffer: FrameBuffer,
    /// A whole frame that may not begin yet.
    next: Option<(Lane, Bytes)>,
    pipeline: Pipeline,
    /// What this connection's requests take of the memory for all.
    share: Share,
    unsent: Unsent,
    /// Something was written that the stream may still hold.
    unflushed: bool,
    state: State,
    /// A request has been refused in a way that ends the connection once its turn comes.
    condemned: bool,
    last_moved: Instant,
}

impl<S, P> Connection<S, P>
where
    S: Socket,
    P: Protocol + Unpin,
{
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut idle: Pin<&mut Sleep>,
        drained: Pin<&mut WaitForCancellationFutureOwned>,
    ) -> Poll<Closed> {
        if matches!(self.state, State::Open) && drained.poll(context).is_ready() {
            self.state = State::Finishing(Closed::Draining);
        }
        loop {
            let mut progress = self.pipeline.poll(context);
            progress |= self.collect_answers();
            progress |= self.poll_write(context);
            progress |= self.begin_requests();
            progress |= self.poll_read(context);
            if progress {
                self.last_moved = Instant::now();
                continue;
            }
            if let Some(closed) = self.ended() {
                return Poll::Ready(closed);
            }
            if self.share.missed_its_turn(context) {
                let why = "requests take more memory than queued.max.request.bytes allows, and this one \
                           did not arrive in its time";
                return Poll::Ready(Closed::Protocol(why.into()));
            }
            // A connection that waits for us is not idle, however long that takes.
            if !self.pipeline.is_empty() && self.unsent.is_empty() {
                return Poll::Pending;
            }
            ready!(idle.as_mut().poll(context));
            let deadline = self.last_moved + self.limits.idle;
            if Instant::now() >= deadline {
                return Poll::Ready(Closed::Idle);
            }
            idle.as_mut().reset(deadline);
        }
    }

    fn ended(&mut self) -> Option<Closed> {
        match &mut self.state {
            State::Open => None,
            State::Finishing(closed)
                if self.pipeline.is_empty() && self.unsent.is_empty() && !self.unflushed =>
            {
                Some(std::mem::replace(closed, Closed::ByPeer))
            }
            State::Finishing(_) => None,
            State::PeerGone => {
                let nothing_left = self.condemned || (self.next.is_none() && !self.buffer.has_frame());
                (self.pipeline.is_empty() && nothing_left).then_some(Closed::ByPeer)
            }
        }
    }

    /// Moves the answers whose turn it is to the writing side.
    fn collect_answers(&mut self) -> bool {
        let mut progress = false;
        while self.unsent.bytes <= UNSENT_BYTES_MAX
            && let Some(answer) = self.pipeline.next_answer()
        {
            progress = true;
            match answer {
                _ if matches!(self.state, State::PeerGone) => {}
                Answer::Nothing => {}
                Answer::Frame(pieces, held) => self.unsent.push(pieces, held),
                Answer::Last(pieces, why) => {
                    self.unsent.push(pieces, None);
                    self.end(why);
                    break;
                }
                Answer::Close(why) => {
                    self.end(why);
                    break;
                }
            }
        }
        progress
    }

    /// Sends what is to be sent, and then closes. What runs is given up, as its answers could not be sent.
    fn end(&mut self, why: String) {
        self.pipeline = Pipeline::new(self.limits.in_flight);
        self.next = None;
        self.state = State::Finishing(Closed::Protocol(why));
    }

    fn begin_requests(&mut self) -> bool {
        let mut progress = false;
        while !self.condemned
            && !matches!(self.state, State::Finishing(_))
            && self.unsent.bytes <= UNSENT_BYTES_MAX
        {
            if self.next.is_none() {
                match self.buffer.next_frame() {
                    Ok(Some(frame)) => self.next = Some((self.protocol.lane(&frame), frame)),
                    Ok(None) => break,
                    Err(error) => {
                        self.state = State::Finishing(Closed::Protocol(error.to_string()));
                        return true;
                    }
                }
            }
            let peer_gone = matches!(self.state, State::PeerGone);
            let Some((lane, frame)) = self.next.take() else { break };
            if peer_gone && lane != Lane::Produce {
                progress = true;
                continue;
            }
            if !self.pipeline.may_begin(lane, frame.len()) {
                self.next = Some((lane, frame));
                break;
            }
            let bytes = frame.len();
            let begun = self.protocol.begin(frame);
            self.condemned = matches!(begun, Begun::Done(Answer::Close(_) | Answer::Last(..)));
            self.pipeline.push(lane, bytes, begun);
            progress = true;
        }
        if progress {
            self.buffer.release();
        }
        progress
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> bool {
        if !matches!(self.state, State::Open) {
            return false;
        }
        // A request that waits leaves room only to notice that the peer has gone.
        if (self.next.is_some() || self.buffer.has_frame()) && self.buffer.len() >= READ_AHEAD_BYTES {
            return false;
        }
        let waiting = self.next.as_ref().map_or(0, |(_, frame)| frame.len());
        self.share.set(self.buffer.len() + waiting + self.pipeline.bytes());
        if self.share.poll_may_read(context, self.buffer.len()).is_pending() {
            return false;
        }
        let read = if self.buffer.is_empty() {
            let mut first = [const { MaybeUninit::<u8>::uninit() }; FIRST_READ_BYTES];
            let mut read_buf = ReadBuf::uninit(&mut first);
            match Pin::new(&mut self.stream).poll_read(context, &mut read_buf) {
                Poll::Ready(Ok(())) => {
                    self.buffer.extend(read_buf.filled());
                    Ok(read_buf.filled().len())
                }
                Poll::Ready(Err(error)) => Err(error),
                Poll::Pending => return false,
            }
        } else {
            let (room, most) = self.buffer.room();
            let mut room = room.limit(most);
            let read = pin!(self.stream.read_buf(&mut room));
            match read.poll(context) {
                Poll::Ready(read) => read,
                Poll::Pending => return false,
            }
        };
        match read {
            Ok(1..) => {}
            // Kafka too takes a peer that has closed its half for gone.
            Ok(0) => self.peer_gone(),
            Err(error) if is_gone(&error) => self.peer_gone(),
            Err(error) => {
                self.peer_gone();
                tracing::debug!(%error, "reading from a connection failed");
            }
        }
        true
    }

    fn peer_gone(&mut self) {
        self.state = State::PeerGone;
        self.unsent = Unsent::default();
        self.unflushed = false;
        self.pipeline.abandon_waits();
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        while !self.unsent.is_empty() {
            match self.unsent.poll_write(Pin::new(&mut self.stream), context) {
                Poll::Pending => break,
                Poll::Ready(Ok(1..)) => {
                    progress = true;
                    self.unflushed = true;
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.peer_gone();
                    return true;
                }
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => {
                    self.unflushed = false;
                    progress = true;
                }
                Poll::Ready(Err(_)) => {
                    self.peer_gone();
                    return true;
                }
            }
        }
        progress
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
}

/// Answers on their way to the socket: slices of the log among them, which are never copied, and ranges of
/// its files, which are not even read.
#[derive(Default)]
struct Unsent {
    /// With the last piece of an answer goes what is held until it is sent.
    pieces: VecDeque<(Piece, Option<Held>)>,
    bytes: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn push(&mut self, pieces: Vec<Piece>, held: Option<Held>) {
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            self.bytes += piece.len();
            self.pieces.push_back((piece, None));
        }
        if let Some((_, last)) = self.pieces.back_mut() {
            *last = held;
        }
    }

    fn poll_write<S: Socket>(
        &mut self,
        mut stream: Pin<&mut S>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some((Piece::Stored(range), _)) = self.pieces.front_mut() {
            let sent = ready!(stream.poll_send(context, range))?;
            if range.is_empty() {
                self.pieces.pop_front();
            }
            self.bytes -= sent;
            return Poll::Ready(Ok(sent));
        }
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
        let mut count = 0;
        for (slice, (piece, _)) in slices.iter_mut().zip(&self.pieces) {
            let Piece::Memory(bytes) = piece else { break };
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let written = ready!(stream.poll_write_vectored(context, &slices[..count]))?;
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        let mut left = written;
        while left > 0
            && let Some((Piece::Memory(front), _)) = self.pieces.front_mut()
        {
            if left < front.len() {
                front.advance(left);
                return;
            }
            left -= front.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
