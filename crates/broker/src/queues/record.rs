//! Records as queues hand them out: read from the log, decoded, with what their dispatcher must know.

use std::sync::Arc;

use bytes::Bytes;
use weir_dispatch::Waiting;
use weir_model::batch::{Record, split_batches};
use weir_model::{Offset, TimestampMs};
use weir_shard::{PartitionView, ReadError};

use crate::opening::records_of;
use crate::read::PartitionRef;

/// Header of a record that expires: when, in milliseconds since 1970, eight bytes big-endian.
pub const EXPIRES_HEADER: &str = "weir.expires";

/// What a record takes beside its key, value and headers.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// A record of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// As it is stored.
    pub record: Record,
    /// From when on nobody gets it any more.
    pub expires_at: Option<TimestampMs>,
    /// It is for whoever waits for it as it comes, and for nobody later.
    pub is_for_now: bool,
}

/// How long records of a queue wait at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ttl {
    pub ms: TimestampMs,
    /// The time at which they are looked at. A record that says that it is from the future, because a clock was wrong, is as
    /// if it had come just then: it would hold up all behind it.
    pub now: TimestampMs,
}

impl QueueRecord {
    pub(crate) fn new(record: Record, ttl: Option<Ttl>) -> QueueRecord {
        let own = record.headers.iter().rev().find(|header| header.key == EXPIRES_HEADER);
        let own = own.and_then(|header| header.value.as_deref()?.try_into().ok()).map(i64::from_be_bytes);
        let by_queue = ttl.map(|ttl| record.timestamp.min(ttl.now).saturating_add(ttl.ms));
        let expires_at = [own, by_queue].into_iter().flatten().min();
        let is_for_now = ttl.is_some_and(|ttl| ttl.ms <= 0) || own.is_some_and(|at| at <= record.timestamp);
        QueueRecord { record, expires_at, is_for_now }
    }
}

impl Waiting for QueueRecord {
    fn bytes(&self) -> usize {
        let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers = self.record.headers.iter().map(|header| header.key.len() + len(&header.value) + 32);
        RECORD_OVERHEAD_BYTES + len(&self.record.key) + len(&self.record.value) + headers.sum::<usize>()
    }

    fn expires_at(&self) -> Option<TimestampMs> {
        self.expires_at
    }

    fn is_for_now(&self) -> bool {
        self.is_for_now
    }
}

/// Records of a run of a partition's log.
#[derive(Debug)]
pub(crate) struct Run {
    /// All that there are from where the reading began up to `next`.
    pub records: Vec<(Offset, QueueRecord)>,
    /// Where to read on.
    pub next: Offset,
}

/// Reads and decodes records from an offset on, about so many bytes of them, at least one batch.
pub(super) fn read_run(
    view: &PartitionView,
    from: Offset,
    max_bytes: usize,
    ttl: Option<Ttl>,
    cached_only: bool,
) -> Result<Run, ReadError> {
    let read = view.read(from, max_bytes, cached_only)?;
    let corrupt = |why: String| ReadError::Corrupt { offset: from, why };
    let next = read.next_offset;
    let bytes = read.in_one_piece();
    let mut records = Vec::new();
    for (header, batch) in split_batches(&bytes).map_err(|error| corrupt(error.to_string()))? {
        for record in records_of(&header, &batch).map_err(corrupt)? {
            let record = record.map_err(corrupt)?;
            if record.offset >= from {
                records.push((record.offset, QueueRecord::new(record, ttl)));
            }
        }
    }
    Ok(Run { records, next })
}

/// As [`read_run`], from the log of a partition that this node leads; the disk is read on a blocking thread.
pub(crate) async fn read_records(
    partition: &PartitionRef,
    from: Offset,
    max_bytes: usize,
    ttl: Option<Ttl>,
) -> Result<Run, ReadError> {
    let view = Arc::clone(partition.view());
    let run = match read_run(&view, from, max_bytes, ttl, true) {
        Err(ReadError::WouldBlock) => {
            let read = move || read_run(&view, from, max_bytes, ttl, false);
            // It fails only when the runtime is going down.
            partition.blocking().run(read).await.unwrap_or(Err(ReadError::Closed))?
        }
        read => read?,
    };
    if run.next <= from {
        let why = "there is nothing where the log says that there is a record".into();
        return Err(ReadError::Corrupt { offset: from, why });
    }
    Ok(run)
}
