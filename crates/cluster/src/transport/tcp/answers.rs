//! The calls of one connection, from the side of the one that answers.
//!
//! Calls are handed over in the order in which they arrived, each polled once before the next; what is not done by then
//! goes on beside the others. As long as the calls being answered, and the answers that are not sent yet, are more than
//! allowed, nothing more is read, and the caller waits.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use weir_model::NodeId;

use super::frame::{Frame, Kind};
use super::wire::{Batch, FrameReader, Outgoing, WireError, write_frames};
use crate::transport::{Line, RPC_BYTES_MAX};

/// Bytes of calls that are being answered, and of answers to be sent, from which on no more calls are read. What a disk
/// takes in some tenths of a second: heartbeats are among what is not read meanwhile.
const ANSWERING_BYTES_MAX: usize = 32 << 20;

/// Calls that are being answered, or whose answers are to be sent, with the same consequence.
const ANSWERING_MAX: usize = 4096;

/// What answers calls, as [`Node::handle_call`](crate::Node::handle_call) does.
pub type CallHandler =
    Arc<dyn Fn(NodeId, Line, Bytes) -> Pin<Box<dyn Future<Output = Bytes> + Send>> + Send + Sync>;

/// Answers calls over a connection until it ends, and returns why it did. `line_is_right` tells whether a line belongs
/// on this connection.
pub(crate) async fn answer_calls<R, W>(
    mut reader: FrameReader<R>,
    writer: W,
    from: NodeId,
    line_is_right: fn(Line) -> bool,
    handler: &CallHandler,
) -> WireError
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let answers = Arc::new(Answers::default());
    let read = async {
        loop {
            answers.room().await;
            let frame = match reader.next().await {
                Ok(frame) if frame.kind == Kind::Call && line_is_right(frame.line) => frame,
                Ok(_) => return WireError::Unexpected,
                Err(error) => return error,
            };
            take(&answers, from, frame, handler).await;
        }
    };
    tokio::select! {
        error = read => error,
        error = write_frames(writer, &*answers) => error,
    }
}

async fn take(answers: &Arc<Answers>, from: NodeId, frame: Frame, handler: &CallHandler) {
    let answering = answers.begin(frame.call, frame.payload.len());
    let mut answer = handler(from, frame.line, frame.payload);
    // Most of what has an order is done by the first poll.
    match std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
        Poll::Ready(answer) => answering.end(answer),
        Poll::Pending => {
            tokio::spawn(async move { answering.end(answer.await) });
        }
    }
}

/// What is being answered.
#[derive(Default)]
struct Answers {
    state: Mutex<State>,
    ready: Notify,
    room: Notify,
}

#[derive(Default)]
struct State {
    to_send: VecDeque<ToSend>,
    answering: usize,
    answering_bytes: usize,
    /// Of those that are in the batch that is being written.
    writing: usize,
    writing_bytes: usize,
}

struct ToSend {
    kind: Kind,
    call: u64,
    payload: Bytes,
}

impl State {
    fn has_room(&self) -> bool {
        self.answering < ANSWERING_MAX && self.answering_bytes < ANSWERING_BYTES_MAX
    }
}

impl Answers {
    async fn room(&self) {
        loop {
            let notified = self.room.notified();
            if self.state.lock().has_room() {
                return;
            }
            notified.await;
        }
    }

    fn begin(self: &Arc<Answers>, call: u64, bytes: usize) -> Answering {
        let mut state = self.state.lock();
        state.answering += 1;
        state.answering_bytes += bytes;
        Answering { answers: Arc::clone(self), call, bytes, is_done: false }
    }
}

/// A call that is being answered.
struct Answering {
    answers: Arc<Answers>,
    call: u64,
    bytes: usize,
    is_done: bool,
}

impl Answering {
    fn end(mut self, answer: Bytes) {
        if answer.len() > RPC_BYTES_MAX {
            let why = format!("the answer has {} bytes, more than the {RPC_BYTES_MAX} allowed", answer.len());
            self.send(Kind::Failure, why.into());
        } else {
            self.send(Kind::Answer, answer);
        }
    }

    fn send(&mut self, kind: Kind, payload: Bytes) {
        self.is_done = true;
        let mut state = self.answers.state.lock();
        state.answering_bytes = state.answering_bytes - self.bytes + payload.len();
        state.to_send.push_back(ToSend { kind, call: self.call, payload });
        drop(state);
        self.answers.ready.notify_one();
        // A short answer to a long call makes room at once.
        self.answers.room.notify_one();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.is_done {
            self.send(Kind::Failure, Bytes::from_static(b"answering it was given up"));
        }
    }
}

impl Outgoing for Answers {
    fn fill(&self, batch: &mut Batch) {
        while !batch.is_full() {
            let mut state = self.state.lock();
            let Some(next) = state.to_send.pop_front() else { return };
            state.writing += 1;
            state.writing_bytes += next.payload.len();
            drop(state);
            batch.push(next.kind, next.call, Line::Service, vec![next.payload]);
        }
    }

    fn written(&self) {
        let mut state = self.state.lock();
        state.answering -= state.writing;
        state.answering_bytes -= state.writing_bytes;
        state.writing = 0;
        state.writing_bytes = 0;
        drop(state);
        self.room.notify_one();
    }

    fn ready(&self) -> &Notify {
        &self.ready
    }
}
