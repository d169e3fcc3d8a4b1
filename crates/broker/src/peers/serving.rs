//! What this node does for others that use its queues: their links, and the calls on them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::time::Instant;
use weir_cluster::PeerService;
use weir_model::{NodeId, TopicId};

use super::answers::Answer;
use super::attachment::{self, Asked, Known, User};
use super::messages::{Call, LinkId, PeerAsk, ProcessId, Seat};
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
    known: Mutex<BTreeMap<(NodeId, TopicId), SharedKnown>>,
}

type SharedKnown = Arc<tokio::sync::Mutex<Known>>;

/// The link of a node.
#[derive(Debug)]
struct Served {
    id: LinkId,
    process: ProcessId,
    heard_at: Instant,
    outgoing: Arc<Outgoing>,
    seats: BTreeMap<Seat, Taken>,
}

/// A queue that is used on a link.
#[derive(Debug)]
struct Taken {
    topic: TopicId,
    asks: mpsc::UnboundedSender<Asked>,
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
        Call::Hello(link, process) => {
            serving.open(from, link, process);
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
        Call::Come(topic) => Box::pin(async move {
            broker.come_to(from, topic).await;
            Answer::Done
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
    /// A link begins. The node's earlier one ends; what it had comes back unless it is the same process, and says that it
    /// still has it.
    fn open(&self, from: NodeId, id: LinkId, process: ProcessId) {
        let outgoing = Arc::new(Outgoing::new());
        let served = Served { id, process, heard_at: Instant::now(), outgoing, seats: BTreeMap::new() };
        if let Some(before) = self.links.lock().insert(from, served) {
            let is_same = before.process == process;
            tracing::info!(node = %from, is_same, "a node has begun anew to use queues");
        }
    }

    /// What a node has of a queue.
    pub(super) fn known(&self, node: NodeId, topic: TopicId) -> SharedKnown {
        Arc::clone(self.known.lock().entry((node, topic)).or_default())
    }

    /// A node has nothing of a queue any more.
    pub(super) fn forget(&self, node: NodeId, topic: TopicId, known: OwnedMutexGuard<Known>) {
        let mut all = self.known.lock();
        // Another attachment may wait for it already.
        let others = Arc::strong_count(OwnedMutexGuard::mutex(&known)) - 1;
        if others <= 1 {
            all.remove(&(node, topic));
        }
    }

    /// Whether the process that used a queue by a link that is gone is there by another one.
    pub(super) fn goes_on(&self, user: &User) -> bool {
        let links = self.links.lock();
        links.get(&user.node).is_some_and(|now| now.process == user.process && now.id != user.link)
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
            // Whoever uses it anew is done with the use before.
            served.seats.retain(|_, taken| taken.topic != topic);
            // Those that ended by themselves.
            if served.seats.len() >= SEATS_MAX {
                served.seats.retain(|_, taken| !taken.asks.is_closed());
            }
            if served.seats.len() >= SEATS_MAX || served.seats.contains_key(&seat) {
                return now(Answer::Refused("the node uses too many queues of this one".to_owned()));
            }
            let (sender, asks) = mpsc::unbounded_channel();
            served.seats.insert(seat, Taken { topic, asks: sender });
            let outgoing = Arc::clone(&served.outgoing);
            let user = User { node: from, process: served.process, link: id, seat };
            tokio::spawn(attachment::serve(Arc::clone(broker), topic, user, outgoing, asks, attached));
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
            let is_taken = served.seats.get(&seat).is_some_and(|taken| taken.asks.send((ask, reply)).is_ok());
            if !is_taken {
                served.seats.remove(&seat);
                return now(Answer::Gone);
            }
        }
        Box::pin(async move { answer.await.unwrap_or(Answer::Gone) })
    }
}
