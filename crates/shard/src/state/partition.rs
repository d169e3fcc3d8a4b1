//! A partition as the state machine knows it: where its log begins and ends, how it is cut into
//! segments, and what its producers have sent. From it follows the exact length of every segment
//! file, which is why segments end where `append` says and nowhere else.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::batch::{BatchHeader, StoredBatch};
use weir_model::command::{Appended, Refusal};
use weir_model::settings::PartitionSettings;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Offset, SegmentId, TimestampMs};

use super::epochs::EpochTable;
use super::producers::{Producers, Verdict};

/// Farthest that an offset may be from its segment's base, since indexes hold 32-bit offsets.
const RELATIVE_OFFSET_MAX: i64 = i32::MAX as i64;

/// Set beside a segment's generation where its last offset follows in the encoding: it is not the one before the next
/// segment, since what lay between them is gone.
const ENDS_EARLIER: u32 = 1 << 31;

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
    /// Offset of its last record. Where segments were written anew, offsets may be missing behind it.
    pub last_offset: Offset,
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
        Some(trim_segments(&mut self.segments, log_start))
    }

    /// What neighbouring segments become if some of their batches are kept. Whether anything that must not go would go is
    /// for the caller to know ([`gaps`]).
    pub(crate) fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<RewrittenAs, Refusal> {
        let at = self.find_neighbours(rewrite.segments)?;
        let count = rewrite.segments.len();
        let (first, last) = (self.segments[at], self.segments[at + count - 1]);
        check_kept(rewrite, first.id.base, last.last_offset)?;
        let generation = rewrite.segments.iter().map(|id| id.generation).max().unwrap_or(0) + 1;
        let new = rewrite.kept.last().map(|(_, last_offset)| SegmentInfo {
            id: SegmentId { base: first.id.base, generation },
            bytes: rewrite.bytes,
            first_time: first.first_time,
            max_timestamp: rewrite.max_timestamp,
            last_offset: *last_offset,
        });
        let before: u64 = self.segments.range(at..at + count).map(|segment| segment.bytes).sum();
        if rewrite.bytes > before {
            return Err(Refusal::Segments("more would be kept than there is"));
        }
        if new.is_some_and(|new| new.last_offset < self.log_start) {
            return Err(Refusal::Segments("what is kept was trimmed meanwhile"));
        }
        if generation >= ENDS_EARLIER {
            return Err(Refusal::Limit { what: "generations of a segment", limit: u64::from(ENDS_EARLIER) });
        }
        Ok(RewrittenAs { new, from: first.id.base.max(self.log_start), to: last.last_offset })
    }

    /// Where these segments are, one behind the other, the last of all excepted.
    fn find_neighbours(&self, ids: &[SegmentId]) -> Result<usize, Refusal> {
        let first = ids.first().ok_or(Refusal::Segments("none is named"))?;
        let at = self.segments.iter().position(|segment| segment.id == *first);
        let at = at.ok_or(Refusal::Segments("there is no such segment"))?;
        let closed = self.segments.len() - 1;
        let found = self.segments.range(at..closed.max(at)).map(|segment| &segment.id);
        if !found.take(ids.len()).eq(ids.iter()) {
            return Err(Refusal::Segments("they do not follow each other, or the last one is appended to"));
        }
        Ok(at)
    }

    /// Whether offsets and segments can have come from `append` and `trim`.
    fn is_consistent(&self) -> bool {
        let mut free_from = 0;
        let rising = self.segments.iter().all(|segment| {
            let follows = segment.id.base >= free_from && segment.last_offset >= segment.id.base;
            free_from = segment.last_offset.saturating_add(1);
            follows
        });
        let first_is_needed = self.segments.front().is_none_or(|first| first.last_offset >= self.log_start);
        let ends_the_log =
            self.segments.back().is_none_or(|last| last.last_offset == self.next_offset.saturating_sub(1));
        let is_empty = self.log_start == self.next_offset;
        (0..=self.next_offset).contains(&self.log_start)
            && rising
            && first_is_needed
            && ends_the_log
            && self.segments.is_empty() == is_empty
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        self.settings.encode(out);
        out.i32(self.epoch_base);
        out.u64(self.opened_at);
        out.i64(self.log_start);
        out.i64(self.next_offset);
        out.u32(self.segments.len() as u32);
        let ends = self.segments.iter().skip(1).map(|next| next.id.base - 1).chain([self.next_offset - 1]);
        for (segment, end) in self.segments.iter().zip(ends) {
            let ends_earlier = segment.last_offset < end;
            out.i64(segment.id.base);
            out.u32(segment.id.generation | if ends_earlier { ENDS_EARLIER } else { 0 });
            out.u64(segment.bytes);
            out.i64(segment.first_time);
            out.i64(segment.max_timestamp);
            if ends_earlier {
                out.i64(segment.last_offset);
            }
        }
        self.epochs.encode(out);
        self.producers.encode(out);
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<PartitionState, DecodeError> {
        let mut state = PartitionState {
            settings: Arc::new(PartitionSettings::decode(reader)?),
            epoch_base: reader.i32()?,
            opened_at: reader.u64()?,
            log_start: reader.i64()?,
            next_offset: reader.i64()?,
            segments: reader.list(36, decode_segment)?.into(),
            epochs: EpochTable::decode(reader)?,
            producers: Producers::decode(reader)?,
        };
        let mut end = state.next_offset.saturating_sub(1);
        for segment in state.segments.iter_mut().rev() {
            if segment.last_offset == END_OF_NEXT {
                segment.last_offset = end;
            }
            end = segment.id.base.saturating_sub(1);
        }
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
            active.last_offset = batch.last_offset;
            active.max_timestamp = active.max_timestamp.max(batch.max_timestamp);
        }
        _ => segments.push_back(SegmentInfo {
            id: SegmentId { base: batch.base_offset, generation: 0 },
            bytes: batch.len() as u64,
            first_time: now,
            max_timestamp: batch.max_timestamp,
            last_offset: batch.last_offset,
        }),
    }
}

/// Takes the segments out that are wholly below `log_start`.
pub(crate) fn trim_segments(segments: &mut VecDeque<SegmentInfo>, log_start: Offset) -> Vec<SegmentId> {
    let mut dropped = Vec::new();
    while let Some(first) = segments.pop_front_if(|first| first.last_offset < log_start) {
        dropped.push(first.id);
    }
    dropped
}

/// Puts a segment, or none, in the place of neighbouring ones. Those must be there.
pub(crate) fn replace_segments(
    segments: &mut VecDeque<SegmentInfo>,
    old: &[SegmentId],
    new: Option<SegmentInfo>,
) {
    let Some(at) = segments.iter().position(|segment| Some(&segment.id) == old.first()) else { return };
    segments.drain(at..at + old.len());
    if let Some(new) = new {
        segments.insert(at, new);
    }
}

/// What is to become of neighbouring segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewrite<'a> {
    pub segments: &'a [SegmentId],
    pub kept: &'a [(Offset, Offset)],
    pub bytes: u64,
    pub max_timestamp: TimestampMs,
}

/// What has become of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RewrittenAs {
    pub new: Option<SegmentInfo>,
    /// The offsets that could be read of them before: first and last.
    pub from: Offset,
    pub to: Offset,
}

/// Whether what is kept are runs within the segments, rising.
fn check_kept(rewrite: &Rewrite<'_>, base: Offset, last_offset: Offset) -> Result<(), Refusal> {
    let mut free_from = base;
    for (from, to) in rewrite.kept {
        if *from < free_from || to < from || *to > last_offset {
            return Err(Refusal::Segments("what is kept does not lie in them"));
        }
        free_from = to + 1;
    }
    if rewrite.kept.is_empty() != (rewrite.bytes == 0) {
        return Err(Refusal::Segments("what is kept and its bytes contradict each other"));
    }
    Ok(())
}

/// What lies between runs within a span of offsets, first and last; before the first and behind the last of them, too.
pub(crate) fn gaps(
    kept: &[(Offset, Offset)],
    from: Offset,
    to: Offset,
) -> impl Iterator<Item = (Offset, Offset)> {
    let begins = std::iter::once(from).chain(kept.iter().map(|(_, last)| last + 1));
    let ends = kept.iter().map(|(first, _)| first - 1).chain(std::iter::once(to));
    begins.zip(ends).map(move |(begin, end)| (begin.max(from), end)).filter(|(begin, end)| begin <= end)
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

/// Stands for the last offset of a segment that ends where the next one begins, while it is decoded.
const END_OF_NEXT: Offset = -1;

fn decode_segment(reader: &mut Reader) -> Result<SegmentInfo, DecodeError> {
    let (base, generation) = (reader.i64()?, reader.u32()?);
    let (bytes, first_time, max_timestamp) = (reader.u64()?, reader.i64()?, reader.i64()?);
    let last_offset = if generation & ENDS_EARLIER == 0 { END_OF_NEXT } else { reader.i64()?.max(0) };
    let id = SegmentId { base, generation: generation & !ENDS_EARLIER };
    Ok(SegmentInfo { id, bytes, first_time, max_timestamp, last_offset })
}
