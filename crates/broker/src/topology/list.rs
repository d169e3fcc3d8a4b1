//! What there is: namespaces, queues, and what queues are doing.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_model::SubscriptionId;
use weir_model::queue::{QueueKind, split_name};

use super::{QueueInfo, TopologyError};
use crate::broker::Broker;
use crate::errors::{LookupError, Unavailable};
use crate::queues::QueueFigures;
use crate::read::PartitionRef;

impl Broker {
    /// The namespaces that there are, in order.
    pub fn namespaces(&self) -> Result<BTreeSet<String>, Unavailable> {
        let namespaces = self.access_records()?.namespaces;
        Ok(namespaces.iter().map(|namespace| namespace.name.clone()).collect())
    }

    /// All queues, of one namespace or of all, in the order of their full names.
    pub fn queues(&self, namespace: Option<&str>) -> Result<Vec<QueueInfo>, Unavailable> {
        let catalog = self.meta()?.view().catalog();
        let queues = catalog.topics().into_iter().filter_map(|topic| {
            if namespace.is_some_and(|namespace| namespace != split_name(&topic.name).0) {
                return None;
            }
            // What could be declared can be read.
            QueueInfo::of(self.topics.get(&catalog, &topic)).ok()?
        });
        Ok(queues.collect())
    }

    /// Begins to work on a queue that has work to do although nobody uses it: its records expire and go somewhere
    /// then, or it expires itself. Whoever declares a queue without using it asks for this.
    pub async fn wake_queue(self: &Arc<Broker>, queue: &QueueInfo) -> Result<(), TopologyError> {
        let has_work = queue.arguments.dead_letters.is_some() || queue.arguments.expires_ms.is_some();
        // Whoever leads it sees to it.
        let is_elsewhere = self.leader_elsewhere(&queue.topic).is_some();
        if has_work && queue.meta.kind != QueueKind::Stream && !is_elsewhere {
            self.open_queue_here(queue).await?;
        }
        Ok(())
    }

    /// What a queue is doing. One that nobody uses is not woken for it: what waits in it is counted in its state.
    pub async fn queue_figures(&self, queue: &QueueInfo) -> Result<QueueFigures, LookupError> {
        let running = self.running_queue(queue.topic.id()).await;
        if let Some(running) = running
            && let Ok(figures) = running.look().await
        {
            return Ok(figures);
        }
        match self.leader_elsewhere(&queue.topic) {
            Some(leader) => self.figures_elsewhere(queue, leader).await,
            None => self.queue_figures_here(queue).await,
        }
    }

    /// As [`Broker::queue_figures`], of a queue that this node leads.
    pub(crate) async fn queue_figures_here(&self, queue: &QueueInfo) -> Result<QueueFigures, LookupError> {
        let running = self.running_here(queue.topic.id()).await;
        if let Some(running) = running
            && let Ok(figures) = running.look().await
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
