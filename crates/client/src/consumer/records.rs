//! Batches into records, one batch opened at a time.

use bytes::Bytes;
use weir_model::batch::{
    BATCH_HEADER_BYTES, BatchHeader, Compression, LENGTH_PREFIX_BYTES, Record, RecordIter, decode_records,
    verify_batch,
};

/// Largest record section that is unpacked, in bytes: what no broker's limits allow is not believed.
const SECTION_BYTES_MAX: usize = 256 << 20;

/// The records of whole batches that follow each other. A fetch gives the batch that contains the offset
/// asked for, so records before it are passed over; a last batch that is cut short is left out.
#[derive(Debug)]
pub(super) struct Batches {
    rest: Bytes,
    from: i64,
    current: Option<RecordIter>,
}

/// A batch that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// Where it begins, as far as it is known.
    pub(super) offset: i64,
    pub(super) why: String,
}

impl Batches {
    pub(super) fn new(batches: Bytes, from: i64) -> Batches {
        Batches { rest: batches, from, current: None }
    }

    /// Opens the next batch; none at the end.
    fn open(&mut self) -> Result<Option<RecordIter>, Unreadable> {
        loop {
            if self.rest.len() < BATCH_HEADER_BYTES {
                return Ok(None);
            }
            let claimed = self.rest.get(8..LENGTH_PREFIX_BYTES).and_then(|bytes| bytes.try_into().ok());
            let claimed = claimed.map_or(0, i32::from_be_bytes);
            if usize::try_from(claimed).is_ok_and(|length| LENGTH_PREFIX_BYTES + length > self.rest.len()) {
                return Ok(None);
            }
            let unreadable = |why: String| Unreadable { offset: self.from, why };
            let header = verify_batch(&self.rest).map_err(|error| unreadable(error.to_string()))?;
            let batch = self.rest.split_to(header.total_bytes());
            if header.is_control() || header.last_offset() < self.from {
                continue;
            }
            return open(&header, batch).map(Some);
        }
    }
}

fn open(header: &BatchHeader, batch: Bytes) -> Result<RecordIter, Unreadable> {
    let section = batch.slice(BATCH_HEADER_BYTES..);
    let section = match header.compression() {
        Some(Compression::None) | None => section,
        Some(compression) => weir_compression::decompress(compression, &section, SECTION_BYTES_MAX)
            .map_err(|error| Unreadable { offset: header.base_offset, why: error.to_string() })?,
    };
    Ok(decode_records(header, section))
}

impl Iterator for Batches {
    type Item = Result<Record, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(current) = &mut self.current {
                match current.next() {
                    Some(Ok(record)) if record.offset < self.from => continue,
                    Some(Ok(record)) => {
                        self.from = record.offset + 1;
                        return Some(Ok(record));
                    }
                    Some(Err(error)) => {
                        self.current = None;
                        self.rest = Bytes::new();
                        return Some(Err(Unreadable { offset: self.from, why: error.to_string() }));
                    }
                    None => self.current = None,
                }
            }
            match self.open() {
                Ok(Some(records)) => self.current = Some(records),
                Ok(None) => return None,
                Err(error) => {
                    self.rest = Bytes::new();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The offset after the last whole batch: where to read on.
pub(super) fn next_offset(batches: &Bytes) -> Option<i64> {
    let mut rest = &batches[..];
    let mut next = None;
    while let Ok(header) = BatchHeader::parse(rest) {
        next = Some(header.last_offset() + 1);
        rest = &rest[header.total_bytes()..];
    }
    next
}
