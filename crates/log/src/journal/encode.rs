//! Putting the records of a group together into one write.
//!
//! Everything is copied into one buffer that begins and ends at a block's edge, so that the disk can take
//! it from there without another copy into the page cache: that one is into memory that has been out of
//! the processor's caches for long, and costs several times as much as this one.

use super::format::{ALIGNMENT, GROUP_HEADER_BYTES, GroupHeader, RECORD_HEADER_BYTES, RecordHeader, align};
use super::types::{JournalRecord, Position};

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

/// Encodes groups, one at a time, reusing its memory.
#[derive(Default)]
pub(super) struct GroupEncoder {
    buffer: AlignedBuffer,
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
        let length = GROUP_HEADER_BYTES + records.iter().map(record_bytes).sum::<usize>();
        let padded = align(length as u64) as usize;
        self.buffer.begin(padded);
        self.buffer.extend(&[0; GROUP_HEADER_BYTES]);
        for record in records {
            let position = header.position + self.buffer.len() as u64;
            let payload_crc = record.chunks.iter().fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk));
            let encoded = RecordHeader {
                length: payload_bytes(record) as u32,
                shard: record.shard,
                kind: record.kind.0,
                payload_crc,
            }
            .encode(position);
            header.records_crc = crc32c::crc32c_append(header.records_crc, &encoded);
            self.buffer.extend(&encoded);
            record.chunks.iter().for_each(|chunk| self.buffer.extend(chunk));
            positions.push(Position(position));
        }
        debug_assert_eq!(self.buffer.len(), length);
        header.length = length as u32;
        header.record_count = records.len() as u32;
        self.buffer.bytes_mut()[..GROUP_HEADER_BYTES].copy_from_slice(&header.encode());
        self.buffer.pad(padded);
        header
    }

    /// The group that was last encoded, with its padding.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }
}

/// Bytes that begin at a block's edge in memory.
#[derive(Default)]
struct AlignedBuffer {
    memory: Vec<u8>,
    /// Where the first such edge lies in the memory.
    start: usize,
}

impl AlignedBuffer {
    /// Empties it, and makes room for so many bytes: more would move it to other memory.
    fn begin(&mut self, bytes: usize) {
        let needed = bytes + ALIGNMENT as usize;
        let kept = self.memory.capacity();
        if kept < needed || kept > BUFFER_KEPT_BYTES.max(needed) {
            self.memory = Vec::with_capacity(needed);
        }
        self.memory.clear();
        let offset = self.memory.as_ptr().align_offset(ALIGNMENT as usize);
        // It may say that it cannot tell, and then the bytes only begin somewhere else.
        self.start = offset.min(ALIGNMENT as usize - 1);
        self.memory.resize(self.start, 0);
    }

    fn len(&self) -> usize {
        self.memory.len() - self.start
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
    }

    /// Zeroes up to a length.
    fn pad(&mut self, length: usize) {
        self.memory.resize(self.start + length, 0);
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, AlignedBuffer, BUFFER_KEPT_BYTES};

    #[test]
    fn the_buffer_begins_at_an_edge_whatever_it_held_before() {
        let mut buffer = AlignedBuffer::default();
        for bytes in [1, 5000, 4096, 3 * BUFFER_KEPT_BYTES, 20, BUFFER_KEPT_BYTES] {
            let padded = bytes.next_multiple_of(ALIGNMENT as usize);
            buffer.begin(padded);
            buffer.extend(&vec![7; bytes]);
            assert_eq!(buffer.len(), bytes);
            buffer.pad(padded);
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT as usize));
            assert!(buffer.bytes()[..bytes].iter().all(|byte| *byte == 7));
            assert!(buffer.bytes()[bytes..].iter().all(|byte| *byte == 0));
        }
        buffer.begin(10);
        assert!(buffer.memory.capacity() <= 2 * BUFFER_KEPT_BYTES, "what one large group took is given back");
    }
}
