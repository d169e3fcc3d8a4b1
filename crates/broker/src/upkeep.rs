//! Recurring work: retention of records, and expiry of committed offsets. A shard's leader looks and
//! proposes; nothing is deleted here.

use std::sync::Arc;
use std::time::Duration;

use weir_model::ShardId;

use crate::broker::Broker;
use crate::errors::AdminError;
use crate::retention::log_start_wanted;

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
        for partition in handle.view().partitions() {
            let next_offset = partition.next_offset();
            let segments = partition.segments();
            let now = self.clock.now_ms();
            if let Some(start) = log_start_wanted(&segments, &partition.settings(), next_offset, now) {
                self.trim(shard, partition.id(), start, partition.log_start()).await?;
            }
        }
        Ok(())
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
