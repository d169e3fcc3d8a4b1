//! A queue that another node leads, as sessions here use it: a task that takes what the actor of a queue takes, asks the
//! leader's node in the same order, and hands out what comes from there. What sessions have, and what they settled and the
//! leader has not made durable yet, it notes, and leaves it to whoever is next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use weir_dispatch::{ConsumerId, Gate, NewConsumer, OwnerId, Place, SubscribeError};
use weir_model::subscription::Disposition;

use super::answers::{Answer, Event, Sent};
use super::link::{Calling, Link, started};
use super::messages::{PeerAsk, PeerConsumer, Seat};
use crate::queues::{
    Ask, GetError, Holding, Lasting, QueueDeliveries, QueueDelivery, QueueFigures, Replies, Reservation,
    Sink, UNTAKEN_BYTES_MAX, UNTAKEN_MAX, Unsure, bytes_of, sink_with,
};

/// Calls on their way. Whoever has more to ask waits.
const CALLS_MAX: usize = 256;

/// When a session has so much less to take the leader hears of it: it sends no more than twice as much unheard.
const TOLD_RECORDS: usize = UNTAKEN_MAX / 2;
const TOLD_BYTES: usize = UNTAKEN_BYTES_MAX / 2;

/// Permits that are sent at once. What is not used is kept from other queues for a moment.
const PERMITS_AT_ONCE: u32 = 8;

/// Records in one call that says who has them.
const PLACES_PER_CALL: usize = 10_000;

/// How often a bound is asked again that has no room: somebody may have given some back without saying so here.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A consumer of a session here.
struct Consumer {
    owner: OwnerId,
    /// What it gets is settled by that.
    settled: bool,
    sink: Sink,
    gate: Option<Arc<dyn Gate>>,
    /// Whether the leader goes by permits.
    limited: bool,
    /// The leader waits for permits.
    is_wanted: bool,
    /// Permits that are with the leader, or on their way.
    permits: u32,
    /// Records and bytes that have come, and of which the leader was told that the session has taken them.
    came: (u64, u64),
    told: (u64, u64),
    /// Who waits until nothing more comes.
    cancelled: Option<oneshot::Sender<()>>,
}

/// Whoever waits for an answer.
enum Waiting {
    Nobody,
    /// Until the leader knows what sessions had before.
    Known,
    /// Settlements, by their number.
    Settled(u64),
    Subscribed(
        ConsumerId,
        QueueDeliveries,
        oneshot::Sender<Result<(ConsumerId, QueueDeliveries), SubscribeError>>,
    ),
    Got(OwnerId, bool, oneshot::Sender<Result<Option<QueueDelivery>, GetError>>),
    Count(oneshot::Sender<u64>),
    Figures(oneshot::Sender<QueueFigures>),
    Reserved((u64, u64), oneshot::Sender<Option<Reservation>>),
}

/// The queue is gone for its users here.
struct Gone;

/// By which promises are used or given back.
type Promises = mpsc::UnboundedSender<(u64, bool)>;

pub(super) struct Remote {
    link: Arc<Link>,
    seat: Seat,
    wake: Arc<Notify>,
    stop: Arc<Notify>,
    calls: FuturesUnordered<Calling<(Waiting, Answer)>>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    next_consumer: ConsumerId,
    /// Whether some consumer may wait for a bound that it shares.
    has_gates: bool,
    /// What sessions have.
    holding: Holding,
    /// What was settled and is not known to be durable, by its number.
    unsure: BTreeMap<u64, Unsure>,
    next_unsure: u64,
}

impl Remote {
    pub(super) fn new(
        link: Arc<Link>,
        seat: Seat,
        wake: Arc<Notify>,
        stop: Arc<Notify>,
        first_consumer: ConsumerId,
    ) -> Remote {
        Remote {
            link,
            seat,
            wake,
            stop,
            calls: FuturesUnordered::new(),
            consumers: BTreeMap::new(),
            next_consumer: first_consumer,
            has_gates: false,
            holding: Holding::default(),
            unsure: BTreeMap::new(),
            next_unsure: 0,
        }
    }

    /// Carries what is asked to the leader's node, and what comes from there to sessions, until the queue is gone, or the
    /// node outdated as its leader: first of all what sessions have, and `told` says when the leader knows that. Whoever waits for an answer in the end hears that
    /// the queue is gone only after nobody can ask any more.
    pub(super) async fn serve(
        mut self,
        held: Holding,
        told: &watch::Sender<Option<Answer>>,
        mut events: mpsc::UnboundedReceiver<Event>,
        mut asks: mpsc::Receiver<Ask>,
        lasting: &Lasting,
        outdated: impl Future<Output = ()> + Send,
    ) {
        let (promises, mut promised) = mpsc::unbounded_channel();
        self.say_what_sessions_have(held).await;
        tokio::pin!(outdated);
        loop {
            tokio::select! {
                biased;
                () = &mut outdated => break,
                step = self.step(&mut events, &mut asks, (&promises, &mut promised), told) => {
                    if step.is_err() {
                        break;
                    }
                }
            }
        }
        self.holding.unsure = std::mem::take(&mut self.unsure).into_values().collect();
        lasting.leave(std::mem::take(&mut self.holding), &mut asks);
        told.send_if_modified(|told| {
            let is_new = told.is_none();
            told.get_or_insert(Answer::Gone);
            is_new
        });
        for consumer in self.consumers.values_mut() {
            give_back(consumer);
        }
    }

    async fn say_what_sessions_have(&mut self, held: Holding) {
        let Holding { leases, unsure, closed } = held;
        for (owner, places) in leases {
            self.adopt(owner, places.into_iter().collect()).await;
        }
        for Unsure { owner, places, disposition, replies } in unsure {
            self.settle(owner, places, disposition, true, replies).await;
        }
        for (owner, failed) in closed {
            self.ask(PeerAsk::CloseOwner(owner, failed), Waiting::Nobody).await;
        }
        // Owners that it has not heard of by now have nothing.
        self.ask(PeerAsk::AllAdopted, Waiting::Known).await;
    }

    async fn adopt(&mut self, owner: OwnerId, places: Vec<Place>) {
        for some in places.chunks(PLACES_PER_CALL) {
            self.holding.lease(owner, some.iter().copied());
            self.ask(PeerAsk::Adopt(owner, some.to_vec()), Waiting::Nobody).await;
        }
    }

    async fn settle(
        &mut self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
        again: bool,
        replies: Replies,
    ) {
        self.holding.end_leases(owner, &places);
        let number = self.next_unsure;
        self.next_unsure += 1;
        let ask = PeerAsk::Settle { owner, disposition, again, places: places.clone() };
        self.unsure.insert(number, Unsure { owner, places, disposition, replies });
        self.ask(ask, Waiting::Settled(number)).await;
    }

    async fn step(
        &mut self,
        events: &mut mpsc::UnboundedReceiver<Event>,
        asks: &mut mpsc::Receiver<Ask>,
        (promises, promised): (&Promises, &mut mpsc::UnboundedReceiver<(u64, bool)>),
        told: &watch::Sender<Option<Answer>>,
    ) -> Result<(), Gone> {
        tokio::select! {
            biased;
            () = self.stop.notified() => Err(Gone),
            event = events.recv() => self.happened(event.ok_or(Gone)?).await,
            Some((waiting, answer)) = self.calls.next() => match (waiting, answer) {
                (Waiting::Known, Answer::Done) => {
                    told.send_replace(Some(Answer::Done));
                    Ok(())
                }
                (waiting, answer) => self.answered(waiting, answer, promises).await,
            },
            Some((number, is_used)) = promised.recv() => {
                self.ask(PeerAsk::Room(number, is_used), Waiting::Nobody).await;
                Ok(())
            }
            ask = asks.recv(), if self.calls.len() < CALLS_MAX => {
                self.carry_on(ask.ok_or(Gone)?).await;
                Ok(())
            }
            () = self.wake.notified() => self.look_at_consumers().await,
            () = tokio::time::sleep(ASK_AGAIN), if self.has_gates => self.look_at_consumers().await,
        }
    }

    async fn ask(&mut self, ask: PeerAsk, waiting: Waiting) {
        let call = self.link.ask(self.seat, ask);
        let call: Calling<_> = started(Box::pin(async move { (waiting, call.await) })).await;
        self.calls.push(call);
    }

    async fn carry_on(&mut self, ask: Ask) {
        let nobody = Waiting::Nobody;
        match ask {
            Ask::Subscribe(consumer, reply) => self.subscribe(consumer, reply).await,
            Ask::Cancel(id, reply) => match self.consumers.get_mut(&id) {
                Some(consumer) => {
                    consumer.cancelled = Some(reply);
                    self.ask(PeerAsk::Cancel(id), nobody).await;
                }
                None => drop(reply.send(())),
            },
            Ask::Credit(id, more) => self.ask(PeerAsk::Credit(id, more), nobody).await,
            Ask::Settle(owner, places, disposition, replies) => {
                self.settle(owner, places, disposition, false, replies).await;
            }
            Ask::SettleAgain(owner, places, disposition, replies) => {
                self.settle(owner, places, disposition, true, replies).await;
            }
            Ask::Adopt(owner, places) => self.adopt(owner, places).await,
            Ask::CloseOwner(owner, failed) => {
                for consumer in self.consumers.values_mut().filter(|consumer| consumer.owner == owner) {
                    give_back(consumer);
                }
                self.consumers.retain(|_, consumer| consumer.owner != owner);
                self.holding.leases.remove(&owner);
                self.ask(PeerAsk::CloseOwner(owner, failed), nobody).await;
            }
            Ask::Get(owner, settled, reply) => {
                self.ask(PeerAsk::Get(owner, settled), Waiting::Got(owner, settled, reply)).await;
            }
            Ask::Purge(reply) => self.ask(PeerAsk::Purge, Waiting::Count(reply)).await,
            Ask::Figures(is_use, reply) => {
                self.ask(PeerAsk::Figures(is_use), Waiting::Figures(reply)).await;
            }
            Ask::Reserve(records, bytes, reply) => {
                let waiting = Waiting::Reserved((records, bytes), reply);
                self.ask(PeerAsk::Reserve(records, bytes), waiting).await;
            }
            // The leader's node works these out for itself.
            Ask::Configure(_) | Ask::AddLane(..) | Ask::KeepOnly(..) | Ask::Begin => {}
        }
    }

    async fn subscribe(
        &mut self,
        consumer: NewConsumer,
        reply: oneshot::Sender<Result<(ConsumerId, QueueDeliveries), SubscribeError>>,
    ) {
        let NewConsumer { owner, credit, priority, exclusive, settled, gate } = consumer;
        let id = self.next_consumer;
        self.next_consumer.0 += 1;
        let (sink, deliveries) = sink_with(Arc::clone(&self.wake), TOLD_RECORDS, TOLD_BYTES);
        let limited = gate.as_ref().map(|gate| gate.is_limited());
        self.has_gates |= limited.is_some();
        // What is handed out to it may come before the answer does.
        let consumer = Consumer {
            owner,
            settled,
            sink,
            gate,
            limited: limited.unwrap_or_default(),
            is_wanted: false,
            permits: 0,
            came: (0, 0),
            told: (0, 0),
            cancelled: None,
        };
        self.consumers.insert(id, consumer);
        let ask = PeerConsumer { id, owner, credit, priority, exclusive, settled, gate: limited };
        self.ask(PeerAsk::Subscribe(ask), Waiting::Subscribed(id, deliveries, reply)).await;
    }

    /// An answer has come. One that says that the queue is gone must not be passed on before nobody can ask any more:
    /// it is dropped by whoever ends this.
    async fn answered(&mut self, waiting: Waiting, answer: Answer, promises: &Promises) -> Result<(), Gone> {
        match (waiting, answer) {
            (waiting, Answer::Gone) => {
                // Kept until asks are closed.
                self.calls.push(Box::pin(async move {
                    std::future::pending::<()>().await;
                    (waiting, Answer::Gone)
                }));
                return Err(Gone);
            }
            (Waiting::Nobody, _) => {}
            (Waiting::Settled(number), Answer::Done) => {
                for reply in self.unsure.remove(&number).into_iter().flat_map(|settled| settled.replies) {
                    // Whoever asked may have gone.
                    let _ = reply.send(());
                }
            }
            (Waiting::Subscribed(id, deliveries, reply), Answer::Done) => {
                if reply.send(Ok((id, deliveries))).is_err() {
                    self.ask(PeerAsk::Cancel(id), Waiting::Nobody).await;
                }
            }
            (Waiting::Subscribed(id, _, reply), answer) => {
                self.remove(id);
                if let Answer::NotSubscribed(error) = answer {
                    let _ = reply.send(Err(error));
                }
            }
            (Waiting::Got(owner, settled, reply), Answer::Got(sent)) => {
                let place = sent.as_ref().map(|sent| sent.place).filter(|_| !settled);
                let delivery = sent.map(|sent| sent.delivery(None, owner));
                self.holding.lease(owner, place);
                if reply.send(Ok(delivery)).is_err()
                    && let Some(place) = place
                {
                    let back = Disposition::Release { failed: false };
                    self.settle(owner, vec![place], back, false, Replies::new()).await;
                }
            }
            (Waiting::Got(_, _, reply), Answer::Refused(why)) => {
                let _ = reply.send(Err(GetError::Elsewhere(why)));
            }
            (Waiting::Count(reply), Answer::Count(count)) => drop(reply.send(count)),
            (Waiting::Figures(reply), Answer::Figures(figures)) => drop(reply.send(figures)),
            (Waiting::Reserved(asked, reply), Answer::Reserved(number)) => {
                let tell = promises.clone();
                // Given back by being dropped, if nobody waits for it any more.
                let _ = reply.send(number.map(|number| Reservation::elsewhere(number, asked, tell)));
            }
            (_, answer) => {
                tracing::error!(?answer, "a node answers something else than it was asked");
                return Err(Gone);
            }
        }
        Ok(())
    }

    async fn happened(&mut self, event: Event) -> Result<(), Gone> {
        match event {
            Event::Deliveries(_, id, sent) => self.hand_out(id, sent).await,
            Event::Ended(_, id) => {
                if let Some(reply) = self.remove(id).and_then(|consumer| consumer.cancelled) {
                    let _ = reply.send(());
                }
            }
            Event::Wanted(_, id) => {
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    consumer.is_wanted = true;
                    self.look_at_gate(id).await;
                }
            }
            Event::Unused(_, id, count) => {
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    let count = count.min(consumer.permits);
                    consumer.permits -= count;
                    consumer.gate.iter().for_each(|gate| gate.give_back(count));
                }
            }
            Event::Gone(_) => return Err(Gone),
        }
        Ok(())
    }

    async fn hand_out(&mut self, id: ConsumerId, sent: Vec<Sent>) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let permitted = sent.iter().filter(|sent| sent.permitted).count() as u32;
        let unasked = sent.len() as u32 - permitted;
        consumer.permits = consumer.permits.saturating_sub(permitted);
        consumer.gate.iter().for_each(|gate| gate.count(unasked));
        let owner = consumer.owner;
        if !consumer.settled {
            self.holding.lease(owner, sent.iter().map(|sent| sent.place));
        }
        let deliveries: Vec<_> = sent.into_iter().map(|sent| sent.delivery(Some(id), owner)).collect();
        let (records, bytes) = (deliveries.len() as u64, bytes_of(&deliveries) as u64);
        consumer.came = (consumer.came.0 + records, consumer.came.1 + bytes);
        if consumer.sink.push(deliveries) {
            self.tell_taken(id).await;
        } else {
            // Its session is going, and gives back what it has.
            self.remove(id);
            self.ask(PeerAsk::Cancel(id), Waiting::Nobody).await;
        }
    }

    /// Tells the leader what a session has taken, if that is much.
    async fn tell_taken(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let untaken = consumer.sink.untaken();
        let taken = (consumer.came.0 - untaken.0, consumer.came.1 - untaken.1);
        let is_much = taken.0 - consumer.told.0 >= TOLD_RECORDS as u64 / 2
            || taken.1 - consumer.told.1 >= TOLD_BYTES as u64 / 2;
        if is_much {
            consumer.told = taken;
            self.ask(PeerAsk::Taken(id, taken.0, taken.1), Waiting::Nobody).await;
        }
    }

    /// A session has taken something, or a bound has changed.
    async fn look_at_consumers(&mut self) -> Result<(), Gone> {
        self.has_gates = self.consumers.values().any(|consumer| consumer.gate.is_some());
        let ids: Vec<ConsumerId> = self.consumers.keys().copied().collect();
        for id in ids {
            self.tell_taken(id).await;
            self.look_at_gate(id).await;
        }
        Ok(())
    }

    /// Tells the leader whether a bound is limited, and sends it permits if it waits for some.
    async fn look_at_gate(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let Some(gate) = &consumer.gate else { return };
        let limited = gate.is_limited();
        if limited != consumer.limited {
            (consumer.limited, consumer.is_wanted) = (limited, false);
            return self.ask(PeerAsk::Limit(id, limited), Waiting::Nobody).await;
        }
        if !consumer.is_wanted {
            return;
        }
        let count = (0..PERMITS_AT_ONCE).take_while(|_| gate.take()).count() as u32;
        if count > 0 {
            consumer.is_wanted = false;
            consumer.permits += count;
            self.ask(PeerAsk::Permits(id, count), Waiting::Nobody).await;
        }
    }

    fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let mut consumer = self.consumers.remove(&id)?;
        give_back(&mut consumer);
        Some(consumer)
    }
}

/// Permits that are not used any more.
fn give_back(consumer: &mut Consumer) {
    let permits = std::mem::take(&mut consumer.permits);
    if permits > 0 {
        consumer.gate.iter().for_each(|gate| gate.give_back(permits));
    }
}
