//! Recurring work: retention of records, and expiry of committed offsets. A shard's leader looks and
//! proposes; nothing is deleted here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_model::command::{Command, Outcome, Refusal, TopicMeta};
use weir_model::queue::QueueKind;
use weir_model::{Offset, PartitionId, ShardId, SubscriptionId};
use weir_shard::{PartitionView, Subscription};

use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable, refused};
use crate::retention::{log_start_wanted, whole_segments_below};
use crate::rewriting::{Looks, looks_of, note, plan};

/// How often queues are looked at, whose records come and go, if retention is not looked at more often anyhow.
const QUEUES_EVERY: Duration = Duration::from_secs(10);

/// Which partitions are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All.
    All,
    /// Those whose records stay until they are settled.
    Queues,
}

impl Broker {
    /// Looks at every partition again and again for what retention lets go, and oftener at those of queues.
    pub(crate) async fn retain_always(self: Arc<Broker>) {
        let interval = Duration::from_millis(self.options.retention_check_interval_ms);
        let step = interval.min(QUEUES_EVERY);
        let mut since_all = Duration::ZERO;
        let mut looks = Looks::new();
        while self.pause(step).await {
            since_all += step;
            let look = if since_all >= interval { Look::All } else { Look::Queues };
            if look == Look::All {
                since_all = Duration::ZERO;
            }
            for shard in self.shards_of_partitions() {
                if let Err(error) = self.retain(shard, look, &mut looks).await {
                    tracing::warn!(%shard, %error, "retention did not get through a shard; it tries again");
                }
            }
        }
    }

    /// One look at the partitions of a shard that this node leads.
    pub(crate) async fn retain(
        &self,
        shard: ShardId,
        look: Look,
        looks: &mut Looks,
    ) -> Result<(), AdminError> {
        let handle = self.shard(shard)?;
        if !handle.leadership().ready {
            return Ok(());
        }
        let queues = self.partitions_of_queues()?;
        for partition in handle.view().partitions() {
            let id = partition.id();
            // What a queue has not settled stays, whatever its age.
            let held = handle.view().subscription(id, SubscriptionId::QUEUE);
            if (look == Look::Queues && held.is_none()) || partition.bytes() == 0 {
                continue;
            }
            let (next_offset, segments) = (partition.next_offset(), partition.segments());
            let now = self.clock.now_ms();
            let start = log_start_wanted(&segments, &partition.settings(), next_offset, now);
            match (start, held) {
                (Some(start), Some(held)) => {
                    if let Some(below) = whole_segments_below(&segments, start.min(held.head()), next_offset)
                    {
                        self.trim(shard, id, below, partition.log_start()).await?;
                    }
                    if start > held.head() && segments.len() > 1 {
                        self.rewrite(shard, &partition, held, start, looks).await?;
                    }
                }
                // A queue that was only just declared: nothing of it is settled.
                (_, None) if queues.contains(&id) => {}
                (Some(start), None) => self.trim(shard, id, start, partition.log_start()).await?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Has the closed segments of a queue written anew, below a bound, of which little is left.
    async fn rewrite(
        &self,
        shard: ShardId,
        partition: &Arc<PartitionView>,
        held: Arc<Subscription>,
        bound: Offset,
        looks: &mut Looks,
    ) -> Result<(), AdminError> {
        let (id, view) = (partition.id(), Arc::clone(partition));
        let known = looks_of(looks, id);
        let planned = self.blocking().run(move || plan(&view, &held, bound, &known)).await;
        let plan = match planned.map_err(|error| Unavailable::Stopped(error.to_string()))? {
            Ok(plan) => plan,
            Err(error) => {
                tracing::warn!(partition = %id, %error, "segments cannot be written anew, and stay as they are");
                return Ok(());
            }
        };
        note(looks, id, &partition.segments(), &plan);
        for command in plan.rewrites {
            let Command::RewriteSegments { segments, .. } = &command else { continue };
            let segments = segments.clone();
            match self.propose_to(shard, command).await? {
                Outcome::Done => {}
                // It was trimmed meanwhile.
                Outcome::Refused(Refusal::Segments(why)) => {
                    tracing::debug!(partition = %id, why, "segments were not written anew");
                    looks.retain(|(partition, segment), _| *partition != id || !segments.contains(segment));
                }
                other => return Err(refused(other)),
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
