//! Tells whether stored batches are compressed with zstd, which consumers older than Fetch version 10
//! cannot read. They are told so instead of being handed bytes that they take for damaged.

use bytes::Bytes;
use weir_model::batch::{Compression, LENGTH_PREFIX_BYTES};

/// Where the length of a batch stands.
const LENGTH_AT: usize = 8;
/// Where its attributes stand, of which the last byte holds the compression.
const ATTRIBUTES_END: usize = 23;

/// Whether one of these batches, given as pieces that follow each other, is compressed with zstd.
pub(crate) fn has_zstd_batch(chunks: &[Bytes]) -> bool {
    let mut pieces = Pieces { chunks, at: 0 };
    let mut head = [0; ATTRIBUTES_END];
    while pieces.read(&mut head) {
        let attributes = i16::from(head[ATTRIBUTES_END - 1]);
        if Compression::from_attributes(attributes) == Some(Compression::Zstd) {
            return true;
        }
        let mut length = [0; 4];
        length.copy_from_slice(&head[LENGTH_AT..LENGTH_AT + 4]);
        let batch_bytes = LENGTH_PREFIX_BYTES + i32::from_be_bytes(length).max(0) as usize;
        pieces.skip(batch_bytes.saturating_sub(ATTRIBUTES_END));
    }
    false
}

/// A position in pieces that follow each other.
struct Pieces<'a> {
    chunks: &'a [Bytes],
    /// Position within the first of `chunks`.
    at: usize,
}

impl Pieces<'_> {
    /// Fills `into` and moves on; false if there is not enough left.
    fn read(&mut self, into: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < into.len() {
            let Some(chunk) = self.chunks.first() else { return false };
            let count = (chunk.len() - self.at).min(into.len() - filled);
            into[filled..filled + count].copy_from_slice(&chunk[self.at..self.at + count]);
            filled += count;
            self.skip(count);
        }
        true
    }

    fn skip(&mut self, mut bytes: usize) {
        while let Some(chunk) = self.chunks.first() {
            let left = chunk.len() - self.at;
            if bytes < left {
                self.at += bytes;
                return;
            }
            bytes -= left;
            self.at = 0;
            self.chunks = &self.chunks[1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_model::batch::{BatchBuilder, Compression};

    use super::has_zstd_batch;

    fn batch(compression: Compression, bytes: usize) -> Bytes {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(&vec![7; bytes]), &[]);
        let section = builder.section().to_vec();
        builder.build_with(compression, &section)
    }

    #[test]
    fn zstd_is_found_however_the_bytes_are_cut() {
        let plain =
            [batch(Compression::None, 100), batch(Compression::Lz4, 0), batch(Compression::Snappy, 900)];
        let with_zstd = [plain[0].clone(), batch(Compression::Zstd, 40), plain[2].clone()];
        for (batches, expected) in [(plain, false), (with_zstd, true)] {
            let all: Vec<u8> = batches.concat();
            for step in [1, 5, 16, 61, 100, all.len()] {
                let chunks: Vec<Bytes> = all.chunks(step).map(Bytes::copy_from_slice).collect();
                assert_eq!(has_zstd_batch(&chunks), expected, "cut every {step} bytes");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_batch_are_passed_over() {
        assert!(!has_zstd_batch(&[]));
        assert!(!has_zstd_batch(&[Bytes::from_static(&[0xff; 40])]));
    }
}
