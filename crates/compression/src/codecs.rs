//! The two functions of this crate, and the codecs that are read and written as streams: gzip and lz4.

use crate::{snappy, zstandard};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::io::{self, Read, Write};
use weir_model::batch::Compression;

/// Room made at once for what a compressed section is expected to become, as a multiple of it.
pub(crate) const EXPANSION_EXPECTED: usize = 4;

const GZIP_LEVELS: std::ops::RangeInclusive<i32> = 1..=9;
const GZIP_LEVEL_DEFAULT: i32 = 6;

/// Why bytes could not be compressed or decompressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The content is larger than the limit. Nothing of it is given out.
    #[error("the {codec} content exceeds the limit of {limit} bytes")]
    TooLarge {
        /// Name of the codec.
        codec: &'static str,
        /// The limit that was asked for.
        limit: usize,
    },
    /// The bytes are not what the codec writes.
    #[error("the bytes are not valid {codec}: {why}")]
    Corrupt {
        /// Name of the codec.
        codec: &'static str,
        /// What the codec found wrong.
        why: String,
    },
    /// A level that the codec does not have.
    #[error("{codec} has levels {lowest} to {highest}, not {level}")]
    Level {
        /// Name of the codec.
        codec: &'static str,
        /// The level asked for.
        level: i32,
        /// The codec's lowest level.
        lowest: i32,
        /// The codec's highest level.
        highest: i32,
    },
    /// The codec failed to write, for want of memory or because the content exceeds what it can hold.
    #[error("{codec} could not compress {bytes} bytes: {why}")]
    Failed {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes to be compressed.
        bytes: usize,
        /// What the codec said.
        why: String,
    },
}

/// The content of a compressed section, if it has at most `limit` bytes.
///
/// Read are all forms that producers write: gzip of several members, snappy with and without the framing of the
/// Java library, lz4 frames with linked or independent blocks, zstd of several frames with any window.
///
/// An lz4 section that ends between two blocks gives what was there, because its decoder does not insist on the
/// end mark; the batch's CRC and its count of records tell that something is missing.
pub fn decompress(codec: Compression, compressed: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
    match codec {
        Compression::None if compressed.len() > limit => Err(too_large(codec, limit)),
        Compression::None => Ok(Bytes::copy_from_slice(compressed)),
        Compression::Gzip => read_bounded(codec, MultiGzDecoder::new(compressed), compressed.len(), limit),
        Compression::Snappy => snappy::decompress(compressed, limit),
        Compression::Lz4 => read_bounded(codec, FrameDecoder::new(compressed), compressed.len(), limit),
        Compression::Zstd => zstandard::decompress(compressed, limit),
    }
}

/// Compresses a section, in the form that every consumer reads. `level` of `None` is the codec's own default;
/// only gzip (1 to 9) and zstd (1 to 22, and below zero) have levels, the others ignore it.
pub fn compress(codec: Compression, level: Option<i32>, content: &[u8]) -> Result<Bytes, CompressionError> {
    let failed = |error: io::Error| failed(codec, content, error);
    match codec {
        Compression::None => Ok(Bytes::copy_from_slice(content)),
        Compression::Gzip => gzip(level.unwrap_or(GZIP_LEVEL_DEFAULT), content),
        Compression::Snappy => snappy::compress(content),
        Compression::Lz4 => lz4(content).map_err(failed),
        Compression::Zstd => zstandard::compress(level, content),
    }
}

fn gzip(level: i32, content: &[u8]) -> Result<Bytes, CompressionError> {
    let codec = Compression::Gzip;
    let Some(strength) = u32::try_from(level).ok().filter(|_| GZIP_LEVELS.contains(&level)) else {
        let (lowest, highest) = (*GZIP_LEVELS.start(), *GZIP_LEVELS.end());
        return Err(CompressionError::Level { codec: codec.name(), level, lowest, highest });
    };
    let mut encoder =
        GzEncoder::new(Vec::with_capacity(content.len() / 2), flate2::Compression::new(strength));
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.map(Bytes::from).map_err(|error| failed(codec, content, error))
}

/// Java's consumer reads no linked blocks, and none larger than announced; 64 KiB is what its producer writes.
fn lz4(content: &[u8]) -> io::Result<Bytes> {
    let frame = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(frame, Vec::with_capacity(content.len() / 2));
    encoder.write_all(content)?;
    Ok(encoder.finish()?.into())
}

/// Everything that a decoder gives, if it is at most `limit` bytes.
fn read_bounded(
    codec: Compression,
    mut decoder: impl Read,
    compressed_bytes: usize,
    limit: usize,
) -> Result<Bytes, CompressionError> {
    let mut content = Vec::with_capacity(compressed_bytes.saturating_mul(EXPANSION_EXPECTED).min(limit));
    let read = decoder.by_ref().take(limit as u64).read_to_end(&mut content);
    read.map_err(|error| corrupt(codec, error))?;
    // With the limit reached, one byte more tells whether this was the end. It also makes the decoder look at
    // the checksum behind the content.
    match decoder.read(&mut [0]) {
        Ok(0) => Ok(content.into()),
        Ok(_) => Err(too_large(codec, limit)),
        Err(error) => Err(corrupt(codec, error)),
    }
}

pub(crate) fn too_large(codec: Compression, limit: usize) -> CompressionError {
    CompressionError::TooLarge { codec: codec.name(), limit }
}

pub(crate) fn corrupt(codec: Compression, why: impl ToString) -> CompressionError {
    CompressionError::Corrupt { codec: codec.name(), why: why.to_string() }
}

pub(crate) fn failed(codec: Compression, content: &[u8], why: impl ToString) -> CompressionError {
    CompressionError::Failed { codec: codec.name(), bytes: content.len(), why: why.to_string() }
}
