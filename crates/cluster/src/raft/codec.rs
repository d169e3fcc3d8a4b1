//! Votes, log ids, memberships and entries as bytes, for the journal and for the wire.
//!
//! ```text
//! log id      = flag u8, (term u64, index u64)?
//! vote        = term u64, node u64, committed u8
//! membership  = count u32, (count u32, node u64*)*, count u32, node u64*
//! node        = incarnation and number in one, see `member.rs`
//! raft entry  = term u64, index u64, payload u8 (0 blank, 1 commands, 2 membership), body
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::entry::EntryPayload;
use openraft::impls::EmptyNode;
use weir_model::entry::Entry;
use weir_model::wire::{DecodeError, Reader, Writer};

use super::types::{LogId, Membership, Proposal, RaftEntry, StoredMembership, Vote, log_id, term_of};

const BLANK: u8 = 0;
const COMMANDS: u8 = 1;
const MEMBERSHIP: u8 = 2;

pub(crate) fn encode_vote(out: &mut Writer, vote: &Vote) {
    out.u64(vote.leader_id.term);
    out.u64(vote.leader_id.voted_for);
    out.u8(u8::from(vote.committed));
}

pub(crate) fn decode_vote(r: &mut Reader) -> Result<Vote, DecodeError> {
    let (term, node) = (r.u64()?, r.u64()?);
    Ok(if r.bool()? { Vote::new_committed(term, node) } else { Vote::new(term, node) })
}

pub(crate) fn encode_log_id(out: &mut Writer, id: &Option<LogId>) {
    out.u8(u8::from(id.is_some()));
    if let Some(id) = id {
        out.u64(term_of(id));
        out.u64(id.index);
    }
}

pub(crate) fn decode_log_id(r: &mut Reader) -> Result<Option<LogId>, DecodeError> {
    Ok(if r.bool()? { Some(log_id(r.u64()?, r.u64()?)) } else { None })
}

pub(crate) fn encode_membership(out: &mut Writer, membership: &Membership) {
    out.list(membership.get_joint_config(), |out, voters| {
        let voters: Vec<u64> = voters.iter().copied().collect();
        out.list(&voters, |out, node| out.u64(*node));
    });
    let nodes: Vec<u64> = membership.nodes().map(|(node, _)| *node).collect();
    out.list(&nodes, |out, node| out.u64(*node));
}

pub(crate) fn decode_membership(r: &mut Reader) -> Result<Membership, DecodeError> {
    let configs: Vec<BTreeSet<u64>> = r
        .list(4, |r| r.list(8, Reader::u64))?
        .into_iter()
        .map(|voters| voters.into_iter().collect())
        .collect();
    let nodes: BTreeMap<u64, EmptyNode> =
        r.list(8, Reader::u64)?.into_iter().map(|node| (node, EmptyNode::new())).collect();
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| r.error("a membership contradicts itself"))
}

/// The membership that a state machine has applied, as the shard keeps it for us.
pub(crate) fn encode_stored_membership(membership: &StoredMembership) -> Bytes {
    let mut out = Writer::new();
    encode_log_id(&mut out, membership.log_id());
    encode_membership(&mut out, membership.membership());
    out.finish()
}

/// The reverse; nothing at all is the membership of a shard that never had one.
pub(crate) fn decode_stored_membership(bytes: Bytes) -> Result<StoredMembership, DecodeError> {
    if bytes.is_empty() {
        return Ok(StoredMembership::default());
    }
    let mut r = Reader::new("a stored membership", bytes);
    let membership = StoredMembership::new(decode_log_id(&mut r)?, decode_membership(&mut r)?);
    r.finish()?;
    Ok(membership)
}

/// An entry as chunks; those of its batches are shared.
pub(crate) fn encode_entry(entry: &RaftEntry) -> Vec<Bytes> {
    let mut out = Writer::new();
    out.u64(term_of(&entry.log_id));
    out.u64(entry.log_id.index);
    match &entry.payload {
        EntryPayload::Blank => out.u8(BLANK),
        EntryPayload::Membership(membership) => {
            out.u8(MEMBERSHIP);
            encode_membership(&mut out, membership);
        }
        EntryPayload::Normal(proposal) => {
            out.u8(COMMANDS);
            let mut chunks = Vec::with_capacity(1 + proposal.chunks().len());
            chunks.push(out.finish());
            chunks.extend(proposal.chunks().iter().cloned());
            return chunks;
        }
    }
    vec![out.finish()]
}

/// Bytes that an entry takes, about.
pub(crate) fn entry_bytes(entry: &RaftEntry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(proposal) => 32 + proposal.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 32,
    }
}

/// Where an entry belongs, without reading the rest of it.
pub(crate) fn decode_entry_id(bytes: &Bytes) -> Result<LogId, DecodeError> {
    let mut r = Reader::new("a log entry", bytes.slice(..bytes.len().min(16)));
    Ok(log_id(r.u64()?, r.u64()?))
}

pub(crate) fn decode_entry(bytes: Bytes) -> Result<RaftEntry, DecodeError> {
    let mut r = Reader::new("a log entry", bytes);
    let log_id = log_id(r.u64()?, r.u64()?);
    let payload = match r.u8()? {
        BLANK => {
            r.finish()?;
            EntryPayload::Blank
        }
        COMMANDS => {
            let body = r.raw(r.remaining())?;
            EntryPayload::Normal(Proposal::read(Entry::decode(body.clone())?, body))
        }
        MEMBERSHIP => {
            let membership = decode_membership(&mut r)?;
            r.finish()?;
            EntryPayload::Membership(membership)
        }
        _ => return Err(r.error("the kind of its payload is not known to this binary")),
    };
    Ok(RaftEntry { log_id, payload })
}
