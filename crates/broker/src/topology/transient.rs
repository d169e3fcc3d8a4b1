//! What does not outlive a restart: queues and exchanges that are not durable, and queues of connections that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_model::command::{Command, TopicMeta};
use weir_model::queue::split_name;
use weir_model::{PartitionId, ShardId};

use super::TopologyError;
use crate::broker::Broker;

/// How often it is looked for what is left of temporary queues that others have deleted.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How long until queues are opened again that could not be.
const WAKE_AGAIN: Duration = Duration::from_millis(500);

impl Broker {
    /// Begins to work on a shard's queues that have work to do although nobody uses them, whenever this node begins to
    /// lead it: their records expire and go somewhere then, or they expire themselves.
    pub(crate) async fn wake_queues_always(self: Arc<Broker>, shard: ShardId) {
        let Ok(handle) = self.shard(shard) else { return };
        let mut leadership = handle.on_leadership();
        let mut woken_in = None;
        loop {
            let current = *leadership.borrow_and_update();
            let is_new = current.ready && woken_in != Some(current.term);
            // Until the partitions agree with the catalog a queue may lack its own.
            if is_new && self.until_reconciled().await.is_ok() {
                match self.wake_queues(shard).await {
                    Ok(()) => woken_in = Some(current.term),
                    Err(error) => tracing::debug!(%shard, %error, "not every queue could be opened yet"),
                }
            }
            let is_lacking = current.ready && woken_in != Some(current.term);
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(WAKE_AGAIN), if is_lacking => {}
                () = self.stopped() => return,
            }
        }
    }

    pub(crate) async fn wake_queues(self: &Arc<Broker>, shard: ShardId) -> Result<(), TopologyError> {
        let catalog = self.meta()?.view().catalog();
        let lies_there = |topic: &&Arc<TopicMeta>| topic.partitions.iter().any(|p| p.shard == shard);
        for topic in catalog.topics().iter().filter(lies_there) {
            let (namespace, name) = split_name(&topic.name);
            let Ok(Some(queue)) = self.find_queue(namespace, name) else { continue };
            self.wake_queue(&queue).await?;
        }
        Ok(())
    }

    /// Closes what this node's temporary shard has of queues that are gone: whoever deleted them, on whatever node, can
    /// not reach it.
    pub(crate) async fn sweep_temporary_always(self: Arc<Broker>) {
        let shard = self.node.temporary();
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP_EVERY) => {}
                () = self.stopped() => return,
            }
            let (Ok(handle), Ok(meta)) = (self.shard(shard), self.meta()) else { return };
            if meta.leadership().ready
                && let Err(error) = self.drop_what_fell_with_nodes().await
            {
                tracing::debug!(%error, "queues of a node that was removed are not deleted yet");
            }
            // Listed before the catalog is looked at: a partition is opened only after the catalog has it.
            let open: BTreeSet<PartitionId> =
                handle.view().partitions().iter().map(|partition| partition.id()).collect();
            if open.is_empty() {
                continue;
            }
            let catalog = meta.view().catalog();
            let (topics, deleting) = (catalog.topics(), catalog.deleting());
            let known = topics.iter().chain(&deleting).flat_map(|topic| &topic.partitions);
            let known: BTreeSet<PartitionId> = known.map(|partition| partition.id).collect();
            for partition in open.difference(&known) {
                let command = Command::ClosePartition { partition: *partition };
                if let Err(error) = self.propose_to(shard, command).await {
                    tracing::debug!(%error, "a temporary queue's partition is not closed yet");
                }
            }
        }
    }

    /// Deletes what was only on nodes that are of the cluster no more.
    async fn drop_what_fell_with_nodes(&self) -> Result<(), TopologyError> {
        let view = self.meta()?.view();
        let (catalog, nodes) = (view.catalog(), view.nodes());
        for topic in catalog.topics() {
            let Some(queue) = catalog.queue(topic.id) else { continue };
            if let Some(owner) = queue.owner
                && queue.is_temporary()
                && nodes.is_removed(owner)
            {
                let (namespace, name) = split_name(&topic.name);
                tracing::info!(namespace, name, node = %owner, "deleting a queue of a node that was removed");
                self.delete_topic(topic.id).await?;
            }
        }
        Ok(())
    }

    /// Deletes what should not have outlived the restart. Nothing is served before this is done.
    pub(crate) async fn drop_transient(&self) -> Result<(), TopologyError> {
        let meta = self.current_meta().await?;
        let (catalog, topology) = (meta.view().catalog(), meta.view().topology());
        for topic in catalog.topics() {
            let Some(queue) = catalog.queue(topic.id) else { continue };
            if queue.is_temporary() && queue.owner.is_none_or(|owner| owner == self.node.node_id()) {
                let (namespace, name) = split_name(&topic.name);
                tracing::info!(namespace, name, "deleting a queue that does not outlive a restart");
                self.delete_topic(topic.id).await?;
            }
        }
        // Others may still use them.
        if meta.voters().len() > 1 {
            return Ok(());
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
