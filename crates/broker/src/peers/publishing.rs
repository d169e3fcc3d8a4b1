//! Publishing to queues that only another node has: exclusive ones, and those that are not durable. A batch goes there once,
//! whatever number of its queues it is for, in the order of publishing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_cluster::TransportError;
use weir_dispatch::LaneNumber;
use weir_model::{NodeId, TopicId};

use super::answers::Answer;
use super::link::{Calling, started};
use super::messages::Call;

use crate::broker::Broker;
use crate::errors::{PublishError, Unavailable};

/// What may be on its way to one node: in KiB, of which every batch counts one at least.
const ON_THE_WAY_KIB: usize = 16 << 10;

/// Batches that a node's line takes in before the first of them is durable, as far as it has no more to wait for.
const TAKEN_MAX: usize = 4_096;

/// A batch on its way to another node.
pub(crate) type PublishingElsewhere = Calling<Result<(), PublishError>>;

type Batch = (Vec<(TopicId, LaneNumber)>, Bytes, oneshot::Sender<Answer>);

/// Both ends of the ways between nodes.
#[derive(Default)]
pub(crate) struct Lines {
    /// To other nodes: room for what is on its way.
    room: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
    /// From other nodes.
    arrivals: Mutex<BTreeMap<NodeId, mpsc::UnboundedSender<Batch>>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Broker {
    /// Sends a batch to another node, for these of its queues. It is behind those before it when this returns.
    pub(crate) async fn publish_elsewhere(
        &self,
        to: NodeId,
        targets: &[(TopicId, LaneNumber)],
        batch: &Bytes,
    ) -> PublishingElsewhere {
        let room = {
            let mut lines = self.peers.lines.room.lock();
            Arc::clone(lines.entry(to).or_insert_with(|| Arc::new(Semaphore::new(ON_THE_WAY_KIB))))
        };
        let kib = (1 + batch.len() / 1024).min(ON_THE_WAY_KIB) as u32;
        // It is never closed.
        let permit = room.acquire_many_owned(kib).await;
        let (node, request) =
            (Arc::clone(&self.node), Call::Publish(targets.to_vec(), batch.clone()).encode());
        let publishing: PublishingElsewhere = Box::pin(async move {
            let answer = node.call_peer(to, request).await;
            drop(permit);
            match answer.map(Answer::decode) {
                Ok(Ok(answer)) => published(answer),
                // Its queues fall with it.
                Err(TransportError::Unreachable(_)) => Ok(()),
                Ok(Err(error)) => Err(PublishError::Refused(error.to_string())),
                Err(TransportError::Failed { .. }) => Err(Unavailable::TimedOut.into()),
            }
        });
        started(publishing).await
    }

    /// Takes a batch of another node, in its turn.
    pub(super) fn publish_for_peer(
        self: &Arc<Broker>,
        from: NodeId,
        targets: Vec<(TopicId, LaneNumber)>,
        batch: Bytes,
    ) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send>> {
        let (reply, answer) = oneshot::channel();
        {
            let mut arrivals = self.peers.lines.arrivals.lock();
            let line = arrivals.entry(from).or_insert_with(|| {
                let (sender, batches) = mpsc::unbounded_channel();
                tokio::spawn(take_batches(Arc::downgrade(self), batches));
                sender
            });
            // What is on its way is bounded by the node that sends it.
            let _ = line.send((targets, batch, reply));
        }
        Box::pin(async move { answer.await.unwrap_or(Answer::Gone) })
    }
}

/// Publishes what another node sends, in order, for as long as there is a broker.
async fn take_batches(broker: Weak<Broker>, mut batches: mpsc::UnboundedReceiver<Batch>) {
    let mut publishing: FuturesUnordered<Calling<()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = publishing.next() => {}
            batch = batches.recv(), if publishing.len() < TAKEN_MAX => {
                let (Some((targets, batch, reply)), Some(broker)) = (batch, broker.upgrade()) else { return };
                match publish(&broker, &targets, batch).await {
                    Ok(published) => publishing.push(Box::pin(async move {
                        // Whoever sent it may have gone.
                        let _ = reply.send(answer_of(published.await));
                    })),
                    Err(error) => drop(reply.send(answer_of(Err(error)))),
                }
            }
        }
    }
}

async fn publish(
    broker: &Arc<Broker>,
    targets: &[(TopicId, LaneNumber)],
    batch: Bytes,
) -> Result<crate::topology::RoutedPublishing, PublishError> {
    let destinations = broker
        .destinations_in_lanes(targets)
        .map_err(|unrouted| PublishError::Refused(unrouted.to_string()))?;
    broker.publish_to(&destinations, batch).await
}

fn answer_of(published: Result<(), PublishError>) -> Answer {
    match published {
        Ok(()) => Answer::Done,
        Err(PublishError::QueueFull(queue)) => Answer::Full(queue),
        Err(PublishError::Unavailable(_)) => Answer::Starting,
        Err(error) => Answer::Refused(error.to_string()),
    }
}

fn published(answer: Answer) -> Result<(), PublishError> {
    match answer {
        Answer::Done | Answer::Unknown => Ok(()),
        Answer::Full(queue) => Err(PublishError::QueueFull(queue)),
        Answer::Refused(why) => Err(PublishError::Refused(why)),
        _ => Err(Unavailable::TimedOut.into()),
    }
}
