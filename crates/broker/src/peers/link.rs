//! This node's side of a link to another one: calls go out in order, and what happens there is asked for all the time.
//! Any call that fails ends the link, and every queue on it: nobody knows then what has arrived.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, mpsc};
use tokio::time::Instant;
use weir_cluster::Node;
use weir_model::NodeId;

use super::answers::{Answer, Event};
use super::messages::{Call, LinkId, PeerAsk, ProcessId, Seat};
use super::outgoing::POLL_HOLD;

/// Calls that ask what has happened, on their way at a time: one waits there while the other is on its way back.
const POLLS: u64 = 2;

/// How long such a call may take beyond what it is held for.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How long a link stays that nobody uses.
const IDLE: Duration = Duration::from_secs(30);

/// A call on its way.
pub(super) type Calling<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A link to another node.
pub(super) struct Link {
    node: Arc<Node>,
    to: NodeId,
    id: LinkId,
    process: ProcessId,
    /// Whether the other node knows of it.
    greeted: OnceCell<bool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_seat: u32,
    seats: BTreeMap<Seat, mpsc::UnboundedSender<Event>>,
    is_broken: bool,
}

impl Link {
    pub(super) fn new(node: Arc<Node>, to: NodeId, id: LinkId, process: ProcessId) -> Link {
        Link { node, to, id, process, greeted: OnceCell::new(), state: Mutex::default() }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state.lock().is_broken
    }

    /// Makes the link known to the other node, once. Whether it is.
    pub(super) async fn greet(self: &Arc<Link>) -> bool {
        let greeted = self.greeted.get_or_init(|| async {
            let hello = self.call(&Call::Hello(self.id, self.process));
            let is_known = matches!(tokio::time::timeout(ANSWER_MAX, hello).await, Ok(Answer::Done));
            if is_known {
                tokio::spawn(Arc::clone(self).listen());
            } else {
                self.break_off("it does not answer");
            }
            is_known
        });
        *greeted.await && !self.is_broken()
    }

    /// A seat for a queue, and what happens to that; none if the link is broken.
    pub(super) fn take_seat(&self) -> Option<(Seat, mpsc::UnboundedReceiver<Event>)> {
        let mut state = self.state.lock();
        if state.is_broken {
            return None;
        }
        state.last_seat = state.last_seat.checked_add(1)?;
        let (seat, (sender, events)) = (Seat(state.last_seat), mpsc::unbounded_channel());
        state.seats.insert(seat, sender);
        Some((seat, events))
    }

    pub(super) fn leave(&self, seat: Seat) {
        self.state.lock().seats.remove(&seat);
    }

    pub(super) fn attach(self: &Arc<Link>, seat: Seat, topic: weir_model::TopicId) -> Calling<Answer> {
        self.call(&Call::Attach(self.id, seat, topic))
    }

    pub(super) fn ask(self: &Arc<Link>, seat: Seat, ask: PeerAsk) -> Calling<Answer> {
        self.call(&Call::Ask(self.id, seat, ask))
    }

    /// A call. It is on its way once it was polled. If it fails the link is broken, and it is gone what it was about.
    fn call(self: &Arc<Link>, call: &Call) -> Calling<Answer> {
        let (link, request) = (Arc::clone(self), call.encode());
        Box::pin(async move {
            if link.is_broken() {
                return Answer::Gone;
            }
            match link.node.call_peer(link.to, request).await.map(Answer::decode) {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    link.break_off(&error.to_string());
                    Answer::Gone
                }
                Err(error) => {
                    link.break_off(&error.to_string());
                    Answer::Gone
                }
            }
        })
    }

    fn break_off(&self, why: &str) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.is_broken, true) {
            match state.seats.len() {
                // Tried again soon, and again.
                0 => tracing::debug!(node = %self.to, why, "there is no link to a node"),
                queues => tracing::info!(node = %self.to, why, queues, "the link to a node has ended"),
            }
        }
        // Those who listen hear that there is nothing more.
        state.seats.clear();
    }

    fn end_if_unused(&self) -> bool {
        let mut state = self.state.lock();
        state.is_broken |= state.seats.is_empty();
        state.is_broken
    }

    /// Asks what has happened, and passes it on in order, until the link ends.
    async fn listen(self: Arc<Link>) {
        let mut polls: FuturesUnordered<Calling<Answer>> = FuturesUnordered::new();
        // Answers may overtake each other.
        let mut early: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
        let mut next = 0;
        let mut used_at = Instant::now();
        loop {
            while (polls.len() + early.len()) < POLLS as usize {
                let poll = started(self.call(&Call::Poll(self.id))).await;
                polls.push(poll);
            }
            let answer = tokio::time::timeout(POLL_HOLD + ANSWER_MAX, polls.next()).await;
            let Ok(Some(Answer::Events(number, events))) = answer else {
                return self.break_off("it does not say what has happened");
            };
            if number < next || number >= next + POLLS || early.insert(number, events).is_some() {
                return self.break_off("it says twice what has happened");
            }
            while let Some(events) = early.remove(&next) {
                next += 1;
                events.into_iter().for_each(|event| self.pass_on(event));
            }
            if !self.state.lock().seats.is_empty() {
                used_at = Instant::now();
            } else if used_at.elapsed() >= IDLE && self.end_if_unused() {
                return;
            }
        }
    }

    fn pass_on(&self, event: Event) {
        let state = self.state.lock();
        if let Some(seat) = state.seats.get(&event.seat()) {
            // Whoever listened may be about to leave.
            let _ = seat.send(event);
        }
    }
}

/// Polls a call once, so that it is on its way before the next one.
pub(super) async fn started<T: Send + 'static>(mut call: Calling<T>) -> Calling<T> {
    let polled = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    match polled {
        Poll::Ready(output) => Box::pin(std::future::ready(output)),
        Poll::Pending => call,
    }
}
