//! Records inside a batch: decoded where a person or a client reads them, encoded by clients and
//! tests. The broker's own paths never come here.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::header::{BATCH_HEADER_BYTES, BatchHeader, Compression, LENGTH_PREFIX_BYTES, seal_crc};

/// A record's header: a name and an optional value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name, not necessarily unique within the record.
    pub key: String,
    /// Value, or null.
    pub value: Option<Bytes>,
}

/// One decoded record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Position within the partition.
    pub offset: i64,
    /// Milliseconds since 1970, UTC.
    pub timestamp: i64,
    /// Key, or null.
    pub key: Option<Bytes>,
    /// Value, or null (a tombstone in compacted topics).
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<Header>,
}

/// Why records could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {index} of the batch is malformed: {why}")]
pub struct RecordError {
    /// Which record, from 0.
    pub index: i32,
    /// What is wrong.
    pub why: &'static str,
}

/// Decodes the records of a batch from its (decompressed) record section.
pub fn decode_records(header: &BatchHeader, section: Bytes) -> RecordIter {
    RecordIter { header: *header, section, index: 0 }
}

/// Iterates over the records of one batch; stops after the first error.
#[derive(Debug)]
pub struct RecordIter {
    header: BatchHeader,
    section: Bytes,
    index: i32,
}

impl Iterator for RecordIter {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.header.record_count {
            return None;
        }
        let result =
            decode_one(&self.header, &mut self.section).map_err(|why| RecordError { index: self.index, why });
        self.index = if result.is_ok() { self.index + 1 } else { i32::MAX };
        Some(result)
    }

    /// Passes over records without decoding them.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            if self.index >= self.header.record_count {
                return None;
            }
            if let Err(why) = pass_one(&mut self.section) {
                let index = std::mem::replace(&mut self.index, i32::MAX);
                return Some(Err(RecordError { index, why }));
            }
            self.index += 1;
        }
        self.next()
    }
}

fn pass_one(section: &mut Bytes) -> Result<(), &'static str> {
    let length = usize::try_from(get_varint(section)?).map_err(|_| "negative length")?;
    if length > section.len() {
        return Err("longer than the batch");
    }
    section.advance(length);
    Ok(())
}

fn decode_one(header: &BatchHeader, section: &mut Bytes) -> Result<Record, &'static str> {
    let length = get_varint(section)?;
    let length = usize::try_from(length).map_err(|_| "negative length")?;
    if length > section.len() {
        return Err("longer than the batch");
    }
    let mut body = section.split_to(length);
    if !body.has_remaining() {
        return Err("empty");
    }
    let _attributes = body.get_i8();
    let timestamp_delta = get_varlong(&mut body)?;
    let offset_delta = get_varint(&mut body)?;
    let key = get_nullable(&mut body)?;
    let value = get_nullable(&mut body)?;
    let header_count = usize::try_from(get_varint(&mut body)?).map_err(|_| "negative number of headers")?;
    // A header takes at least two bytes, so this bounds what is reserved.
    if header_count > body.len() {
        return Err("more headers than bytes");
    }
    let mut headers = Vec::with_capacity(header_count);
    for _ in 0..header_count {
        let key = get_nullable(&mut body)?.ok_or("a header without a name")?;
        let key = std::str::from_utf8(&key).map_err(|_| "a header's name is not UTF-8")?.to_owned();
        headers.push(Header { key, value: get_nullable(&mut body)? });
    }
    if body.has_remaining() {
        return Err("bytes left over");
    }
    let timestamp = match header.timestamp_type() {
        super::TimestampType::CreateTime => header.base_timestamp.wrapping_add(timestamp_delta),
        super::TimestampType::LogAppendTime => header.max_timestamp,
    };
    Ok(Record {
        offset: header.base_offset.wrapping_add(i64::from(offset_delta)),
        timestamp,
        key,
        value,
        headers,
    })
}

fn get_nullable(body: &mut Bytes) -> Result<Option<Bytes>, &'static str> {
    let length = get_varint(body)?;
    if length < 0 {
        return Ok(None);
    }
    if length as usize > body.len() {
        return Err("a field longer than the record");
    }
    Ok(Some(body.split_to(length as usize)))
}

fn get_varint(bytes: &mut Bytes) -> Result<i32, &'static str> {
    i32::try_from(get_varlong(bytes)?).map_err(|_| "a number out of range")
}

/// Zigzag base-128, as Protocol Buffers' `sint64`.
fn get_varlong(bytes: &mut Bytes) -> Result<i64, &'static str> {
    let mut raw: u64 = 0;
    for shift in (0..70).step_by(7) {
        if !bytes.has_remaining() {
            return Err("a number cut short");
        }
        let byte = bytes.get_u8();
        if shift == 63 && byte > 1 {
            return Err("a number too long");
        }
        raw |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(((raw >> 1) as i64) ^ -((raw & 1) as i64));
        }
    }
    Err("a number too long")
}

fn put_varlong(out: &mut BytesMut, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.put_u8(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.put_u8(raw as u8);
}

fn put_nullable(out: &mut BytesMut, field: Option<&[u8]>) {
    match field {
        None => put_varlong(out, -1),
        Some(bytes) => {
            put_varlong(out, bytes.len() as i64);
            out.put_slice(bytes);
        }
    }
}

/// Appends one record in its encoded form to a record section.
pub fn encode_record(
    section: &mut BytesMut,
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header],
) {
    let mut body = BytesMut::with_capacity(32 + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len));
    body.put_i8(0);
    put_varlong(&mut body, timestamp_delta);
    put_varlong(&mut body, i64::from(offset_delta));
    put_nullable(&mut body, key);
    put_nullable(&mut body, value);
    put_varlong(&mut body, headers.len() as i64);
    for header in headers {
        put_nullable(&mut body, Some(header.key.as_bytes()));
        put_nullable(&mut body, header.value.as_deref());
    }
    put_varlong(section, body.len() as i64);
    section.extend_from_slice(&body);
}

/// Builds one batch record by record.
#[derive(Debug)]
pub struct BatchBuilder {
    section: BytesMut,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    producer: (i64, i16, i32),
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// An empty batch without a producer.
    pub fn new() -> BatchBuilder {
        BatchBuilder {
            section: BytesMut::new(),
            base_timestamp: 0,
            max_timestamp: -1,
            count: 0,
            producer: (-1, -1, -1),
        }
    }

    /// Numbers the batch for an idempotent producer.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> BatchBuilder {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Adds a record.
    pub fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[Header]) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        encode_record(&mut self.section, self.count, timestamp - self.base_timestamp, key, value, headers);
        self.count += 1;
    }

    /// Number of records so far.
    pub fn record_count(&self) -> i32 {
        self.count
    }

    /// Bytes of the record section so far, before compression.
    pub fn section_bytes(&self) -> usize {
        self.section.len()
    }

    /// The record section so far, for a caller that compresses it.
    pub fn section(&self) -> &[u8] {
        &self.section
    }

    /// The finished, uncompressed batch at base offset 0.
    pub fn build(self) -> Bytes {
        let section = self.section.clone();
        self.build_with(Compression::None, &section)
    }

    /// The finished batch with a record section that the caller has compressed.
    pub fn build_with(self, compression: Compression, section: &[u8]) -> Bytes {
        let mut batch = BytesMut::with_capacity(BATCH_HEADER_BYTES + section.len());
        batch.put_i64(0);
        batch.put_i32((BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES + section.len()) as i32);
        batch.put_i32(-1);
        batch.put_i8(2);
        batch.put_u32(0);
        batch.put_i16(compression.attribute_bits());
        batch.put_i32(self.count - 1);
        batch.put_i64(self.base_timestamp);
        batch.put_i64(self.max_timestamp);
        batch.put_i64(self.producer.0);
        batch.put_i16(self.producer.1);
        batch.put_i32(self.producer.2);
        batch.put_i32(self.count);
        batch.put_slice(section);
        seal_crc(&mut batch);
        batch.freeze()
    }
}
