//! Looking into a batch: its records, which may be compressed.

use bytes::Bytes;
use weir_compression::decompress;
use weir_model::batch::{BATCH_HEADER_BYTES, BatchHeader, Record, decode_records};

/// Bytes of records that a batch has at most when it is opened.
const OPENED_BYTES_MAX: usize = 64 << 20;

/// The records of one whole batch, whose header this is. What a producer sends is not looked into unless somebody must, so
/// they may turn out to be unreadable; the error says why.
pub(crate) fn records_of(
    header: &BatchHeader,
    batch: &Bytes,
) -> Result<impl Iterator<Item = Result<Record, String>> + use<>, String> {
    let codec = header.compression().ok_or("an unknown codec")?;
    let section = decompress(codec, &batch.slice(BATCH_HEADER_BYTES..), OPENED_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    Ok(decode_records(header, section).map(|record| record.map_err(|error| error.to_string())))
}
