//! What happened to queues, in the order in which it happened.

use std::fmt;
use std::str::FromStr;

use crate::declared::QueueNumber;

/// One sending of a message. A message that is sent again because nobody knows what became of it is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// Who sent it.
    pub publisher: u32,
    /// Which of its messages; the next one is sent when this one is acknowledged.
    pub number: u32,
    /// The how-manieth sending, from 0.
    pub attempt: u32,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.publisher, self.number, self.attempt)
    }
}

impl FromStr for Message {
    type Err = ();

    fn from_str(text: &str) -> Result<Message, ()> {
        let mut parts = text.split(':').map(|part| part.parse::<u32>().map_err(|_| ()));
        let mut next = || parts.next().ok_or(())?;
        let message = Message { publisher: next()?, number: next()?, attempt: next()? };
        if parts.next().is_some() { Err(()) } else { Ok(message) }
    }
}

/// A consumer's session. Never the same twice in a run.
pub type SessionId = u64;

/// A record that a leader handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// To whom.
    pub session: SessionId,
    /// From where.
    pub queue: QueueNumber,
    /// In which leadership of its shard.
    pub term: u64,
    /// Which record.
    pub offset: i64,
    /// What is in it.
    pub message: Message,
    /// Whether it is said that somebody may have had it before.
    pub redelivered: bool,
    /// How often its delivery is said to have failed.
    pub failures: u16,
    /// How often it is said to have come back.
    pub returns: u16,
}

/// What a consumer says of records that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    /// Unique in the run.
    pub id: u64,
    /// Who says it.
    pub session: SessionId,
    /// Of which queue.
    pub queue: QueueNumber,
    /// Given back, in this order.
    pub releases: Vec<i64>,
    /// Whether that counts as failed.
    pub failed: bool,
    /// Refused for good.
    pub rejects: Vec<i64>,
    /// Accepted.
    pub accepts: Vec<i64>,
    /// Nothing else can have been on its way to the consumer: it had all that it takes.
    pub full: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A message is sent to a queue.
    Publishing {
        /// Which.
        message: Message,
        /// Where to.
        queue: QueueNumber,
        /// Its business key.
        key: Option<u32>,
    },
    /// The publisher was told that it is durable.
    Published {
        /// Which.
        message: Message,
    },
    /// A message is sent to be parked.
    Parking {
        /// Which.
        message: Message,
        /// Where it goes then.
        queues: Vec<QueueNumber>,
        /// When, in milliseconds since 1970.
        due: i64,
    },
    /// The publisher was told that it is parked.
    Parked {
        /// Which.
        message: Message,
    },
    /// Somebody asks for a parked message back.
    Cancelling {
        /// Which.
        message: Message,
    },
    /// He was told that it was there and is not any more.
    Cancelled {
        /// Which.
        message: Message,
    },
    /// A session begins, at the leader of a term.
    Opened {
        /// Which.
        session: SessionId,
        /// Of which queue.
        queue: QueueNumber,
        /// In which leadership.
        term: u64,
    },
    /// A record was handed out.
    Handed(Handed),
    /// A consumer is about to say what becomes of records.
    Settling(Settling),
    /// It was told that this is durable.
    Settled {
        /// [`Settling::id`].
        id: u64,
    },
    /// A leader takes back all that a session has.
    Closed {
        /// Which.
        session: SessionId,
        /// Whether that counts as failed.
        failed: bool,
    },
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since 1970.
    pub at: i64,
    /// What.
    pub what: Happening,
}

/// All that happened.
#[derive(Debug, Default)]
pub struct History {
    events: Vec<Event>,
    next_id: u64,
}

impl History {
    /// Writes down what happens now.
    pub fn note(&mut self, at: i64, what: Happening) {
        self.events.push(Event { at, what });
    }

    /// A number that was not given out before.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Everything, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How much of what happened: a run in which nothing did shows nothing.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for event in &self.events {
            match &event.what {
                Happening::Published { .. } => figures.published += 1,
                Happening::Parked { .. } => figures.parked += 1,
                Happening::Cancelled { .. } => figures.cancelled += 1,
                Happening::Handed(handed) => {
                    figures.handed += 1;
                    figures.redelivered += u64::from(handed.redelivered);
                    figures.counted += u64::from(handed.failures > 0);
                }
                Happening::Settling(settling) => {
                    figures.accepted += settling.accepts.len() as u64;
                    figures.released += settling.releases.len() as u64;
                    figures.rejected += settling.rejects.len() as u64;
                }
                Happening::Opened { .. } => figures.sessions += 1,
                _ => {}
            }
        }
        figures
    }
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages acknowledged.
    pub published: u64,
    /// Messages parked.
    pub parked: u64,
    /// Parked messages taken back.
    pub cancelled: u64,
    /// Deliveries.
    pub handed: u64,
    /// Of these, not for the first time.
    pub redelivered: u64,
    /// Of these, with a failure counted.
    pub counted: u64,
    /// Records that consumers accepted.
    pub accepted: u64,
    /// Records that they gave back.
    pub released: u64,
    /// Records that they rejected.
    pub rejected: u64,
    /// Sessions of consumers.
    pub sessions: u64,
}
