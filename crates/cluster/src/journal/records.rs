//! What the shards' records in the journal mean.
//!
//! ```text
//!   1  entry       raft entry
//!   2  truncate    log id: entries behind it are void
//! 129  vote        vote            kept by the journal
//! 130  committed   log id          kept by the journal
//! 131  purged      log id          kept by the journal
//! ```
//!
//! What a shard's checkpoint covers is not needed, and whatever of it the journal still has is for
//! followers that are behind. A leader that was started again serves one that has nothing but what was
//! purged only if it knows the last of that, by *purged*. Where that is not known, or an older one is, as after a power
//! loss between a purge and the next write, the first entry stands for the one before it: a follower that ends exactly
//! where the log was purged then lacks what nobody can send, and gets a snapshot (`raft::snapshot`).

use bytes::Bytes;
use weir_log::journal::RecordKind;
use weir_model::wire::{DecodeError, Reader, Writer};

use crate::raft::codec::{decode_log_id, decode_vote, encode_log_id, encode_vote};
use crate::raft::types::{LogId, Vote};

pub(crate) const ENTRY: RecordKind = RecordKind(1);
pub(crate) const TRUNCATE: RecordKind = RecordKind(2);
pub(crate) const VOTE: RecordKind = RecordKind(RecordKind::KEPT | 1);
pub(crate) const COMMITTED: RecordKind = RecordKind(RecordKind::KEPT | 2);
pub(crate) const PURGED: RecordKind = RecordKind(RecordKind::KEPT | 3);

pub(crate) fn encode_vote_record(vote: &Vote) -> Bytes {
    let mut out = Writer::new();
    encode_vote(&mut out, vote);
    out.finish()
}

pub(crate) fn decode_vote_record(bytes: Bytes) -> Result<Vote, DecodeError> {
    let mut r = Reader::new("a vote", bytes);
    let vote = decode_vote(&mut r)?;
    r.finish()?;
    Ok(vote)
}

pub(crate) fn encode_log_id_record(id: &Option<LogId>) -> Bytes {
    let mut out = Writer::new();
    encode_log_id(&mut out, id);
    out.finish()
}

pub(crate) fn decode_log_id_record(bytes: Bytes) -> Result<Option<LogId>, DecodeError> {
    let mut r = Reader::new("a log id", bytes);
    let id = decode_log_id(&mut r)?;
    r.finish()?;
    Ok(id)
}
