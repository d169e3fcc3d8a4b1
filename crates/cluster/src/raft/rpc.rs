//! What nodes say to each other about a shard, as bytes.
//!
//! ```text
//! request = version u8 (1), kind u8, body
//!         | version u8 (2), from u32, to u32, kind u8, body
//! answer  = version u8 (1), kind u8 (that of the request, or 0 or 9), body
//!
//! 0 refusal           = words
//! 9 other incarnation = words
//! 1 append        = vote, prev log id, commit log id, count u32, (length u32, raft entry)*
//!   answered by     0 success | 1 partial, log id | 2 conflict | 3 higher vote, vote
//! 2 vote, 3 pre-vote = vote, last log id, transfer u8
//!   answered by     vote, granted u8, last log id
//! 4 transfer      = vote, to u64, last log id
//!   answered by     nothing more: it was taken
//! 5 snapshot      = see the module `snapshot`
//! 6 relay         = an entry of one command, see `weir_model::entry`; its time means nothing
//!   answered by     0 taken | 1 not the leader, flag, leader u64 | 2 overloaded | 3 words
//! 7 read index    = nothing more
//!   answered by     0 index u64 | 1 not the leader, flag, leader u64 | 2 overloaded | 3 words
//! 8 hears of      = node u64
//!   answered by     flag
//! 10 segment      = partition u64, base i64, generation u32, from u64, to u64
//!   answered by     crc u32 (CRC-32C of the bytes), bytes as they lie in the file, as many as there are of them
//! ```
//!
//! `from` and `to` are the incarnations of the two nodes; in the first version both are 0. What is for the group, kinds 1 to
//! 5, is for one incarnation only: any other answers that it is not the one that is meant, and does nothing.
//!
//! A reader trusts no length and no count. Batches are slices of the buffer that a message arrived
//! in, and are sent as chunks of their own.

use bytes::Bytes;
use openraft::entry::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use weir_model::command::Command;
use weir_model::entry::Entry;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Incarnation, NodeId, PartitionId, SegmentId};

use super::codec::{decode_entry, decode_log_id, decode_vote, encode_entry, encode_log_id, encode_vote};
use super::snapshot::{SnapshotAnswer, SnapshotRequest};
use super::types::{Config, RaftEntry, Vote, log_id};

const VERSION: u8 = 1;

/// That of requests between incarnations which are not both the first.
const VERSION_BETWEEN: u8 = 2;

const REFUSED: u8 = 0;
const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const SNAPSHOT: u8 = 5;
const RELAY: u8 = 6;
const READ_INDEX: u8 = 7;
const HEARS_OF: u8 = 8;
const OTHER_INCARNATION: u8 = 9;
const SEGMENT: u8 = 10;

/// Between which incarnations of two nodes a request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Between {
    /// That of the node which asks.
    pub from: Incarnation,
    /// That of the node which is asked.
    pub to: Incarnation,
}

/// A message to a shard of another node.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<Config>),
    Vote(VoteRequest<Config>),
    PreVote(VoteRequest<Config>),
    Transfer(TransferLeaderRequest<Config>),
    /// A part of a snapshot.
    Snapshot(SnapshotRequest),
    /// A command for the leader's line.
    Relay(Command),
    /// Up to where a replica must have applied to know all that was committed before it asked.
    ReadIndex,
    /// Whether the asked node has a live connection with another.
    HearsOf(NodeId),
    /// Bytes of a segment file, for a replica whose own is damaged.
    Segment {
        partition: PartitionId,
        segment: SegmentId,
        from: u64,
        to: u64,
    },
}

/// Why a leader has not taken what was brought to him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// He does not lead; who does, as far as he knows.
    NotLeader(Option<NodeId>),
    /// There was no room for it in time.
    Overloaded,
    /// In words.
    Other(String),
}

/// What it answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Refused(String),
    /// The request was for another incarnation than the one that runs, or is of one that was replaced.
    OtherIncarnation(String),
    Append(AppendEntriesResponse<Config>),
    Vote(VoteResponse<Config>),
    /// It was taken.
    Transfer,
    Snapshot(SnapshotAnswer),
    Relay(Result<(), Refused>),
    ReadIndex(Result<u64, Refused>),
    HearsOf(bool),
    /// Bytes of a segment file, which nobody has looked at, and their checksum.
    Segment {
        crc: u32,
        bytes: Bytes,
    },
}

impl Request {
    /// Whether it is for one incarnation of a replica only.
    pub(crate) fn is_for_the_group(&self) -> bool {
        match self {
            Request::Append(_)
            | Request::Vote(_)
            | Request::PreVote(_)
            | Request::Transfer(_)
            | Request::Snapshot(_) => true,
            Request::Relay(_) | Request::ReadIndex | Request::HearsOf(_) | Request::Segment { .. } => false,
        }
    }

    /// The message as chunks, to whichever incarnation there is.
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        self.encode_between(Between::default())
    }

    /// The message as chunks. Those of the entries' batches are shared.
    pub(crate) fn encode_between(&self, between: Between) -> Vec<Bytes> {
        let mut out = Writer::new();
        if between == Between::default() {
            out.u8(VERSION);
        } else {
            out.u8(VERSION_BETWEEN);
            out.u32(between.from.0);
            out.u32(between.to.0);
        }
        match self {
            Request::Append(request) => return encode_append(out, request),
            Request::Vote(request) => encode_vote_request(&mut out, VOTE, request),
            Request::PreVote(request) => encode_vote_request(&mut out, PRE_VOTE, request),
            Request::Transfer(request) => {
                out.u8(TRANSFER);
                encode_vote(&mut out, request.from_leader());
                out.u64(*request.to_node_id());
                encode_log_id(&mut out, &request.last_log_id().copied());
            }
            Request::Snapshot(request) => {
                out.u8(SNAPSHOT);
                return request.encode(out);
            }
            Request::Relay(command) => {
                out.u8(RELAY);
                let mut chunks = vec![out.finish()];
                chunks.extend(Entry { time: 0, commands: vec![command.clone()] }.encode());
                return chunks;
            }
            Request::ReadIndex => out.u8(READ_INDEX),
            Request::HearsOf(node) => {
                out.u8(HEARS_OF);
                out.u64(node.0);
            }
            Request::Segment { partition, segment, from, to } => {
                out.u8(SEGMENT);
                out.u64(partition.0);
                out.i64(segment.base);
                out.u32(segment.generation);
                out.u64(*from);
                out.u64(*to);
            }
        }
        vec![out.finish()]
    }

    #[cfg(test)]
    pub(crate) fn decode(bytes: Bytes) -> Result<Request, DecodeError> {
        Request::decode_between(bytes).map(|(_, request)| request)
    }

    pub(crate) fn decode_between(bytes: Bytes) -> Result<(Between, Request), DecodeError> {
        let mut r = Reader::new("a message between nodes", bytes);
        let between = match r.u8()? {
            VERSION => Between::default(),
            VERSION_BETWEEN => Between { from: Incarnation(r.u32()?), to: Incarnation(r.u32()?) },
            _ => return Err(r.error("its version is not known to this binary")),
        };
        let request = match r.u8()? {
            APPEND => Request::Append(decode_append(&mut r)?),
            VOTE => Request::Vote(decode_vote_request(&mut r)?),
            PRE_VOTE => Request::PreVote(decode_vote_request(&mut r)?),
            TRANSFER => {
                let (from, to) = (decode_vote(&mut r)?, r.u64()?);
                Request::Transfer(TransferLeaderRequest::new(from, to, decode_log_id(&mut r)?))
            }
            SNAPSHOT => Request::Snapshot(SnapshotRequest::decode(&mut r)?),
            RELAY => {
                let mut commands = Entry::decode(r.raw(r.remaining())?)?.commands;
                match (commands.pop(), commands.is_empty()) {
                    (Some(command), true) => Request::Relay(command),
                    _ => return Err(r.error("it brings another number of commands than one")),
                }
            }
            READ_INDEX => Request::ReadIndex,
            HEARS_OF => Request::HearsOf(NodeId(r.u64()?)),
            SEGMENT => Request::Segment {
                partition: PartitionId(r.u64()?),
                segment: SegmentId { base: r.i64()?, generation: r.u32()? },
                from: r.u64()?,
                to: r.u64()?,
            },
            _ => return Err(r.error("its kind is not known to this binary")),
        };
        r.finish()?;
        Ok((between, request))
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        out.u8(VERSION);
        match self {
            Answer::Refused(why) => {
                out.u8(REFUSED);
                out.str(why);
            }
            Answer::OtherIncarnation(why) => {
                out.u8(OTHER_INCARNATION);
                out.str(why);
            }
            Answer::Append(response) => {
                out.u8(APPEND);
                match response {
                    AppendEntriesResponse::Success => out.u8(0),
                    AppendEntriesResponse::PartialSuccess(id) => {
                        out.u8(1);
                        encode_log_id(&mut out, id);
                    }
                    AppendEntriesResponse::Conflict => out.u8(2),
                    AppendEntriesResponse::HigherVote(vote) => {
                        out.u8(3);
                        encode_vote(&mut out, vote);
                    }
                }
            }
            Answer::Vote(response) => {
                out.u8(VOTE);
                encode_vote(&mut out, &response.vote);
                out.u8(u8::from(response.vote_granted));
                encode_log_id(&mut out, &response.last_log_id);
            }
            Answer::Transfer => out.u8(TRANSFER),
            Answer::Snapshot(answer) => {
                out.u8(SNAPSHOT);
                answer.encode(&mut out);
            }
            Answer::Relay(taken) => {
                out.u8(RELAY);
                encode_taken(&mut out, taken, |_, ()| {});
            }
            Answer::HearsOf(hears) => {
                out.u8(HEARS_OF);
                out.u8(u8::from(*hears));
            }
            Answer::Segment { crc, bytes } => {
                out.u8(SEGMENT);
                out.u32(*crc);
                out.raw(bytes);
            }
            Answer::ReadIndex(index) => {
                out.u8(READ_INDEX);
                encode_taken(&mut out, index, |out, index| out.u64(*index));
            }
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Answer, DecodeError> {
        let mut r = Reader::new("an answer between nodes", bytes);
        if r.u8()? != VERSION {
            return Err(r.error("its version is not known to this binary"));
        }
        let answer = match r.u8()? {
            REFUSED => Answer::Refused(r.str()?),
            OTHER_INCARNATION => Answer::OtherIncarnation(r.str()?),
            APPEND => Answer::Append(match r.u8()? {
                0 => AppendEntriesResponse::Success,
                1 => AppendEntriesResponse::PartialSuccess(decode_log_id(&mut r)?),
                2 => AppendEntriesResponse::Conflict,
                3 => AppendEntriesResponse::HigherVote(decode_vote(&mut r)?),
                _ => return Err(r.error("a result is not known to this binary")),
            }),
            VOTE => {
                let (vote, granted) = (decode_vote(&mut r)?, r.bool()?);
                Answer::Vote(VoteResponse::new(vote, decode_log_id(&mut r)?, granted))
            }
            TRANSFER => Answer::Transfer,
            SNAPSHOT => Answer::Snapshot(SnapshotAnswer::decode(&mut r)?),
            RELAY => Answer::Relay(decode_taken(&mut r, |_| Ok(()))?),
            READ_INDEX => Answer::ReadIndex(decode_taken(&mut r, Reader::u64)?),
            HEARS_OF => Answer::HearsOf(r.bool()?),
            SEGMENT => Answer::Segment { crc: r.u32()?, bytes: r.raw(r.remaining())? },
            _ => return Err(r.error("its kind is not known to this binary")),
        };
        r.finish()?;
        Ok(answer)
    }
}

fn encode_taken<T>(out: &mut Writer, taken: &Result<T, Refused>, encode: impl FnOnce(&mut Writer, &T)) {
    match taken {
        Ok(value) => {
            out.u8(0);
            encode(out, value);
        }
        Err(Refused::NotLeader(leader)) => {
            out.u8(1);
            out.u8(u8::from(leader.is_some()));
            out.u64(leader.unwrap_or_default().0);
        }
        Err(Refused::Overloaded) => out.u8(2),
        Err(Refused::Other(why)) => {
            out.u8(3);
            out.str(why);
        }
    }
}

fn decode_taken<T>(
    r: &mut Reader,
    decode: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
) -> Result<Result<T, Refused>, DecodeError> {
    Ok(match r.u8()? {
        0 => Ok(decode(r)?),
        1 => {
            let (is_known, leader) = (r.bool()?, NodeId(r.u64()?));
            Err(Refused::NotLeader(is_known.then_some(leader)))
        }
        2 => Err(Refused::Overloaded),
        3 => Err(Refused::Other(r.str()?)),
        _ => return Err(r.error("a result is not known to this binary")),
    })
}

fn encode_append(mut out: Writer, request: &AppendEntriesRequest<Config>) -> Vec<Bytes> {
    out.u8(APPEND);
    encode_vote(&mut out, &request.vote);
    encode_log_id(&mut out, &request.prev_log_id);
    encode_log_id(&mut out, &request.leader_commit);
    out.u32(request.entries.len() as u32);
    let mut chunks = Vec::with_capacity(1 + 3 * request.entries.len());
    for entry in &request.entries {
        let encoded = encode_entry(entry);
        out.u32(encoded.iter().map(Bytes::len).sum::<usize>() as u32);
        for chunk in encoded {
            if chunk.len() < COPY_BELOW_BYTES {
                out.raw(&chunk);
            } else {
                chunks.push(out.take());
                chunks.push(chunk);
            }
        }
    }
    if !out.is_empty() {
        chunks.push(out.finish());
    }
    chunks
}

/// Chunks below this are copied: sending a chunk by itself costs about as much.
const COPY_BELOW_BYTES: usize = 512;

fn decode_append(r: &mut Reader) -> Result<AppendEntriesRequest<Config>, DecodeError> {
    let vote = decode_vote(r)?;
    let prev_log_id = decode_log_id(r)?;
    let leader_commit = decode_log_id(r)?;
    let entries = r.list(21, |r| decode_entry(r.bytes()?))?;
    let mut next = prev_log_id.map_or(0, |id| id.index.saturating_add(1));
    for entry in &entries {
        if entry.log_id.index != next {
            return Err(r.error("entries do not follow each other"));
        }
        next = next.saturating_add(1);
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

fn encode_vote_request(out: &mut Writer, kind: u8, request: &VoteRequest<Config>) {
    out.u8(kind);
    encode_vote(out, &request.vote);
    encode_log_id(out, &request.last_log_id);
    out.u8(u8::from(request.leadership_transfer));
}

fn decode_vote_request(r: &mut Reader) -> Result<VoteRequest<Config>, DecodeError> {
    let mut request = VoteRequest::new(decode_vote(r)?, decode_log_id(r)?);
    request.leadership_transfer = r.bool()?;
    Ok(request)
}

/// Reads whatever bytes come as a request and as an answer; for fuzzing. Between whom a request
/// goes can be written and read again.
pub(crate) fn decode_anything(bytes: Bytes) {
    if let Ok((between, request)) = Request::decode_between(bytes.clone()) {
        let again = Request::decode_between(request.encode_between(between).concat().into());
        assert_eq!(again.map(|(said, _)| said), Ok(between));
    }
    let _ = Answer::decode(bytes);
}

/// Valid requests and answers, for fuzzing.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let vote = Vote::new_committed(5, 2);
    let last = Some(log_id(4, 9));
    let between = Between { from: Incarnation(1), to: Incarnation(2) };
    let entry = RaftEntry { log_id: log_id(5, 10), payload: EntryPayload::Blank };
    let append = AppendEntriesRequest { vote, prev_log_id: last, entries: vec![entry], leader_commit: last };
    let requests = [
        Request::Append(append),
        Request::Vote(VoteRequest::new(vote, last)),
        Request::Transfer(TransferLeaderRequest::new(vote, 3, last)),
        Request::ReadIndex,
        Request::HearsOf(NodeId(2)),
        Request::Segment {
            partition: PartitionId(7),
            segment: SegmentId { base: 1 << 33, generation: 2 },
            from: 4096,
            to: 1 << 20,
        },
    ];
    let answers = [
        Answer::Refused("no".to_owned()),
        Answer::OtherIncarnation("another one".to_owned()),
        Answer::Append(AppendEntriesResponse::PartialSuccess(last)),
        Answer::Vote(VoteResponse::new(vote, last, true)),
        Answer::Relay(Err(Refused::NotLeader(Some(NodeId(3))))),
        Answer::ReadIndex(Ok(7)),
    ];
    let both = requests.iter().flat_map(|request| [request.encode(), request.encode_between(between)]);
    both.map(|chunks| chunks.concat()).chain(answers.iter().map(|answer| answer.encode().to_vec())).collect()
}
