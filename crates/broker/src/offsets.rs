//! Finding a record by its timestamp inside a batch, which may be compressed.

use bytes::Bytes;
use weir_model::batch::{BatchHeader, TimestampType};
use weir_model::{Offset, TimestampMs};

use crate::opening::records_of;

/// The first record at `from` or later whose timestamp is `at` or later. `batch` is one whole batch
/// as it is stored.
///
/// Brokers do not look into what producers send, so the records may turn out to be unreadable. Then
/// the batch's first record is the answer: a reader who begins there misses nothing.
pub(crate) fn record_at(
    header: &BatchHeader,
    batch: &Bytes,
    from: Offset,
    at: TimestampMs,
) -> Option<(Offset, TimestampMs)> {
    if header.max_timestamp < at || header.last_offset() < from {
        return None;
    }
    let first = header.base_offset.max(from);
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Some((first, header.max_timestamp));
    }
    let unopened = Some((first, header.max_timestamp));
    let Ok(records) = records_of(header, batch) else { return unopened };
    for record in records {
        let Ok(record) = record else { return unopened };
        if record.timestamp >= at && record.offset >= from {
            return Some((record.offset, record.timestamp));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use weir_compression::compress;
    use weir_model::batch::{BatchBuilder, Compression, verify_batch};

    use super::*;

    fn batch(codec: Compression) -> Bytes {
        let mut builder = BatchBuilder::new();
        for time in [100, 300, 200, 400] {
            builder.push(time, None, Some(b"value"), &[]);
        }
        let section = compress(codec, None, builder.section()).unwrap();
        builder.build_with(codec, &section)
    }

    fn find(codec: Compression, from: Offset, at: TimestampMs) -> Option<(Offset, TimestampMs)> {
        let batch = batch(codec);
        record_at(&verify_batch(&batch).unwrap(), &batch, from, at)
    }

    #[test]
    fn the_first_record_of_that_time_or_later_is_found_in_every_codec() {
        use Compression::*;
        for codec in [None, Gzip, Snappy, Lz4, Zstd] {
            assert_eq!(find(codec, 0, 100), Some((0, 100)));
            assert_eq!(find(codec, 0, 150), Some((1, 300)));
            assert_eq!(find(codec, 0, 301), Some((3, 400)));
            assert_eq!(find(codec, 2, 150), Some((2, 200)));
            assert_eq!(find(codec, 0, 401), Option::None);
            assert_eq!(find(codec, 4, 0), Option::None);
        }
    }

    #[test]
    fn a_batch_that_cannot_be_opened_is_answered_by_its_first_record() {
        let batch = BatchBuilder::new();
        let mut builder = batch;
        builder.push(100, None, Some(b"v"), &[]);
        builder.push(200, None, Some(b"v"), &[]);
        let broken = builder.build_with(Compression::Zstd, b"not zstandard");
        let header = verify_batch(&broken).unwrap();
        assert_eq!(record_at(&header, &broken, 0, 150), Some((0, 200)));
    }
}
