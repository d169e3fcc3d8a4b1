//! The queues that somebody uses on this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_dispatch::{ConsumerId, LaneNumber, OwnerId};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::{SubscriptionId, TopicId};

use super::QueueOptions;
use super::actor::{Actor, Ended};
use super::handle::QueueRef;
use super::holdings::{Holdings, Lasting};
use crate::broker::Broker;
use crate::errors::{AdminError, LookupError, Unavailable, refused};
use crate::read::PartitionRef;
use crate::topics::Topic;

/// Partitions that a queue may have: each is a lane, and has a number.
const LANES_MAX: usize = LaneNumber::MAX as usize + 1;

/// Bits of a consumer's number that count the consumers of one dispatcher; those above count the dispatchers.
const CONSUMER_BITS: u32 = 32;

/// How often adding a lane is tried while others add lanes.
const LANE_TRIES_MAX: usize = 8;

/// From here on owners are those of other nodes' sessions.
const ELSEWHERE: u64 = 1 << 63;

/// An owner of nothing.
pub(crate) const NOBODY: OwnerId = OwnerId(ELSEWHERE - 1);

/// Whether an owner stands for one of another node.
pub(crate) fn is_elsewhere(owner: OwnerId) -> bool {
    owner.0 >= ELSEWHERE
}

/// The actors of this node, by topic.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Held while an actor is started, so that a queue never has two.
    running: tokio::sync::Mutex<BTreeMap<TopicId, QueueRef>>,
    owners: OwnerSource,
    pub(crate) holdings: Holdings,
    /// Actors and their like that there have been.
    dispatchers: AtomicU64,
}

impl Queues {
    /// Numbers for the consumers of one more dispatcher, which no other one on this node gives.
    pub(crate) fn next_consumers(&self) -> ConsumerId {
        ConsumerId(self.dispatchers.fetch_add(1, Ordering::Relaxed) << CONSUMER_BITS)
    }
}

/// Draws owners of leases, each once on this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerSource(Arc<AtomicU64>);

impl OwnerSource {
    pub(crate) fn next(&self) -> OwnerId {
        OwnerId(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// One that stands for an owner of another node.
    pub(crate) fn next_elsewhere(&self) -> OwnerId {
        OwnerId(self.next().0 | ELSEWHERE)
    }
}

impl Broker {
    /// An owner of leases that nobody else is on this node.
    pub fn new_owner(&self) -> OwnerId {
        self.queues.owners.next()
    }

    pub(crate) fn owner_source(&self) -> OwnerSource {
        self.queues.owners.clone()
    }

    /// The queue that a topic is, whose lanes are its partitions in their order, wherever it is led. Its subscription is
    /// made if it has none. Where another node leads it the options are what that node makes of its declaration.
    pub async fn queue(
        self: &Arc<Broker>,
        topic: &Topic,
        options: QueueOptions,
    ) -> Result<QueueRef, AdminError> {
        match self.leader_elsewhere(topic) {
            Some(leader) => self.remote_queue(topic.id(), leader).await,
            None => self.queue_here(topic, options).await,
        }
    }

    /// As [`Broker::queue`]; fails where this node does not lead it.
    pub(crate) async fn queue_here(
        self: &Arc<Broker>,
        topic: &Topic,
        options: QueueOptions,
    ) -> Result<QueueRef, AdminError> {
        let mut running = self.queues.running.lock().await;
        if let Some(queue) = running.get(&topic.id()).filter(|queue| !queue.is_gone()) {
            return Ok(queue.clone());
        }
        // It may have got another lane since the caller looked.
        let topic = &*self
            .topic_by_id(topic.id())
            .ok_or_else(|| AdminError::UnknownTopic(topic.name().to_owned()))?;
        if topic.partition_count() > LANES_MAX {
            return Err(AdminError::Limit { what: "partitions of a queue", limit: LANES_MAX as u64 });
        }
        let mut lanes = Vec::new();
        for (index, number) in self.lane_numbers(topic)?.into_iter().enumerate() {
            let partition = self.partition(topic, index as i32).map_err(|error| not_found(error, topic))?;
            partition.ready()?;
            self.open_subscription(&partition).await?;
            lanes.push((number, partition));
        }
        // Others may still have what an earlier leader handed out to them.
        let (others, has_remote) = (self.others_connected(), self.has_remote(topic.id()));
        let is_quiet =
            (!others.is_empty() || has_remote) && lanes.iter().any(|(_, partition)| may_be_out(partition));
        let lasting = Lasting::new(topic.id(), self.queues.holdings.clone());
        let (first, clock) = (self.queues.next_consumers(), self.clock.clone());
        let (actor, queue) = Actor::new(lanes, options, first, clock, lasting, is_quiet)?;
        running.insert(topic.id(), queue.clone());
        if is_quiet {
            tokio::spawn(Arc::clone(self).gather_holdings(topic.id(), queue.clone(), others));
        }
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
                // What is done once need not have room in every actor's task.
                if let Err(error) = Box::pin(broker.delete_topic(id)).await {
                    tracing::warn!(%error, %id, "an expired queue could not be deleted");
                }
            }
        });
        Ok(queue)
    }

    /// The queues that have an actor here.
    pub(crate) async fn running_queues(&self) -> Vec<TopicId> {
        self.queues.running.lock().await.keys().copied().collect()
    }

    /// The actor of a queue, if there is one here, or one elsewhere that is used here.
    pub(crate) async fn running_queue(&self, id: TopicId) -> Option<QueueRef> {
        match self.running_here(id).await {
            Some(queue) => Some(queue),
            None => self.attached_queue(id),
        }
    }

    /// The actor of a queue, if there is one here.
    pub(crate) async fn running_here(&self, id: TopicId) -> Option<QueueRef> {
        self.queues.running.lock().await.get(&id).filter(|queue| !queue.is_gone()).cloned()
    }

    /// The lane of each partition of a queue: its priority. A topic that was not declared as a queue has no priorities.
    fn lane_numbers(&self, topic: &Topic) -> Result<Vec<LaneNumber>, AdminError> {
        let catalog = self.meta()?.view().catalog();
        let partitions = 0..topic.partition_count();
        Ok(match catalog.queue(topic.id()) {
            Some(queue) => queue.lanes.clone(),
            None => partitions.map(|index| index as LaneNumber).collect(),
        })
    }

    /// The partition of a queue's lane, which the queue gets if it has none of this priority yet.
    pub(crate) async fn open_lane(&self, id: TopicId, lane: LaneNumber) -> Result<PartitionRef, AdminError> {
        let gone = || AdminError::UnknownTopic(id.to_string());
        for _ in 0..LANE_TRIES_MAX {
            let topic = self.topic_by_id(id).ok_or_else(gone)?;
            let queue = self.meta()?.view().catalog().queue(id).cloned().ok_or_else(gone)?;
            if let Some(index) = queue.lanes.iter().position(|known| *known == lane) {
                return self.partition(&topic, index as i32).map_err(|error| not_found(error, &topic));
            }
            // All lanes of a queue have one leader.
            let shard = topic.meta.partitions.first().map(|partition| partition.shard).ok_or_else(gone)?;
            let (expected, placement, lanes) = (queue.lanes.len() as u32, vec![shard], vec![lane]);
            let command = Command::AddLanes { topic_id: id, expected, placement, lanes };
            let meta = match self.propose_meta(command).await? {
                Outcome::Topic(meta) => meta,
                // Somebody else was faster.
                Outcome::Refused(Refusal::PartitionCount(_)) => continue,
                other => return Err(refused(other)),
            };
            let added = meta.partitions.get(expected as usize..).unwrap_or_default();
            let opened = self.open_partitions(added, &topic.settings).await;
            self.look_after(opened)?;
            let topic = self.topic_by_id(id).ok_or_else(gone)?;
            let partition =
                self.partition(&topic, expected as i32).map_err(|error| not_found(error, &topic))?;
            self.open_subscription(&partition).await?;
            // Whoever starts the queue from here on sees the lane; one that runs is told.
            match self.leader_elsewhere(&topic) {
                Some(leader) => self.tell_of_lanes(leader, id).await,
                None => self.add_lanes(id).await,
            }
            return Ok(partition);
        }
        Err(Unavailable::Overloaded.into())
    }

    /// Tells the actor of a queue of its lanes, those that it has among them.
    pub(crate) async fn add_lanes(&self, id: TopicId) {
        let running = self.queues.running.lock().await.get(&id).cloned();
        let (Some(queue), Some(topic)) = (running, self.topic_by_id(id)) else { return };
        for (index, lane) in self.lane_numbers(&topic).unwrap_or_default().into_iter().enumerate() {
            if let Ok(partition) = self.partition(&topic, index as i32) {
                // If it is going, the next one sees the lane.
                let _ = queue.add_lane(lane, partition).await;
            }
        }
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

/// Whether somebody may have records of a queue's partition that are not settled. Up to where they were handed out is not
/// known for certain: it is noted after that.
fn may_be_out(partition: &PartitionRef) -> bool {
    let state = partition.handle().view().subscription(partition.id(), SubscriptionId::QUEUE);
    state.is_some_and(|state| state.head() < partition.next_offset())
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
