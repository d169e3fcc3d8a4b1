//! Queues across nodes. A queue's actor runs on the node that leads its shard; a session on any node uses it.
//!
//! The node of the session (`remote`, `link`) opens a link to the leader's node, asks on it in order, and asks all the time
//! what has happened there; so one direction of calls is enough, each node knows soon that the other is gone, and nothing
//! is sent to a session faster than it takes it. The leader's node (`serving`, `attachment`, `outgoing`, `permits`) carries
//! out what is asked for sessions that it knows by their node, the link and their numbers there. If a call fails, or one of
//! the two is silent, the link ends: for the sessions the queue is gone as if its actor had ended. Their node remembers what
//! they have, and what they settled that may not have arrived, and says so first when it uses the queue again, over another
//! link or at another leader. A node that does not come back loses what it had: the leader gives it to others.
//!
//! Beside that: publishing to queues that only another node has (`publishing`), looking at queues that are led elsewhere
//! (`looking`), and waiting until all nodes know of what was declared (`barrier`).

mod answers;
mod attachment;
mod barrier;
mod link;
mod looking;
mod messages;
mod outgoing;
mod permits;
mod publishing;
mod remote;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use weir_cluster::ShardHandle;
use weir_model::{NodeId, ShardId, TopicId};

use self::answers::Answer;
use self::link::Link;
use self::messages::{Call, LinkId, ProcessId};
use self::publishing::Lines;
use self::remote::Remote;
use self::serving::Serving;
use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable};
use crate::queues::{Holding, Lasting, QueueRef};
use crate::topics::Topic;

pub(crate) use publishing::PublishingElsewhere;
pub(crate) use serving::Service;

/// Asks that wait to be sent. Whoever has more to ask waits.
const ASKS_MAX: usize = 1_024;

/// How long it is waited until whoever served a queue has ended.
const END_MAX: Duration = Duration::from_millis(1_500);

/// How often an actor is woken whose leadership is over.
const WAKE_AGAIN: Duration = Duration::from_millis(20);

/// What this node has to do with the queues of others, and others with its own.
#[derive(Default)]
pub(crate) struct Peers {
    serving: Serving,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    remotes: Mutex<BTreeMap<TopicId, Attached>>,
    lines: Lines,
    /// Drawn when it is first told.
    process: OnceLock<ProcessId>,
}

/// A queue that another node leads and that is used here.
struct Attached {
    queue: QueueRef,
    leader: NodeId,
    /// Ends it.
    stop: Arc<Notify>,
    /// What the leader's node said to it; none until it has.
    answer: watch::Receiver<Option<Answer>>,
}

/// The use of a queue that is to end.
struct Ending {
    queue: QueueRef,
    stop: Arc<Notify>,
}

impl Attached {
    fn ending(&self) -> Ending {
        Ending { queue: self.queue.clone(), stop: Arc::clone(&self.stop) }
    }
}

impl Ending {
    /// Ends it, and waits until what sessions have was left.
    async fn end(self) {
        self.stop.notify_one();
        let _ = tokio::time::timeout(END_MAX, self.queue.until_gone()).await;
    }
}

/// What is read of another node's call, or answer: written again, the same; for tests of the encoding.
#[doc(hidden)]
pub fn written_again(bytes: &Bytes) -> Option<Bytes> {
    match (Call::decode(bytes.clone()), Answer::decode(bytes.clone())) {
        (Ok(call), _) => Some(call.encode().concat().into()),
        (Err(_), Ok(answer)) => Some(answer.encode()),
        (Err(_), Err(_)) => None,
    }
}

/// Calls and answers of every kind, as bytes; for tests of the encoding.
#[doc(hidden)]
pub fn examples() -> Vec<Bytes> {
    let calls = messages::examples().into_iter().map(|call| call.encode().concat().into());
    calls.chain(answers::examples().into_iter().map(|answer| answer.encode())).collect()
}

impl Broker {
    /// Who leads a topic's first partition, if that is another node: all partitions of a queue have one leader.
    pub(crate) fn leader_elsewhere(&self, topic: &Topic) -> Option<NodeId> {
        let shard: ShardId = topic.meta.partitions.first()?.shard;
        let here = self.node.node_id();
        let leader = match self.node.shard(shard) {
            None => shard.temporary_of(),
            Some(handle) => {
                let leadership = handle.leadership();
                leadership.leader.filter(|_| !leadership.is_leader)
            }
        };
        leader.filter(|leader| *leader != here)
    }

    /// The handle to a queue that another node leads. Fails if that node does not say so too.
    pub(crate) async fn remote_queue(
        self: &Arc<Broker>,
        topic: TopicId,
        leader: NodeId,
    ) -> Result<QueueRef, AdminError> {
        let (queue, mut answer) = {
            let mut remotes = self.peers.remotes.lock();
            let known = remotes.get(&topic).filter(|known| known.leader == leader && !known.queue.is_gone());
            match known {
                Some(known) => (known.queue.clone(), known.answer.clone()),
                None => {
                    let before = remotes.get(&topic).map(Attached::ending);
                    // In any case, so that there is never one of which nobody knows.
                    before.iter().for_each(|before| before.stop.notify_one());
                    let attached = self.attach(topic, leader, before);
                    let both = (attached.queue.clone(), attached.answer.clone());
                    remotes.insert(topic, attached);
                    both
                }
            }
        };
        let answered = match answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None,
        };
        match answered {
            Some(Answer::Done) => Ok(queue),
            Some(Answer::NotLeader(leader)) => Err(Unavailable::NotLeader { leader }.into()),
            Some(Answer::Unknown) => Err(AdminError::UnknownTopic(topic.to_string())),
            Some(Answer::Starting) => Err(Unavailable::Starting.into()),
            Some(Answer::Refused(why)) => Err(AdminError::Conflict(why)),
            // It cannot be reached.
            _ => Err(Unavailable::NotLeader { leader: Some(leader) }.into()),
        }
    }

    /// Begins to use a queue of another node. What sessions here have of it that node hears first, so that whoever served
    /// it to them before ends before that.
    fn attach(self: &Arc<Broker>, topic: TopicId, leader: NodeId, before: Option<Ending>) -> Attached {
        let (sender, mut asks) = mpsc::channel(ASKS_MAX);
        let (wake, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let lasting = Lasting::new(topic, self.queues.holdings.clone());
        let queue = QueueRef::new(sender, Arc::clone(&wake), lasting.clone());
        let (told, answer) = watch::channel(None);
        let (link, first) = (self.link(leader), self.queues.next_consumers());
        let (broker, holdings, stopping) =
            (Arc::clone(self), self.queues.holdings.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let seated = async {
                // A link that nobody has used for a while may end just then.
                let (seat, events) = if link.greet().await { link.take_seat()? } else { return None };
                let said = link.attach(seat, topic).await;
                if said == Answer::Done {
                    broker.let_go(topic, before).await;
                }
                Some((seat, events, said))
            };
            let seated = tokio::select! {
                seated = seated => seated,
                () = stopping.notified() => None,
                () = broker.until_led_by_another(topic, leader) => None,
            };
            let outdated = broker.until_led_by_another(topic, leader);
            // A queue's use keeps no broker.
            let broker = {
                let weak = Arc::downgrade(&broker);
                drop(broker);
                weak
            };
            match seated {
                Some((seat, events, Answer::Done)) => {
                    let remote = Remote::new(Arc::clone(&link), seat, wake, stopping, first);
                    remote.serve(holdings.take(topic), &told, events, asks, &lasting, outdated).await;
                    tracing::debug!(%topic, node = %leader, "a queue of another node is gone");
                    link.leave(seat);
                }
                Some((seat, _, refused)) => {
                    lasting.leave(Holding::default(), &mut asks);
                    told.send_replace(Some(refused));
                    link.leave(seat);
                }
                None => {
                    lasting.leave(Holding::default(), &mut asks);
                    told.send_replace(Some(Answer::Gone));
                }
            }
            let Some(broker) = broker.upgrade() else { return };
            let mut remotes = broker.peers.remotes.lock();
            if remotes.get(&topic).is_some_and(|attached| attached.queue.is_gone()) {
                remotes.remove(&topic);
            }
        });
        Attached { queue, leader, stop, answer }
    }

    /// Whoever serves a queue to sessions here ends, if it is not whom they use from here on: the use of another node's, and
    /// an actor whose leadership is over.
    async fn let_go(&self, topic: TopicId, before: Option<Ending>) {
        if let Some(before) = before {
            before.end().await;
        }
        if let Some(queue) = self.running_here(topic).await {
            // It may not know yet that it leads no more.
            let gone = async {
                while tokio::time::timeout(WAKE_AGAIN, queue.until_gone()).await.is_err() {
                    queue.wake();
                }
            };
            let _ = tokio::time::timeout(END_MAX, gone).await;
        }
    }

    /// Returns when this node has heard that neither it nor the named node leads a queue, but another one.
    fn until_led_by_another(
        &self,
        topic: TopicId,
        leader: NodeId,
    ) -> impl Future<Output = ()> + Send + use<> {
        let shard = self.topic_by_id(topic).and_then(|topic| Some(topic.meta.partitions.first()?.shard));
        let leadership = shard.and_then(|shard| self.node.shard(shard)).map(ShardHandle::on_leadership);
        let here = self.node.node_id();
        async move {
            if let Some(mut leadership) = leadership {
                let before = leadership.borrow_and_update().term;
                while leadership.changed().await.is_ok() {
                    let now = *leadership.borrow_and_update();
                    // Whoever says that he leads may be believed before this node has heard of it.
                    if now.term > before && now.leader.is_some_and(|now| now != leader && now != here) {
                        return;
                    }
                }
            }
            std::future::pending().await
        }
    }

    /// Ends the use of a queue of another node; what sessions here have of it is left to whoever leads it next.
    pub(crate) async fn end_remote(&self, topic: TopicId) {
        let ending = self.peers.remotes.lock().get(&topic).map(Attached::ending);
        if let Some(ending) = ending {
            ending.end().await;
        }
    }

    /// Whether sessions here use a queue as another node's.
    pub(crate) fn has_remote(&self, topic: TopicId) -> bool {
        self.peers.remotes.lock().get(&topic).is_some_and(|attached| !attached.queue.is_gone())
    }

    /// The link to another node, which may be a new one.
    fn link(&self, to: NodeId) -> Arc<Link> {
        let mut links = self.peers.links.lock();
        if let Some(link) = links.get(&to).filter(|link| !link.is_broken()) {
            return Arc::clone(link);
        }
        let id = LinkId(self.ids.number());
        let process = *self.peers.process.get_or_init(|| ProcessId(self.ids.number()));
        let link = Arc::new(Link::new(Arc::clone(&self.node), to, id, process));
        links.insert(to, Arc::clone(&link));
        link
    }

    /// The handle to a queue that is used here and led elsewhere, if there is one.
    pub(crate) fn attached_queue(&self, topic: TopicId) -> Option<QueueRef> {
        let remotes = self.peers.remotes.lock();
        remotes.get(&topic).map(|attached| attached.queue.clone()).filter(|queue| !queue.is_gone())
    }

    /// The other nodes that can be reached.
    pub(crate) fn others_connected(&self) -> Vec<NodeId> {
        let here = self.node.node_id();
        let connected = self.connected.iter().flat_map(|connected| connected.borrow().clone());
        connected.filter(|node| *node != here).collect()
    }

    /// Has another node say what its sessions have of a queue that begins here. Whether it has.
    pub(crate) async fn ask_to_come(&self, node: NodeId, topic: TopicId) -> bool {
        matches!(self.call(node, &Call::Come(topic)).await, Ok(Answer::Done))
    }

    /// Asks another node something that is no queue's.
    async fn call(&self, to: NodeId, call: &Call) -> Result<Answer, weir_cluster::TransportError> {
        let answer = self.node.call_peer(to, call.encode()).await?;
        Answer::decode(answer)
            .map_err(|error| weir_cluster::TransportError::Failed { to, why: error.to_string() })
    }
}
