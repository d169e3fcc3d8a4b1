//! Kafka's record batch, version 2 ("magic 2"): the unit that is stored, replicated and read
//! without being taken apart.
//!
//! ```text
//!  0  base offset            i64   given out by apply; outside the CRC
//!  8  batch length           i32   bytes after this field
//! 12  partition leader epoch i32   given out by apply; outside the CRC
//! 16  magic                  i8    2
//! 17  crc                    u32   CRC-32C of everything from `attributes` to the end
//! 21  attributes             i16   0-2 compression, 3 timestamp type, 4 transactional, 5 control
//! 23  last offset delta      i32
//! 27  base timestamp         i64
//! 35  max timestamp          i64
//! 43  producer id            i64
//! 51  producer epoch         i16
//! 53  base sequence          i32
//! 57  record count           i32
//! 61  records
//! ```
//!
//! Integers are big-endian. Because base offset and leader epoch lie outside the CRC, they are
//! patched in without hashing the batch again (`KIP-98`, "Message format").

mod header;
mod records;
mod stored;
#[cfg(test)]
mod tests;

pub use header::{
    BATCH_HEADER_BYTES, BatchError, BatchHeader, Compression, LENGTH_PREFIX_BYTES, TimestampType,
    split_batches, verify_batch, with_append_time,
};
pub use records::{BatchBuilder, Header, Record, RecordError, RecordIter, decode_records, encode_record};
pub use stored::{PATCHED_PREFIX_BYTES, StoredBatch};
