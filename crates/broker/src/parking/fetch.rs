//! Reading parked records by their offsets: each batch once, and of it only what is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::Offset;
use weir_model::batch::{BATCH_HEADER_BYTES, Record, decode_records, split_batches};
use weir_shard::{PartitionView, ReadError};

use crate::blocking::Blocking;

/// Bytes read for one record: its batch.
const ONE_BATCH: usize = 1;

/// What there is at some offsets.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// The records.
    pub records: BTreeMap<Offset, Record>,
    /// Those that cannot be read, and why.
    pub unreadable: Vec<(Offset, String)>,
    /// Those that are not in the log any more.
    pub gone: Vec<Offset>,
}

/// Reads the records at these offsets, which rise, until there are so many bytes of them; at least one.
pub(super) async fn fetch(
    view: &Arc<PartitionView>,
    offsets: Vec<Offset>,
    bytes_max: usize,
    blocking: Blocking,
) -> Result<Fetched, ReadError> {
    match fetch_now(view, &offsets, bytes_max, true) {
        Err(ReadError::WouldBlock) => {
            let view = Arc::clone(view);
            let read = move || fetch_now(&view, &offsets, bytes_max, false);
            // It fails only when the runtime is going down.
            blocking.run(read).await.unwrap_or(Err(ReadError::Closed))
        }
        read => read,
    }
}

fn fetch_now(
    view: &PartitionView,
    offsets: &[Offset],
    bytes_max: usize,
    cached_only: bool,
) -> Result<Fetched, ReadError> {
    let mut fetched = Fetched::default();
    let (mut rest, mut bytes) = (offsets, 0);
    while let Some(&first) = rest.first()
        && (bytes < bytes_max || bytes == 0)
    {
        match view.read(first, ONE_BATCH, cached_only) {
            Ok(read) if read.next_offset > first => {
                let here = rest.partition_point(|offset| *offset < read.next_offset);
                bytes += pick(read.in_one_piece(), &rest[..here], &mut fetched);
                rest = &rest[here..];
            }
            Ok(_) => return Err(ReadError::Corrupt { offset: first, why: "there is nothing".into() }),
            Err(ReadError::OutOfRange { log_start, .. }) if log_start > first => {
                fetched.gone.push(first);
                rest = &rest[1..];
            }
            Err(ReadError::Corrupt { why, .. }) => {
                fetched.unreadable.push((first, why));
                rest = &rest[1..];
            }
            Err(error) => return Err(error),
        }
    }
    Ok(fetched)
}

/// Takes records out of batches. How many bytes these are, about.
fn pick(bytes: Bytes, offsets: &[Offset], fetched: &mut Fetched) -> usize {
    let mut taken = 0;
    let mut offsets = offsets.iter().copied().peekable();
    let mut unreadable = |offset: Offset, why: String| fetched.unreadable.push((offset, why));
    let batches = match split_batches(&bytes) {
        Ok(batches) => batches,
        Err(error) => {
            offsets.for_each(|offset| unreadable(offset, error.to_string()));
            return taken;
        }
    };
    for (header, batch) in batches {
        // What is parked was built here, and not compressed.
        let mut records = decode_records(&header, batch.slice(BATCH_HEADER_BYTES..));
        let mut next = header.base_offset;
        let end = header.base_offset + i64::from(header.record_count);
        while let Some(offset) = offsets.next_if(|offset| (header.base_offset..end).contains(offset)) {
            match records.nth((offset - next) as usize) {
                Some(Ok(record)) => {
                    taken += record.value.as_ref().map_or(0, Bytes::len)
                        + batch.len() / header.record_count as usize;
                    fetched.records.insert(offset, Record { offset, ..record });
                }
                Some(Err(error)) => unreadable(offset, error.to_string()),
                None => unreadable(offset, "the batch has fewer records than it says".into()),
            }
            next = offset + 1;
        }
    }
    offsets.for_each(|offset| unreadable(offset, "there is no such record".into()));
    taken
}
