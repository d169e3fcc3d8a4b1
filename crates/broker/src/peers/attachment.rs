//! A queue of this node that another node uses: a task that carries out in order what is asked there, and passes on
//! what the queue hands out. Who the owners of the other node are here is known beyond it ([`Known`]): over its next link the
//! same process says what they have, and keeps that.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot};
use weir_dispatch::{ConsumerId, Gate, NewConsumer, OwnerId, Place, SubscribeError, Waiting};
use weir_model::{NodeId, TopicId};

use super::answers::{Answer, Event, Sent};
use super::messages::{LinkId, PeerAsk, PeerConsumer, ProcessId, Seat};
use super::outgoing::Outgoing;
use super::permits::Permits;
use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable};
use crate::queues::{
    Ask, NOBODY, OwnerSource, QueueDeliveries, QueueDelivery, QueueGone, QueueRef, Reservation,
    UNTAKEN_BYTES_MAX, UNTAKEN_MAX,
};
use crate::topology::TopologyError;

/// Records, and bytes of them, that are on their way to a consumer's session, or wait for it there.
const WINDOW_RECORDS: u64 = UNTAKEN_MAX as u64;
const WINDOW_BYTES: u64 = UNTAKEN_BYTES_MAX as u64;

/// Bytes of records that go in one event.
const EVENT_BYTES: usize = 256 << 10;

/// Owners and promises that another node has of one queue.
const OWNERS_MAX: usize = 100_000;
const PROMISES_MAX: usize = 100_000;

/// How long a node that goes on with another link may take to say what it still has of a queue.
const SAY_WITHIN: Duration = Duration::from_secs(4);

/// How often it is looked at whether permits are used.
const PERMITS_LOOK: Duration = Duration::from_millis(100);

/// An ask and whoever waits for the answer.
pub(super) type Asked = (PeerAsk, oneshot::Sender<Answer>);

/// The next records of a consumer.
type Next = Pin<Box<dyn Future<Output = (ConsumerId, QueueDeliveries, Option<Vec<QueueDelivery>>)> + Send>>;

/// A consumer of the other node. Its number is the other node's.
struct Consumer {
    id: ConsumerId,
    /// The other node's.
    owner: OwnerId,
    gate: Option<Arc<Permits>>,
    /// Records and bytes that were sent, and those that its session has taken.
    sent: (u64, u64),
    taken: (u64, u64),
    /// It gets what was handed out to it, whether or not there is room.
    is_cancelled: bool,
    /// Kept until its session takes something.
    held: Option<QueueDeliveries>,
}

impl Consumer {
    fn has_room(&self) -> bool {
        let on_its_way = |sent: u64, taken: u64| sent.saturating_sub(taken);
        self.is_cancelled
            || (on_its_way(self.sent.0, self.taken.0) < WINDOW_RECORDS
                && on_its_way(self.sent.1, self.taken.1) < WINDOW_BYTES)
    }
}

/// What another node has of a queue here, whatever link it is connected by. One attachment at a time has it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The process whose owners these are, and the actor by which they have something.
    of: Option<(ProcessId, QueueRef)>,
    /// Of theirs to ours.
    owners: BTreeMap<OwnerId, OwnerId>,
    /// Attachments that there have been.
    attached: u64,
}

/// Who uses a queue: a process of a node, by a seat on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub node: NodeId,
    pub process: ProcessId,
    pub link: LinkId,
    pub seat: Seat,
}

struct Attachment {
    owner_source: OwnerSource,
    seat: Seat,
    queue: QueueRef,
    outgoing: Arc<Outgoing>,
    known: OwnedMutexGuard<Known>,
    /// What the other node has said that it has, until that is all. By our owners.
    adopted: BTreeMap<OwnerId, BTreeSet<Place>>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    feeds: FuturesUnordered<Next>,
    answers: FuturesUnordered<Pin<Box<dyn Future<Output = Option<Promise>> + Send>>>,
    promises: BTreeMap<u64, Reservation>,
    next_promise: u64,
    wanted: Arc<Notify>,
    /// Whether some consumer may have permits that it does not use.
    has_permits: bool,
}

/// Room that the queue has promised, and whoever waits to be told.
type Promise = (Option<Reservation>, oneshot::Sender<Answer>);

/// Serves a queue to another node until one of the two is gone.
pub(super) async fn serve(
    broker: Arc<Broker>,
    topic: TopicId,
    user: User,
    outgoing: Arc<Outgoing>,
    mut asks: mpsc::UnboundedReceiver<Asked>,
    attached: oneshot::Sender<Answer>,
) {
    let queue = match open(&broker, topic).await {
        Ok(queue) => queue,
        Err(refused) => {
            let _ = attached.send(refused);
            return;
        }
    };
    let shared = broker.peers.serving.known(user.node, topic);
    // Behind the attachment before it, which ends now.
    let mut known = Arc::clone(&shared).lock_owned().await;
    known.begin(user.process, &queue).await;
    let number = known.attached;
    // Whoever asked may have gone: then its asks end at once.
    let _ = attached.send(Answer::Done);
    let mut attachment = Attachment {
        owner_source: broker.owner_source(),
        seat: user.seat,
        queue: queue.clone(),
        outgoing: Arc::clone(&outgoing),
        known,
        adopted: BTreeMap::new(),
        consumers: BTreeMap::new(),
        feeds: FuturesUnordered::new(),
        answers: FuturesUnordered::new(),
        promises: BTreeMap::new(),
        next_promise: 0,
        wanted: Arc::new(Notify::new()),
        has_permits: false,
    };
    // It would be kept by what it keeps itself.
    let broker = {
        let weak = Arc::downgrade(&broker);
        drop(broker);
        weak
    };
    let queue_is_gone = attachment.run(&mut asks).await;
    for consumer in attachment.consumers.values() {
        let _ = queue.cancel(consumer.id).await;
    }
    drop(attachment);
    if queue_is_gone {
        // The queue's users on the other node are told behind what was handed out to them.
        outgoing.push(Event::Gone(user.seat));
    } else if broker.upgrade().is_some_and(|broker| broker.peers.serving.goes_on(&user)) {
        tokio::time::sleep(SAY_WITHIN).await;
    }
    let mut known = shared.lock_owned().await;
    if known.attached == number {
        known.end().await;
        if let Some(broker) = broker.upgrade() {
            broker.peers.serving.forget(user.node, topic, known);
        }
    }
}

impl Known {
    /// A process uses the queue from here on. What another one had, or was had before another leadership, it does not have.
    async fn begin(&mut self, process: ProcessId, queue: &QueueRef) {
        let is_same = |(of, before): &(ProcessId, QueueRef)| *of == process && before.is_same(queue);
        if !self.of.as_ref().is_some_and(is_same) {
            self.end().await;
            self.of = Some((process, queue.clone()));
        }
        self.attached += 1;
    }

    /// The other node has nothing any more.
    async fn end(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        if let Some((_, queue)) = self.of.take() {
            for owner in owners.into_values() {
                let _ = queue.close_owner(owner, true).await;
            }
        }
    }
}

/// The queue, if this node leads it.
async fn open(broker: &Arc<Broker>, topic: TopicId) -> Result<QueueRef, Answer> {
    let Some(info) = broker.queue_by_id(topic) else { return Err(Answer::Unknown) };
    broker.open_queue_here(&info).await.map_err(|error| match error {
        TopologyError::Admin(AdminError::Unavailable(Unavailable::NotLeader { leader })) => {
            Answer::NotLeader(leader)
        }
        TopologyError::Admin(AdminError::Unavailable(Unavailable::Starting)) => Answer::Starting,
        TopologyError::Admin(AdminError::UnknownTopic(_)) => Answer::Unknown,
        other => Answer::Refused(other.to_string()),
    })
}

impl Attachment {
    /// Returns whether the queue is gone; otherwise the other node is.
    async fn run(&mut self, asks: &mut mpsc::UnboundedReceiver<Asked>) -> bool {
        let mut room = self.outgoing.room();
        let mut look = tokio::time::interval(PERMITS_LOOK);
        let queue = self.queue.clone();
        let gone = queue.until_gone();
        tokio::pin!(gone);
        loop {
            let has_room = *room.borrow_and_update();
            tokio::select! {
                biased;
                asked = asks.recv() => match asked {
                    Some((ask, answer)) => if self.carry_out(ask, answer).await.is_err() {
                        return true;
                    },
                    None => return false,
                },
                Some(promise) = self.answers.next() => self.promised(promise),
                Some((id, deliveries, records)) = self.feeds.next(), if has_room => {
                    self.pass_on(id, deliveries, records);
                }
                _ = room.changed(), if !has_room => {}
                () = self.wanted.notified() => self.tell_wanted(),
                _ = look.tick(), if self.has_permits => self.take_back_permits(),
                () = &mut gone => return true,
            }
        }
    }

    /// Carries out an ask; fails if the queue is gone.
    async fn carry_out(&mut self, ask: PeerAsk, answer: oneshot::Sender<Answer>) -> Result<(), QueueGone> {
        let queue = self.queue.clone();
        let mut done = Answer::Done;
        match ask {
            PeerAsk::Subscribe(consumer) => done = self.subscribe(consumer).await?,
            PeerAsk::Cancel(id) => {
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    consumer.is_cancelled = true;
                    queue.cancel(consumer.id).await?;
                    self.go_on(id);
                }
            }
            PeerAsk::Credit(id, more) => {
                if let Some(consumer) = self.consumers.get(&id) {
                    queue.add_credit(consumer.id, more).await?;
                }
            }
            PeerAsk::Settle { owner, disposition, again, places } => {
                let owner = self.known.owners.get(&owner).copied().unwrap_or(NOBODY);
                let (reply, settled) = oneshot::channel();
                let ask = match again {
                    true => Ask::SettleAgain(owner, places, disposition, vec![reply]),
                    false => Ask::Settle(owner, places, disposition, vec![reply]),
                };
                queue.tell(ask).await?;
                self.answer_later(settled, answer, |()| Answer::Done);
                return Ok(());
            }
            PeerAsk::CloseOwner(theirs, failed) => {
                self.consumers.retain(|_, consumer| consumer.owner != theirs);
                if let Some(owner) = self.known.owners.remove(&theirs) {
                    queue.close_owner(owner, failed).await?;
                }
            }
            PeerAsk::Adopt(theirs, places) => match self.owner(theirs) {
                Some(owner) => {
                    self.adopted.entry(owner).or_default().extend(places.iter().copied());
                    queue.tell(Ask::Adopt(owner, places)).await?;
                }
                None => tracing::warn!("a node has more owners of a queue's records than it may"),
            },
            PeerAsk::AllAdopted => {
                let mut adopted = std::mem::take(&mut self.adopted);
                let mut gone = Vec::new();
                for (theirs, owner) in &self.known.owners {
                    match adopted.remove(owner) {
                        Some(places) => queue.tell(Ask::KeepOnly(*owner, places)).await?,
                        None => gone.push(*theirs),
                    }
                }
                for theirs in gone {
                    if let Some(owner) = self.known.owners.remove(&theirs) {
                        // What was on its way to it has not failed with it.
                        queue.close_owner(owner, false).await?;
                    }
                }
            }
            PeerAsk::Get(owner, settled) => {
                let Some(owner) = self.owner(owner) else {
                    let _ = answer.send(Answer::Refused("too many sessions use the queue".to_owned()));
                    return Ok(());
                };
                let (reply, got) = oneshot::channel();
                queue.tell(Ask::Get(owner, settled, reply)).await?;
                self.answer_later(got, answer, |got| match got {
                    Ok(delivery) => Answer::Got(delivery.map(|delivery| Sent::new(delivery, false))),
                    Err(error) => Answer::Refused(error.to_string()),
                });
                return Ok(());
            }
            PeerAsk::Purge => {
                let (reply, purged) = oneshot::channel();
                queue.tell(Ask::Purge(reply)).await?;
                self.answer_later(purged, answer, Answer::Count);
                return Ok(());
            }
            PeerAsk::Figures(is_use) => {
                let (reply, figures) = oneshot::channel();
                queue.tell(Ask::Figures(is_use, reply)).await?;
                self.answer_later(figures, answer, Answer::Figures);
                return Ok(());
            }
            PeerAsk::Reserve(records, bytes) => {
                let (reply, promised) = oneshot::channel();
                queue.tell(Ask::Reserve(records, bytes, reply)).await?;
                self.answers.push(Box::pin(async move { Some((promised.await.ok()?, answer)) }));
                return Ok(());
            }
            PeerAsk::Room(number, is_used) => {
                if let Some(promise) = self.promises.remove(&number)
                    && is_used
                {
                    promise.used();
                }
            }
            PeerAsk::Taken(id, records, bytes) => {
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    consumer.taken = (records, bytes);
                    self.go_on(id);
                }
            }
            PeerAsk::Permits(id, count) => {
                if let Some(gate) = self.gate(id) {
                    gate.add(count);
                    self.has_permits = true;
                    queue.wake();
                }
            }
            PeerAsk::Limit(id, limited) => {
                if let Some(gate) = self.gate(id) {
                    let unused = gate.limit(limited);
                    if unused > 0 {
                        self.outgoing.push(Event::Unused(self.seat, id, unused));
                    }
                    queue.wake();
                }
            }
        }
        // Whoever asked may have gone.
        let _ = answer.send(done);
        Ok(())
    }

    /// Answers when the queue has.
    fn answer_later<T: Send + 'static>(
        &self,
        reply: oneshot::Receiver<T>,
        answer: oneshot::Sender<Answer>,
        to_answer: impl FnOnce(T) -> Answer + Send + 'static,
    ) {
        self.answers.push(Box::pin(async move {
            // What is not answered says that the queue is gone.
            let _ = answer.send(to_answer(reply.await.ok()?));
            None
        }));
    }

    fn promised(&mut self, promise: Option<Promise>) {
        let Some((promise, answer)) = promise else { return };
        let number = promise.filter(|_| self.promises.len() < PROMISES_MAX).map(|promise| {
            self.next_promise += 1;
            self.promises.insert(self.next_promise, promise);
            self.next_promise
        });
        // If whoever asked has gone, all promises go with it.
        let _ = answer.send(Answer::Reserved(number));
    }

    async fn subscribe(&mut self, consumer: PeerConsumer) -> Result<Answer, QueueGone> {
        let PeerConsumer { id, owner, credit, priority, exclusive, settled, gate } = consumer;
        let owners = self.owner(owner).filter(|_| !self.consumers.contains_key(&id));
        let Some(ours) = owners else {
            return Ok(Answer::NotSubscribed(SubscribeError::TooMany { limit: OWNERS_MAX }));
        };
        let permits = gate.map(|limited| Arc::new(Permits::new(limited, Arc::clone(&self.wanted))));
        let gate = permits.clone().map(|permits| permits as Arc<dyn Gate>);
        let theirs = owner;
        let owner = ours;
        let consumer = NewConsumer { owner, credit, priority, exclusive, settled, gate };
        let (ours, deliveries) = match self.queue.subscribe(consumer).await? {
            Ok(subscribed) => subscribed,
            Err(error) => return Ok(Answer::NotSubscribed(error)),
        };
        let consumer = Consumer {
            id: ours,
            owner: theirs,
            gate: permits,
            sent: (0, 0),
            taken: (0, 0),
            is_cancelled: false,
            held: Some(deliveries),
        };
        self.consumers.insert(id, consumer);
        self.go_on(id);
        Ok(Answer::Done)
    }

    /// Who an owner of the other node is here; none if it has too many.
    fn owner(&mut self, theirs: OwnerId) -> Option<OwnerId> {
        if let Some(owner) = self.known.owners.get(&theirs) {
            return Some(*owner);
        }
        let owner = self.owner_source.next_elsewhere();
        (self.known.owners.len() < OWNERS_MAX).then(|| {
            self.known.owners.insert(theirs, owner);
            owner
        })
    }

    fn gate(&self, id: ConsumerId) -> Option<&Arc<Permits>> {
        self.consumers.get(&id)?.gate.as_ref()
    }

    /// Takes what the queue hands to a consumer, if there is room for it.
    fn go_on(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if consumer.has_room()
            && let Some(mut deliveries) = consumer.held.take()
        {
            self.feeds.push(Box::pin(async move {
                let records = deliveries.next().await;
                (id, deliveries, records)
            }));
        }
    }

    fn pass_on(&mut self, id: ConsumerId, deliveries: QueueDeliveries, records: Option<Vec<QueueDelivery>>) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let Some(records) = records else {
            self.consumers.remove(&id);
            self.outgoing.push(Event::Ended(self.seat, id));
            return;
        };
        let (mut sent, mut bytes) = (Vec::new(), 0);
        for delivery in records {
            let size = delivery.record.bytes();
            consumer.sent = (consumer.sent.0 + 1, consumer.sent.1 + size as u64);
            let permitted = consumer.gate.as_ref().is_some_and(|gate| gate.was_permitted());
            sent.push(Sent::new(delivery, permitted));
            bytes += size;
            if bytes >= EVENT_BYTES {
                bytes = 0;
                self.outgoing.push(Event::Deliveries(self.seat, id, std::mem::take(&mut sent)));
            }
        }
        if !sent.is_empty() {
            self.outgoing.push(Event::Deliveries(self.seat, id, sent));
        }
        consumer.held = Some(deliveries);
        self.go_on(id);
    }

    fn tell_wanted(&self) {
        for (id, consumer) in &self.consumers {
            if consumer.gate.as_ref().is_some_and(|gate| gate.tell_wanted()) {
                self.outgoing.push(Event::Wanted(self.seat, *id));
            }
        }
    }

    fn take_back_permits(&mut self) {
        self.has_permits = false;
        for (id, consumer) in &self.consumers {
            let Some(gate) = &consumer.gate else { continue };
            let unused = gate.unused();
            self.has_permits |= gate.has_any();
            if unused > 0 {
                self.outgoing.push(Event::Unused(self.seat, *id, unused));
            }
        }
    }
}
