//! Publishing to what a router has found: one batch, to any number of queues and topics.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_cluster::PendingOutcome;
use weir_model::batch::{BATCH_HEADER_BYTES, Record, decode_records, verify_batch};
use weir_model::command::{Outcome, Refusal};
use weir_model::queue::{full_name, is_hidden, split_name};
use weir_model::subscription::Disposition;
use weir_model::{NodeId, PartitionId, TopicId};

use super::{QueueInfo, TopologyError, UniqueWindow, appends};
use crate::broker::Broker;
use crate::errors::{AdminError, PublishError, Unavailable};
use crate::peers::PublishingElsewhere;
use crate::publish::not_taken;
use crate::queues::{LaneNumber, NOBODY, Overflow, Reservation};
use crate::read::PartitionRef;
use crate::topics::Topic;

/// Where a batch goes.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    pub(crate) partitions: Vec<PartitionRef>,
    /// Those of them that take no record twice.
    pub(crate) unique: Vec<(PartitionId, UniqueWindow)>,
    /// Lanes that no record of their queue has needed before.
    new_lanes: Vec<(TopicId, LaneNumber)>,
    /// Queues among them that may have no room: each with its partition, or its new lane.
    refusing: Vec<(Lane, QueueInfo)>,
    /// Lanes of queues that only another node has.
    elsewhere: BTreeMap<NodeId, Vec<(TopicId, LaneNumber)>>,
}

/// A lane of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    There(PartitionId),
    New(TopicId),
}

impl Destinations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.new_lanes.is_empty() && self.elsewhere.is_empty()
    }

    /// Whether other nodes alone have some of them.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Whether other nodes have the same of these as of others.
    pub(crate) fn is_same_elsewhere(&self, other: &Destinations) -> bool {
        self.elsewhere == other.elsewhere
    }

    /// Whether a batch for these may go with one for others. What may be refused goes alone.
    pub fn may_go_with(&self, other: &Destinations) -> bool {
        let ids = |destinations: &Destinations| -> Vec<_> {
            destinations.partitions.iter().map(PartitionRef::id).collect()
        };
        !self.goes_alone()
            && ids(self) == ids(other)
            && self.new_lanes == other.new_lanes
            && self.elsewhere == other.elsewhere
    }

    /// Whether a queue among them takes no record twice. What its publisher has settled before should be on its way then.
    pub fn take_nothing_twice(&self) -> bool {
        !self.unique.is_empty()
    }

    /// Whether each record must be published by itself, because it may be refused by itself.
    pub fn goes_alone(&self) -> bool {
        !self.refusing.is_empty()
    }
}

/// Which of a topic's partitions it is.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// By a message: a queue has one by priority, a topic any.
    Message { priority: Option<u8>, any: u64 },
    /// A lane of a queue.
    Lane(LaneNumber),
}

/// A name that a router knows has no partition to write to at present.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' cannot be written to: {why}")]
pub struct Unrouted {
    /// Which queue or topic.
    pub name: String,
    /// Why not.
    pub why: String,
}

/// A batch on its way to all its destinations: resolves when it is durable in each of them. Dropping it does not
/// take it back.
#[must_use = "without awaiting it nobody knows whether the batch is durable"]
pub struct RoutedPublishing {
    pending: Vec<PendingOutcome>,
    elsewhere: Vec<PublishingElsewhere>,
    failed: Option<PublishError>,
    /// Room that queues have promised.
    room: Vec<Reservation>,
}

impl std::fmt::Debug for RoutedPublishing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoutedPublishing").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl Future for RoutedPublishing {
    type Output = Result<(), PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let failed = &mut this.failed;
        this.pending.retain_mut(|pending| match Pin::new(pending).poll(context) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                let error = match outcome {
                    Ok(outcome) => refusal(outcome),
                    Err(error) => Some(not_taken(error)),
                };
                if failed.is_none() {
                    *failed = error;
                }
                false
            }
        });
        this.elsewhere.retain_mut(|publishing| match publishing.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(published) => {
                if failed.is_none() {
                    *failed = published.err();
                }
                false
            }
        });
        if !this.pending.is_empty() || !this.elsewhere.is_empty() {
            return Poll::Pending;
        }
        match this.failed.take() {
            None => {
                this.room.drain(..).for_each(Reservation::used);
                Poll::Ready(Ok(()))
            }
            Some(PublishError::QueueFull(queue)) => {
                // Those that had room have the record.
                this.room.drain(..).for_each(Reservation::used);
                Poll::Ready(Err(PublishError::QueueFull(queue)))
            }
            Some(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Why a batch is not everywhere; none if it is.
fn refusal(outcome: Outcome) -> Option<PublishError> {
    let error = |refusal: Refusal| match refusal {
        // A queue that is deleted meanwhile takes what is sent to it with it.
        Refusal::UnknownPartition(_) => None,
        other => Some(PublishError::from(other)),
    };
    match outcome {
        Outcome::Appended(_) => None,
        Outcome::AppendedToAll(all) => all.into_iter().filter_map(Result::err).find_map(error),
        Outcome::Refused(refusal) => error(refusal),
        other => Some(PublishError::Refused(format!("an append came to {other:?}"))),
    }
}

impl Broker {
    /// The partitions behind names that a router has found, for a record of a priority and a key. A queue has one by
    /// priority, a topic one by key, or any.
    pub fn destinations<'n>(
        &self,
        namespace: &str,
        names: impl IntoIterator<Item = &'n str>,
        priority: Option<u8>,
        any: u64,
    ) -> Result<Destinations, Unrouted> {
        let unrouted = |name: &str, why: String| Unrouted { name: name.to_owned(), why };
        let catalog = match self.meta() {
            Ok(meta) => meta.view().catalog(),
            Err(error) => return Err(unrouted("", error.to_string())),
        };
        let mut destinations = Destinations::default();
        for name in names {
            // It may have been deleted since it was found: then it takes nothing.
            let full = full_name(namespace, name);
            let Some(meta) = catalog.topic(&full).filter(|_| !is_hidden(&full)) else { continue };
            let topic = self.topics.get(&catalog, meta);
            self.add_destination(&mut destinations, topic, name, Pick::Message { priority, any })?;
        }
        Ok(destinations)
    }

    /// The partitions behind lanes of queues that only this node has, as another node names them.
    pub(crate) fn destinations_in_lanes(
        &self,
        targets: &[(TopicId, LaneNumber)],
    ) -> Result<Destinations, Unrouted> {
        let mut destinations = Destinations::default();
        for (id, lane) in targets {
            // It may have been deleted, or never have been here: then it takes nothing.
            let topic = self.topic_by_id(*id).filter(|topic| topic.queue.is_some());
            let Some(topic) = topic.filter(|topic| self.only_at(topic) == Some(self.node.node_id())) else {
                continue;
            };
            let (_, name) = split_name(topic.name());
            let name = name.to_owned();
            self.add_destination(&mut destinations, topic, &name, Pick::Lane(*lane))?;
        }
        Ok(destinations)
    }

    /// The only node that has a topic's partitions, if they are nowhere else.
    fn only_at(&self, topic: &Topic) -> Option<NodeId> {
        topic.meta.partitions.first()?.shard.temporary_of()
    }

    fn add_destination(
        &self,
        destinations: &mut Destinations,
        topic: Arc<Topic>,
        name: &str,
        pick: Pick,
    ) -> Result<(), Unrouted> {
        let unrouted = |why: String| Unrouted { name: name.to_owned(), why };
        let mut index = match pick {
            Pick::Message { any, .. } => Some(any as usize % topic.partition_count().max(1)),
            Pick::Lane(_) => Some(0),
        };
        let mut new_lane = 0;
        let mut refuses = false;
        let mut unique = None;
        if let Some(queue) = &topic.queue {
            let arguments = queue.arguments.as_ref().map_err(|error| unrouted(error.to_string()))?;
            new_lane = match pick {
                Pick::Message { priority, .. } => arguments.lane(priority),
                Pick::Lane(lane) => arguments.lane(Some(lane)),
            };
            if let Some(node) = self.only_at(&topic).filter(|node| *node != self.node.node_id()) {
                // What waits in it falls with its node, and so does what comes meanwhile.
                if self.is_live(node) {
                    destinations.elsewhere.entry(node).or_default().push((topic.id(), new_lane));
                }
                return Ok(());
            }
            index = queue.meta.lanes.iter().position(|known| *known == new_lane);
            refuses = arguments.limits.refuses();
            unique = arguments.unique.clone();
            // What it has is known to one partition.
            index = unique.as_ref().map_or(index, |_| Some(0));
        }
        let lane = match index {
            Some(index) => {
                let partition = self.partition(&topic, index as i32);
                let partition = partition.map_err(|error| unrouted(error.to_string()))?;
                let id = partition.id();
                destinations.unique.extend(unique.map(|unique| (id, unique)));
                destinations.partitions.push(partition);
                Lane::There(id)
            }
            None => {
                destinations.new_lanes.push((topic.id(), new_lane));
                Lane::New(topic.id())
            }
        };
        if refuses && let Ok(Some(info)) = QueueInfo::of(topic) {
            destinations.refusing.push((lane, info));
        }
        Ok(())
    }

    /// Puts a batch in the lines of all its destinations, once for each shard. The order in which these calls return
    /// is the order of the appends. A queue that has no room for it is passed over, and the publisher told.
    pub async fn publish_to(
        self: &Arc<Broker>,
        destinations: &Destinations,
        batch: Bytes,
    ) -> Result<RoutedPublishing, PublishError> {
        verify_batch(&batch)?;
        let mut publishing =
            RoutedPublishing { pending: Vec::new(), elsewhere: Vec::new(), failed: None, room: Vec::new() };
        let mut full = Vec::new();
        for (lane, queue) in &destinations.refusing {
            match self.room_for(queue, &batch).await? {
                Some(room) => publishing.room.push(room),
                None => {
                    let (_, name) = split_name(queue.topic.name());
                    publishing.failed = Some(PublishError::QueueFull(name.to_owned()));
                    full.push(*lane);
                }
            }
        }
        let has_room = |lane: Lane| !full.contains(&lane);
        let there = destinations.partitions.iter().filter(|partition| has_room(Lane::There(partition.id())));
        let mut partitions: Vec<PartitionRef> = there.cloned().collect();
        for (topic, lane) in destinations.new_lanes.iter().filter(|(topic, _)| has_room(Lane::New(*topic))) {
            match self.open_lane(*topic, *lane).await {
                Ok(partition) => partitions.push(partition),
                // A queue that is deleted meanwhile takes what is sent to it with it.
                Err(AdminError::UnknownTopic(_)) => {}
                Err(AdminError::Unavailable(error)) => return Err(error.into()),
                Err(error) => return Err(PublishError::Refused(error.to_string())),
            }
        }
        self.await_settlements(&partitions, &destinations.unique).await;
        let by_shard = appends(&partitions, &destinations.unique, &batch, self.now_ms())?;
        for (handle, commands) in by_shard.into_values() {
            for command in commands {
                let submitted = match handle.admit_relayed(command.admitted_bytes()).await {
                    Ok(admission) => handle.relay_admitted(admission, command),
                    Err(error) => Err(error),
                };
                match submitted {
                    Ok(pending) => publishing.pending.push(pending),
                    // What stands in shards' lines cannot be taken back: the publisher is told that not all have it.
                    Err(error) => publishing.failed = Some(not_taken(error)),
                }
            }
        }
        publishing.elsewhere = self.publish_to_others(destinations, &batch).await;
        Ok(publishing)
    }

    /// Sends a batch to the nodes that alone have queues it is for.
    pub(crate) async fn publish_to_others(
        &self,
        destinations: &Destinations,
        batch: &Bytes,
    ) -> Vec<PublishingElsewhere> {
        let mut publishing = Vec::new();
        for (node, targets) in &destinations.elsewhere {
            publishing.push(self.publish_elsewhere(*node, targets, batch).await);
        }
        publishing
    }

    /// Where a record counts as known as long as it waits: what was settled by now is settled before what is published
    /// now is looked at.
    async fn await_settlements(&self, partitions: &[PartitionRef], unique: &[(PartitionId, UniqueWindow)]) {
        for partition in partitions {
            let waits =
                |(id, window): &(PartitionId, UniqueWindow)| *id == partition.id() && window.ttl_ms.is_none();
            if unique.iter().any(waits)
                && let Some(queue) = self.running_queue(partition.topic_id()).await
            {
                // One that is gone has nothing more to settle.
                let _ = queue.settle_durably(NOBODY, Vec::new(), Disposition::Accept).await;
            }
        }
    }

    /// The same destinations, with every lane of theirs there.
    pub(crate) async fn with_lanes(
        self: &Arc<Broker>,
        mut destinations: Destinations,
    ) -> Result<Destinations, PublishError> {
        for (topic, number) in std::mem::take(&mut destinations.new_lanes) {
            let opened = match self.open_lane(topic, number).await {
                Ok(partition) => Some(partition),
                // A queue that is deleted meanwhile takes what is sent to it with it.
                Err(AdminError::UnknownTopic(_)) => None,
                Err(AdminError::Unavailable(error)) => return Err(error.into()),
                Err(error) => return Err(PublishError::Refused(error.to_string())),
            };
            destinations.refusing.retain_mut(|(lane, _)| match (*lane == Lane::New(topic), &opened) {
                (false, _) => true,
                (true, None) => false,
                (true, Some(partition)) => {
                    *lane = Lane::There(partition.id());
                    true
                }
            });
            destinations.partitions.extend(opened);
        }
        Ok(destinations)
    }

    /// Of destinations with lanes those that have room for a batch, which is promised to it, and whether that is all.
    pub(crate) async fn with_room(
        self: &Arc<Broker>,
        destinations: &Destinations,
        batch: &Bytes,
    ) -> Result<(Destinations, Vec<Reservation>, bool), PublishError> {
        let (mut with_room, mut room, mut is_all) = (destinations.clone(), Vec::new(), true);
        for (lane, queue) in &destinations.refusing {
            match self.room_for(queue, batch).await? {
                Some(promised) => room.push(promised),
                None => {
                    is_all = false;
                    with_room.partitions.retain(|partition| *lane != Lane::There(partition.id()));
                }
            }
        }
        Ok((with_room, room, is_all))
    }

    /// Room in a queue for a batch; none if it has none. What it refuses may be dead at once.
    async fn room_for(
        self: &Arc<Broker>,
        queue: &QueueInfo,
        batch: &Bytes,
    ) -> Result<Option<Reservation>, PublishError> {
        let records = decoded(batch)?;
        let value_bytes = |record: &Record| record.value.as_ref().map_or(0, |value| value.len() as u64);
        let bytes = records.iter().map(value_bytes).sum();
        let unavailable = |error: TopologyError| PublishError::Refused(error.to_string());
        let mut room = None;
        // It may end because nobody used it, just then.
        for _ in 0..2 {
            let running = self.open_queue(queue).await.map_err(unavailable)?;
            if let Ok(promised) = running.reserve(records.len() as u64, bytes).await {
                room = promised;
                break;
            }
        }
        if room.is_none()
            && queue.arguments.limits.overflow == Overflow::RejectDead
            && let Some(cemetery) = self.cemetery(queue)
        {
            for record in records {
                cemetery.bury_refused(record).await?;
            }
        }
        Ok(room)
    }
}

/// The records of a batch that a front has built.
fn decoded(batch: &Bytes) -> Result<Vec<Record>, PublishError> {
    let header = verify_batch(batch)?;
    let records = decode_records(&header, batch.slice(BATCH_HEADER_BYTES..));
    records.collect::<Result<_, _>>().map_err(|error| PublishError::Refused(error.to_string()))
}

impl From<Unavailable> for Unrouted {
    fn from(unavailable: Unavailable) -> Unrouted {
        Unrouted { name: String::new(), why: unavailable.to_string() }
    }
}
