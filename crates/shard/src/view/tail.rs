//! The end of a partition's log that is in memory: batches from the moment they are applied until
//! they can be read from a segment file. Nothing in it is copied; readers share the bytes.

use std::collections::VecDeque;

use super::read::BatchPosition;
use bytes::{Bytes, BytesMut};
use weir_model::batch::{PATCHED_PREFIX_BYTES, StoredBatch};
use weir_model::{Offset, TimestampMs};

/// Batches that one look at a tail takes, so that its lock is held shortly.
pub(crate) const BATCHES_PER_LOOK: usize = 1024;

/// A batch that waits to be written.
#[derive(Clone, Debug)]
struct TailBatch {
    batch: StoredBatch,
    /// A segment begins with it.
    starts_segment: bool,
    /// Entry time of its append.
    time: TimestampMs,
}

/// Batches that are to be written behind each other into one segment.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub batches: Vec<StoredBatch>,
    /// Whether the segment is a new one.
    pub starts_segment: bool,
    /// Entry time of the first of them.
    pub time: TimestampMs,
}

/// Batches with rising offsets, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    batches: VecDeque<TailBatch>,
    bytes: usize,
}

impl Tail {
    /// The first offset in it.
    pub(crate) fn first_offset(&self) -> Option<Offset> {
        self.batches.front().map(|tail| tail.batch.base_offset)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn push(&mut self, batch: StoredBatch, starts_segment: bool, time: TimestampMs) {
        self.bytes += batch.len();
        self.batches.push_back(TailBatch { batch, starts_segment, time });
    }

    /// The batches from the one with `offset` in it, up to `max_bytes`, and one even if it is larger;
    /// nothing if the tail does not reach down to `offset`.
    pub(crate) fn look(
        &self,
        offset: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Option<Vec<StoredBatch>> {
        self.first_offset().filter(|first| *first <= offset)?;
        let from = self.batches.partition_point(|tail| tail.batch.last_offset < offset);
        let mut bytes = 0;
        let fits = |tail: &&TailBatch| {
            let first = bytes == 0;
            bytes += tail.batch.len();
            bytes <= max_bytes || (first && at_least_one)
        };
        let fitting = self.batches.range(from..).take(BATCHES_PER_LOOK).take_while(fits);
        Some(fitting.map(|tail| tail.batch.clone()).collect())
    }

    /// The first batch at or behind `offset` whose largest timestamp is `at` or later.
    pub(crate) fn find_timestamp(&self, offset: Offset, at: TimestampMs) -> Option<BatchPosition> {
        let from = self.batches.partition_point(|tail| tail.batch.last_offset < offset);
        let mut behind = self.batches.range(from..).map(|tail| &tail.batch);
        behind.find(|batch| batch.max_timestamp >= at).map(BatchPosition::from)
    }

    /// What is written next: batches of one segment, from the front, up to `max_bytes`, at least one.
    pub(crate) fn next_run(&self, max_bytes: usize) -> Option<Run> {
        let first = self.batches.front()?;
        let mut run = Run { batches: Vec::new(), starts_segment: first.starts_segment, time: first.time };
        let mut bytes = 0;
        for tail in &self.batches {
            bytes += tail.batch.len();
            if !run.batches.is_empty() && (tail.starts_segment || bytes > max_bytes) {
                break;
            }
            run.batches.push(tail.batch.clone());
        }
        Some(run)
    }

    /// Forgets the first `count` batches. Returns their bytes.
    pub(crate) fn drop_front(&mut self, count: usize) -> usize {
        let bytes = self.batches.drain(..count.min(self.batches.len())).map(|tail| tail.batch.len()).sum();
        self.bytes -= bytes;
        bytes
    }
}

/// The batches as they are sent: for each its patched prefix, then its own bytes.
pub(crate) fn chunks_of(batches: &[StoredBatch], chunks: &mut Vec<Bytes>) {
    let mut prefixes = BytesMut::with_capacity(batches.len() * PATCHED_PREFIX_BYTES);
    batches.iter().for_each(|batch| prefixes.extend_from_slice(&batch.prefix()));
    let mut prefixes = prefixes.freeze();
    chunks.reserve(2 * batches.len());
    for batch in batches {
        chunks.push(prefixes.split_to(PATCHED_PREFIX_BYTES));
        chunks.push(batch.rest());
    }
}
