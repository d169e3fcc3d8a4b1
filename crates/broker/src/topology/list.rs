//! What there is: namespaces, queues, and what queues are doing.

use std::collections::BTreeSet;

use weir_model::SubscriptionId;
use weir_model::queue::{DEFAULT_NAMESPACE, HIDDEN_NAMESPACE, split_name};

use super::QueueInfo;
use crate::broker::Broker;
use crate::errors::{LookupError, Unavailable};
use crate::queues::QueueFigures;
use crate::read::PartitionRef;

impl Broker {
    /// The namespaces that there are, in order: the default one, and those in which something was declared.
    pub fn namespaces(&self) -> Result<BTreeSet<String>, Unavailable> {
        let topology = self.meta()?.view().topology();
        let declared = topology.namespaces().filter(|name| *name != HIDDEN_NAMESPACE).map(str::to_owned);
        Ok(std::iter::once(DEFAULT_NAMESPACE.to_owned()).chain(declared).collect())
    }

    /// All queues, of one namespace or of all, in the order of their full names.
    pub fn queues(&self, namespace: Option<&str>) -> Result<Vec<QueueInfo>, Unavailable> {
        let catalog = self.meta()?.view().catalog();
        let queues = catalog.topics().into_iter().filter_map(|topic| {
            let (of, _) = split_name(&topic.name);
            if namespace.is_some_and(|namespace| namespace != of) {
                return None;
            }
            // What could be declared can be read.
            QueueInfo::of(self.topics.get(&catalog, &topic)).ok()?
        });
        Ok(queues.collect())
    }

    /// What a queue is doing. One that nobody uses is not woken for it: what waits in it is counted in its state.
    pub async fn queue_figures(&self, queue: &QueueInfo) -> Result<QueueFigures, LookupError> {
        let running = self.running_queue(queue.topic.id()).await;
        if let Some(running) = running
            && let Ok(figures) = running.figures().await
        {
            return Ok(figures);
        }
        let mut figures = QueueFigures::default();
        for index in 0..queue.topic.partition_count() {
            let partition = self.partition(&queue.topic, index as i32)?;
            partition.ready()?;
            figures.ready += waiting(&partition);
        }
        Ok(figures)
    }
}

/// Records of a partition that are neither settled nor dead.
fn waiting(partition: &PartitionRef) -> u64 {
    let end = partition.next_offset();
    match partition.handle().view().subscription(partition.id(), SubscriptionId::QUEUE) {
        None => (end - partition.log_start()).max(0).cast_unsigned(),
        Some(state) => {
            let dead = state.marked_runs().filter(|(_, _, marks)| marks.dead.is_some());
            let dead: u64 = dead.map(|(from, to, _)| (to - from + 1).cast_unsigned()).sum();
            state.unsettled(end).saturating_sub(dead)
        }
    }
}
