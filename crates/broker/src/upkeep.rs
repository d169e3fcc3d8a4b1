//! Recurring work: retention of records, and expiry of committed offsets. A shard's leader looks and
//! proposes; nothing is deleted here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_model::command::TopicMeta;
use weir_model::queue::QueueKind;
use weir_model::{PartitionId, ShardId, SubscriptionId};

use crate::broker::Broker;
use crate::errors::AdminError;
use crate::retention::{log_start_wanted, whole_segments_below};

impl Broker {
    /// Looks at every partition again and again for what retention lets go.
    pub(crate) async fn retain_always(self: Arc<Broker>) {
        let interval = Duration::from_millis(self.options.retention_check_interval_ms);
        while self.pause(interval).await {
            for shard in self.node.data_shards() {
                if let Err(error) = self.retain(shard).await {
                    tracing::warn!(%shard, %error, "retention did not get through a shard; it tries again");
                }
            }
        }
    }

    /// One look at every partition of a shard that this node leads.
    pub(crate) async fn retain(&self, shard: ShardId) -> Result<(), AdminError> {
        let handle = self.shard(shard)?;
        if !handle.leadership().ready {
            return Ok(());
        }
        let queues = self.partitions_of_queues()?;
        for partition in handle.view().partitions() {
            let next_offset = partition.next_offset();
            // What a queue has not settled stays, whatever its age.
            let held =
                handle.view().subscription(partition.id(), SubscriptionId::QUEUE).map(|state| state.head());
            let segments = partition.segments();
            let now = self.clock.now_ms();
            let start = log_start_wanted(&segments, &partition.settings(), next_offset, now);
            let start = match (start, held) {
                (Some(start), Some(head)) => whole_segments_below(&segments, start.min(head), next_offset),
                // A queue that was only just declared: nothing of it is settled.
                (_, None) if queues.contains(&partition.id()) => None,
                (start, _) => start,
            };
            if let Some(start) = start {
                self.trim(shard, partition.id(), start, partition.log_start()).await?;
            }
        }
        Ok(())
    }

    /// The partitions whose records stay until they are settled.
    fn partitions_of_queues(&self) -> Result<BTreeSet<PartitionId>, AdminError> {
        let catalog = self.meta()?.view().catalog();
        let is_settled = |topic: &&Arc<TopicMeta>| {
            catalog.queue(topic.id).is_some_and(|queue| queue.kind != QueueKind::Stream)
        };
        let topics = catalog.topics();
        Ok(topics
            .iter()
            .filter(is_settled)
            .flat_map(|topic| &topic.partitions)
            .map(|partition| partition.id)
            .collect())
    }

    /// Looks at every group again and again for positions that have expired.
    pub(crate) async fn expire_offsets_always(self: Arc<Broker>) {
        let interval = Duration::from_millis(self.options.offsets_retention_check_interval_ms);
        while self.pause(interval).await {
            for shard in self.node.data_shards() {
                if let Err(error) = self.expire_offsets(shard).await {
                    tracing::warn!(%shard, %error, "expiry did not get through a shard's groups; it tries again");
                }
            }
        }
    }

    /// Waits; false when the broker is being stopped.
    async fn pause(&self, interval: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(interval) => true,
            () = self.stopped() => false,
        }
    }
}
