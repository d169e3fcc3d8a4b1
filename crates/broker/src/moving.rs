//! Records on their way from one partition to others: each arrives once, and is settled where it was.
//!
//! If all that they go to lies in the shard where they are, one command does both. If not, they are appended where they
//! go, by commands that a partition carries out only if it does not know them yet, and settled when they are there:
//! whoever fails in between repeats it, and they are not there twice.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use weir_cluster::{PendingOutcome, ProposeError, ShardHandle};
use weir_model::batch::{BatchBuilder, Record};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::timer::TimerRow;
use weir_model::{Offset, SubscriptionId};

use crate::broker::Broker;
use crate::errors::PublishError;
use crate::peers::PublishingElsewhere;
use crate::publish::not_taken;
use crate::queues::Reservation;
use crate::read::PartitionRef;
use crate::topology::{Destinations, appends, appends_moved, moved_key};

/// Records to be moved together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Move {
    /// Each with its offset where it is, and as it is to arrive.
    pub records: Vec<(Offset, Record)>,
    /// Deadlines of theirs.
    pub deadlines: Vec<TimerRow>,
}

/// What becomes of records for a queue that has no room for them and refuses what it has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// They are not moved.
    Refuse,
    /// They go nowhere, or where the queue's dead go if it is one that says so.
    PassOver,
}

/// Records on their way.
pub(crate) struct Moving {
    way: Way,
    /// Room that queues have promised.
    room: Vec<Reservation>,
}

enum Way {
    /// One command takes them there.
    AtOnce(PendingOutcome),
    /// They are being appended, on other nodes among them; the command settles them.
    Copying(Vec<PendingOutcome>, Vec<PublishingElsewhere>, ShardHandle, Command),
}

impl Broker {
    /// Puts records in the lines of all partitions that they go to. The order in which these calls return is the order
    /// of the appends. Dropping what is returned does not take them back.
    pub(crate) async fn move_records(
        self: &Arc<Broker>,
        from: &PartitionRef,
        moved: Move,
        to: &Destinations,
        full: Full,
    ) -> Result<Moving, PublishError> {
        let Move { records, deadlines } = moved;
        let now = self.now_ms();
        let batch = batch_of(&records);
        let (to, room, is_all) = self.with_room(to, &batch).await?;
        if !is_all && full == Full::Refuse {
            return Err(PublishError::QueueFull("to which they would go".into()));
        }
        let settling = |appends| Command::MoveRecords {
            partition: from.id(),
            subscription: SubscriptionId::QUEUE,
            records: runs_of(records.iter().map(|(offset, _)| *offset)),
            deadlines: deadlines.clone(),
            appends,
        };
        let is_here = to.partitions.iter().all(|partition| partition.shard() == from.shard());
        if is_here && !to.is_elsewhere() {
            let mut appends = appends(&to.partitions, &to.unique, &batch, now)?;
            let appends = appends.remove(&from.shard()).map(|(_, commands)| commands).unwrap_or_default();
            let moving = submit(from.handle(), settling(appends)).await?;
            return Ok(Moving { way: Way::AtOnce(moving), room });
        }
        let mut copies = Vec::new();
        for (offset, record) in &records {
            let origin = moved_key(from.id(), *offset, now);
            for (handle, commands) in
                appends_moved(&to.partitions, &to.unique, record, origin, now)?.into_values()
            {
                for command in commands {
                    copies.push(submit(&handle, command).await?);
                }
            }
        }
        // Those do not outlive their node, and are not asked whether they have a record.
        let elsewhere = self.publish_to_others(&to, &batch).await;
        let way = Way::Copying(copies, elsewhere, from.handle().clone(), settling(Vec::new()));
        Ok(Moving { way, room })
    }
}

impl Moving {
    /// Waits until they are where they go and nowhere else. False if one of them had been settled before: then those
    /// that go together are where they were.
    pub(crate) async fn finish(self) -> Result<bool, PublishError> {
        let Moving { way, room } = self;
        let settled = match way {
            Way::AtOnce(moving) => moving,
            Way::Copying(copies, elsewhere, handle, command) => {
                try_join_all(copies.into_iter().map(check_copied)).await?;
                for published in join_all(elsewhere).await {
                    match published {
                        Ok(()) | Err(PublishError::QueueFull(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                submit(&handle, command).await?
            }
        };
        match settled.await.map_err(not_taken)? {
            // Of what was to be appended nothing can be refused but what was for partitions that are gone.
            Outcome::Together(_) => {
                room.into_iter().for_each(Reservation::used);
                Ok(true)
            }
            Outcome::Refused(Refusal::AlreadySettled(..)) => Ok(false),
            Outcome::Refused(refusal) => Err(refusal.into()),
            other => Err(PublishError::Refused(format!("moving records came to {other:?}"))),
        }
    }
}

async fn submit(handle: &ShardHandle, command: Command) -> Result<PendingOutcome, PublishError> {
    let admission = handle.admit_relayed(command.admitted_bytes()).await.map_err(not_taken)?;
    handle.relay_admitted(admission, command).map_err(not_taken)
}

async fn check_copied(pending: PendingOutcome) -> Result<(), PublishError> {
    let outcome: Result<Outcome, ProposeError> = pending.await;
    match outcome.map_err(not_taken)? {
        // A queue that is deleted meanwhile takes what is sent to it with it.
        Outcome::Appended(_) | Outcome::Refused(Refusal::UnknownPartition(_)) => Ok(()),
        Outcome::Refused(refusal) => Err(refusal.into()),
        other => Err(PublishError::Refused(format!("an append came to {other:?}"))),
    }
}

/// About what a record takes in a batch, and not less.
pub(crate) fn record_bytes(record: &Record) -> usize {
    const NUMBERS: usize = 40;
    const NUMBERS_OF_HEADER: usize = 12;
    let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers =
        record.headers.iter().map(|header| NUMBERS_OF_HEADER + header.key.len() + len(&header.value));
    NUMBERS + len(&record.key) + len(&record.value) + headers.sum::<usize>()
}

fn batch_of(records: &[(Offset, Record)]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (_, record) in records {
        builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
    }
    builder.build()
}

/// Offsets as runs.
pub(crate) fn runs_of(offsets: impl Iterator<Item = Offset>) -> Vec<(Offset, Offset)> {
    let mut offsets: Vec<Offset> = offsets.collect();
    offsets.sort_unstable();
    let mut runs: Vec<(Offset, Offset)> = Vec::new();
    for offset in offsets {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == offset => *last = offset,
            _ => runs.push((offset, offset)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_follow_each_other_are_one_run() {
        assert_eq!(runs_of([5, 3, 9, 4, 8].into_iter()), [(3, 5), (8, 9)]);
        assert_eq!(runs_of([].into_iter()), []);
    }
}
