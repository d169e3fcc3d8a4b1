//! What retention lets go: whole segments from the start of a partition, by age and by size. The
//! shard's leader decides and proposes; every replica drops the same segments.

use weir_model::settings::PartitionSettings;
use weir_model::{Offset, TimestampMs};
use weir_shard::SegmentInfo;

/// The log start that retention asks for; none if nothing may go.
///
/// A segment is as old as its newest record says, but no younger than its end: a producer's clock
/// that is wrong by years must not keep records for years. The segment that is appended to goes
/// with the others once all of it is too old, so that what an idle partition holds expires as well.
pub(crate) fn log_start_wanted(
    segments: &[SegmentInfo],
    settings: &PartitionSettings,
    next_offset: Offset,
    now: TimestampMs,
) -> Option<Offset> {
    let by_age = expired(segments, settings, now);
    let by_size = oversize(segments, settings);
    match by_age.max(by_size) {
        0 => None,
        all if all == segments.len() => Some(next_offset),
        some => segments.get(some).map(|first| first.id.base),
    }
}

/// The log start up to which whole segments lie below a bound; none if the first one does not.
pub(crate) fn whole_segments_below(
    segments: &[SegmentInfo],
    bound: Offset,
    next_offset: Offset,
) -> Option<Offset> {
    if bound >= next_offset {
        return (!segments.is_empty()).then_some(next_offset);
    }
    let behind = segments.partition_point(|segment| segment.id.base <= bound);
    (behind > 1).then(|| segments[behind - 1].id.base)
}

/// How many of the oldest segments are too old.
fn expired(segments: &[SegmentInfo], settings: &PartitionSettings, now: TimestampMs) -> usize {
    if settings.retention_ms < 0 {
        return 0;
    }
    let oldest_kept = now.saturating_sub(settings.retention_ms);
    let newest = |(at, segment): (usize, &SegmentInfo)| {
        let ended = match segments.get(at + 1) {
            Some(next) => next.first_time,
            None => segment.first_time.saturating_add(settings.segment_ms).min(now),
        };
        if segment.max_timestamp < 0 { ended } else { segment.max_timestamp.min(ended) }
    };
    segments.iter().enumerate().take_while(|segment| newest(*segment) < oldest_kept).count()
}

/// How many of the oldest segments are too many. The one that is appended to always stays.
fn oversize(segments: &[SegmentInfo], settings: &PartitionSettings) -> usize {
    let Ok(limit) = u64::try_from(settings.retention_bytes) else { return 0 };
    let mut total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let closed = segments.len().saturating_sub(1);
    let goes = |segment: &&SegmentInfo| match total.checked_sub(segment.bytes) {
        Some(rest) if rest >= limit => {
            total = rest;
            true
        }
        _ => false,
    };
    segments[..closed].iter().take_while(goes).count()
}

#[cfg(test)]
mod tests {
    use weir_model::SegmentId;

    use super::*;

    const HOUR: i64 = 3_600_000;
    const NOW: TimestampMs = 1_000 * HOUR;

    /// Segments of ten offsets: bytes, entry time of the first append, newest timestamp.
    fn segments(list: &[(u64, TimestampMs, TimestampMs)]) -> Vec<SegmentInfo> {
        let segment = |(at, (bytes, first_time, max_timestamp)): (usize, &(u64, i64, i64))| SegmentInfo {
            id: SegmentId { base: 10 * at as i64, generation: 0 },
            bytes: *bytes,
            first_time: *first_time,
            max_timestamp: *max_timestamp,
            last_offset: 10 * at as i64 + 9,
        };
        list.iter().enumerate().map(segment).collect()
    }

    fn settings(retention_ms: i64, retention_bytes: i64) -> PartitionSettings {
        PartitionSettings { retention_ms, retention_bytes, segment_ms: HOUR, ..PartitionSettings::default() }
    }

    fn wanted(list: &[(u64, i64, i64)], settings: &PartitionSettings) -> Option<Offset> {
        let segments = segments(list);
        log_start_wanted(&segments, settings, 10 * segments.len() as i64 - 5, NOW)
    }

    #[test]
    fn segments_older_than_the_retention_time_go() {
        let old = NOW - 10 * HOUR;
        let list = [(1, old, old), (1, old + HOUR, old + HOUR), (1, NOW - HOUR, NOW)];
        assert_eq!(wanted(&list, &settings(5 * HOUR, -1)), Some(20));
        assert_eq!(wanted(&list, &settings(20 * HOUR, -1)), None);
        assert_eq!(wanted(&list, &settings(-1, -1)), None);
    }

    #[test]
    fn an_idle_partition_loses_the_segment_that_is_appended_to_as_well() {
        let old = NOW - 10 * HOUR;
        assert_eq!(wanted(&[(1, old, old), (1, old + HOUR, old + HOUR)], &settings(5 * HOUR, -1)), Some(15));
    }

    #[test]
    fn a_newer_segment_keeps_nothing_older_and_an_older_one_behind_it_waits() {
        let old = NOW - 10 * HOUR;
        let list = [(1, old, NOW), (1, NOW - HOUR, old), (1, NOW, NOW)];
        assert_eq!(wanted(&list, &settings(5 * HOUR, -1)), None);
    }

    #[test]
    fn timestamps_from_the_future_do_not_keep_a_segment_longer_than_its_end() {
        let old = NOW - 10 * HOUR;
        let future = NOW + 1_000 * HOUR;
        assert_eq!(wanted(&[(1, old, future), (1, NOW, NOW)], &settings(5 * HOUR, -1)), None);
        assert_eq!(
            wanted(&[(1, old, future), (1, old + HOUR, NOW), (1, NOW, NOW)], &settings(5 * HOUR, -1)),
            Some(10)
        );
        assert_eq!(wanted(&[(1, old, future)], &settings(5 * HOUR, -1)), Some(5));
    }

    #[test]
    fn records_without_a_timestamp_are_as_old_as_their_segment() {
        let old = NOW - 10 * HOUR;
        assert_eq!(
            wanted(&[(1, old, -1), (1, old + HOUR, -1), (1, NOW, -1)], &settings(5 * HOUR, -1)),
            Some(10)
        );
    }

    #[test]
    fn the_oldest_closed_segments_beyond_the_size_go() {
        let list = [(100, NOW, NOW), (100, NOW, NOW), (100, NOW, NOW), (50, NOW, NOW)];
        assert_eq!(wanted(&list, &settings(-1, 1_000)), None);
        assert_eq!(wanted(&list, &settings(-1, 251)), None);
        assert_eq!(wanted(&list, &settings(-1, 250)), Some(10));
        assert_eq!(wanted(&list, &settings(-1, 100)), Some(20));
        assert_eq!(wanted(&list, &settings(-1, 0)), Some(30));
        assert_eq!(wanted(&[(100, NOW, NOW)], &settings(-1, 0)), None);
    }

    #[test]
    fn only_segments_that_are_settled_as_a_whole_go() {
        let segments = segments(&[(1, NOW, NOW), (1, NOW, NOW), (1, NOW, NOW)]);
        let below = |bound| whole_segments_below(&segments, bound, 25);
        let expected = [None, None, Some(10), Some(10), Some(20), Some(20), Some(25)];
        assert_eq!([0, 9, 10, 19, 20, 24, 25].map(below), expected);
        assert_eq!(whole_segments_below(&[], 0, 0), None);
    }

    #[test]
    fn an_empty_partition_has_nothing_to_lose() {
        assert_eq!(log_start_wanted(&[], &settings(0, 0), 0, NOW), None);
    }
}
