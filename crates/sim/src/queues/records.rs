//! A history sorted by what it is about: records, sessions, messages.

use std::collections::BTreeMap;

use super::history::{Event, Handed, Happening, Message, SessionId, Settling};
use crate::declared::QueueNumber;

/// Where a record lies.
pub type Place = (QueueNumber, i64);

/// What was done to a record.
#[derive(Clone, Copy, Debug)]
pub struct Deed {
    /// Its place in the history.
    pub index: usize,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// By whom, or to whom.
    pub session: SessionId,
    /// In which leadership.
    pub term: u64,
    /// What.
    pub kind: Kind,
}

/// Kinds of deeds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// It was handed out.
    Handed(Handed),
    /// A consumer is about to settle it for good: accept or reject.
    Settling,
    /// That is durable.
    Settled {
        /// Which of the two.
        reject: bool,
    },
    /// A consumer is about to give it back.
    Releasing {
        /// Whether it failed.
        failed: bool,
    },
    /// That is durable.
    Released {
        /// Whether it failed.
        failed: bool,
    },
}

/// A session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub queue: QueueNumber,
    pub term: u64,
    /// Places in the history of what it got, said, and was told.
    pub handed: Vec<(usize, Handed)>,
    pub settled: Vec<(usize, Settling)>,
    /// When it was closed, and whether as failed.
    pub closed: Option<(usize, bool)>,
}

/// A message that was sent once.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Where it goes; to several queues only if it is parked.
    pub queues: Vec<QueueNumber>,
    pub key: Option<u32>,
    /// Until when it is parked.
    pub due: Option<i64>,
    pub sent: Moment,
    /// When its publisher was told that it is durable.
    pub acknowledged: Option<Moment>,
    pub cancelling: bool,
    pub cancelled: bool,
}

/// A place in the history and its time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    pub index: usize,
    pub at: i64,
}

/// The whole history, sorted.
#[derive(Debug, Default)]
pub struct Sorted {
    pub deeds: BTreeMap<Place, Vec<Deed>>,
    pub sessions: BTreeMap<SessionId, Session>,
    pub sent: BTreeMap<Message, Sent>,
    /// Where a message was seen, by queue.
    pub places: BTreeMap<(QueueNumber, Message), Vec<i64>>,
    /// Messages that were seen, by their key.
    pub by_key: BTreeMap<(QueueNumber, u32), Vec<Message>>,
}

impl Sorted {
    /// Sorts a history.
    pub fn new(events: &[Event]) -> Sorted {
        let mut sorted = Sorted::default();
        let mut settling: BTreeMap<u64, &Settling> = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            let now = Moment { index, at: event.at };
            match &event.what {
                Happening::Publishing { message, queue, key } => {
                    let sent = Sent { queues: vec![*queue], key: *key, sent: now, ..Sent::default() };
                    sorted.sent.insert(*message, sent);
                }
                Happening::Parking { message, queues, due } => {
                    let sent = Sent { queues: queues.clone(), due: Some(*due), sent: now, ..Sent::default() };
                    sorted.sent.insert(*message, sent);
                }
                Happening::Published { message } | Happening::Parked { message } => {
                    sorted.change(message, |sent| sent.acknowledged = Some(now));
                }
                Happening::Cancelling { message } => sorted.change(message, |sent| sent.cancelling = true),
                Happening::Cancelled { message } => sorted.change(message, |sent| sent.cancelled = true),
                Happening::Opened { session, queue, term } => {
                    let opened = Session { queue: *queue, term: *term, ..Session::default() };
                    sorted.sessions.insert(*session, opened);
                }
                Happening::Handed(handed) => sorted.handed(now, handed),
                Happening::Settling(said) => {
                    sorted.settle(now, said, false);
                    settling.insert(said.id, said);
                }
                Happening::Settled { id } => {
                    let Some(said) = settling.get(id) else { continue };
                    sorted.settle(now, said, true);
                    if let Some(session) = sorted.sessions.get_mut(&said.session) {
                        session.settled.push((index, (*said).clone()));
                    }
                }
                Happening::Closed { session, failed } => {
                    if let Some(session) = sorted.sessions.get_mut(session) {
                        session.closed.get_or_insert((index, *failed));
                    }
                }
            }
        }
        for (queue, message) in sorted.places.keys() {
            if let Some(key) = sorted.sent.get(message).and_then(|sent| sent.key) {
                sorted.by_key.entry((*queue, key)).or_default().push(*message);
            }
        }
        sorted
    }

    fn change(&mut self, message: &Message, change: impl FnOnce(&mut Sent)) {
        if let Some(sent) = self.sent.get_mut(message) {
            change(sent);
        }
    }

    fn handed(&mut self, now: Moment, handed: &Handed) {
        let Moment { index, at } = now;
        let deed =
            Deed { index, at, session: handed.session, term: handed.term, kind: Kind::Handed(*handed) };
        self.deeds.entry((handed.queue, handed.offset)).or_default().push(deed);
        self.sessions.entry(handed.session).or_default().handed.push((index, *handed));
        let places = self.places.entry((handed.queue, handed.message)).or_default();
        if !places.contains(&handed.offset) {
            places.push(handed.offset);
        }
    }

    fn settle(&mut self, now: Moment, said: &Settling, durable: bool) {
        let Moment { index, at } = now;
        let term = self.sessions.get(&said.session).map_or(0, |session| session.term);
        let mut add = |offset: i64, kind: Kind| {
            let deed = Deed { index, at, session: said.session, term, kind };
            self.deeds.entry((said.queue, offset)).or_default().push(deed);
        };
        let for_good = |reject| if durable { Kind::Settled { reject } } else { Kind::Settling };
        said.accepts.iter().for_each(|offset| add(*offset, for_good(false)));
        said.rejects.iter().for_each(|offset| add(*offset, for_good(true)));
        let failed = said.failed;
        let given_back = if durable { Kind::Released { failed } } else { Kind::Releasing { failed } };
        said.releases.iter().for_each(|offset| add(*offset, given_back));
    }

    /// Whether a session was closed before a place in the history.
    pub fn is_closed_before(&self, session: SessionId, index: usize) -> bool {
        let closed = self.sessions.get(&session).and_then(|session| session.closed);
        closed.is_some_and(|(at, _)| at < index)
    }

    /// The first moment at which it is known that a message is in a queue: its publisher was told, or it was handed out.
    pub fn known_by(&self, queue: QueueNumber, message: &Message) -> Option<Moment> {
        let told = self.sent.get(message).and_then(|sent| sent.acknowledged);
        let places = self.places.get(&(queue, *message)).into_iter().flatten();
        let seen = places.filter_map(|offset| self.deeds.get(&(queue, *offset))?.first());
        let seen = seen.map(|deed| Moment { index: deed.index, at: deed.at });
        told.into_iter().chain(seen).min_by_key(|moment| moment.index)
    }
}
