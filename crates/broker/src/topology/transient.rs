//! What does not outlive a restart: queues and exchanges that are not durable, and queues of connections that are gone.

use weir_model::queue::split_name;

use super::TopologyError;
use crate::broker::Broker;

impl Broker {
    /// Deletes what should not have outlived the restart. Nothing is served before this is done.
    pub(crate) async fn drop_transient(&self) -> Result<(), TopologyError> {
        // Who does not lead has nothing to say here.
        let Ok(meta) = self.ready_meta() else { return Ok(()) };
        let (catalog, topology) = (meta.view().catalog(), meta.view().topology());
        for topic in catalog.topics() {
            let Some(queue) = catalog.queue(topic.id) else { continue };
            if !queue.durable || queue.exclusive {
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
