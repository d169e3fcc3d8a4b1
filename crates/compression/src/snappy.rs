//! Snappy as Kafka's clients write it: blocks in the framing of the Java library `snappy-java`, or one raw block.
//!
//! The framing is a header of sixteen bytes (a magic of eight, two versions of four), then blocks, each behind its
//! length of four bytes, big-endian. A header may come again between blocks, where streams were joined.

use crate::codecs::{CompressionError, corrupt, failed, too_large};
use bytes::Bytes;
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};
use weir_model::batch::Compression;

const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
/// Version, and the oldest version that can read it.
const VERSIONS: &[u8; 8] = b"\0\0\0\x01\0\0\0\x01";
const LENGTH_BYTES: usize = 4;
/// Content of one block, as Java's producer cuts it.
const BLOCK_BYTES: usize = 32 * 1024;
/// Most bytes of content per byte of a raw block: a copy of 64 bytes takes three. A length that announces more
/// is not believed, so that nothing is reserved for it.
const EXPANSION_MAX: usize = 22;

pub(crate) fn decompress(compressed: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
    let mut content = Vec::new();
    match compressed.strip_prefix(MAGIC) {
        Some(rest) => framed(rest, &mut content, limit)?,
        None => block(compressed, &mut content, limit)?,
    }
    Ok(content.into())
}

/// What follows the magic: the versions, blocks, and perhaps further headers.
fn framed(rest: &[u8], content: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    let cut_short = || corrupt(Compression::Snappy, "it ends within the framing");
    let mut rest = rest.get(VERSIONS.len()..).ok_or_else(cut_short)?;
    while !rest.is_empty() {
        if let Some(joined) = rest.strip_prefix(MAGIC) {
            rest = joined.get(VERSIONS.len()..).ok_or_else(cut_short)?;
            continue;
        }
        let (&length, behind) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or_else(cut_short)?;
        let length = u32::from_be_bytes(length) as usize;
        let (compressed, behind) = behind.split_at_checked(length).ok_or_else(cut_short)?;
        block(compressed, content, limit)?;
        rest = behind;
    }
    Ok(())
}

/// Appends the content of one raw block.
fn block(compressed: &[u8], content: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    let codec = Compression::Snappy;
    let length = decompress_len(compressed).map_err(|error| corrupt(codec, error))?;
    let before = content.len();
    if length > limit - before {
        return Err(too_large(codec, limit));
    }
    if length > compressed.len().saturating_mul(EXPANSION_MAX) {
        return Err(corrupt(codec, format_args!("{} bytes cannot hold {length}", compressed.len())));
    }
    content.resize(before + length, 0);
    let written = Decoder::new().decompress(compressed, &mut content[before..]);
    written.map(drop).map_err(|error| corrupt(codec, error))
}

pub(crate) fn compress(content: &[u8]) -> Result<Bytes, CompressionError> {
    let mut compressed = Vec::with_capacity(MAGIC.len() + VERSIONS.len() + content.len() / 2);
    compressed.extend_from_slice(MAGIC);
    compressed.extend_from_slice(VERSIONS);
    let mut encoder = Encoder::new();
    for block in content.chunks(BLOCK_BYTES) {
        let length_at = compressed.len();
        let block_at = length_at + LENGTH_BYTES;
        compressed.resize(block_at + max_compress_len(block.len()), 0);
        let written = encoder.compress(block, &mut compressed[block_at..]);
        let length = written.map_err(|error| failed(Compression::Snappy, content, error))?;
        compressed[length_at..block_at].copy_from_slice(&(length as u32).to_be_bytes());
        compressed.truncate(block_at + length);
    }
    Ok(compressed.into())
}
