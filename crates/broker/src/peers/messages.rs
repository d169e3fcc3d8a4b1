//! What one node asks of another about queues, as bytes. Every message begins with its service and a version; what is
//! read is trusted in nothing: a length reserves no more than the bytes at hand bear out.

use bytes::Bytes;
use weir_dispatch::{ConsumerId, LaneNumber, OwnerId, Place};
use weir_model::subscription::{Disposition, Settlement};
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{PartitionId, ShardId, TopicId};

/// First byte of every call of this service. Others may share the line.
pub(crate) const SERVICE: u8 = b'q';

/// Of the encoding of calls and answers.
pub(super) const VERSION: u8 = 2;

/// A session between two nodes: drawn by the one that asks. One that restarts draws another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkId(pub u64);

/// A process of a node: drawn when it starts. What it has of queues it keeps when it goes on with another link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessId(pub u64);

/// A queue within a link, numbered by the node that asks, and never again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat(pub u32);

/// What a node asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A link begins. What the node had before is gone, unless it was the same process: that says what it still has.
    Hello(LinkId, ProcessId),
    /// What has happened on the link; answered when something has, or after a while.
    Poll(LinkId),
    /// A queue that the other node leads is used from here on.
    Attach(LinkId, Seat, TopicId),
    /// Something of a queue that is used.
    Ask(LinkId, Seat, PeerAsk),
    /// When the meta shard is applied up to an index, and these partitions are open.
    Applied(u64, Vec<(ShardId, PartitionId)>),
    /// What a queue is doing, without waking it.
    Look(TopicId),
    /// The first records of a queue, at most so many.
    Browse(TopicId, u32),
    /// A queue may have got a lane, by the meta shard's index.
    Lanes(TopicId, u64),
    /// A batch for queues that only the other node has, each with the lane.
    Publish(Vec<(TopicId, LaneNumber)>, Bytes),
    /// Records of a queue are to be taken back to where they died.
    Redrive(RedriveAsk),
    /// Policies have changed, by the meta shard's index.
    Policies(u64),
    /// The node begins to lead a queue, and is to be told what an earlier leader handed out; answered when it was.
    Come(TopicId),
}

/// In which namespace, of which queue, how many records at most, and to which queue if that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedriveAsk {
    pub namespace: String,
    pub name: String,
    pub count: u32,
    pub to: Option<String>,
}

/// Whether a bound that consumers share must be asked before each record; none if there is no such bound.
pub(crate) type Limited = Option<bool>;

/// Who consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerConsumer {
    pub id: ConsumerId,
    pub owner: OwnerId,
    pub credit: Option<u32>,
    pub priority: i32,
    pub exclusive: bool,
    pub settled: bool,
    pub gate: Limited,
}

/// What is asked of a queue. Consumers and owners are those of the node that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerAsk {
    Subscribe(PeerConsumer),
    Cancel(ConsumerId),
    Credit(ConsumerId, u32),
    /// With whether another leader handed them out. Answered when it is durable.
    Settle {
        owner: OwnerId,
        disposition: Disposition,
        again: bool,
        places: Vec<Place>,
    },
    /// With whether it failed.
    CloseOwner(OwnerId, bool),
    /// With whether it is settled at once.
    Get(OwnerId, bool),
    Purge,
    /// With whether the queue is used by it.
    Figures(bool),
    /// Room for so many records and bytes.
    Reserve(u64, u64),
    /// Room that was promised: whether it is used, or given back.
    Room(u64, bool),
    /// Of what was handed to a consumer, its session has taken so many records and bytes, in all.
    Taken(ConsumerId, u64, u64),
    /// A consumer may get so many more past the bound that it shares with others.
    Permits(ConsumerId, u32),
    /// Whether that bound must be asked from here on.
    Limit(ConsumerId, bool),
    /// An owner has records that were handed out over another link, or by another leader.
    Adopt(OwnerId, Vec<Place>),
    /// Those are all that the node's owners have.
    AllAdopted,
}

impl Call {
    /// The call as bytes.
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        let mut out = Writer::new();
        out.u8(SERVICE);
        out.u8(VERSION);
        match self {
            Call::Hello(link, process) => {
                kind_and_link(&mut out, 0, *link);
                out.u64(process.0);
            }
            Call::Poll(link) => kind_and_link(&mut out, 1, *link),
            Call::Attach(link, seat, topic) => {
                kind_and_link(&mut out, 2, *link);
                out.u32(seat.0);
                out.raw(&topic.0);
            }
            Call::Ask(link, seat, ask) => {
                kind_and_link(&mut out, 3, *link);
                out.u32(seat.0);
                ask.encode(&mut out);
            }
            Call::Applied(index, partitions) => {
                out.u8(4);
                out.u64(*index);
                out.list(partitions, |out, (shard, partition)| {
                    out.u32(shard.0);
                    out.u64(partition.0);
                });
            }
            Call::Look(topic) => {
                out.u8(5);
                out.raw(&topic.0);
            }
            Call::Browse(topic, count) => {
                out.u8(6);
                out.raw(&topic.0);
                out.u32(*count);
            }
            Call::Lanes(topic, index) => {
                out.u8(7);
                out.raw(&topic.0);
                out.u64(*index);
            }
            Call::Publish(targets, batch) => {
                out.u8(8);
                out.list(targets, |out, (topic, lane)| {
                    out.raw(&topic.0);
                    out.u8(*lane);
                });
                return vec![out.finish(), batch.clone()];
            }
            Call::Policies(index) => {
                out.u8(10);
                out.u64(*index);
            }
            Call::Come(topic) => {
                out.u8(11);
                out.raw(&topic.0);
            }
            Call::Redrive(RedriveAsk { namespace, name, count, to }) => {
                out.u8(9);
                out.str(namespace);
                out.str(name);
                out.u32(*count);
                out.opt_str(to.as_deref());
            }
        }
        vec![out.finish()]
    }

    /// Reads what [`Call::encode`] wrote.
    pub(crate) fn decode(bytes: Bytes) -> Result<Call, DecodeError> {
        let mut reader = Reader::new("a call about queues", bytes);
        let read = &mut reader;
        if (read.u8()?, read.u8()?) != (SERVICE, VERSION) {
            return Err(read.error("it is of another service or version"));
        }
        let call = match read.u8()? {
            0 => Call::Hello(link(read)?, ProcessId(read.u64()?)),
            1 => Call::Poll(link(read)?),
            2 => Call::Attach(link(read)?, Seat(read.u32()?), topic(read)?),
            3 => Call::Ask(link(read)?, Seat(read.u32()?), PeerAsk::decode(read)?),
            4 => Call::Applied(
                read.u64()?,
                read.list(12, |read| Ok((ShardId(read.u32()?), PartitionId(read.u64()?))))?,
            ),
            5 => Call::Look(topic(read)?),
            6 => Call::Browse(topic(read)?, read.u32()?),
            7 => Call::Lanes(topic(read)?, read.u64()?),
            8 => {
                let targets = read.list(17, |read| Ok((topic(read)?, read.u8()?)))?;
                let rest = read.remaining();
                Call::Publish(targets, read.raw(rest)?)
            }
            9 => Call::Redrive(RedriveAsk {
                namespace: read.str()?,
                name: read.str()?,
                count: read.u32()?,
                to: read.opt_str()?,
            }),
            10 => Call::Policies(read.u64()?),
            11 => Call::Come(topic(read)?),
            _ => return Err(read.error("a kind of call is not known to this binary")),
        };
        reader.finish()?;
        Ok(call)
    }
}

impl PeerAsk {
    fn encode(&self, out: &mut Writer) {
        match self {
            PeerAsk::Subscribe(consumer) => {
                out.u8(0);
                let PeerConsumer { id, owner, credit, priority, exclusive, settled, gate } = consumer;
                out.u64(id.0);
                out.u64(owner.0);
                out.u8(u8::from(credit.is_some()));
                credit.iter().for_each(|credit| out.u32(*credit));
                out.i32(*priority);
                out.u8(u8::from(*exclusive));
                out.u8(u8::from(*settled));
                out.u8(gate.map_or(0, |limited| 1 + u8::from(limited)));
            }
            PeerAsk::Cancel(id) => kind_and_number(out, 1, id.0),
            PeerAsk::Credit(id, more) => {
                kind_and_number(out, 2, id.0);
                out.u32(*more);
            }
            PeerAsk::Settle { owner, disposition, again, places } => {
                kind_and_number(out, 3, owner.0);
                write_disposition(out, *disposition);
                out.u8(u8::from(*again));
                out.list(places, write_place);
            }
            PeerAsk::CloseOwner(owner, failed) => {
                kind_and_number(out, 4, owner.0);
                out.u8(u8::from(*failed));
            }
            PeerAsk::Get(owner, settled) => {
                kind_and_number(out, 5, owner.0);
                out.u8(u8::from(*settled));
            }
            PeerAsk::Purge => out.u8(6),
            PeerAsk::Figures(is_use) => {
                out.u8(7);
                out.u8(u8::from(*is_use));
            }
            PeerAsk::Reserve(records, bytes) => {
                kind_and_number(out, 8, *records);
                out.u64(*bytes);
            }
            PeerAsk::Room(number, is_used) => {
                kind_and_number(out, 9, *number);
                out.u8(u8::from(*is_used));
            }
            PeerAsk::Taken(id, records, bytes) => {
                kind_and_number(out, 10, id.0);
                out.u64(*records);
                out.u64(*bytes);
            }
            PeerAsk::Permits(id, count) => {
                kind_and_number(out, 11, id.0);
                out.u32(*count);
            }
            PeerAsk::Limit(id, limited) => {
                kind_and_number(out, 12, id.0);
                out.u8(u8::from(*limited));
            }
            PeerAsk::Adopt(owner, places) => {
                kind_and_number(out, 13, owner.0);
                out.list(places, write_place);
            }
            PeerAsk::AllAdopted => out.u8(14),
        }
    }

    fn decode(read: &mut Reader) -> Result<PeerAsk, DecodeError> {
        Ok(match read.u8()? {
            0 => PeerAsk::Subscribe(PeerConsumer {
                id: ConsumerId(read.u64()?),
                owner: OwnerId(read.u64()?),
                credit: if read.bool()? { Some(read.u32()?) } else { None },
                priority: read.i32()?,
                exclusive: read.bool()?,
                settled: read.bool()?,
                gate: match read.u8()? {
                    0 => None,
                    1 => Some(false),
                    2 => Some(true),
                    _ => return Err(read.error("a gate is neither open nor limited")),
                },
            }),
            1 => PeerAsk::Cancel(ConsumerId(read.u64()?)),
            2 => PeerAsk::Credit(ConsumerId(read.u64()?), read.u32()?),
            3 => PeerAsk::Settle {
                owner: OwnerId(read.u64()?),
                disposition: read_disposition(read)?,
                again: read.bool()?,
                places: read.list(9, read_place)?,
            },
            4 => PeerAsk::CloseOwner(OwnerId(read.u64()?), read.bool()?),
            5 => PeerAsk::Get(OwnerId(read.u64()?), read.bool()?),
            6 => PeerAsk::Purge,
            7 => PeerAsk::Figures(read.bool()?),
            8 => PeerAsk::Reserve(read.u64()?, read.u64()?),
            9 => PeerAsk::Room(read.u64()?, read.bool()?),
            10 => PeerAsk::Taken(ConsumerId(read.u64()?), read.u64()?, read.u64()?),
            11 => PeerAsk::Permits(ConsumerId(read.u64()?), read.u32()?),
            12 => PeerAsk::Limit(ConsumerId(read.u64()?), read.bool()?),
            13 => PeerAsk::Adopt(OwnerId(read.u64()?), read.list(9, read_place)?),
            14 => PeerAsk::AllAdopted,
            _ => return Err(read.error("a kind of ask is not known to this binary")),
        })
    }
}

fn kind_and_link(out: &mut Writer, kind: u8, link: LinkId) {
    kind_and_number(out, kind, link.0);
}

fn kind_and_number(out: &mut Writer, kind: u8, number: u64) {
    out.u8(kind);
    out.u64(number);
}

fn link(read: &mut Reader) -> Result<LinkId, DecodeError> {
    read.u64().map(LinkId)
}

fn topic(read: &mut Reader) -> Result<TopicId, DecodeError> {
    read.array().map(TopicId)
}

pub(super) fn write_place(out: &mut Writer, place: &Place) {
    out.u8(place.lane);
    out.i64(place.offset);
}

pub(super) fn read_place(read: &mut Reader) -> Result<Place, DecodeError> {
    Ok(Place { lane: read.u8()?, offset: read.i64()? })
}

/// As the commands have it, which carry a run beside.
fn write_disposition(out: &mut Writer, disposition: Disposition) {
    Settlement { from: 0, to: 0, disposition }.encode(out);
}

fn read_disposition(read: &mut Reader) -> Result<Disposition, DecodeError> {
    let settlement = Settlement::decode(read)?;
    if (settlement.from, settlement.to) != (0, 0) {
        return Err(read.error("a disposition has a run beside it"));
    }
    Ok(settlement.disposition)
}

/// Calls of every kind, for tests.
pub(crate) fn examples() -> Vec<Call> {
    let (link, seat, topic, owner, id) = (LinkId(7), Seat(3), TopicId([5; 16]), OwnerId(9), ConsumerId(4));
    let consumer = PeerConsumer {
        id,
        owner,
        credit: Some(10),
        priority: -1,
        exclusive: false,
        settled: true,
        gate: Some(true),
    };
    let places = vec![Place { lane: 0, offset: 12 }, Place { lane: 9, offset: i64::MAX }];
    let disposition = Disposition::Release { failed: true };
    let asks = [
        PeerAsk::Subscribe(consumer),
        PeerAsk::Subscribe(PeerConsumer { credit: None, gate: None, ..consumer }),
        PeerAsk::Cancel(id),
        PeerAsk::Credit(id, 3),
        PeerAsk::Settle { owner, disposition, again: true, places: places.clone() },
        PeerAsk::Adopt(owner, places),
        PeerAsk::AllAdopted,
        PeerAsk::CloseOwner(owner, true),
        PeerAsk::Get(owner, false),
        PeerAsk::Purge,
        PeerAsk::Figures(true),
        PeerAsk::Reserve(1, 1_000),
        PeerAsk::Room(1, false),
        PeerAsk::Taken(id, 2_048, 1 << 20),
        PeerAsk::Permits(id, 8),
        PeerAsk::Limit(id, true),
    ];
    let redrive = RedriveAsk { namespace: "/".into(), name: "dead".into(), count: 5, to: Some("q".into()) };
    let calls = [
        Call::Redrive(RedriveAsk { to: None, ..redrive.clone() }),
        Call::Redrive(redrive),
        Call::Policies(1_002),
        Call::Hello(link, ProcessId(8)),
        Call::Come(topic),
        Call::Poll(link),
        Call::Attach(link, seat, topic),
        Call::Applied(1_000, vec![(ShardId(1), PartitionId(7))]),
        Call::Look(topic),
        Call::Browse(topic, 50),
        Call::Lanes(topic, 1_001),
        Call::Publish(vec![(topic, 0), (topic, 9)], Bytes::from_static(b"a batch")),
    ];
    let asks = asks.into_iter().map(|ask| Call::Ask(link, seat, ask));
    calls.into_iter().chain(asks).collect()
}
