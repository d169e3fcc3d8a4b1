//! Putting records together into the one write of a group, copying only what is small.

use std::io::IoSlice;

use super::format::{ALIGNMENT, GROUP_HEADER_BYTES, GroupHeader, RECORD_HEADER_BYTES, RecordHeader, align};
use super::types::{JournalRecord, Position};

/// Chunks below this are copied: a slice of a vectored write costs about as much.
const COPY_BELOW_BYTES: usize = 1024;

/// The buffer is given back when a group made it larger than this.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

/// Bytes that a record takes within a group.
pub(super) fn record_bytes(record: &JournalRecord<'_>) -> usize {
    RECORD_HEADER_BYTES + payload_bytes(record)
}

/// Bytes of a record's payload.
pub(super) fn payload_bytes(record: &JournalRecord<'_>) -> usize {
    record.chunks.iter().map(|chunk| chunk.len()).sum()
}

/// What a piece of the group is written from.
enum Piece {
    /// Up to here, from wherever the last such piece ended, of the buffer.
    BufferTo(usize),
    /// A chunk of a record.
    Chunk { record: usize, chunk: usize },
}

/// Encodes groups, one at a time, reusing its memory.
#[derive(Default)]
pub(super) struct GroupEncoder {
    buffer: Vec<u8>,
    pieces: Vec<Piece>,
}

impl GroupEncoder {
    /// Encodes a group of these records, which fit it. `header` has everything but length, count
    /// and records' CRC. Positions of the records are appended to `positions`.
    pub(super) fn encode(
        &mut self,
        mut header: GroupHeader,
        records: &[JournalRecord<'_>],
        positions: &mut Vec<Position>,
    ) -> GroupHeader {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.pieces.clear();
        self.buffer.resize(GROUP_HEADER_BYTES, 0);
        let mut at = GROUP_HEADER_BYTES;
        for (index, record) in records.iter().enumerate() {
            let position = header.position + at as u64;
            let length = payload_bytes(record);
            let payload_crc = record.chunks.iter().fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk));
            let encoded =
                RecordHeader { length: length as u32, shard: record.shard, kind: record.kind.0, payload_crc }
                    .encode(position);
            header.records_crc = crc32c::crc32c_append(header.records_crc, &encoded);
            self.buffer.extend_from_slice(&encoded);
            for (chunk_index, chunk) in record.chunks.iter().enumerate() {
                if chunk.len() < COPY_BELOW_BYTES {
                    self.buffer.extend_from_slice(chunk);
                } else {
                    self.pieces.push(Piece::BufferTo(self.buffer.len()));
                    self.pieces.push(Piece::Chunk { record: index, chunk: chunk_index });
                }
            }
            positions.push(Position(position));
            at += RECORD_HEADER_BYTES + length;
        }
        header.length = at as u32;
        header.record_count = records.len() as u32;
        self.buffer[..GROUP_HEADER_BYTES].copy_from_slice(&header.encode());
        let padding = (align(at as u64) - at as u64) as usize;
        debug_assert!(padding < ALIGNMENT as usize);
        self.buffer.resize(self.buffer.len() + padding, 0);
        self.pieces.push(Piece::BufferTo(self.buffer.len()));
        header
    }

    /// The slices of the group that was last encoded of these records.
    pub(super) fn slices<'a>(&'a self, records: &'a [JournalRecord<'_>]) -> Vec<IoSlice<'a>> {
        let mut slices = Vec::with_capacity(self.pieces.len());
        let mut from = 0;
        for piece in &self.pieces {
            match *piece {
                Piece::BufferTo(to) if to > from => {
                    slices.push(IoSlice::new(&self.buffer[from..to]));
                    from = to;
                }
                Piece::BufferTo(_) => {}
                Piece::Chunk { record, chunk } => {
                    slices.push(IoSlice::new(&records[record].chunks[chunk]));
                }
            }
        }
        slices
    }
}
