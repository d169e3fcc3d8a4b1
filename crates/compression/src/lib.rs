//! Bounded compression and decompression of record batches, for clients and tools.
//!
//! The broker stores batches as they come and never opens them; whoever does (a consumer, a tool, a front that
//! translates between protocols) comes here with the bytes behind a batch's header. What comes out is never more
//! than the limit that was asked for, whatever the bytes claim, and memory is reserved only within that limit.
//!
//! ```
//! use weir_compression::{compress, decompress};
//! use weir_model::batch::Compression;
//!
//! let records = b"many records, many records, many records".repeat(50);
//! let small = compress(Compression::Zstd, None, &records)?;
//! assert_eq!(decompress(Compression::Zstd, &small, 1024 * 1024)?, records);
//! assert!(decompress(Compression::Zstd, &small, 1024).is_err());
//! # Ok::<(), weir_compression::CompressionError>(())
//! ```

mod codecs;
mod snappy;
#[cfg(test)]
mod tests;
mod zstandard;

pub use codecs::{CompressionError, compress, decompress};
