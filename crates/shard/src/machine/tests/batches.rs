//! Batches for tests.

use bytes::Bytes;
use weir_model::batch::BatchBuilder;

/// A batch of `records` records of `value` bytes each, by a producer if one is given.
pub(crate) fn batch(
    records: usize,
    value: usize,
    timestamp: i64,
    producer: Option<(i64, i16, i32)>,
) -> Bytes {
    let (id, epoch, sequence) = producer.unwrap_or((-1, -1, -1));
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence);
    let value = vec![b'v'; value];
    for index in 0..records {
        builder.push(timestamp + index as i64, None, Some(&value), &[]);
    }
    builder.build()
}
