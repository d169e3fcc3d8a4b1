//! Zstandard, decompressed in one go.
//!
//! A streaming decoder reserves the window that a frame announces, up to 128 MiB for a few bytes. Decompressing
//! straight into the result needs no window; the price is that where a frame does not tell its size, and it
//! exceeds the guess, decompression starts again with more room.

use crate::codecs::{CompressionError, EXPANSION_EXPECTED, corrupt, failed, too_large};
use bytes::Bytes;
use weir_model::batch::Compression;
use zstd::zstd_safe::{self, DCtx, ErrorCode};

/// Room at least tried with, so that small sections do not start again needlessly.
const ROOM_BYTES_MIN: usize = 64 * 1024;
/// Most bytes of content per byte of a frame: a block of 128 KiB that repeats one byte takes four, rounded up. A
/// size that announces more is not believed.
const EXPANSION_MAX: usize = 33 * 1024;
/// How much more room there is each time decompression starts again.
const ROOM_GROWTH: usize = 4;
/// Zstd's number for "the destination is too small", which it returns negated.
const DESTINATION_TOO_SMALL: ErrorCode = 70usize.wrapping_neg();

pub(crate) fn decompress(compressed: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
    let codec = Compression::Zstd;
    let mut context = DCtx::try_create().ok_or_else(|| corrupt(codec, "there is no memory for a decoder"))?;
    let guess = compressed.len().saturating_mul(EXPANSION_EXPECTED).max(ROOM_BYTES_MIN);
    // The size is of the first frame only, and may be a lie: it is a better guess, no more.
    let announced = zstd_safe::get_frame_content_size(compressed).ok().flatten();
    if announced.is_some_and(|bytes| bytes > limit as u64) {
        return Err(too_large(codec, limit));
    }
    let possible = compressed.len().saturating_mul(EXPANSION_MAX);
    let mut room = announced.map_or(guess, |bytes| bytes as usize).min(possible).min(limit);
    loop {
        let mut content = Vec::with_capacity(room);
        match context.decompress(&mut content, compressed) {
            Ok(_) => return Ok(content.into()),
            Err(DESTINATION_TOO_SMALL) if room < limit => {
                let next = room.max(ROOM_BYTES_MIN).saturating_mul(ROOM_GROWTH);
                room = next.min(limit);
            }
            Err(DESTINATION_TOO_SMALL) => return Err(too_large(codec, limit)),
            Err(code) => return Err(corrupt(codec, zstd_safe::get_error_name(code))),
        }
    }
}

pub(crate) fn compress(level: Option<i32>, content: &[u8]) -> Result<Bytes, CompressionError> {
    let codec = Compression::Zstd;
    let levels = zstd::compression_level_range();
    let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
    if !levels.contains(&level) {
        let (lowest, highest) = (*levels.start(), *levels.end());
        return Err(CompressionError::Level { codec: codec.name(), level, lowest, highest });
    }
    zstd::bulk::compress(content, level).map(Bytes::from).map_err(|error| failed(codec, content, error))
}
