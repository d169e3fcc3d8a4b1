//! What has happened to the queues that another node uses here, until it asks for it.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use weir_dispatch::Waiting;

use super::answers::{Answer, Event};

/// About how many bytes one answer has.
const ANSWER_BYTES: usize = 1 << 20;

/// Events in one answer.
const ANSWER_EVENTS: usize = 4_096;

/// Bytes that wait to be asked for. Beyond them nothing more is taken from the queues.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// How long it is waited for something to happen before the answer is that nothing has.
pub(super) const POLL_HOLD: Duration = Duration::from_millis(500);

/// The events of one link.
#[derive(Debug)]
pub(super) struct Outgoing {
    state: Mutex<State>,
    grown: Notify,
    has_room: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(Event, usize)>,
    bytes: usize,
    answers: u64,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing { state: Mutex::default(), grown: Notify::new(), has_room: watch::Sender::new(true) }
    }

    /// Something has happened.
    pub(super) fn push(&self, event: Event) {
        let bytes = match &event {
            Event::Deliveries(_, _, sent) => sent.iter().map(|sent| sent.record.bytes()).sum(),
            _ => 0,
        };
        let mut state = self.state.lock();
        state.bytes += bytes;
        state.events.push_back((event, bytes));
        if state.bytes >= WAITING_BYTES_MAX {
            self.has_room.send_if_modified(|room| std::mem::replace(room, false));
        }
        drop(state);
        self.grown.notify_one();
    }

    /// Whether there is room for more deliveries.
    pub(super) fn room(&self) -> watch::Receiver<bool> {
        self.has_room.subscribe()
    }

    /// What has happened since this was asked last; waits a while for it.
    pub(super) async fn answer(&self) -> Answer {
        let until = tokio::time::Instant::now() + POLL_HOLD;
        loop {
            if let Some(answer) = self.take(false) {
                return answer;
            }
            if tokio::time::timeout_at(until, self.grown.notified()).await.is_err() {
                return self.take(true).unwrap_or(Answer::Gone);
            }
        }
    }

    fn take(&self, even_if_none: bool) -> Option<Answer> {
        let mut state = self.state.lock();
        if state.events.is_empty() && !even_if_none {
            return None;
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < ANSWER_BYTES && events.len() < ANSWER_EVENTS {
            let Some((event, size)) = state.events.pop_front() else { break };
            bytes += size;
            events.push(event);
        }
        state.bytes -= bytes;
        if state.bytes < WAITING_BYTES_MAX {
            self.has_room.send_if_modified(|room| !std::mem::replace(room, true));
        }
        if !state.events.is_empty() {
            // Another poll may wait.
            self.grown.notify_one();
        }
        let number = state.answers;
        state.answers += 1;
        Some(Answer::Events(number, events))
    }
}
