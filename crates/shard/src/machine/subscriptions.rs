//! Commands that concern individual subscriptions: open, close, settle.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::command::{Outcome, Refusal};
use weir_model::subscription::Settlement;
use weir_model::{Offset, PartitionId, SubscriptionId};

use super::meta::limit;
use super::partitions::chunk_of;
use super::{Chunk, Context, Effect, Machine};
use crate::limits::SUBSCRIPTIONS_PER_PARTITION_MAX;
use crate::state::partition::gaps;
use crate::state::subscription::Subscription;

/// A subscription's place in the state, which keeps those of one partition together.
pub(crate) type SubscriptionKey = (PartitionId, SubscriptionId);

impl Machine {
    /// An individual subscription.
    pub fn subscription(&self, partition: PartitionId, id: SubscriptionId) -> Option<&Arc<Subscription>> {
        self.subscriptions.get(&chunk_of(partition))?.get().get(&(partition, id))
    }

    /// All individual subscriptions, by partition.
    pub fn subscriptions(&self) -> impl Iterator<Item = (SubscriptionKey, &Arc<Subscription>)> {
        self.subscriptions.values().flat_map(|chunk| chunk.get().iter()).map(|(key, state)| (*key, state))
    }

    fn subscriptions_of(&self, partition: PartitionId) -> Vec<SubscriptionId> {
        let Some(chunk) = self.subscriptions.get(&chunk_of(partition)) else { return Vec::new() };
        let all = (partition, SubscriptionId(0))..=(partition, SubscriptionId(u64::MAX));
        chunk.get().range(all).map(|((_, id), _)| *id).collect()
    }

    pub(super) fn open_subscription(
        &mut self,
        context: Context,
        key: SubscriptionKey,
        start: Offset,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(partition) = self.partition(key.0) else {
            return Outcome::Refused(Refusal::UnknownPartition(key.0));
        };
        let head = start.clamp(partition.log_start, partition.next_offset);
        if self.subscription(key.0, key.1).is_some() {
            return Outcome::Done;
        }
        if self.subscriptions_of(key.0).len() >= SUBSCRIPTIONS_PER_PARTITION_MAX {
            return limit("subscriptions per partition", SUBSCRIPTIONS_PER_PARTITION_MAX);
        }
        self.put_subscription(key, Arc::new(Subscription::new(head)), context.index);
        effects.push(Effect::SubscriptionChanged(key.0, key.1));
        Outcome::Done
    }

    /// Puts a subscription in. Returns whether it was not there yet.
    pub(super) fn put_subscription(
        &mut self,
        key: SubscriptionKey,
        state: Arc<Subscription>,
        index: u64,
    ) -> bool {
        let fresh = || Chunk::new(BTreeMap::new(), index);
        let chunk = self.subscriptions.entry(chunk_of(key.0)).or_insert_with(fresh);
        chunk.change(index).insert(key, state).is_none()
    }

    pub(super) fn close_subscription(
        &mut self,
        context: Context,
        key: SubscriptionKey,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.subscription(key.0, key.1).is_none() {
            return Outcome::Refused(Refusal::UnknownSubscription(key.0, key.1));
        }
        self.remove_subscription(key, context.index);
        effects.push(Effect::SubscriptionChanged(key.0, key.1));
        Outcome::Done
    }

    fn remove_subscription(&mut self, key: SubscriptionKey, index: u64) {
        if let Some(chunk) = self.subscriptions.get_mut(&chunk_of(key.0)) {
            chunk.change(index).remove(&key);
            if chunk.get().is_empty() {
                self.subscriptions.remove(&chunk_of(key.0));
            }
        }
    }

    pub(super) fn settle(
        &mut self,
        context: Context,
        key: SubscriptionKey,
        handed_out: Offset,
        settlements: &[Settlement],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(end) = self.partition(key.0).map(|partition| partition.next_offset) else {
            return Outcome::Refused(Refusal::UnknownPartition(key.0));
        };
        let Some(subscription) = self.change_subscription(key, context.index) else {
            return Outcome::Refused(Refusal::UnknownSubscription(key.0, key.1));
        };
        subscription.hand_out(handed_out, end);
        settlements.iter().for_each(|settlement| subscription.settle(settlement, end, context.now));
        effects.push(Effect::SubscriptionChanged(key.0, key.1));
        Outcome::Done
    }

    fn change_subscription(&mut self, key: SubscriptionKey, index: u64) -> Option<&mut Subscription> {
        let chunk = self.subscriptions.get_mut(&chunk_of(key.0))?;
        if !chunk.get().contains_key(&key) {
            return None;
        }
        chunk.change(index).get_mut(&key).map(Arc::make_mut)
    }

    /// Records below an offset are gone: no subscription of the partition waits for them any more.
    pub(super) fn settle_trimmed(
        &mut self,
        context: Context,
        partition: PartitionId,
        log_start: Offset,
        effects: &mut Vec<Effect>,
    ) {
        for id in self.subscriptions_of(partition) {
            let behind = self.subscription(partition, id).is_some_and(|state| state.head() < log_start);
            if behind && let Some(subscription) = self.change_subscription((partition, id), context.index) {
                subscription.raise_head(log_start);
                effects.push(Effect::SubscriptionChanged(partition, id));
            }
        }
    }

    /// Whether every subscription of a partition, and there is one, has settled what lies between runs of offsets within
    /// a span.
    pub(super) fn is_settled_between(
        &self,
        partition: PartitionId,
        runs: &[(Offset, Offset)],
        from: Offset,
        to: Offset,
    ) -> bool {
        let ids = self.subscriptions_of(partition);
        let mut states = ids.iter().filter_map(|id| self.subscription(partition, *id));
        !ids.is_empty()
            && states
                .all(|state| gaps(runs, from, to).all(|(from, to)| state.unsettled_within(from, to) == 0))
    }

    /// The partition is gone, and its subscriptions with it.
    pub(super) fn drop_subscriptions(
        &mut self,
        context: Context,
        partition: PartitionId,
        effects: &mut Vec<Effect>,
    ) {
        for id in self.subscriptions_of(partition) {
            self.remove_subscription((partition, id), context.index);
            effects.push(Effect::SubscriptionChanged(partition, id));
        }
    }
}
