//! Records that wait far longer than those around them are parked anew at the log's end, so that a record that waits a
//! year does not hold the space of all that came and went meanwhile.

use std::sync::Arc;
use std::time::Duration;

use weir_model::batch::BatchBuilder;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::timer::TimerRow;
use weir_model::{Offset, SubscriptionId, TimestampMs};
use weir_shard::{SegmentInfo, Timers};

use super::attendant::Attendant;
use crate::errors::PublishError;
use crate::moving::runs_of;
use crate::publish::not_taken;

/// Segments that a lot may have before it is tidied.
const SEGMENTS_MIN: usize = 4;

/// A segment is emptied when at most one of so many of its records still waits.
const SPARSE: i64 = 4;

/// Records moved at a time.
const MOVED_AT_ONCE: usize = 512;

/// Bytes of them.
const MOVED_BYTES: usize = 256 << 10;

/// Records that are due within this time are not worth moving.
const SOON: Duration = Duration::from_secs(60);

impl Attendant<'_> {
    /// Empties the oldest segment, if few of its records still wait and those wait long.
    pub(super) async fn tidy(&self, timers: Arc<Timers>) -> Result<(), PublishError> {
        let segments = self.lot.view().segments();
        if segments.len() < SEGMENTS_MIN {
            return Ok(());
        }
        let soon = self.broker.now_ms().saturating_add(SOON.as_millis() as TimestampMs);
        let looking = move || left_behind(&segments, &timers, soon);
        let rows = self.broker.blocking().run(looking).await;
        let rows = rows.map_err(|error| PublishError::Refused(error.to_string()))?;
        for rows in rows.chunks(MOVED_AT_ONCE) {
            self.park_anew(rows).await?;
        }
        Ok(())
    }

    /// Moves records to the log's end, in the order of their deadlines.
    async fn park_anew(&self, rows: &[TimerRow]) -> Result<(), PublishError> {
        let mut offsets: Vec<Offset> = rows.iter().map(|row| row.offset).collect();
        offsets.sort_unstable();
        let mut fetched = self.fetch(offsets, MOVED_BYTES).await?;
        let (mut builder, mut moved) = (BatchBuilder::new(), Vec::new());
        for row in rows {
            // What did not come with them stays for the next time.
            let Some(record) = fetched.records.remove(&row.offset) else { continue };
            builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
            moved.push(*row);
        }
        if moved.is_empty() {
            return Ok(());
        }
        let partition = self.lot.id();
        let deadlines = (0..).zip(&moved).map(|(number, row)| (number, row.at)).collect();
        let again = Command::AppendTimed { partition, deadlines, batch: builder.build() };
        let command = Command::MoveRecords {
            partition,
            subscription: SubscriptionId::QUEUE,
            records: runs_of(moved.iter().map(|row| row.offset)),
            deadlines: moved,
            appends: vec![again],
        };
        match self.lot.handle().propose(command).await.map_err(not_taken)? {
            // Somebody took one back, or it was released.
            Outcome::Together(_) | Outcome::Refused(Refusal::AlreadySettled(..)) => Ok(()),
            Outcome::Refused(refusal) => Err(refusal.into()),
            other => Err(PublishError::Refused(format!("moving records came to {other:?}"))),
        }
    }
}

/// The records of the oldest segment that still wait, if they are few and none of them is due soon.
fn left_behind(segments: &[SegmentInfo], timers: &Timers, soon: TimestampMs) -> Vec<TimerRow> {
    let [first, second, ..] = segments else { return Vec::new() };
    let most = (second.id.base - first.id.base) / SPARSE;
    let waiting = timers.iter().filter(|row| row.offset < second.id.base);
    let rows: Vec<TimerRow> = waiting.take(most.max(0) as usize + 1).collect();
    let few = rows.len() as i64 <= most;
    if few && rows.iter().all(|row| row.at > soon) { rows } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use weir_shard::SegmentId;

    use super::*;

    fn segment(base: Offset) -> SegmentInfo {
        SegmentInfo { id: SegmentId { base, generation: 0 }, bytes: 1, first_time: 0, max_timestamp: 0 }
    }

    #[test]
    fn a_segment_in_which_nothing_waits_needs_nothing() {
        assert_eq!(left_behind(&[segment(0), segment(100)], &Timers::default(), 0), []);
        assert_eq!(left_behind(&[segment(0)], &Timers::default(), 0), []);
    }
}
