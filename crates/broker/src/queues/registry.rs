//! The queues that somebody uses on this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_dispatch::{LaneNumber, OwnerId};
use weir_model::command::{Command, Outcome};
use weir_model::{SubscriptionId, TopicId};

use super::QueueOptions;
use super::actor::{Actor, Ended, QueueRef};
use crate::broker::Broker;
use crate::errors::{AdminError, LookupError, Unavailable, refused};
use crate::read::PartitionRef;
use crate::topics::Topic;

/// Partitions that a queue may have: each is a lane, and has a number.
const LANES_MAX: usize = LaneNumber::MAX as usize + 1;

/// The actors of this node, by topic.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Held while an actor is started, so that a queue never has two.
    running: tokio::sync::Mutex<BTreeMap<TopicId, QueueRef>>,
    next_owner: AtomicU64,
}

impl Queues {
    /// The actor of a queue, if it has one.
    pub(super) async fn running(&self, id: TopicId) -> Option<QueueRef> {
        self.running.lock().await.get(&id).filter(|queue| !queue.is_gone()).cloned()
    }
}

impl Broker {
    /// An owner of leases that nobody else is.
    pub fn new_owner(&self) -> OwnerId {
        OwnerId(self.queues.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// The queue that a topic is, whose lanes are its partitions in their order. Its subscription is made if it has
    /// none. Fails where another node leads it.
    pub async fn queue(
        self: &Arc<Broker>,
        topic: &Topic,
        options: QueueOptions,
    ) -> Result<QueueRef, AdminError> {
        let mut running = self.queues.running.lock().await;
        if let Some(queue) = running.get(&topic.id()).filter(|queue| !queue.is_gone()) {
            return Ok(queue.clone());
        }
        if topic.partition_count() > LANES_MAX {
            return Err(AdminError::Limit { what: "partitions of a queue", limit: LANES_MAX as u64 });
        }
        let mut lanes = Vec::new();
        for index in 0..topic.partition_count() {
            let partition = self.partition(topic, index as i32).map_err(|error| not_found(error, topic))?;
            partition.ready()?;
            self.open_subscription(&partition).await?;
            lanes.push((index as LaneNumber, partition));
        }
        let (actor, queue) = Actor::new(lanes, options, self.clock.clone(), self.blocking())?;
        running.insert(topic.id(), queue.clone());
        let (broker, id) = (Arc::downgrade(self), topic.id());
        tokio::spawn(async move {
            let ended = actor.run().await;
            tracing::debug!(%id, ?ended, "a queue's actor has ended");
            let Some(broker) = broker.upgrade() else { return };
            let mut running = broker.queues.running.lock().await;
            if running.get(&id).is_some_and(QueueRef::is_gone) {
                running.remove(&id);
            }
            drop(running);
            if ended == Ended::Expired {
                tracing::info!(%id, "deleting a queue that nobody has used for as long as it may wait");
                if let Err(error) = broker.delete_topic(id).await {
                    tracing::warn!(%error, %id, "an expired queue could not be deleted");
                }
            }
        });
        Ok(queue)
    }

    /// Makes the subscription by which a queue's records are settled, if there is none yet.
    pub(crate) async fn open_subscription(&self, partition: &PartitionRef) -> Result<(), AdminError> {
        let subscription = SubscriptionId::QUEUE;
        if partition.handle().view().subscription(partition.id(), subscription).is_some() {
            return Ok(());
        }
        let command = Command::OpenSubscription { partition: partition.id(), subscription, start: 0 };
        match self.propose_to(partition.shard(), command).await? {
            Outcome::Done => Ok(()),
            other => Err(refused(other)),
        }
    }
}

fn not_found(error: LookupError, topic: &Topic) -> AdminError {
    match error {
        LookupError::UnknownPartition { index, .. } => {
            AdminError::UnknownPartition { topic: topic.name().to_owned(), index }
        }
        LookupError::NotOpen { .. } => AdminError::Unavailable(Unavailable::Starting),
        LookupError::Unavailable(unavailable) => unavailable.into(),
    }
}
