//! The messages as bytes. The module's description draws them.

use bytes::Bytes;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{PartitionId, SegmentId};
use weir_shard::{SnapshotFile, SnapshotId, SnapshotWanted};

use crate::raft::codec::{decode_vote, encode_vote};
use crate::raft::types::Vote;

/// What a leader says of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRequest {
    pub vote: Vote,
    pub id: SnapshotId,
    pub part: Part,
}

/// Which part of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Offer,
    Piece { file: SnapshotFile, from: u64, crc: u32, bytes: Bytes },
    Checksum { file: SnapshotFile, from: u64, to: u64, crc: u32 },
    Install,
}

/// What the replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotAnswer {
    Wanted(SnapshotWanted),
    Complete,
    Installed(Vote),
    HigherVote(Vote),
    Unknown,
}

impl SnapshotRequest {
    /// Adds the message to what was written so far; a piece's bytes are a chunk of their own.
    pub(crate) fn encode(&self, mut out: Writer) -> Vec<Bytes> {
        encode_vote(&mut out, &self.vote);
        out.u64(self.id.applied_index);
        out.u64(self.id.applied_term);
        out.u64(self.id.manifest_bytes);
        out.u32(self.id.manifest_crc);
        match &self.part {
            Part::Offer => out.u8(0),
            Part::Piece { file, from, crc, bytes } => {
                out.u8(1);
                encode_file(&mut out, *file);
                out.u64(*from);
                out.u32(*crc);
                return vec![out.finish(), bytes.clone()];
            }
            Part::Checksum { file, from, to, crc } => {
                out.u8(2);
                encode_file(&mut out, *file);
                out.u64(*from);
                out.u64(*to);
                out.u32(*crc);
            }
            Part::Install => out.u8(3),
        }
        vec![out.finish()]
    }

    pub(crate) fn decode(r: &mut Reader) -> Result<SnapshotRequest, DecodeError> {
        let vote = decode_vote(r)?;
        let id = SnapshotId {
            applied_index: r.u64()?,
            applied_term: r.u64()?,
            manifest_bytes: r.u64()?,
            manifest_crc: r.u32()?,
        };
        let part = match r.u8()? {
            0 => Part::Offer,
            1 => {
                let (file, from, crc) = (decode_file(r)?, r.u64()?, r.u32()?);
                Part::Piece { file, from, crc, bytes: r.raw(r.remaining())? }
            }
            2 => Part::Checksum { file: decode_file(r)?, from: r.u64()?, to: r.u64()?, crc: r.u32()? },
            3 => Part::Install,
            _ => return Err(r.error("a part of a snapshot is not known to this binary")),
        };
        Ok(SnapshotRequest { vote, id, part })
    }
}

impl SnapshotAnswer {
    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            SnapshotAnswer::Wanted(SnapshotWanted::Bytes { file, from, to }) => {
                out.u8(0);
                encode_file(out, *file);
                out.u64(*from);
                out.u64(*to);
            }
            SnapshotAnswer::Wanted(SnapshotWanted::Checksum { file, from, to }) => {
                out.u8(1);
                encode_file(out, *file);
                out.u64(*from);
                out.u64(*to);
            }
            SnapshotAnswer::Complete => out.u8(2),
            SnapshotAnswer::Installed(vote) => {
                out.u8(3);
                encode_vote(out, vote);
            }
            SnapshotAnswer::HigherVote(vote) => {
                out.u8(4);
                encode_vote(out, vote);
            }
            SnapshotAnswer::Unknown => out.u8(5),
        }
    }

    pub(crate) fn decode(r: &mut Reader) -> Result<SnapshotAnswer, DecodeError> {
        Ok(match r.u8()? {
            0 => SnapshotAnswer::Wanted(SnapshotWanted::Bytes {
                file: decode_file(r)?,
                from: r.u64()?,
                to: r.u64()?,
            }),
            1 => SnapshotAnswer::Wanted(SnapshotWanted::Checksum {
                file: decode_file(r)?,
                from: r.u64()?,
                to: r.u64()?,
            }),
            2 => SnapshotAnswer::Complete,
            3 => SnapshotAnswer::Installed(decode_vote(r)?),
            4 => SnapshotAnswer::HigherVote(decode_vote(r)?),
            5 => SnapshotAnswer::Unknown,
            _ => return Err(r.error("an answer about a snapshot is not known to this binary")),
        })
    }
}

fn encode_file(out: &mut Writer, file: SnapshotFile) {
    match file {
        SnapshotFile::Manifest => out.u8(0),
        SnapshotFile::State(number) => {
            out.u8(1);
            out.u64(number);
        }
        SnapshotFile::Segment(partition, segment) => {
            out.u8(2);
            out.u64(partition.0);
            out.i64(segment.base);
            out.u32(segment.generation);
        }
    }
}

fn decode_file(r: &mut Reader) -> Result<SnapshotFile, DecodeError> {
    Ok(match r.u8()? {
        0 => SnapshotFile::Manifest,
        1 => SnapshotFile::State(r.u64()?),
        2 => {
            let partition = PartitionId(r.u64()?);
            SnapshotFile::Segment(partition, SegmentId { base: r.i64()?, generation: r.u32()? })
        }
        _ => return Err(r.error("a file's kind is not known to this binary")),
    })
}
