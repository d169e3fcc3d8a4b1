//! Publishing to what a router has found: one batch, to any number of queues and topics.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_cluster::PendingOutcome;
use weir_model::PartitionId;
use weir_model::command::{Outcome, Refusal};
use weir_model::queue::{full_name, is_hidden};

use super::{Overflow, QueueArguments, UniqueWindow, appends};
use crate::broker::Broker;
use crate::errors::{PublishError, Unavailable};
use crate::publish::not_taken;
use crate::read::PartitionRef;

/// The partitions that a batch goes to.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    pub(crate) partitions: Vec<PartitionRef>,
    /// Those of them that take no record twice.
    pub(crate) unique: Vec<(PartitionId, UniqueWindow)>,
}

impl Destinations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Whether a batch for these may go with one for others.
    pub fn are_those_of(&self, other: &Destinations) -> bool {
        let ids = |destinations: &Destinations| -> Vec<_> {
            destinations.partitions.iter().map(PartitionRef::id).collect()
        };
        ids(self) == ids(other)
    }
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
    failed: Option<PublishError>,
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
        if !this.pending.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(this.failed.take().map_or(Ok(()), Err))
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
            let topic = self.topics.get(meta);
            let mut unique = None;
            let index = match catalog.queue(meta.id) {
                None => any as usize % topic.partition_count().max(1),
                Some(queue) if queue.lanes.len() == 1 && queue.arguments.is_empty() => 0,
                Some(queue) => {
                    let arguments =
                        QueueArguments::read(name, queue.kind, &queue.arguments).unwrap_or_default();
                    let lane = arguments.lane(priority);
                    unique = arguments.unique;
                    queue.lanes.iter().position(|known| *known == lane).unwrap_or(0)
                }
            };
            match self.partition(&topic, index as i32) {
                Ok(partition) => {
                    destinations.unique.extend(unique.map(|unique| (partition.id(), unique)));
                    destinations.partitions.push(partition);
                }
                Err(error) => return Err(unrouted(name, error.to_string())),
            }
        }
        Ok(destinations)
    }

    /// Puts a batch in the lines of all its destinations, once for each shard. The order in which these calls return
    /// is the order of the appends.
    pub async fn publish_to(
        &self,
        destinations: &Destinations,
        batch: Bytes,
    ) -> Result<RoutedPublishing, PublishError> {
        let by_shard = appends(&destinations.partitions, &destinations.unique, &batch, self.now_ms())?;
        let mut publishing = RoutedPublishing { pending: Vec::with_capacity(by_shard.len()), failed: None };
        for (handle, commands) in by_shard.into_values() {
            for command in commands {
                let submitted = match handle.admit(command.admitted_bytes()).await {
                    Ok(admission) => handle.submit_admitted(admission, command),
                    Err(error) => Err(error),
                };
                match submitted {
                    Ok(pending) => publishing.pending.push(pending),
                    // What stands in shards' lines cannot be taken back: the publisher is told that not all have it.
                    Err(error) => publishing.failed = Some(not_taken(error)),
                }
            }
        }
        Ok(publishing)
    }

    /// Whether a queue would refuse one more record.
    pub fn is_full(&self, arguments: &QueueArguments, ready: u64) -> bool {
        arguments.overflow != Overflow::DropHead && arguments.records_max.is_some_and(|max| ready >= max)
    }
}

impl From<Unavailable> for Unrouted {
    fn from(unavailable: Unavailable) -> Unrouted {
        Unrouted { name: String::new(), why: unavailable.to_string() }
    }
}
