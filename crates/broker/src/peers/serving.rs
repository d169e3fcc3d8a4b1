//! What this node does for others that use its queues: their links, and the calls on them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weir_cluster::PeerService;
use weir_model::{NodeId, TopicId};

use super::answers::Answer;
use super::attachment::{self, Asked};
use super::messages::{Call, LinkId, PeerAsk, Seat};
use super::outgoing::{Outgoing, POLL_HOLD};
use crate::broker::Broker;

/// How long nothing is heard of a node before what it has is given back. It asks what has happened all the time.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Queues that one node uses of this one.
const SEATS_MAX: usize = 100_000;

/// A future answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// The links of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    links: Mutex<BTreeMap<NodeId, Served>>,
}

/// The link of a node. What it has on it goes with it.
#[derive(Debug)]
struct Served {
    id: LinkId,
    heard_at: Instant,
    outgoing: Arc<Outgoing>,
    seats: BTreeMap<Seat, mpsc::UnboundedSender<Asked>>,
}

/// The broker as other nodes see it.
pub(crate) struct Service(pub(crate) Weak<Broker>);

impl PeerService for Service {
    fn take_call(&self, from: NodeId, request: Bytes) -> Answering {
        match self.0.upgrade() {
            Some(broker) => take_call(&broker, from, request),
            None => Box::pin(std::future::ready(Bytes::new())),
        }
    }
}

/// Takes a call about queues. What must happen in the order of the calls has happened when this returns.
pub(crate) fn take_call(broker: &Arc<Broker>, from: NodeId, request: Bytes) -> Answering {
    let answer = match Call::decode(request) {
        Ok(call) => carry_out(broker, from, call),
        Err(error) => {
            tracing::warn!(%from, %error, "a node's call is passed over");
            return Box::pin(std::future::ready(Bytes::new()));
        }
    };
    Box::pin(async move { answer.await.encode() })
}

type Answered = Pin<Box<dyn Future<Output = Answer> + Send>>;

fn now(answer: Answer) -> Answered {
    Box::pin(std::future::ready(answer))
}

fn carry_out(broker: &Arc<Broker>, from: NodeId, call: Call) -> Answered {
    let serving = &broker.peers.serving;
    let broker = Arc::clone(broker);
    match call {
        Call::Hello(link) => {
            serving.open(from, link);
            tokio::spawn(watch(Arc::downgrade(&broker), from, link));
            now(Answer::Done)
        }
        Call::Poll(link) => match serving.heard(from, link) {
            Some(outgoing) => Box::pin(async move { outgoing.answer().await }),
            None => now(Answer::Gone),
        },
        Call::Attach(link, seat, topic) => serving.attach(&broker, from, (link, seat), topic),
        Call::Ask(link, seat, ask) => serving.ask(from, (link, seat), ask),
        Call::Applied(index, open) => Box::pin(async move { broker.until_applied(index, &open).await }),
        Call::Look(topic) => Box::pin(async move { broker.look_for_peer(topic).await }),
        Call::Browse(topic, count) => Box::pin(async move { broker.browse_for_peer(topic, count).await }),
        Call::Lanes(topic, index) => Box::pin(async move {
            let applied = broker.until_applied(index, &[]).await;
            broker.add_lanes(topic).await;
            applied
        }),
        Call::Policies(index) => Box::pin(async move {
            let applied = broker.until_applied(index, &[]).await;
            broker.apply_policies_here().await;
            applied
        }),
        Call::Redrive(ask) => Box::pin(async move { broker.redrive_for_peer(ask).await }),
        Call::Publish(targets, batch) => broker.publish_for_peer(from, targets, batch),
    }
}

/// Ends a link of which nothing is heard any more.
async fn watch(broker: Weak<Broker>, from: NodeId, link: LinkId) {
    loop {
        tokio::time::sleep(POLL_HOLD).await;
        let Some(broker) = broker.upgrade() else { return };
        if !broker.peers.serving.is_alive(from, link) {
            return;
        }
    }
}

impl Serving {
    /// A link begins. The node's earlier one ends with what it had.
    fn open(&self, from: NodeId, id: LinkId) {
        let outgoing = Arc::new(Outgoing::new());
        let served = Served { id, heard_at: Instant::now(), outgoing, seats: BTreeMap::new() };
        if self.links.lock().insert(from, served).is_some() {
            tracing::info!(node = %from, "a node has begun anew: what it had of queues comes back");
        }
    }

    /// The events of a link, of which something was heard.
    fn heard(&self, from: NodeId, id: LinkId) -> Option<Arc<Outgoing>> {
        let mut links = self.links.lock();
        let served = links.get_mut(&from).filter(|served| served.id == id)?;
        served.heard_at = Instant::now();
        Some(Arc::clone(&served.outgoing))
    }

    /// Whether the link is there; ends it if nothing was heard of it for too long.
    fn is_alive(&self, from: NodeId, id: LinkId) -> bool {
        let mut links = self.links.lock();
        let Some(served) = links.get(&from).filter(|served| served.id == id) else { return false };
        let is_alive = served.heard_at.elapsed() < SILENCE_MAX;
        if !is_alive {
            if !served.seats.is_empty() {
                tracing::warn!(node = %from, "nothing is heard of a node: what it had of queues comes back");
            }
            links.remove(&from);
        }
        is_alive
    }

    fn attach(
        &self,
        broker: &Arc<Broker>,
        from: NodeId,
        (id, seat): (LinkId, Seat),
        topic: TopicId,
    ) -> Answered {
        let (attached, answer) = oneshot::channel();
        {
            let mut links = self.links.lock();
            let Some(served) = links.get_mut(&from).filter(|served| served.id == id) else {
                return now(Answer::Gone);
            };
            // Those that ended by themselves.
            if served.seats.len() >= SEATS_MAX {
                served.seats.retain(|_, asks| !asks.is_closed());
            }
            if served.seats.len() >= SEATS_MAX || served.seats.contains_key(&seat) {
                return now(Answer::Refused("the node uses too many queues of this one".to_owned()));
            }
            let (sender, asks) = mpsc::unbounded_channel();
            served.seats.insert(seat, sender);
            let outgoing = Arc::clone(&served.outgoing);
            tokio::spawn(attachment::serve(Arc::clone(broker), topic, seat, outgoing, asks, attached));
        }
        Box::pin(async move { answer.await.unwrap_or(Answer::Gone) })
    }

    fn ask(&self, from: NodeId, (id, seat): (LinkId, Seat), ask: PeerAsk) -> Answered {
        let (reply, answer) = oneshot::channel();
        {
            let mut links = self.links.lock();
            let Some(served) = links.get_mut(&from).filter(|served| served.id == id) else {
                return now(Answer::Gone);
            };
            served.heard_at = Instant::now();
            // How many are on their way is bounded where they come from: each is answered.
            let is_taken = served.seats.get(&seat).is_some_and(|asks| asks.send((ask, reply)).is_ok());
            if !is_taken {
                served.seats.remove(&seat);
                return now(Answer::Gone);
            }
        }
        Box::pin(async move { answer.await.unwrap_or(Answer::Gone) })
    }
}
