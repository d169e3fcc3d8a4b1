//! A queue's actor: one task that owns the dispatcher, and does what sessions ask for.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use weir_cluster::Clock;
use weir_dispatch::{
    ConsumerId, Dead, Delivery, Dispatcher, Gate, Got, LaneChanges, LaneNumber, LaneStart, NewConsumer,
    OwnerId, Place, SubscribeError,
};
use weir_model::SubscriptionId;
use weir_model::subscription::Disposition;
use weir_shard::{AppendObserver, ObserverGuard, ReadError};

use super::bury::Burial;
use super::handle::{Ask, GetError, QueueFigures, QueueRef};
use super::holdings::Lasting;
use super::settling::{OnItsWay, Reply, Settled, Told};
use super::sink::{Sink, SinkGate, sink};
use super::{Limits, Overflow, QueueDeliveries, QueueDelivery, QueueOptions, QueueRecord, Room};
use crate::errors::Unavailable;
use crate::read::PartitionRef;

/// Asks that wait for an actor. Whoever has more to ask waits.
const ASKS_MAX: usize = 1_024;

/// Asks that are carried out before records are handed out again.
const ASKS_AT_ONCE: usize = 256;

/// How long an actor sleeps at most: a change of leaders wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How soon a leader that does not know whether it still leads looks again.
const LEASE_AGAIN: Duration = Duration::from_millis(20);

/// Dead records that are published at a time.
const BURIALS_MAX: usize = 64;

/// How long to wait before a dead record is published again that could not be.
const BURY_AGAIN: Duration = Duration::from_secs(1);

/// Commands' worth of changes of one lane that wait. Beyond them nothing is handed out and nobody is listened to, until
/// the shard has taken some.
const CHANGES_WAITING_MAX: usize = 64;

/// Wakes the actor when a partition grows, or is gone.
struct Growth {
    wake: Arc<Notify>,
    is_closed: Arc<AtomicBool>,
}

impl AppendObserver for Growth {
    fn appended(&self, _bytes: usize) {
        self.wake.notify_one();
    }

    fn closed(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}

/// A partition of the queue.
pub(super) struct Lane {
    pub(super) partition: PartitionRef,
    /// The leadership in which the dispatcher got to know the lane.
    term: u64,
    _growth: ObserverGuard,
    /// Changes that wait for a command.
    pub(super) waiting: Vec<LaneChanges>,
    /// Whoever is told when what was settled up to now is durable.
    pub(super) told_then: Vec<Arc<Told>>,
    /// Commands, by their numbers.
    pub(super) on_their_way: BTreeMap<u64, OnItsWay>,
}

/// The task's own.
pub(super) struct Actor {
    asks: mpsc::Receiver<Ask>,
    wake: Arc<Notify>,
    lasting: Lasting,
    /// Set until everybody has said what an earlier leader handed out to him.
    is_gathering: bool,
    /// Nothing is handed out: it gathers, or does not know whether it still leads.
    is_quiet: bool,
    /// What can only be answered after that.
    quieted: Vec<Ask>,
    /// What came when the leadership was over.
    unheard: Option<Ask>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: QueueOptions,
    pub(super) lanes: BTreeMap<LaneNumber, Lane>,
    pub(super) dispatcher: Dispatcher<QueueRecord>,
    sinks: BTreeMap<ConsumerId, Sink>,
    pub(super) room: Room,
    /// Set when a partition is gone, and the queue with it.
    is_closed: Arc<AtomicBool>,
    /// Set when it is not known whether the shard has what the dispatcher has noted.
    pub(super) is_out_of_step: bool,
    pub(super) settling: FuturesUnordered<Pin<Box<dyn Future<Output = Settled> + Send>>>,
    /// Of the commands that settle.
    pub(super) next_command: u64,
    /// Dead records that are being published.
    burials: FuturesUnordered<Pin<Box<dyn Future<Output = Burial> + Send>>>,
    /// Those that are to be tried again.
    unburied: Vec<Dead>,
    /// When they are.
    bury_again_at: Option<Instant>,
    /// When somebody used it last, as RabbitMQ counts it for queues that expire.
    used_at: Instant,
    /// When anything was asked of it last.
    asked_at: Instant,
    /// Set while a shard could not take changes: when they are proposed again.
    pub(super) retry_at: Option<Instant>,
    /// Set while records could not be read: when they are read again. What is at hand is handed out meanwhile.
    pub(super) read_again_at: Option<Instant>,
}

/// Why an actor ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nobody has used the queue for a while.
    Idle,
    /// Nobody has used it for so long that it is to be deleted.
    Expired,
    /// Another node leads, the shard cannot go on, or the queue was deleted.
    NotLeader,
}

impl Actor {
    /// An actor over the partitions of a queue, all of which this node leads, and the handle to it. One that is quiet hands
    /// out nothing before it is told to begin.
    pub(super) fn new(
        partitions: Vec<(LaneNumber, PartitionRef)>,
        options: QueueOptions,
        first_consumer: ConsumerId,
        clock: Arc<dyn Clock>,
        lasting: Lasting,
        is_quiet: bool,
    ) -> Result<(Actor, QueueRef), Unavailable> {
        let (sender, asks) = mpsc::channel(ASKS_MAX);
        let wake = Arc::new(Notify::new());
        let dispatcher = Dispatcher::new(weir_dispatch::Options {
            returns_in_turn: options.returns_in_turn,
            failures_max: options.failures_max,
            rest: options.rest,
            single_active: options.single_active,
            leased_max: options.leased_max,
            sized: options.limits.bytes.is_some(),
            dead_letters: options.cemetery.is_some(),
            first_consumer,
            ..weir_dispatch::Options::default()
        });
        let mut actor = Actor {
            asks,
            wake: Arc::clone(&wake),
            lasting: lasting.clone(),
            is_gathering: is_quiet,
            is_quiet,
            quieted: Vec::new(),
            unheard: None,
            clock,
            options,
            lanes: BTreeMap::new(),
            dispatcher,
            sinks: BTreeMap::new(),
            room: Room::default(),
            is_closed: Arc::default(),
            is_out_of_step: false,
            settling: FuturesUnordered::new(),
            next_command: 0,
            burials: FuturesUnordered::new(),
            unburied: Vec::new(),
            bury_again_at: None,
            used_at: Instant::now(),
            asked_at: Instant::now(),
            retry_at: None,
            read_again_at: None,
        };
        for (number, partition) in partitions {
            actor.add_lane(number, partition)?;
        }
        Ok((actor, QueueRef::new(sender, wake, lasting)))
    }

    fn add_lane(&mut self, number: LaneNumber, partition: PartitionRef) -> Result<(), Unavailable> {
        let term = partition.leadership()?;
        if self.lanes.contains_key(&number) {
            return Ok(());
        }
        // Told first, looked at then: an append in between wakes for nothing, and none is missed.
        let growth = Growth { wake: Arc::clone(&self.wake), is_closed: Arc::clone(&self.is_closed) };
        let growth = partition.view().observe(Arc::new(growth));
        self.dispatcher.add_lane(number, lane_start(&partition).ok_or(Unavailable::Starting)?);
        let (waiting, told_then) = (Vec::new(), Vec::new());
        let lane =
            Lane { partition, term, _growth: growth, waiting, told_then, on_their_way: BTreeMap::new() };
        self.lanes.insert(number, lane);
        Ok(())
    }

    /// Works until it ends. When it has ended because nobody used it, nothing is on its way any more; an ask that comes
    /// too late finds it gone. Otherwise what sessions of this node have is left to whoever is next.
    pub(super) async fn run(mut self) -> Ended {
        let ended = self.work().await;
        if ended != Ended::NotLeader {
            self.lasting.end();
        }
        let mut left = self.holding();
        // What a session still has to do with the queue, whoever is next hears.
        let _ = self.unheard.take().map(|ask| left.keep(ask));
        self.lasting.leave(left, &mut self.asks);
        ended
    }

    async fn work(&mut self) -> Ended {
        loop {
            if !self.leads() {
                return Ended::NotLeader;
            }
            self.look_whether_quiet().await;
            self.catch_up().await;
            if !self.is_quiet {
                self.dispatcher.expire(self.clock.now_ms());
                self.drop_excess().await;
                if self.options.cemetery.is_some() {
                    self.look_at_first().await;
                }
            }
            self.bury().await;
            self.propose_changes();
            let lease_at = (self.is_quiet && !self.is_gathering).then(|| Instant::now() + LEASE_AGAIN);
            let times = [
                self.retry_at,
                self.read_again_at,
                self.bury_again_at,
                self.next_time(),
                self.ends_at(),
                lease_at,
            ];
            let until = times.into_iter().flatten().fold(Instant::now() + LOOK_AGAIN, Instant::min);
            tokio::select! {
                biased;
                Some(settled) = self.settling.next() => self.settled(settled),
                Some(burial) = self.burials.next() => match burial {
                    Burial::Done(place) => self.dispatcher.buried(place),
                    Burial::Again(dead) => self.bury_later(dead),
                },
                ask = self.asks.recv(), if !self.is_behind() => match ask {
                    // A change of leaders wakes nobody: it may have been while the actor slept.
                    Some(ask) if !self.leads() => {
                        self.unheard = Some(ask);
                        return Ended::NotLeader;
                    }
                    Some(ask) => self.carry_out_many(ask).await,
                    None => return Ended::Idle,
                },
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(until) => {
                    self.retry_at = None;
                    if self.ends_at().is_some_and(|at| at <= Instant::now()) {
                        return if self.options.expires.is_some() { Ended::Expired } else { Ended::Idle };
                    }
                }
            }
        }
    }

    /// Whether this node leads the queue, in the same leadership as in the beginning, and it has not been deleted. Where it
    /// led no more and leads again, another node may have handed out and settled what this dispatcher takes for waiting.
    fn leads(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
            && !self.is_out_of_step
            && self.lanes.values().all(|lane| lane.partition.leadership() == Ok(lane.term))
    }

    /// Looks whether records may be handed out, and answers what waited for that.
    async fn look_whether_quiet(&mut self) {
        let holds_lease = |lane: &Lane| lane.partition.handle().holds_lease();
        self.is_quiet = self.is_gathering || !self.lanes.values().all(holds_lease);
        if !self.is_quiet {
            for ask in std::mem::take(&mut self.quieted) {
                self.carry_out(ask).await;
            }
        }
    }

    /// When the actor may end, if nobody uses the queue until then. One whose records may expire and must then go
    /// somewhere has work to do even so, whenever one comes.
    fn ends_at(&self) -> Option<Instant> {
        match self.options.expires {
            _ if !self.is_unused() => None,
            Some(expires) => Some(self.used_at + expires),
            None => self.options.cemetery.is_none().then(|| self.asked_at + self.options.idle),
        }
    }

    /// Whether nobody has anything of it, and nothing is on its way.
    fn is_unused(&self) -> bool {
        !self.is_quiet
            && self.dispatcher.consumers() == 0
            && self.dispatcher.leased() == 0
            && self.settling.is_empty()
            && self.burials.is_empty()
            && self.unburied.is_empty()
            && self.lanes.values().all(|lane| lane.waiting.is_empty() && lane.told_then.is_empty())
    }

    /// Whether the shard takes changes more slowly than they come.
    fn is_behind(&self) -> bool {
        self.lanes.values().any(|lane| lane.waiting.len() >= CHANGES_WAITING_MAX)
    }

    /// Until when the first record expires, looked at only while nobody takes it, or the first one rests.
    fn next_time(&mut self) -> Option<Instant> {
        if self.is_quiet {
            // Nothing is done then: it would come due again and again.
            return None;
        }
        let times = [self.dispatcher.first_expires_at(), self.dispatcher.wakes_at()];
        let at = times.into_iter().flatten().min()?;
        let in_ms = at.saturating_sub(self.clock.now_ms()).max(0);
        Some(Instant::now() + Duration::from_millis(in_ms.cast_unsigned()))
    }

    /// Takes out the first records where too many wait, after those who take some have had theirs. What has expired takes
    /// no room; in a single lane it is the first to go in any case.
    async fn drop_excess(&mut self) {
        let limits = self.options.limits;
        if self.is_quiet
            || limits.overflow != Overflow::DropHead
            || limits.allow(self.dispatcher.ready(), self.dispatcher.ready_bytes())
        {
            return;
        }
        if self.lanes.len() > 1 {
            self.expire_first().await;
        }
        self.dispatcher.drop_over(limits.records, limits.bytes);
    }

    /// What comes back to a full queue pushes the first ones out before somebody gets them. In a quorum queue those who
    /// take some have theirs first, as in RabbitMQ.
    async fn drop_for_returned(&mut self) {
        if !self.options.returns_in_turn {
            self.drop_excess().await;
        }
    }

    /// Hands out what has been appended to those who wait for it: they come before whoever asks or counts.
    async fn catch_up(&mut self) {
        self.note_growth().await;
        self.hand_out().await;
    }

    /// Hands out what there is for those who take it, reading it as needed.
    async fn hand_out(&mut self) {
        let mut out: Vec<Delivery<QueueRecord>> = Vec::new();
        while !self.is_quiet && !self.is_behind() {
            self.dispatcher.dispatch(self.clock.now_ms(), &mut out);
            self.send(&mut out);
            if self.read_again_at.is_some_and(|at| at > Instant::now()) {
                return;
            }
            self.read_again_at = None;
            let Some(want) = self.dispatcher.wants() else { return };
            if let Err(error) = self.read(want).await {
                self.read_failed(&error, want);
                return;
            }
            self.gather_changes();
        }
    }

    /// Looks at the first record although nobody takes it: it may have expired.
    async fn look_at_first(&mut self) {
        if self.read_again_at.is_some() {
            return;
        }
        while let Some(want) = self.dispatcher.wants_first() {
            if let Err(error) = self.read(want).await {
                self.read_failed(&error, want);
                return;
            }
            self.dispatcher.expire(self.clock.now_ms());
        }
    }

    /// Takes out what has expired and comes first: before others come back in front of it.
    async fn expire_first(&mut self) {
        if self.is_quiet {
            return;
        }
        self.dispatcher.expire(self.clock.now_ms());
        self.look_at_first().await;
    }

    /// Publishes what is dead. What could not be published is left alone for a while, and what is dead since then waits
    /// with it: it would fare no better.
    async fn bury(&mut self) {
        let Some(cemetery) = self.options.cemetery.clone() else { return };
        if self.bury_again_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.bury_again_at = None;
        // Of the batch that was read last: its records often die together.
        let mut read: BTreeMap<Place, QueueRecord> = BTreeMap::new();
        while self.burials.len() < BURIALS_MAX {
            let dead = self.unburied.pop().or_else(|| self.dispatcher.take_dead(1).pop());
            let Some(dead) = dead else { return };
            if !read.contains_key(&dead.place) {
                match self.read_batch(dead.place).await {
                    Ok(records) => {
                        let lane = dead.place.lane;
                        read = records.into_iter().map(|(offset, r)| (Place { lane, offset }, r)).collect();
                    }
                    Err(error) => {
                        tracing::error!(%error, "a dead record could not be read; it tries again");
                        self.bury_later(dead);
                        return;
                    }
                }
            }
            let record = read.remove(&dead.place).map(|record| record.record);
            self.burials.push(cemetery.clone().bury(dead, record));
        }
    }

    /// Lets a dead record wait, and all others with it.
    fn bury_later(&mut self, dead: Dead) {
        self.unburied.push(dead);
        self.bury_again_at.get_or_insert_with(|| Instant::now() + BURY_AGAIN);
    }

    /// Sends deliveries to their consumers, in order. What nobody takes any more comes back.
    fn send(&mut self, out: &mut Vec<Delivery<QueueRecord>>) {
        let mut by_consumer: BTreeMap<ConsumerId, Vec<QueueDelivery>> = BTreeMap::new();
        for delivery in out.drain(..) {
            if let Some(consumer) = delivery.consumer {
                by_consumer.entry(consumer).or_default().push(delivered(delivery));
            }
        }
        for (consumer, deliveries) in by_consumer {
            if !self.sinks.get(&consumer).is_some_and(|sink| sink.send(deliveries)) {
                // Its session is going, and gives back what it has.
                self.sinks.remove(&consumer);
                self.dispatcher.cancel(consumer);
            }
        }
    }

    async fn carry_out_many(&mut self, first: Ask) {
        self.asked_at = Instant::now();
        // It may have slept for long.
        self.look_whether_quiet().await;
        self.carry_out(first).await;
        for _ in 1..ASKS_AT_ONCE {
            match self.asks.try_recv() {
                Ok(ask) => self.carry_out(ask).await,
                Err(_) => break,
            }
        }
    }

    /// Goes by other options from here on. Whether records are sized is decided when an actor begins: it reads all that
    /// waits for that.
    fn configure(&mut self, options: QueueOptions) {
        let sized = self.options.limits.bytes.is_some();
        let limits = Limits { bytes: options.limits.bytes.filter(|_| sized), ..options.limits };
        self.dispatcher.configure(options.failures_max, options.rest, options.cemetery.is_some());
        self.options = QueueOptions { limits, ..options };
    }

    async fn carry_out(&mut self, ask: Ask) {
        if ask.is_use() {
            self.used_at = Instant::now();
        }
        // A reply that nobody waits for any more is nobody's loss, except where it carries a record.
        match ask {
            Ask::Get(..) | Ask::Purge(_) if self.is_quiet => self.quieted.push(ask),
            Ask::Begin => self.is_gathering = false,
            Ask::Adopt(owner, places) => {
                // What waits has its size before it is taken out.
                self.note_growth().await;
                let count = places.len();
                let has = self.dispatcher.adopt(owner, places);
                if has < count {
                    tracing::debug!(
                        count,
                        has,
                        "records that an earlier leader handed out are with somebody else"
                    );
                }
            }
            Ask::KeepOnly(owner, places) => {
                self.dispatcher.keep_only(owner, &places, self.clock.now_ms());
            }
            Ask::Subscribe(consumer, reply) => {
                let subscribed = self.subscribe(consumer);
                if let Err(Ok((consumer, _))) = reply.send(subscribed) {
                    self.dispatcher.cancel(consumer);
                    self.sinks.remove(&consumer);
                }
            }
            Ask::Configure(options) => self.configure(*options),
            Ask::Cancel(consumer, reply) => {
                self.dispatcher.cancel(consumer);
                self.sinks.remove(&consumer);
                let _ = reply.send(());
            }
            Ask::Credit(consumer, more) => self.dispatcher.add_credit(consumer, more),
            Ask::Settle(owner, places, disposition, replies) => {
                if matches!(disposition, Disposition::Release { .. }) {
                    self.expire_first().await;
                }
                let now = self.clock.now_ms();
                for place in places {
                    // After a change of leaders an owner may settle what is not its own any more.
                    let _ = self.dispatcher.settle(owner, place, disposition, now);
                }
                self.drop_for_returned().await;
                if !replies.is_empty() {
                    self.tell_when_durable(Reply::Settled(replies));
                }
            }
            Ask::SettleAgain(owner, places, disposition, replies) => {
                let now = self.clock.now_ms();
                for place in places {
                    if !self.dispatcher.settle_again(owner, place, disposition, now) {
                        tracing::debug!(
                            ?place,
                            "a record that an earlier leader handed out is with somebody else"
                        );
                    }
                }
                if !replies.is_empty() {
                    self.tell_when_durable(Reply::Settled(replies));
                }
            }
            Ask::CloseOwner(owner, failed) => {
                self.expire_first().await;
                for consumer in self.dispatcher.close_owner(owner, failed, self.clock.now_ms()) {
                    self.sinks.remove(&consumer);
                }
                self.drop_for_returned().await;
            }
            Ask::Get(owner, settled, reply) => {
                let got = self.get(owner, settled).await.map_err(GetError::Unreadable);
                if let Err(Ok(Some(delivery))) = reply.send(got)
                    && !settled
                {
                    let release = Disposition::Release { failed: false };
                    let _ = self.dispatcher.settle(owner, delivery.place, release, self.clock.now_ms());
                }
            }
            Ask::Purge(reply) => {
                self.catch_up().await;
                self.expire_first().await;
                let purged = self.dispatcher.purge();
                self.tell_when_durable(Reply::Purged(reply, purged));
            }
            Ask::Figures(_, reply) => {
                self.catch_up().await;
                self.drop_excess().await;
                self.expire_first().await;
                let bounded = self.options.limits.bytes.is_some();
                let _ = reply.send(QueueFigures {
                    ready: self.dispatcher.ready(),
                    ready_bytes: bounded.then(|| self.dispatcher.ready_bytes()),
                    leased: self.dispatcher.leased() as u64,
                    consumers: self.dispatcher.consumers(),
                });
            }
            Ask::Reserve(records, bytes, reply) => {
                self.catch_up().await;
                let all = self.dispatcher.ready().saturating_add(records);
                let all_bytes = self.dispatcher.ready_bytes().saturating_add(bytes);
                if !self.options.limits.allow(all, all_bytes) {
                    // What has expired takes no room.
                    self.expire_first().await;
                }
                let ready = (self.dispatcher.ready(), self.dispatcher.ready_bytes());
                // What somebody waits for does not wait itself; a classic queue takes only what it would have room for.
                let limits = self.options.limits;
                let fits = self.options.returns_in_turn || limits.allow(records, bytes);
                let limits = match self.dispatcher.is_anybody_willing() {
                    true if fits => Limits::default(),
                    _ => limits,
                };
                // A promise that nobody waits for is given back by being dropped.
                let _ = reply.send(self.room.promise(limits, ready, (records, bytes)));
            }
            Ask::AddLane(number, partition) => {
                if let Err(error) = self.add_lane(number, partition) {
                    tracing::warn!(%error, "a queue has a new lane that cannot be used yet");
                }
            }
        }
    }

    fn subscribe(
        &mut self,
        mut consumer: NewConsumer,
    ) -> Result<(ConsumerId, QueueDeliveries), SubscribeError> {
        let (sink, deliveries) = sink(Arc::clone(&self.wake));
        let session = consumer.gate.take();
        let gate: Arc<dyn Gate> = Arc::new(SinkGate { sink: sink.clone(), session });
        consumer.gate = Some(gate);
        let id = self.dispatcher.subscribe(consumer)?;
        self.sinks.insert(id, sink);
        Ok((id, deliveries))
    }

    async fn get(&mut self, owner: OwnerId, settled: bool) -> Result<Option<QueueDelivery>, ReadError> {
        self.catch_up().await;
        self.drop_excess().await;
        loop {
            match self.dispatcher.get(owner, settled, self.clock.now_ms()) {
                Got::Record(delivery) => return Ok(Some(delivered(delivery))),
                Got::Empty => return Ok(None),
                Got::Wanted(want) => self.read(want).await?,
            }
        }
    }
}

fn delivered(delivery: Delivery<QueueRecord>) -> QueueDelivery {
    let Delivery { consumer, owner, place, record, redelivered, marks } = delivery;
    QueueDelivery { consumer, owner, place, record, redelivered, marks }
}

/// A lane as the shard's state has it; none if the queue has no subscription there yet.
fn lane_start(partition: &PartitionRef) -> Option<LaneStart> {
    let state = partition.handle().view().subscription(partition.id(), SubscriptionId::QUEUE)?;
    Some(LaneStart {
        head: state.head(),
        end: partition.next_offset(),
        handed_out: state.handed_out(),
        settled: state.settled_runs().collect(),
        marked: state.marked_runs().collect(),
    })
}
