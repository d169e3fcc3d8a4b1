//! Commands that concern deadlines, and those that stand or fall together.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::entry::TOGETHER_MAX;
use weir_model::timer::TimerRow;
use weir_model::{PartitionId, TimestampMs};

use super::meta::limit;
use super::partitions::chunk_of;
use super::{ApplyError, Chunk, Context, Effect, Machine};
use crate::limits::TIMERS_PER_PARTITION_MAX;
use crate::state::partition::record_count;
use crate::state::timers::Timers;

impl Machine {
    /// The deadlines of a partition's records.
    pub fn timers(&self, partition: PartitionId) -> Option<&Arc<Timers>> {
        self.timers.get(&chunk_of(partition))?.get().get(&partition)
    }

    /// All partitions that have deadlines.
    pub fn all_timers(&self) -> impl Iterator<Item = (PartitionId, &Arc<Timers>)> {
        self.timers.values().flat_map(|chunk| chunk.get().iter()).map(|(id, timers)| (*id, timers))
    }

    pub(super) fn append_timed(
        &mut self,
        context: Context,
        id: PartitionId,
        deadlines: &[(u32, TimestampMs)],
        batch: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let records = record_count(batch);
        if let Some((record, _)) = deadlines.iter().find(|(record, _)| *record >= records) {
            return Outcome::Refused(Refusal::NoSuchRecord(*record));
        }
        let have = self.timers(id).map_or(0, |timers| timers.len());
        if have + deadlines.len() > TIMERS_PER_PARTITION_MAX {
            return limit("deadlines per partition", TIMERS_PER_PARTITION_MAX);
        }
        let appended = match self.append_to(context, id, batch, effects) {
            Ok(appended) => appended,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if !appended.duplicate && !deadlines.is_empty() {
            let timers = self.change_timers(id, context.index);
            for (record, at) in deadlines {
                timers.insert(TimerRow { at: *at, offset: appended.base_offset + i64::from(*record) });
            }
            effects.push(Effect::TimersChanged(id));
        }
        Outcome::Appended(appended)
    }

    pub(super) fn remove_timers(
        &mut self,
        context: Context,
        id: PartitionId,
        rows: &[TimerRow],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.partition(id).is_none() {
            return Outcome::Refused(Refusal::UnknownPartition(id));
        }
        if self.timers(id).is_some() && !rows.is_empty() {
            let timers = self.change_timers(id, context.index);
            for row in rows {
                timers.remove(*row);
            }
            if timers.is_empty() {
                self.drop_timers(id, context.index);
            }
            effects.push(Effect::TimersChanged(id));
        }
        Outcome::Done
    }

    /// All of these commands, in one entry whatever happens.
    pub(super) fn together(
        &mut self,
        context: Context,
        commands: &[Command],
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApplyError> {
        if commands.len() > TOGETHER_MAX {
            return Ok(limit("commands together", TOGETHER_MAX));
        }
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            outcomes.push(match command {
                Command::Together { .. }
                | Command::MoveRecords { .. }
                | Command::OpenRelay { .. }
                | Command::Relayed { .. }
                | Command::Lead { .. }
                | Command::SetMachineVersion { .. }
                | Command::TakeDigest
                | Command::CompareDigest { .. } => Outcome::Refused(Refusal::NotTogether),
                command => self.run(context, command, effects)?,
            });
        }
        Ok(Outcome::Together(outcomes))
    }

    pub(super) fn drop_timers(&mut self, id: PartitionId, index: u64) {
        if self.timers(id).is_none() {
            return;
        }
        if let Some(chunk) = self.timers.get_mut(&chunk_of(id)) {
            chunk.change(index).remove(&id);
            if chunk.get().is_empty() {
                self.timers.remove(&chunk_of(id));
            }
        }
    }

    /// Puts the deadlines of a partition in. Returns whether it had none.
    pub(super) fn put_timers(&mut self, id: PartitionId, timers: Arc<Timers>, index: u64) -> bool {
        let fresh = || Chunk::new(BTreeMap::new(), index);
        self.timers.entry(chunk_of(id)).or_insert_with(fresh).change(index).insert(id, timers).is_none()
    }

    fn change_timers(&mut self, id: PartitionId, index: u64) -> &mut Timers {
        let fresh = || Chunk::new(BTreeMap::new(), index);
        let chunk = self.timers.entry(chunk_of(id)).or_insert_with(fresh).change(index);
        Arc::make_mut(chunk.entry(id).or_default())
    }
}
