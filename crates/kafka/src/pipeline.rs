//! The requests of one connection between their arrival and their answer, without I/O.
//!
//! Kafka answers in the order of the requests, and clients match answers by that order. Processing is
//! another matter: a producer keeps several requests in flight, and all of them should reach the same
//! `fdatasync`. So requests run in two lanes:
//!
//! * **Produce** requests run side by side. Each has *entered*, that is, its batches stand in their
//!   shards' lines, before the next one is looked at; so appends keep the connection's order. Entering
//!   takes longer than a moment only while more is on its way to the disk than may wait, and then the
//!   pressure reaches the client, because nothing else of the connection begins.
//! * **Every other** request runs alone, as in Kafka: it begins when all earlier ones are done, and
//!   nothing begins before it is done. A client may send an offset commit and a leave-group back to
//!   back and rely on it. The one exception is a request that does nothing but wait (a fetch): produce
//!   requests behind it begin at once, although their answers wait for their turn.
//!
//! What runs is bounded by count and by bytes; a connection that reaches a bound is not read from.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, Stream};
use weir_broker::Piece;

use crate::budget::Held;

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A frame, in pieces that follow each other, and what is held until it is sent.
    Frame(Vec<Piece>, Option<Held>),
    /// A frame, and then the connection closes.
    Last(Vec<Piece>, String),
    /// No answer at all, as `acks=0` demands.
    Nothing,
    /// The connection closes after the answers before this one.
    Close(String),
}

impl Answer {
    /// The same answer, as the last of its connection; in words why.
    pub(crate) fn and_close(self, why: String) -> Answer {
        match self {
            Answer::Frame(pieces, _) | Answer::Last(pieces, _) => Answer::Last(pieces, why),
            Answer::Nothing | Answer::Close(_) => Answer::Close(why),
        }
    }
}

/// An answer that takes time.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The part of a request that must be over before the next one begins.
pub(crate) type EntryFuture = Pin<Box<dyn Future<Output = Begun> + Send>>;

/// How far a request got when it was begun.
pub(crate) enum Begun {
    /// It is done.
    Done(Answer),
    /// It goes on, beside others of its lane.
    Running(AnswerFuture),
    /// It has not entered yet.
    Entering(EntryFuture),
}

/// Which requests may run beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Beside others of this kind, and beside one that waits.
    Produce,
    /// Alone, except that produce requests may overtake it in processing.
    Wait,
    /// Alone.
    Alone,
}

/// How much one connection may have under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightLimits {
    /// Requests.
    pub(crate) requests: usize,
    /// Bytes of their frames. One larger frame alone is let through.
    pub(crate) bytes: usize,
}

struct Slot {
    answer: Option<Answer>,
    bytes: usize,
}

/// The requests under way and the answers that wait for their turn.
pub(crate) struct Pipeline {
    limits: InFlightLimits,
    /// In the order of arrival; the first has number `first`.
    slots: VecDeque<Slot>,
    first: u64,
    bytes: usize,
    entering: Option<(u64, Lane, EntryFuture)>,
    produces: FuturesUnordered<Numbered>,
    other: Option<(Lane, Numbered)>,
}

impl Pipeline {
    /// An empty one.
    pub(crate) fn new(limits: InFlightLimits) -> Pipeline {
        Pipeline {
            limits,
            slots: VecDeque::new(),
            first: 0,
            bytes: 0,
            entering: None,
            produces: FuturesUnordered::new(),
            other: None,
        }
    }

    /// Whether a request of this lane and size may begin now.
    pub(crate) fn may_begin(&self, lane: Lane, frame_bytes: usize) -> bool {
        if self.entering.is_some() || self.slots.len() >= self.limits.requests {
            return false;
        }
        if !self.slots.is_empty() && self.bytes + frame_bytes > self.limits.bytes {
            return false;
        }
        match (lane, &self.other) {
            (Lane::Produce, None | Some((Lane::Wait, _))) => true,
            (_, None) => self.produces.is_empty(),
            _ => false,
        }
    }

    /// Takes a request that has begun. Only after [`Pipeline::may_begin`] said so.
    pub(crate) fn push(&mut self, lane: Lane, frame_bytes: usize, begun: Begun) {
        let number = self.first + self.slots.len() as u64;
        self.bytes += frame_bytes;
        self.slots.push_back(Slot { answer: None, bytes: frame_bytes });
        self.go_on(number, lane, begun);
    }

    fn go_on(&mut self, number: u64, lane: Lane, begun: Begun) {
        match (begun, lane) {
            (Begun::Done(answer), _) => self.settle(number, answer),
            (Begun::Running(future), Lane::Produce) => self.produces.push(Numbered { number, future }),
            (Begun::Running(future), _) => self.other = Some((lane, Numbered { number, future })),
            (Begun::Entering(future), _) => self.entering = Some((number, lane, future)),
        }
    }

    /// Lets what runs make progress. Answers whether anything got done.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Some((number, lane, future)) = &mut self.entering
            && let Poll::Ready(begun) = future.as_mut().poll(context)
        {
            let (number, lane) = (*number, *lane);
            self.entering = None;
            self.go_on(number, lane, begun);
            progress = true;
        }
        while let Poll::Ready(Some((number, answer))) = Pin::new(&mut self.produces).poll_next(context) {
            self.settle(number, answer);
            progress = true;
        }
        if let Some((_, running)) = &mut self.other
            && let Poll::Ready((number, answer)) = Pin::new(running).poll(context)
        {
            self.other = None;
            self.settle(number, answer);
            progress = true;
        }
        progress
    }

    fn settle(&mut self, number: u64, answer: Answer) {
        let index = (number - self.first) as usize;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.answer = Some(answer);
        }
    }

    /// The next answer whose turn it is.
    pub(crate) fn next_answer(&mut self) -> Option<Answer> {
        self.slots.front()?.answer.as_ref()?;
        let slot = self.slots.pop_front()?;
        self.first += 1;
        self.bytes -= slot.bytes;
        slot.answer
    }

    /// Bytes of the requests that are under way or whose answers wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is under way and no answer waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The peer is gone: what only waits for it is given up. Appends that have begun go on; they are
    /// in their shards' hands.
    pub(crate) fn abandon_waits(&mut self) {
        if let Some((_, running)) = self.other.take() {
            self.settle(running.number, Answer::Nothing);
        }
    }
}

/// A running request that knows its place in the order.
struct Numbered {
    number: u64,
    future: AnswerFuture,
}

impl Future for Numbered {
    type Output = (u64, Answer);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        self.future.as_mut().poll(context).map(|answer| (number, answer))
    }
}

#[cfg(test)]
mod tests;
