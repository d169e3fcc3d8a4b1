//! Commands by which a record is stored once: by a key that the partition knows, or by where it comes from.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::batch::BatchHeader;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::entry::{FAN_OUT_MAX, TOGETHER_MAX};
use weir_model::subscription::{Disposition, Settlement};
use weir_model::timer::TimerRow;
use weir_model::unique::{UNIQUE_KEYS_MAX, UniqueKey, WindowKind};
use weir_model::{Offset, PartitionId, SubscriptionId};

use super::meta::limit;
use super::partitions::chunk_of;
use super::subscriptions::SubscriptionKey;
use super::{ApplyError, Chunk, Context, Effect, Machine};
use crate::limits::TIMERS_PER_PARTITION_MAX;
use crate::state::partition::record_count;
use crate::state::subscription::Subscription;
use crate::state::window::{Noted, Window};

/// A window's place in the state, which keeps those of one partition together.
pub(crate) type WindowKey = (PartitionId, WindowKind);

impl Machine {
    pub(super) fn window(&self, key: WindowKey) -> Option<&Arc<Window>> {
        self.windows.get(&chunk_of(key.0))?.get().get(&key)
    }

    /// All windows, by partition.
    #[cfg(test)]
    pub(super) fn windows(&self) -> impl Iterator<Item = (WindowKey, &Arc<Window>)> {
        self.windows.values().flat_map(|chunk| chunk.get().iter()).map(|(key, window)| (*key, window))
    }

    pub(super) fn append_unique(
        &mut self,
        context: Context,
        id: PartitionId,
        keys: &[UniqueKey],
        batch: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(partition) = self.partition(id) else {
            return Outcome::Refused(Refusal::UnknownPartition(id));
        };
        if keys.len() > UNIQUE_KEYS_MAX {
            return limit("keys of a batch", UNIQUE_KEYS_MAX);
        }
        let log_start = partition.log_start;
        if let Some(noted) = keys.iter().find_map(|key| self.noted(context, id, key)) {
            return Outcome::Appended(noted.repeated(log_start));
        }
        let appended = match self.append_to(context, id, batch, effects) {
            Ok(appended) => appended,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if !appended.duplicate {
            for key in keys {
                let noted = Noted::new(&appended, key.expires_at, key.until_settled);
                self.note(context, id, key, noted);
            }
        }
        Outcome::Appended(appended)
    }

    /// What the partition knows of a key, if it still counts.
    fn noted(&self, context: Context, id: PartitionId, key: &UniqueKey) -> Option<Noted> {
        let noted = self.window((id, key.window))?.get(&key.hash)?;
        (!is_over(noted, context, self.subscription(id, SubscriptionId::QUEUE))).then_some(*noted)
    }

    fn note(&mut self, context: Context, id: PartitionId, key: &UniqueKey, noted: Noted) {
        let queue = self.subscription(id, SubscriptionId::QUEUE).cloned();
        let fresh = || Chunk::new(BTreeMap::new(), context.index);
        let chunk = self.windows.entry(chunk_of(id)).or_insert_with(fresh).change(context.index);
        let window = Arc::make_mut(chunk.entry((id, key.window)).or_default());
        window.note(key.hash, noted, key.keys_max, |known| is_over(known, context, queue.as_ref()));
    }

    /// Puts a window in. Returns whether it was not there yet.
    pub(super) fn put_window(&mut self, key: WindowKey, window: Arc<Window>, index: u64) -> bool {
        let fresh = || Chunk::new(BTreeMap::new(), index);
        let chunk = self.windows.entry(chunk_of(key.0)).or_insert_with(fresh);
        chunk.change(index).insert(key, window).is_none()
    }

    /// The partition is gone, and its windows with it.
    pub(super) fn drop_windows(&mut self, context: Context, id: PartitionId) {
        let known =
            WindowKind::ALL.map(|kind| (id, kind)).into_iter().filter(|key| self.window(*key).is_some());
        let known: Vec<WindowKey> = known.collect();
        if known.is_empty() {
            return;
        }
        if let Some(chunk) = self.windows.get_mut(&chunk_of(id)) {
            known.iter().for_each(|key| drop(chunk.change(context.index).remove(key)));
            if chunk.get().is_empty() {
                self.windows.remove(&chunk_of(id));
            }
        }
    }

    pub(super) fn move_records(
        &mut self,
        context: Context,
        key: SubscriptionKey,
        records: &[(Offset, Offset)],
        deadlines: &[TimerRow],
        appends: &[Command],
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApplyError> {
        let refusal = self.cannot_move(key, records);
        if let Some(refusal) = refusal.or_else(|| self.cannot_append(appends)) {
            return Ok(Outcome::Refused(refusal));
        }
        let mut outcomes = Vec::with_capacity(appends.len());
        for command in appends {
            outcomes.push(self.run(context, command, effects)?);
        }
        let settlements: Vec<Settlement> = records
            .iter()
            .map(|(from, to)| Settlement { from: *from, to: *to, disposition: Disposition::Accept })
            .collect();
        self.settle(context, key, 0, &settlements, effects);
        self.remove_timers(context, key.0, deadlines, effects);
        Ok(Outcome::Together(outcomes))
    }

    /// Why records cannot be moved away; none if they can.
    fn cannot_move(&self, key: SubscriptionKey, records: &[(Offset, Offset)]) -> Option<Refusal> {
        let Some(partition) = self.partition(key.0) else { return Some(Refusal::UnknownPartition(key.0)) };
        let Some(subscription) = self.subscription(key.0, key.1) else {
            return Some(Refusal::UnknownSubscription(key.0, key.1));
        };
        records.iter().find_map(|&(from, to)| {
            if from < 0 || from > to || to >= partition.next_offset {
                return Some(Refusal::NoSuchRecords(key.0, from, to));
            }
            let settled = subscription.settled_within(from, to)?;
            Some(Refusal::AlreadySettled(key.0, settled))
        })
    }

    /// Why not all of these commands would append what they bring; none if they do. That a partition is gone is no
    /// reason.
    fn cannot_append(&self, appends: &[Command]) -> Option<Refusal> {
        let too_many = |what, limit: usize| Some(Refusal::Limit { what, limit: limit as u64 });
        if appends.len() > TOGETHER_MAX {
            return too_many("commands together", TOGETHER_MAX);
        }
        appends.iter().find_map(|command| match command {
            Command::Append { batch, .. } => cannot_be_moved(batch),
            Command::AppendToAll { partitions, .. } if partitions.len() > FAN_OUT_MAX => {
                too_many("partitions for one batch", FAN_OUT_MAX)
            }
            Command::AppendToAll { batch, .. } => cannot_be_moved(batch),
            Command::AppendUnique { keys, .. } if keys.len() > UNIQUE_KEYS_MAX => {
                too_many("keys of a batch", UNIQUE_KEYS_MAX)
            }
            Command::AppendUnique { batch, .. } => cannot_be_moved(batch),
            Command::AppendTimed { partition, deadlines, batch } => cannot_be_moved(batch).or_else(|| {
                let records = record_count(batch);
                if let Some((record, _)) = deadlines.iter().find(|(record, _)| *record >= records) {
                    return Some(Refusal::NoSuchRecord(*record));
                }
                let have = self.timers(*partition).map_or(0, |timers| timers.len());
                let too_many_deadlines = have + deadlines.len() > TIMERS_PER_PARTITION_MAX;
                too_many_deadlines.then_some(())?;
                too_many("deadlines per partition", TIMERS_PER_PARTITION_MAX)
            }),
            _ => Some(Refusal::NotTogether),
        })
    }
}

/// Whether a key does not count any more.
fn is_over(noted: &Noted, context: Context, queue: Option<&Arc<Subscription>>) -> bool {
    let settled = |queue: &Arc<Subscription>| {
        queue.is_settled(noted.base_offset) && queue.is_settled(noted.last_offset)
    };
    noted.expires_at <= context.now || (noted.until_settled && queue.is_some_and(settled))
}

/// Why a batch cannot be one that is moved; none if it can.
fn cannot_be_moved(batch: &Bytes) -> Option<Refusal> {
    match crate::state::partition::checked_header(batch) {
        Err(refusal) => Some(refusal),
        Ok(header) => numbered(&header),
    }
}

/// A numbered batch may turn out to be a repeat or out of order, which a move is not to depend on.
fn numbered(header: &BatchHeader) -> Option<Refusal> {
    let words = "the batch is malformed: one that is moved has no producer";
    header.is_idempotent().then(|| Refusal::MalformedBatch(words.into()))
}
