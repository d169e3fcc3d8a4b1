//! Commands that concern partitions: open, configure, close, append, trim.

use std::sync::Arc;

use bytes::Bytes;
use weir_model::command::{Appended, Outcome, Refusal};
use weir_model::entry::{FAN_OUT_MAX, KEPT_RUNS_MAX, REWRITTEN_SEGMENTS_MAX};
use weir_model::settings::PartitionSettings;
use weir_model::{Offset, PartitionId};

use super::meta::limit;
use super::{Chunk, Context, Effect, Machine, PARTITIONS_PER_CHUNK};
use crate::limits::PARTITIONS_PER_SHARD_MAX;
use crate::state::partition::{AppendResult, PartitionState, Rewrite, replace_segments};

impl Machine {
    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Arc<PartitionState>> {
        self.partitions.get(&chunk_of(id))?.get().get(&id)
    }

    /// All partitions by id.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Arc<PartitionState>)> {
        self.partitions.values().flat_map(|chunk| chunk.get().iter()).map(|(id, state)| (*id, state))
    }

    /// Whether the partition is known to have been closed.
    pub(crate) fn is_closed(&self, id: PartitionId) -> bool {
        self.closed.get().contains(id) && self.partition(id).is_none()
    }

    /// How many partitions the shard has.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    fn change_partition(&mut self, id: PartitionId, index: u64) -> Option<&mut PartitionState> {
        let chunk = self.partitions.get_mut(&chunk_of(id))?;
        if !chunk.get().contains_key(&id) {
            return None;
        }
        chunk.change(index).get_mut(&id).map(Arc::make_mut)
    }

    pub(super) fn open_partition(
        &mut self,
        context: Context,
        id: PartitionId,
        settings: &PartitionSettings,
        epoch_base: i32,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.partition(id).is_some() {
            return Outcome::Done;
        }
        if !self.closed.get().may_open(id) {
            return Outcome::Refused(Refusal::UnknownPartition(id));
        }
        if self.partition_count >= PARTITIONS_PER_SHARD_MAX {
            return limit("partitions per shard", PARTITIONS_PER_SHARD_MAX);
        }
        let state = PartitionState::new(settings.clone(), epoch_base.max(0), self.leaderships());
        self.put_partition(id, Arc::new(state), context.index);
        effects.push(Effect::PartitionOpened(id));
        Outcome::Done
    }

    /// Puts a partition in that is not there yet.
    pub(super) fn put_partition(&mut self, id: PartitionId, state: Arc<PartitionState>, index: u64) {
        let chunk =
            self.partitions.entry(chunk_of(id)).or_insert_with(|| Chunk::new(Default::default(), index));
        if chunk.change(index).insert(id, state).is_none() {
            self.partition_count += 1;
        }
    }

    pub(super) fn configure_partition(
        &mut self,
        context: Context,
        id: PartitionId,
        settings: &PartitionSettings,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        match self.change_partition(id, context.index) {
            None => Outcome::Refused(Refusal::UnknownPartition(id)),
            Some(partition) => {
                partition.settings = Arc::new(settings.clone());
                effects.push(Effect::PartitionConfigured(id));
                Outcome::Done
            }
        }
    }

    pub(super) fn close_partition(
        &mut self,
        context: Context,
        id: PartitionId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.partition(id).is_none() {
            return Outcome::Refused(Refusal::UnknownPartition(id));
        }
        if let Some(chunk) = self.partitions.get_mut(&chunk_of(id)) {
            chunk.change(context.index).remove(&id);
            if chunk.get().is_empty() {
                self.partitions.remove(&chunk_of(id));
            }
        }
        self.partition_count -= 1;
        self.drop_subscriptions(context, id, effects);
        if self.timers(id).is_some() {
            self.drop_timers(id, context.index);
            effects.push(Effect::TimersChanged(id));
        }
        self.drop_windows(context, id);
        self.closed.change(context.index).insert(id);
        effects.push(Effect::PartitionClosed(id));
        Outcome::Done
    }

    pub(super) fn append(
        &mut self,
        context: Context,
        id: PartitionId,
        batch: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        match self.append_to(context, id, batch, effects) {
            Ok(appended) => Outcome::Appended(appended),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    pub(super) fn append_to_all(
        &mut self,
        context: Context,
        partitions: &[PartitionId],
        batch: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if partitions.len() > FAN_OUT_MAX {
            return limit("partitions for one batch", FAN_OUT_MAX);
        }
        let append = |id: &PartitionId| self.append_to(context, *id, batch, effects);
        Outcome::AppendedToAll(partitions.iter().map(append).collect())
    }

    pub(super) fn append_to(
        &mut self,
        context: Context,
        id: PartitionId,
        batch: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Result<Appended, Refusal> {
        let leaderships = self.leaderships();
        let partition = self.change_partition(id, context.index).ok_or(Refusal::UnknownPartition(id))?;
        match partition.append(batch, context.now, leaderships) {
            AppendResult::Stored { appended, batch, starts_segment } => {
                effects.push(Effect::Appended { partition: id, batch, starts_segment });
                Ok(appended)
            }
            AppendResult::Duplicate(appended) => Ok(appended),
            AppendResult::Refused(refusal) => Err(refusal),
        }
    }

    pub(super) fn trim(
        &mut self,
        context: Context,
        id: PartitionId,
        log_start: Offset,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(partition) = self.change_partition(id, context.index) else {
            return Outcome::Refused(Refusal::UnknownPartition(id));
        };
        if let Some(segments_dropped) = partition.trim(log_start) {
            let log_start = partition.log_start;
            effects.push(Effect::Trimmed { partition: id, log_start, segments_dropped });
            self.settle_trimmed(context, id, log_start, effects);
        }
        Outcome::Done
    }
}

impl Machine {
    /// Lets go of batches of which no individual subscription waits for a record any more. There must be one: what is
    /// read by offset only is not settled by anybody.
    pub(super) fn rewrite_segments(
        &mut self,
        context: Context,
        id: PartitionId,
        rewrite: &Rewrite<'_>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if rewrite.segments.len() > REWRITTEN_SEGMENTS_MAX {
            return limit("segments written anew as one", REWRITTEN_SEGMENTS_MAX);
        }
        if rewrite.kept.len() > KEPT_RUNS_MAX {
            return limit("runs of batches that stay", KEPT_RUNS_MAX);
        }
        let Some(partition) = self.partition(id) else {
            return Outcome::Refused(Refusal::UnknownPartition(id));
        };
        let becomes = match partition.rewrite(rewrite) {
            Ok(becomes) => becomes,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if !self.is_settled_between(id, rewrite.kept, becomes.from, becomes.to) {
            return Outcome::Refused(Refusal::Segments("a record that is not settled would be gone"));
        }
        if let Some(partition) = self.change_partition(id, context.index) {
            replace_segments(&mut partition.segments, rewrite.segments, becomes.new);
        }
        effects.push(Effect::Rewritten {
            partition: id,
            segments: rewrite.segments.to_vec(),
            kept: rewrite.kept.to_vec(),
            new: becomes.new,
        });
        Outcome::Done
    }
}

pub(super) fn chunk_of(id: PartitionId) -> u64 {
    id.0 / PARTITIONS_PER_CHUNK
}
