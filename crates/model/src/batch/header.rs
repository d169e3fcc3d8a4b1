//! The batch's fixed header: parsing, checking, and splitting a record set into batches.

use bytes::{Buf, Bytes, BytesMut};

use crate::TimestampMs;

/// Bytes before the first record.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes before the part that `batch length` counts: base offset and the length itself.
pub const LENGTH_PREFIX_BYTES: usize = 12;

const MAGIC_POSITION: usize = 16;
const CRC_POSITION: usize = 17;
const CRC_COVERS_FROM: usize = 21;
const ATTRIBUTES_LOW_BYTE: usize = 22;
const MAX_TIMESTAMP_POSITION: usize = 35;
const LOG_APPEND_TIME_BIT: u8 = 0x08;
const SUPPORTED_MAGIC: i8 = 2;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip.
    Gzip,
    /// Snappy, in the framing of the Java library `xerial`, or raw.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Whether a batch's timestamps are the producer's or the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// Each record carries the time that its producer gave it.
    CreateTime,
    /// All records carry the time of the append, which stands in `max timestamp`.
    LogAppendTime,
}

/// The fixed part of a record batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes after the length field.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: i32,
    /// CRC-32C as it stands in the batch.
    pub crc: u32,
    /// Compression, timestamp type, transactional and control flags.
    pub attributes: i16,
    /// Offset of the last record less the base offset.
    pub last_offset_delta: i32,
    /// Timestamp that the records' deltas are relative to.
    pub base_timestamp: i64,
    /// Largest timestamp of the batch.
    pub max_timestamp: i64,
    /// Producer's id, or -1.
    pub producer_id: i64,
    /// Producer's epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub record_count: i32,
}

/// Why bytes are not an acceptable record batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the header, or than the header's length says.
    #[error("the batch is cut short: {have} bytes, {need} needed")]
    Truncated {
        /// Bytes at hand.
        have: usize,
        /// Bytes that the batch claims.
        need: usize,
    },
    /// The length field is below the header's size or negative.
    #[error("the batch length {0} is impossible")]
    Length(i32),
    /// A message format older than version 2, or none at all.
    #[error("message format version {0} is not supported; only version 2 is")]
    Magic(i8),
    /// The checksum does not fit the bytes.
    #[error("the batch's CRC-32C is {computed:08x}, its header says {stored:08x}")]
    Crc {
        /// As the header has it.
        stored: u32,
        /// As the bytes have it.
        computed: u32,
    },
    /// Header fields that contradict each other.
    #[error("the batch is malformed: {0}")]
    Malformed(&'static str),
}

impl BatchHeader {
    /// Parses the header and checks that the whole batch is at hand. The CRC is not checked.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        if bytes.len() < BATCH_HEADER_BYTES {
            // The magic is looked at first where there is one: an old message set is often shorter.
            if let Some(&magic) = bytes.get(MAGIC_POSITION)
                && magic as i8 != SUPPORTED_MAGIC
            {
                return Err(BatchError::Magic(magic as i8));
            }
            return Err(BatchError::Truncated { have: bytes.len(), need: BATCH_HEADER_BYTES });
        }
        let mut cursor = bytes;
        let base_offset = cursor.get_i64();
        let batch_length = cursor.get_i32();
        let leader_epoch = cursor.get_i32();
        let magic = cursor.get_i8();
        if magic != SUPPORTED_MAGIC {
            return Err(BatchError::Magic(magic));
        }
        if batch_length < (BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32 {
            return Err(BatchError::Length(batch_length));
        }
        let header = BatchHeader {
            base_offset,
            batch_length,
            leader_epoch,
            crc: cursor.get_u32(),
            attributes: cursor.get_i16(),
            last_offset_delta: cursor.get_i32(),
            base_timestamp: cursor.get_i64(),
            max_timestamp: cursor.get_i64(),
            producer_id: cursor.get_i64(),
            producer_epoch: cursor.get_i16(),
            base_sequence: cursor.get_i32(),
            record_count: cursor.get_i32(),
        };
        if bytes.len() < header.total_bytes() {
            return Err(BatchError::Truncated { have: bytes.len(), need: header.total_bytes() });
        }
        Ok(header)
    }

    /// Length of the whole batch in bytes.
    pub fn total_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + self.batch_length as usize
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// How the records are compressed; `None` for a codec that does not exist.
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_attributes(self.attributes)
    }

    /// Whose timestamps the records carry.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & i16::from(LOG_APPEND_TIME_BIT) == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// Whether the batch is a marker that only brokers write.
    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Whether the producer numbered the batch, so that a repeat can be told.
    pub fn is_idempotent(&self) -> bool {
        self.producer_id >= 0
    }

    /// Sequence of the last record; sequences wrap from `i32::MAX` to 0.
    pub fn last_sequence(&self) -> i32 {
        sequence_add(self.base_sequence, self.last_offset_delta)
    }
}

/// Adds to a sequence number, which wraps from `i32::MAX` to 0 as Kafka's does.
fn sequence_add(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX - increment { increment - (i32::MAX - sequence) - 1 } else { sequence + increment }
}

impl Compression {
    /// The codec in a batch's attributes, `None` for one that does not exist.
    pub fn from_attributes(attributes: i16) -> Option<Compression> {
        match attributes & 0x07 {
            0 => Some(Compression::None),
            1 => Some(Compression::Gzip),
            2 => Some(Compression::Snappy),
            3 => Some(Compression::Lz4),
            4 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The codec's number in a batch's attributes.
    pub fn attribute_bits(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// The codec's name as clients spell it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// Checks everything about the batch at the start of `bytes` that can be told without decoding its
/// records: length, format version, CRC, codec, and that its counts agree with each other.
///
/// `bytes` may be longer than the batch; see [`split_batches`].
pub fn verify_batch(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let computed = crc32c::crc32c(&bytes[CRC_COVERS_FROM..header.total_bytes()]);
    if computed != header.crc {
        return Err(BatchError::Crc { stored: header.crc, computed });
    }
    if header.compression().is_none() {
        return Err(BatchError::Malformed("it names a compression codec that does not exist"));
    }
    if header.record_count <= 0 {
        return Err(BatchError::Malformed("it has no records"));
    }
    if header.last_offset_delta != header.record_count - 1 {
        return Err(BatchError::Malformed("its last offset delta does not fit its record count"));
    }
    if header.is_idempotent() && (header.producer_epoch < 0 || header.base_sequence < 0) {
        return Err(BatchError::Malformed("it has a producer id but no epoch or no sequence"));
    }
    if header.is_transactional() && !header.is_idempotent() {
        return Err(BatchError::Malformed("it is transactional but has no producer id"));
    }
    Ok(header)
}

/// Splits a record set into its batches, each parsed but not verified. The whole set must be whole
/// batches.
pub fn split_batches(records: &Bytes) -> Result<Vec<(BatchHeader, Bytes)>, BatchError> {
    let mut batches = Vec::new();
    let mut at = 0;
    while at < records.len() {
        let header = BatchHeader::parse(&records[at..])?;
        let end = at + header.total_bytes();
        batches.push((header, records.slice(at..end)));
        at = end;
    }
    Ok(batches)
}

/// The CRC-32C that a batch of these bytes must carry. `batch` is a whole batch.
pub(super) fn batch_crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[CRC_COVERS_FROM..])
}

/// Writes the CRC into a whole batch.
pub(super) fn seal_crc(batch: &mut [u8]) {
    let crc = batch_crc(batch);
    batch[CRC_POSITION..CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
}

/// A copy of a verified batch in which all records carry `time`, the time of the append, as topics
/// with `message.timestamp.type=LogAppendTime` want it. The time stands inside the CRC, hence the copy.
pub fn with_append_time(batch: &[u8], time: TimestampMs) -> Bytes {
    let mut copy = BytesMut::from(batch);
    copy[ATTRIBUTES_LOW_BYTE] |= LOG_APPEND_TIME_BIT;
    copy[MAX_TIMESTAMP_POSITION..MAX_TIMESTAMP_POSITION + 8].copy_from_slice(&time.to_be_bytes());
    seal_crc(&mut copy);
    copy.freeze()
}
