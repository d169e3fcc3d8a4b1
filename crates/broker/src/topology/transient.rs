//! What does not outlive a restart: queues and exchanges that are not durable, and queues of connections that are gone.

use std::sync::Arc;

use weir_model::ShardId;
use weir_model::queue::split_name;

use super::TopologyError;
use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable};

impl Broker {
    /// Begins to work on queues that have work to do although nobody uses them: their records expire and go somewhere
    /// then, or they expire themselves.
    pub(crate) async fn wake_queues(self: &Arc<Broker>) -> Result<(), TopologyError> {
        for queue in self.queues(None)? {
            match self.wake_queue(&queue).await {
                // Whoever leads it next sees to it.
                Ok(())
                | Err(TopologyError::Admin(AdminError::Unavailable(Unavailable::NotLeader { .. }))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Does the same whenever this node begins to lead a shard, for the queues in it.
    pub(crate) async fn wake_queues_always(self: Arc<Broker>, shard: ShardId) {
        let Ok(handle) = self.shard(shard) else { return };
        let mut leadership = handle.on_leadership();
        loop {
            let now = *leadership.borrow_and_update();
            if now.is_leader && now.ready && self.until_reconciled().await.is_ok() {
                for queue in self.queues(None).unwrap_or_default() {
                    if queue.topic.meta.partitions.first().is_none_or(|partition| partition.shard != shard) {
                        continue;
                    }
                    if let Err(error) = self.wake_queue(&queue).await {
                        tracing::warn!(%error, queue = queue.topic.name(), "a queue could not be opened");
                    }
                }
            }
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() { return },
                () = self.stopped() => return,
            }
        }
    }

    /// Deletes what should not have outlived the restart. Nothing is served before this is done.
    pub(crate) async fn drop_transient(&self) -> Result<(), TopologyError> {
        // Who does not lead has nothing to say here.
        let Ok(meta) = self.ready_meta() else { return Ok(()) };
        let (catalog, topology) = (meta.view().catalog(), meta.view().topology());
        for topic in catalog.topics() {
            let Some(queue) = catalog.queue(topic.id) else { continue };
            if queue.is_temporary() && queue.owner.is_none_or(|owner| owner == self.node.node_id()) {
                let (namespace, name) = split_name(&topic.name);
                tracing::info!(namespace, name, "deleting a queue that does not outlive a restart");
                self.delete_topic(topic.id).await?;
            }
        }
        for namespace in topology.namespaces() {
            for exchange in topology.router(namespace).exchanges() {
                if !exchange.durable {
                    self.delete_exchange(namespace, &exchange.name, false).await?;
                }
            }
        }
        Ok(())
    }
}
