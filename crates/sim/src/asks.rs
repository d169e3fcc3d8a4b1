//! What clients and nodes say to each other in the simulation. No protocol of a front: these are the broker's own
//! operations, put into bytes.

use bytes::Bytes;
use weir_model::wire::{DecodeError, Reader, Writer};

use crate::declared::QueueNumber;
use crate::ledger::Partition;
use crate::queues::{Message, SessionId, Settling};

/// A message that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Which.
    pub message: Message,
    /// Its business key.
    pub key: Option<u32>,
}

/// Where a parked message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkFor {
    /// To a queue.
    Queue(QueueNumber),
    /// To the exchange [`crate::declared::BOTH`].
    Exchange,
}

/// What a client asks of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Append a batch to a stream.
    Append(Partition, Bytes),
    /// Read batches of a stream from an offset on, up to so many bytes.
    Read(Partition, i64, u32),
    /// Declare everything.
    Declare,
    /// Publish messages with so many bytes of padding each.
    Publish(QueueNumber, Vec<Posting>, u32),
    /// Park a message until a time, in milliseconds since 1970.
    Park(ParkFor, Message, i64),
    /// Take a parked message back, by its name.
    Cancel(String),
    /// Begin a session that takes so many records before it settles any.
    Consume(QueueNumber, SessionId, u32),
    /// Wait a little for the next records of a session.
    Next(SessionId),
    /// Settle records of a session, durably.
    Settle(Settling),
    /// End a session in order.
    Close(SessionId),
    /// Give the leadership of every shard to another node, by its index.
    HandOver(u64),
    /// Store a user with a version, or delete it.
    ChangeUser(String, Option<u32>),
    /// Have the replicas of every shard that the node leads compare their states.
    Compare,
}

/// A record on its way to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Where it lies.
    pub offset: i64,
    /// What is in it.
    pub message: Message,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The batch's first record has this offset.
    Appended(i64),
    /// Not now, or not here: try again, elsewhere if you like.
    Retry,
    /// Never.
    Refused(String),
    /// Stored batches, and the offset behind the last readable record.
    Batches(i64, Bytes),
    /// It is done, and durable.
    Done,
    /// It is parked, under this name.
    Parked(String),
    /// Whether it was there, and is not any more.
    Cancelled(bool),
    /// Records for a session.
    Deliveries(Vec<Delivered>),
    /// There is no such session any more.
    Gone,
    /// The shards that were compared.
    Compared(Vec<u32>),
}

fn put_message(out: &mut Writer, message: &Message) {
    out.u32(message.publisher);
    out.u32(message.number);
    out.u32(message.attempt);
}

fn message(reader: &mut Reader) -> Result<Message, DecodeError> {
    Ok(Message { publisher: reader.u32()?, number: reader.u32()?, attempt: reader.u32()? })
}

fn put_offsets(out: &mut Writer, offsets: &[i64]) {
    out.list(offsets, |out, offset| out.i64(*offset));
}

fn offsets(reader: &mut Reader) -> Result<Vec<i64>, DecodeError> {
    reader.list(8, Reader::i64)
}

/// A number that a list of optional ones does without.
const NO_KEY: u32 = u32::MAX;

impl Ask {
    /// As sent.
    pub fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        match self {
            Ask::Append(partition, batch) => {
                out.u8(1);
                out.u64(*partition);
                out.bytes(batch);
            }
            Ask::Read(partition, offset, bytes_max) => {
                out.u8(2);
                out.u64(*partition);
                out.i64(*offset);
                out.u32(*bytes_max);
            }
            Ask::Declare => out.u8(3),
            Ask::Publish(queue, postings, padding) => {
                out.u8(4);
                out.u8(*queue);
                out.list(postings, |out, posting| {
                    put_message(out, &posting.message);
                    out.u32(posting.key.unwrap_or(NO_KEY));
                });
                out.u32(*padding);
            }
            Ask::Park(target, message, at) => {
                out.u8(5);
                out.u8(match target {
                    ParkFor::Queue(queue) => *queue,
                    ParkFor::Exchange => u8::MAX,
                });
                put_message(&mut out, message);
                out.i64(*at);
            }
            Ask::Cancel(name) => {
                out.u8(6);
                out.str(name);
            }
            Ask::Consume(queue, session, credit) => {
                out.u8(7);
                out.u8(*queue);
                out.u64(*session);
                out.u32(*credit);
            }
            Ask::Next(session) => {
                out.u8(8);
                out.u64(*session);
            }
            Ask::Settle(said) => {
                out.u8(9);
                out.u64(said.id);
                out.u64(said.session);
                out.u8(said.queue);
                put_offsets(&mut out, &said.releases);
                out.u8(u8::from(said.failed));
                put_offsets(&mut out, &said.rejects);
                put_offsets(&mut out, &said.accepts);
                out.u8(u8::from(said.full));
            }
            Ask::Close(session) => {
                out.u8(10);
                out.u64(*session);
            }
            Ask::HandOver(to) => {
                out.u8(11);
                out.u64(*to);
            }
            Ask::ChangeUser(name, version) => {
                out.u8(12);
                out.str(name);
                out.u32(version.unwrap_or(NO_KEY));
            }
            Ask::Compare => out.u8(13),
        }
        out.finish()
    }

    /// Reads what [`Ask::encode`] wrote.
    pub fn decode(bytes: Bytes) -> Option<Ask> {
        Ask::read(&mut Reader::new("a request", bytes)).ok()
    }

    fn read(reader: &mut Reader) -> Result<Ask, DecodeError> {
        Ok(match reader.u8()? {
            1 => Ask::Append(reader.u64()?, reader.bytes()?),
            2 => Ask::Read(reader.u64()?, reader.i64()?, reader.u32()?),
            3 => Ask::Declare,
            4 => {
                let queue = reader.u8()?;
                let postings = reader.list(16, |reader| {
                    let message = message(reader)?;
                    Ok(Posting { message, key: Some(reader.u32()?).filter(|key| *key != NO_KEY) })
                })?;
                Ask::Publish(queue, postings, reader.u32()?)
            }
            5 => {
                let target = match reader.u8()? {
                    u8::MAX => ParkFor::Exchange,
                    queue => ParkFor::Queue(queue),
                };
                Ask::Park(target, message(reader)?, reader.i64()?)
            }
            6 => Ask::Cancel(reader.str()?),
            7 => Ask::Consume(reader.u8()?, reader.u64()?, reader.u32()?),
            8 => Ask::Next(reader.u64()?),
            9 => Ask::Settle(Settling {
                id: reader.u64()?,
                session: reader.u64()?,
                queue: reader.u8()?,
                releases: offsets(reader)?,
                failed: reader.bool()?,
                rejects: offsets(reader)?,
                accepts: offsets(reader)?,
                full: reader.bool()?,
            }),
            10 => Ask::Close(reader.u64()?),
            11 => Ask::HandOver(reader.u64()?),
            12 => Ask::ChangeUser(reader.str()?, Some(reader.u32()?).filter(|version| *version != NO_KEY)),
            13 => Ask::Compare,
            _ => return Err(reader.error("this is no request")),
        })
    }
}

impl Answer {
    /// As sent.
    pub fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        match self {
            Answer::Appended(offset) => {
                out.u8(1);
                out.i64(*offset);
            }
            Answer::Retry => out.u8(2),
            Answer::Refused(why) => {
                out.u8(3);
                out.str(why);
            }
            Answer::Batches(end, batches) => {
                out.u8(4);
                out.i64(*end);
                out.bytes(batches);
            }
            Answer::Done => out.u8(5),
            Answer::Parked(name) => {
                out.u8(6);
                out.str(name);
            }
            Answer::Cancelled(was_there) => {
                out.u8(7);
                out.u8(u8::from(*was_there));
            }
            Answer::Deliveries(deliveries) => {
                out.u8(8);
                out.list(deliveries, |out, delivered| {
                    out.i64(delivered.offset);
                    put_message(out, &delivered.message);
                });
            }
            Answer::Gone => out.u8(9),
            Answer::Compared(shards) => {
                out.u8(10);
                out.list(shards, |out, shard| out.u32(*shard));
            }
        }
        out.finish()
    }

    /// Reads what [`Answer::encode`] wrote.
    pub fn decode(bytes: Bytes) -> Option<Answer> {
        Answer::read(&mut Reader::new("an answer", bytes)).ok()
    }

    fn read(reader: &mut Reader) -> Result<Answer, DecodeError> {
        Ok(match reader.u8()? {
            1 => Answer::Appended(reader.i64()?),
            2 => Answer::Retry,
            3 => Answer::Refused(reader.str()?),
            4 => Answer::Batches(reader.i64()?, reader.bytes()?),
            5 => Answer::Done,
            6 => Answer::Parked(reader.str()?),
            7 => Answer::Cancelled(reader.bool()?),
            8 => Answer::Deliveries(
                reader
                    .list(20, |reader| Ok(Delivered { offset: reader.i64()?, message: message(reader)? }))?,
            ),
            9 => Answer::Gone,
            10 => Answer::Compared(reader.list(4, Reader::u32)?),
            _ => return Err(reader.error("this is no answer")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives() {
        let message = Message { publisher: 1, number: 2, attempt: 3 };
        let settling = Settling {
            id: 1,
            session: 2,
            queue: 3,
            releases: vec![5, 4],
            failed: true,
            rejects: vec![6],
            accepts: vec![],
            full: true,
        };
        let postings = [None, Some(7)].map(|key| Posting { message, key });
        let asks = [
            Ask::Append(1, Bytes::from_static(b"batch")),
            Ask::Read(1, 2, 3),
            Ask::Declare,
            Ask::Publish(2, postings.into(), 9),
            Ask::Park(ParkFor::Queue(7), message, 8),
            Ask::Park(ParkFor::Exchange, message, 8),
            Ask::Cancel("1-2-3".into()),
            Ask::Consume(1, 2, 3),
            Ask::Next(4),
            Ask::Settle(settling),
            Ask::Close(4),
            Ask::HandOver(1),
            Ask::ChangeUser("u".into(), Some(1)),
            Ask::ChangeUser("u".into(), None),
            Ask::Compare,
        ];
        for ask in asks {
            assert_eq!(Ask::decode(ask.encode()), Some(ask));
        }
        let answers = [
            Answer::Appended(1),
            Answer::Retry,
            Answer::Refused("why".into()),
            Answer::Batches(1, Bytes::from_static(b"batch")),
            Answer::Done,
            Answer::Parked("1-2-3".into()),
            Answer::Cancelled(true),
            Answer::Deliveries(vec![Delivered { offset: 1, message }]),
            Answer::Gone,
            Answer::Compared(vec![0, 2]),
        ];
        for answer in answers {
            assert_eq!(Answer::decode(answer.encode()), Some(answer));
        }
        assert_eq!((Ask::decode(Bytes::new()), Answer::decode(Bytes::new())), (None, None));
    }
}
