//! A partition as the state machine knows it: where its log begins and ends, how it is cut into
//! segments, and what its producers have sent. From it follows the exact length of every segment
//! file, which is why segments end where `append` says and nowhere else.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::batch::{BatchHeader, StoredBatch};
use weir_model::command::{Appended, Refusal};
use weir_model::settings::PartitionSettings;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Offset, TimestampMs};

use super::epochs::EpochTable;
use super::producers::{Producers, Verdict};

/// Farthest that an offset may be from its segment's base, since indexes hold 32-bit offsets.
const RELATIVE_OFFSET_MAX: i64 = i32::MAX as i64;

/// One segment of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Offset of its first record when it was first written.
    pub base: Offset,
    /// 0 as appended; raised when its records are written anew into another file.
    pub generation: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.base, self.generation)
    }
}

/// A segment's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Which.
    pub id: SegmentId,
    /// Length in bytes of its file, once all is written.
    pub bytes: u64,
    /// Entry time of its first append.
    pub first_time: TimestampMs,
    /// Largest timestamp of its records, or -1.
    pub max_timestamp: TimestampMs,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionState {
    pub settings: Arc<PartitionSettings>,
    /// Leader epochs begin here …
    pub epoch_base: i32,
    /// … at this number of leaderships of the shard.
    pub opened_at: u64,
    pub log_start: Offset,
    pub next_offset: Offset,
    /// Rising by base. The last one is appended to.
    pub segments: VecDeque<SegmentInfo>,
    pub epochs: EpochTable,
    pub producers: Producers,
}

/// What came of an append.
pub(crate) enum AppendResult {
    Stored { appended: Appended, batch: StoredBatch, starts_segment: bool },
    Duplicate(Appended),
    Refused(Refusal),
}

impl PartitionState {
    pub(crate) fn new(settings: PartitionSettings, epoch_base: i32, leaderships: u64) -> PartitionState {
        PartitionState {
            settings: Arc::new(settings),
            epoch_base,
            opened_at: leaderships,
            log_start: 0,
            next_offset: 0,
            segments: VecDeque::new(),
            epochs: EpochTable::default(),
            producers: Producers::default(),
        }
    }

    /// The epoch of appends when the shard has had this many leaderships.
    pub(crate) fn leader_epoch(&self, leaderships: u64) -> i32 {
        leader_epoch(self.epoch_base, self.opened_at, leaderships)
    }

    /// Appends a batch at entry time `now`.
    pub(crate) fn append(&mut self, batch: &Bytes, now: TimestampMs, leaderships: u64) -> AppendResult {
        let header = match checked_header(batch) {
            Ok(header) => header,
            Err(refusal) => return AppendResult::Refused(refusal),
        };
        if header.is_idempotent() {
            match self.producers.judge(&header, now) {
                Verdict::Append => {}
                Verdict::Refuse(refusal) => return AppendResult::Refused(refusal),
                Verdict::Duplicate(first) => {
                    return AppendResult::Duplicate(Appended {
                        base_offset: first.base_offset,
                        last_offset: first.last_offset,
                        log_start: self.log_start,
                        leader_epoch: first.leader_epoch,
                        time: first.time,
                        duplicate: true,
                    });
                }
            }
        }
        if self.next_offset.checked_add(i64::from(header.record_count)).is_none() {
            return AppendResult::Refused(Refusal::Limit { what: "offsets", limit: i64::MAX as u64 });
        }
        let epoch = self.leader_epoch(leaderships);
        let stored = StoredBatch::place(&header, batch.clone(), self.next_offset, epoch);
        let starts_segment = self.needs_segment(&stored, now);
        self.grow(&stored, starts_segment, now);
        self.epochs.appended(epoch, stored.base_offset);
        if header.is_idempotent() {
            self.producers.appended(&header, &stored, now);
        }
        self.next_offset = stored.last_offset + 1;
        let appended = Appended {
            base_offset: stored.base_offset,
            last_offset: stored.last_offset,
            log_start: self.log_start,
            leader_epoch: epoch,
            time: now,
            duplicate: false,
        };
        AppendResult::Stored { appended, batch: stored, starts_segment }
    }

    /// Whether the batch must begin a new segment.
    fn needs_segment(&self, batch: &StoredBatch, now: TimestampMs) -> bool {
        let Some(active) = self.segments.back() else { return true };
        active.bytes + batch.len() as u64 > u64::from(self.settings.segment_bytes)
            || now.saturating_sub(active.first_time) > self.settings.segment_ms
            || batch.last_offset - active.id.base > RELATIVE_OFFSET_MAX
    }

    fn grow(&mut self, batch: &StoredBatch, starts_segment: bool, now: TimestampMs) {
        grow_segments(&mut self.segments, batch, starts_segment, now);
    }

    /// Raises the log start, at most to the log's end. Returns the segments that are now wholly below,
    /// or nothing if the log starts there or higher already.
    pub(crate) fn trim(&mut self, log_start: Offset) -> Option<Vec<SegmentId>> {
        let log_start = log_start.min(self.next_offset);
        if log_start <= self.log_start {
            return None;
        }
        self.log_start = log_start;
        self.epochs.trimmed(log_start);
        Some(trim_segments(&mut self.segments, log_start, self.next_offset))
    }

    /// Whether offsets and segments can have come from `append` and `trim`.
    fn is_consistent(&self) -> bool {
        let bases = || self.segments.iter().map(|segment| segment.id.base);
        let rising = bases().zip(bases().skip(1)).all(|(a, b)| a < b);
        let start_in_first = bases().next().is_none_or(|base| (0..=self.log_start).contains(&base))
            && bases().nth(1).is_none_or(|base| base > self.log_start);
        let end_behind_last = bases().next_back().is_none_or(|base| base < self.next_offset);
        let is_empty = self.log_start == self.next_offset;
        (0..=self.next_offset).contains(&self.log_start)
            && rising
            && start_in_first
            && end_behind_last
            && self.segments.is_empty() == is_empty
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        self.settings.encode(out);
        out.i32(self.epoch_base);
        out.u64(self.opened_at);
        out.i64(self.log_start);
        out.i64(self.next_offset);
        out.u32(self.segments.len() as u32);
        for segment in &self.segments {
            out.i64(segment.id.base);
            out.u32(segment.id.generation);
            out.u64(segment.bytes);
            out.i64(segment.first_time);
            out.i64(segment.max_timestamp);
        }
        self.epochs.encode(out);
        self.producers.encode(out);
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<PartitionState, DecodeError> {
        let state = PartitionState {
            settings: Arc::new(PartitionSettings::decode(reader)?),
            epoch_base: reader.i32()?,
            opened_at: reader.u64()?,
            log_start: reader.i64()?,
            next_offset: reader.i64()?,
            segments: reader.list(36, decode_segment)?.into(),
            epochs: EpochTable::decode(reader)?,
            producers: Producers::decode(reader)?,
        };
        if !state.is_consistent() {
            return Err(reader.error("a partition's segments contradict its offsets"));
        }
        Ok(state)
    }
}

/// The epoch of a partition that was opened with `base` at the `opened_at`th leadership.
pub(crate) fn leader_epoch(base: i32, opened_at: u64, leaderships: u64) -> i32 {
    let since = i32::try_from(leaderships.saturating_sub(opened_at)).unwrap_or(i32::MAX);
    base.saturating_add(since)
}

/// Counts a batch in the segments, the last of which it goes to.
pub(crate) fn grow_segments(
    segments: &mut VecDeque<SegmentInfo>,
    batch: &StoredBatch,
    starts_segment: bool,
    now: TimestampMs,
) {
    match segments.back_mut() {
        Some(active) if !starts_segment => {
            active.bytes += batch.len() as u64;
            active.max_timestamp = active.max_timestamp.max(batch.max_timestamp);
        }
        _ => segments.push_back(SegmentInfo {
            id: SegmentId { base: batch.base_offset, generation: 0 },
            bytes: batch.len() as u64,
            first_time: now,
            max_timestamp: batch.max_timestamp,
        }),
    }
}

/// Takes the segments out that are wholly below `log_start`.
pub(crate) fn trim_segments(
    segments: &mut VecDeque<SegmentInfo>,
    log_start: Offset,
    next_offset: Offset,
) -> Vec<SegmentId> {
    let mut dropped = Vec::new();
    while let Some(first) = segments.front() {
        let end = segments.get(1).map_or(next_offset, |second| second.id.base);
        if end > log_start {
            break;
        }
        dropped.push(first.id);
        segments.pop_front();
    }
    dropped
}

/// Records of a batch; none of bytes that are no batch.
pub(crate) fn record_count(batch: &Bytes) -> u32 {
    BatchHeader::parse(batch).map_or(0, |header| u32::try_from(header.record_count).unwrap_or(0))
}

/// The header, if the batch may be appended. Its CRC was checked before it was proposed.
pub(crate) fn checked_header(batch: &Bytes) -> Result<BatchHeader, Refusal> {
    let malformed = |why: &str| Refusal::MalformedBatch(format!("the batch is malformed: {why}"));
    let header = BatchHeader::parse(batch).map_err(|error| Refusal::MalformedBatch(error.to_string()))?;
    if header.total_bytes() != batch.len() {
        return Err(malformed("bytes follow it"));
    }
    if header.record_count <= 0 || header.last_offset_delta != header.record_count - 1 {
        return Err(malformed("its last offset delta does not fit its record count"));
    }
    if header.is_idempotent() && (header.producer_epoch < 0 || header.base_sequence < 0) {
        return Err(malformed("it has a producer id but no epoch or no sequence"));
    }
    Ok(header)
}

fn decode_segment(reader: &mut Reader) -> Result<SegmentInfo, DecodeError> {
    Ok(SegmentInfo {
        id: SegmentId { base: reader.i64()?, generation: reader.u32()? },
        bytes: reader.u64()?,
        first_time: reader.i64()?,
        max_timestamp: reader.i64()?,
    })
}
