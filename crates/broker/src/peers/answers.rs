//! What a node answers another that asks about queues, and what happens there that nobody asked for.

use bytes::Bytes;
use weir_dispatch::{ConsumerId, OwnerId, SubscribeError};
use weir_model::NodeId;
use weir_model::batch::{Header, Record};
use weir_model::subscription::Marks;
use weir_model::wire::{DecodeError, Reader, Writer};

use super::messages::{SERVICE, Seat, VERSION, read_place, write_place};
use crate::queues::{Browsed, QueueDelivery, QueueFigures, QueueRecord, Redriven};

/// Bytes of a record in its encoding, at least.
const RECORD_BYTES_MIN: usize = 8 + 8 + 1 + 1 + 4 + 1;

/// Bytes of a header in its encoding, at least.
const HEADER_BYTES_MIN: usize = 5;

/// Bytes of a delivery in its encoding, at least.
const DELIVERY_BYTES_MIN: usize = 9 + 1 + Marks::ENCODED_BYTES_MIN + RECORD_BYTES_MIN;

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// The link, or the queue on it, is gone.
    Gone,
    /// Another node leads the queue, as far as this one knows.
    NotLeader(Option<NodeId>),
    /// There is no such queue.
    Unknown,
    /// Why it cannot be done now.
    Starting,
    /// Why it cannot be done, in words.
    Refused(String),
    /// A queue has no room, and refuses what it has no room for.
    Full(String),
    NotSubscribed(SubscribeError),
    /// The record that came next; none if none waits.
    Got(Option<Sent>),
    Count(u64),
    Figures(QueueFigures),
    /// Room that was promised has a number.
    Reserved(Option<u64>),
    Browsed(Vec<Browsed>),
    /// What has happened, and how often this was asked before on the link.
    Events(u64, Vec<Event>),
    Redriven(Redriven),
}

/// A record on its way to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub place: weir_dispatch::Place,
    pub redelivered: bool,
    /// Whether it went past a bound that consumers share by a permit.
    pub permitted: bool,
    pub marks: Marks,
    pub record: QueueRecord,
}

/// What happens without being asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Records for a consumer.
    Deliveries(Seat, ConsumerId, Vec<Sent>),
    /// A consumer gets nothing more.
    Ended(Seat, ConsumerId),
    /// A consumer would get a record if the bound that it shares lets it.
    Wanted(Seat, ConsumerId),
    /// Permits that were not used are none any more.
    Unused(Seat, ConsumerId, u32),
    /// A queue is gone.
    Gone(Seat),
}

impl Sent {
    pub(crate) fn new(delivery: QueueDelivery, permitted: bool) -> Sent {
        let QueueDelivery { place, record, redelivered, marks, .. } = delivery;
        Sent { place, redelivered, permitted, marks, record }
    }

    /// As the session here gets it.
    pub(crate) fn delivery(self, consumer: Option<ConsumerId>, owner: OwnerId) -> QueueDelivery {
        let Sent { place, redelivered, marks, record, .. } = self;
        QueueDelivery { consumer, owner, place, record, redelivered, marks }
    }

    fn encode(&self, out: &mut Writer) {
        write_place(out, &self.place);
        out.u8(u8::from(self.redelivered) | u8::from(self.permitted) << 1);
        self.marks.encode(out);
        out.u8(u8::from(self.record.expires_at.is_some()));
        self.record.expires_at.iter().for_each(|at| out.i64(*at));
        write_record(out, &self.record.record);
    }

    fn decode(read: &mut Reader) -> Result<Sent, DecodeError> {
        let place = read_place(read)?;
        let flags = read.u8()?;
        if flags > 3 {
            return Err(read.error("a delivery has unknown flags"));
        }
        let marks = Marks::decode(read)?;
        let expires_at = if read.bool()? { Some(read.i64()?) } else { None };
        // Whoever it is for has it already.
        let record = QueueRecord { record: read_record(read)?, expires_at, is_for_now: false };
        Ok(Sent { place, redelivered: flags & 1 > 0, permitted: flags & 2 > 0, marks, record })
    }
}

impl Answer {
    /// The answer as bytes, never none of them.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        out.u8(SERVICE);
        out.u8(VERSION);
        let out_mut = &mut out;
        match self {
            Answer::Done => out_mut.u8(0),
            Answer::Gone => out_mut.u8(1),
            Answer::NotLeader(leader) => {
                out_mut.u8(2);
                out_mut.u64(leader.map_or(0, |leader| leader.0));
            }
            Answer::Unknown => out_mut.u8(3),
            Answer::Starting => out_mut.u8(4),
            Answer::Refused(why) => {
                out_mut.u8(5);
                out_mut.str(why);
            }
            Answer::Full(queue) => {
                out_mut.u8(6);
                out_mut.str(queue);
            }
            Answer::NotSubscribed(error) => {
                out_mut.u8(7);
                let (kind, limit) = match error {
                    SubscribeError::Exclusive => (0, 0),
                    SubscribeError::NotAlone => (1, 0),
                    SubscribeError::TooMany { limit } => (2, *limit as u64),
                };
                out_mut.u8(kind);
                out_mut.u64(limit);
            }
            Answer::Got(sent) => {
                out_mut.u8(8);
                out_mut.u8(u8::from(sent.is_some()));
                sent.iter().for_each(|sent| sent.encode(out_mut));
            }
            Answer::Count(count) => {
                out_mut.u8(9);
                out_mut.u64(*count);
            }
            Answer::Figures(QueueFigures { ready, ready_bytes, leased, consumers }) => {
                out_mut.u8(10);
                out_mut.u64(*ready);
                write_optional(out_mut, *ready_bytes);
                out_mut.u64(*leased);
                out_mut.u64(*consumers as u64);
            }
            Answer::Reserved(number) => {
                out_mut.u8(11);
                write_optional(out_mut, *number);
            }
            Answer::Browsed(records) => {
                out_mut.u8(12);
                out_mut.list(records, |out, browsed| {
                    out.u8(browsed.lane);
                    browsed.marks.encode(out);
                    write_record(out, &browsed.record);
                });
            }
            Answer::Events(number, events) => {
                out_mut.u8(13);
                out_mut.u64(*number);
                out_mut.list(events, |out, event| event.encode(out));
            }
            Answer::Redriven(Redriven { moved, kept, finished }) => {
                out_mut.u8(14);
                let moved: Vec<(&String, &u64)> = moved.iter().collect();
                out_mut.list(&moved, |out, (queue, count)| {
                    out.str(queue);
                    out.u64(**count);
                });
                out_mut.u64(*kept);
                out_mut.u8(u8::from(*finished));
            }
        }
        out.finish()
    }

    /// Reads what [`Answer::encode`] wrote.
    pub(crate) fn decode(bytes: Bytes) -> Result<Answer, DecodeError> {
        let mut reader = Reader::new("an answer about queues", bytes);
        let read = &mut reader;
        if (read.u8()?, read.u8()?) != (SERVICE, VERSION) {
            return Err(read.error("it is of another service or version"));
        }
        let answer = match read.u8()? {
            0 => Answer::Done,
            1 => Answer::Gone,
            2 => Answer::NotLeader(Some(NodeId(read.u64()?)).filter(|leader| leader.0 != 0)),
            3 => Answer::Unknown,
            4 => Answer::Starting,
            5 => Answer::Refused(read.str()?),
            6 => Answer::Full(read.str()?),
            7 => {
                let (kind, limit) = (read.u8()?, read.u64()?);
                Answer::NotSubscribed(match kind {
                    0 => SubscribeError::Exclusive,
                    1 => SubscribeError::NotAlone,
                    2 => SubscribeError::TooMany { limit: usize::try_from(limit).unwrap_or(usize::MAX) },
                    _ => return Err(read.error("a refusal is not known to this binary")),
                })
            }
            8 => Answer::Got(if read.bool()? { Some(Sent::decode(read)?) } else { None }),
            9 => Answer::Count(read.u64()?),
            10 => Answer::Figures(QueueFigures {
                ready: read.u64()?,
                ready_bytes: read_optional(read)?,
                leased: read.u64()?,
                consumers: usize::try_from(read.u64()?).unwrap_or(usize::MAX),
            }),
            11 => Answer::Reserved(read_optional(read)?),
            12 => Answer::Browsed(read.list(1 + Marks::ENCODED_BYTES_MIN + RECORD_BYTES_MIN, |read| {
                let (lane, marks) = (read.u8()?, Marks::decode(read)?);
                Ok(Browsed { lane, record: read_record(read)?, marks })
            })?),
            13 => Answer::Events(read.u64()?, read.list(5, Event::decode)?),
            14 => Answer::Redriven(Redriven {
                moved: read.list(12, |read| Ok((read.str()?, read.u64()?)))?.into_iter().collect(),
                kept: read.u64()?,
                finished: read.bool()?,
            }),
            _ => return Err(read.error("a kind of answer is not known to this binary")),
        };
        reader.finish()?;
        Ok(answer)
    }
}

impl Event {
    /// The queue that it is of.
    pub(crate) fn seat(&self) -> Seat {
        match self {
            Event::Deliveries(seat, ..)
            | Event::Ended(seat, _)
            | Event::Wanted(seat, _)
            | Event::Unused(seat, ..)
            | Event::Gone(seat) => *seat,
        }
    }

    fn encode(&self, out: &mut Writer) {
        let head = |out: &mut Writer, kind: u8, consumer: Option<ConsumerId>| {
            out.u8(kind);
            out.u32(self.seat().0);
            consumer.iter().for_each(|consumer| out.u64(consumer.0));
        };
        match self {
            Event::Deliveries(_, consumer, sent) => {
                head(out, 0, Some(*consumer));
                out.list(sent, |out, sent| sent.encode(out));
            }
            Event::Ended(_, consumer) => head(out, 1, Some(*consumer)),
            Event::Wanted(_, consumer) => head(out, 2, Some(*consumer)),
            Event::Unused(_, consumer, count) => {
                head(out, 3, Some(*consumer));
                out.u32(*count);
            }
            Event::Gone(_) => head(out, 4, None),
        }
    }

    fn decode(read: &mut Reader) -> Result<Event, DecodeError> {
        let (kind, seat) = (read.u8()?, Seat(read.u32()?));
        let consumer = |read: &mut Reader| read.u64().map(ConsumerId);
        Ok(match kind {
            0 => Event::Deliveries(seat, consumer(read)?, read.list(DELIVERY_BYTES_MIN, Sent::decode)?),
            1 => Event::Ended(seat, consumer(read)?),
            2 => Event::Wanted(seat, consumer(read)?),
            3 => Event::Unused(seat, consumer(read)?, read.u32()?),
            4 => Event::Gone(seat),
            _ => return Err(read.error("a kind of event is not known to this binary")),
        })
    }
}

fn write_record(out: &mut Writer, record: &Record) {
    out.i64(record.offset);
    out.i64(record.timestamp);
    write_bytes(out, record.key.as_ref());
    write_bytes(out, record.value.as_ref());
    out.list(&record.headers, |out, header| {
        out.str(&header.key);
        write_bytes(out, header.value.as_ref());
    });
}

fn read_record(read: &mut Reader) -> Result<Record, DecodeError> {
    Ok(Record {
        offset: read.i64()?,
        timestamp: read.i64()?,
        key: read_bytes(read)?,
        value: read_bytes(read)?,
        headers: read
            .list(HEADER_BYTES_MIN, |read| Ok(Header { key: read.str()?, value: read_bytes(read)? }))?,
    })
}

fn write_bytes(out: &mut Writer, bytes: Option<&Bytes>) {
    out.u8(u8::from(bytes.is_some()));
    bytes.into_iter().for_each(|bytes| out.bytes(bytes));
}

fn read_bytes(read: &mut Reader) -> Result<Option<Bytes>, DecodeError> {
    if read.bool()? { read.bytes().map(Some) } else { Ok(None) }
}

fn write_optional(out: &mut Writer, number: Option<u64>) {
    out.u8(u8::from(number.is_some()));
    number.iter().for_each(|number| out.u64(*number));
}

fn read_optional(read: &mut Reader) -> Result<Option<u64>, DecodeError> {
    if read.bool()? { read.u64().map(Some) } else { Ok(None) }
}

/// Answers of every kind, for tests.
pub(crate) fn examples() -> Vec<Answer> {
    let (seat, id) = (Seat(3), ConsumerId(4));
    let header =
        |value: Option<&'static [u8]>| Header { key: "k".into(), value: value.map(Bytes::from_static) };
    let record = Record {
        offset: 12,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(Bytes::from_static(b"value")),
        headers: vec![header(None), header(Some(b"v"))],
    };
    let marks = Marks { failures: 1, returns: 2, order: 3, at: 4, last_failed: true, dead: None };
    let sent = Sent {
        place: weir_dispatch::Place { lane: 0, offset: 12 },
        redelivered: true,
        permitted: false,
        marks,
        record: QueueRecord {
            record: record.clone(),
            expires_at: Some(1_700_000_000_001),
            is_for_now: false,
        },
    };
    let fresh = Sent { permitted: true, marks: Marks::default(), ..sent.clone() };
    let figures = QueueFigures { ready: 1, ready_bytes: Some(5), leased: 2, consumers: 3 };
    let events = vec![
        Event::Deliveries(seat, id, vec![sent.clone(), fresh]),
        Event::Ended(seat, id),
        Event::Wanted(seat, id),
        Event::Unused(seat, id, 8),
        Event::Gone(seat),
    ];
    vec![
        Answer::Done,
        Answer::Gone,
        Answer::NotLeader(None),
        Answer::NotLeader(Some(NodeId(2))),
        Answer::Unknown,
        Answer::Starting,
        Answer::Refused("no".to_owned()),
        Answer::Full("q".to_owned()),
        Answer::NotSubscribed(SubscribeError::Exclusive),
        Answer::NotSubscribed(SubscribeError::NotAlone),
        Answer::NotSubscribed(SubscribeError::TooMany { limit: 100 }),
        Answer::Got(None),
        Answer::Got(Some(sent)),
        Answer::Count(5),
        Answer::Figures(figures),
        Answer::Reserved(None),
        Answer::Reserved(Some(1)),
        Answer::Browsed(vec![Browsed { lane: 1, record, marks }]),
        Answer::Events(6, events),
        Answer::Redriven(Redriven { moved: [("q".into(), 3)].into(), kept: 1, finished: true }),
    ]
}
