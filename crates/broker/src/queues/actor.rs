//! A queue's actor: one task that owns the dispatcher, and the handle by which sessions talk to it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use weir_cluster::{Clock, ProposeError, ShardHandle};
use weir_dispatch::{
    ConsumerId, Dead, Delivery, Dispatcher, Gate, Got, LaneChanges, LaneNumber, LaneStart, NewConsumer,
    OwnerId, Place, SubscribeError, Want,
};
use weir_model::SubscriptionId;
use weir_model::command::{Command, Outcome};
use weir_model::subscription::Disposition;
use weir_shard::{AppendObserver, ObserverGuard, ReadError};

use super::bury::Burial;
use super::record::{Run, read_run};
use super::sink::{Sink, SinkGate, sink};
use super::{QueueDeliveries, QueueDelivery, QueueOptions, QueueRecord};
use crate::blocking::Blocking;
use crate::errors::Unavailable;
use crate::read::PartitionRef;

/// Asks that wait for an actor. Whoever has more to ask waits.
const ASKS_MAX: usize = 1_024;

/// Asks that are carried out before records are handed out again.
const ASKS_AT_ONCE: usize = 256;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes read for one record that came back: its batch is read, and the others in it passed over.
const READ_ONE_BYTES: usize = 1;

/// Settlements in one command: some 70 KiB.
const SETTLEMENTS_PER_COMMAND: usize = 4_096;

/// Commands of one queue on their way. More changes are gathered meanwhile, and go together.
const COMMANDS_ON_THEIR_WAY: usize = 4;

/// How long an actor sleeps at most: a change of leaders wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Dead records that are published at a time.
const BURIALS_MAX: usize = 64;

/// How long to wait before a dead record is published again that could not be.
const BURY_AGAIN: Duration = Duration::from_secs(1);

/// Commands' worth of changes of one lane that wait. Beyond them nothing is handed out and nobody is listened to, until
/// the shard has taken some.
const CHANGES_WAITING_MAX: usize = 64;

/// How long to wait before changes that the shard could not take now are proposed again.
const RETRY: Duration = Duration::from_millis(20);

/// How long to wait before records that could not be read are read again: what is damaged stays so, and a disk that
/// fails is not helped by haste.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The queue's actor has ended: its node does not lead it any more, or is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is gone, or not led by this node any more")]
pub struct QueueGone;

/// Why there is no saying what comes next in a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// See [`QueueGone`].
    #[error(transparent)]
    Gone(#[from] QueueGone),
    /// It is there, and cannot be read.
    #[error("the next record cannot be read: {0}")]
    Unreadable(ReadError),
}

/// What a queue is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Records that wait for somebody.
    pub ready: u64,
    /// Records that are with somebody.
    pub leased: u64,
    /// Consumers.
    pub consumers: usize,
}

/// A queue that this node leads. Cheap to clone.
#[derive(Clone)]
pub struct QueueRef {
    asks: mpsc::Sender<Ask>,
    wake: Arc<Notify>,
}

impl fmt::Debug for QueueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueRef").field("gone", &self.asks.is_closed()).finish_non_exhaustive()
    }
}

enum Ask {
    Subscribe(NewConsumer, oneshot::Sender<Result<(ConsumerId, QueueDeliveries), SubscribeError>>),
    Cancel(ConsumerId, oneshot::Sender<()>),
    Credit(ConsumerId, u32),
    Settle(OwnerId, Vec<Place>, Disposition, Option<oneshot::Sender<()>>),
    CloseOwner(OwnerId, bool),
    Get(OwnerId, bool, oneshot::Sender<Result<Option<QueueDelivery>, ReadError>>),
    Purge(oneshot::Sender<u64>),
    Figures(oneshot::Sender<QueueFigures>),
}

impl QueueRef {
    /// Begins to consume. Records come by what is returned until it is dropped or the queue is gone.
    pub async fn subscribe(
        &self,
        consumer: NewConsumer,
    ) -> Result<Result<(ConsumerId, QueueDeliveries), SubscribeError>, QueueGone> {
        self.ask(|reply| Ask::Subscribe(consumer, reply)).await
    }

    /// Ends consuming. No record is handed to the consumer after this returned; what it has stays its owner's.
    pub async fn cancel(&self, consumer: ConsumerId) -> Result<(), QueueGone> {
        self.ask(|reply| Ask::Cancel(consumer, reply)).await
    }

    /// A consumer takes more records.
    pub async fn add_credit(&self, consumer: ConsumerId, more: u32) -> Result<(), QueueGone> {
        self.tell(Ask::Credit(consumer, more)).await
    }

    /// An owner settles what was leased to it. What it does not have is passed over.
    pub async fn settle(
        &self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
    ) -> Result<(), QueueGone> {
        self.tell(Ask::Settle(owner, places, disposition, None)).await
    }

    /// As [`QueueRef::settle`]; returns when it is durable.
    pub async fn settle_durably(
        &self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
    ) -> Result<(), QueueGone> {
        self.ask(|reply| Ask::Settle(owner, places, disposition, Some(reply))).await
    }

    /// An owner is gone, with its consumers; what it had comes back, as a failure or not.
    pub async fn close_owner(&self, owner: OwnerId, failed: bool) -> Result<(), QueueGone> {
        self.tell(Ask::CloseOwner(owner, failed)).await
    }

    /// The record that comes next, leased to the owner or settled at once; none if none waits.
    pub async fn get(&self, owner: OwnerId, settled: bool) -> Result<Option<QueueDelivery>, GetError> {
        self.ask(|reply| Ask::Get(owner, settled, reply)).await?.map_err(GetError::Unreadable)
    }

    /// Settles all records that wait. Returns how many these were, when that is durable.
    pub async fn purge(&self) -> Result<u64, QueueGone> {
        self.ask(Ask::Purge).await
    }

    /// What the queue is doing.
    pub async fn figures(&self) -> Result<QueueFigures, QueueGone> {
        self.ask(Ask::Figures).await
    }

    /// A gate that was shut may be open again: whoever waited for it gets records.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether the actor has ended.
    pub fn is_gone(&self) -> bool {
        self.asks.is_closed()
    }

    async fn tell(&self, ask: Ask) -> Result<(), QueueGone> {
        self.asks.send(ask).await.map_err(|_| QueueGone)
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, QueueGone> {
        let (reply, answer) = oneshot::channel();
        self.tell(ask(reply)).await?;
        answer.await.map_err(|_| QueueGone)
    }
}

/// Wakes the actor when a partition grows.
struct Growth(Arc<Notify>);

impl AppendObserver for Growth {
    fn appended(&self, _bytes: usize) {
        self.0.notify_one();
    }
}

struct Lane {
    partition: PartitionRef,
    _growth: ObserverGuard,
    /// Changes that wait for a command.
    waiting: Vec<LaneChanges>,
    /// Whoever is told when what was settled up to now is durable.
    told_then: Vec<Arc<Told>>,
    on_their_way: usize,
}

/// Somebody who waits until something is durable, in one lane or in several.
struct Told {
    reply: Reply,
    /// Set when it will not be, as far as this leader knows.
    failed: AtomicBool,
}

enum Reply {
    Settled(oneshot::Sender<()>),
    Purged(oneshot::Sender<u64>, u64),
}

impl Told {
    /// It is durable in one lane; with the last of them whoever waits is told.
    fn tell(this: Arc<Told>) {
        let Some(Told { reply, failed }) = Arc::into_inner(this) else { return };
        if failed.into_inner() {
            return;
        }
        // Whoever asked may have gone.
        match reply {
            Reply::Settled(reply) => drop(reply.send(())),
            Reply::Purged(reply, count) => drop(reply.send(count)),
        }
    }

    fn fail(this: Arc<Told>) {
        this.failed.store(true, Ordering::Release);
    }
}

/// A command's fate: of which lane, what it was, whom to tell, and what came of it.
type Settled = (LaneNumber, LaneChanges, Vec<Arc<Told>>, Result<Outcome, ProposeError>);

/// The task's own.
pub(super) struct Actor {
    asks: mpsc::Receiver<Ask>,
    wake: Arc<Notify>,
    clock: Arc<dyn Clock>,
    blocking: Blocking,
    options: QueueOptions,
    lanes: BTreeMap<LaneNumber, Lane>,
    dispatcher: Dispatcher<QueueRecord>,
    sinks: BTreeMap<ConsumerId, Sink>,
    settling: FuturesUnordered<Pin<Box<dyn Future<Output = Settled> + Send>>>,
    /// Dead records that are being published.
    burials: FuturesUnordered<Pin<Box<dyn Future<Output = Burial> + Send>>>,
    /// Those that are to be tried again.
    unburied: Vec<Dead>,
    used_at: Instant,
    /// Set while a shard could not take changes: when they are proposed again.
    retry_at: Option<Instant>,
    /// Set while records could not be read: when they are read again. What is at hand is handed out meanwhile.
    read_again_at: Option<Instant>,
}

/// Why an actor ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nobody has used the queue for a while.
    Idle,
    /// Nobody has used it for so long that it is to be deleted.
    Expired,
    /// Another node leads, the shard cannot go on, or the queue is deleted.
    NotLeader,
}

impl Actor {
    /// An actor over the partitions of a queue, all of which this node leads, and the handle to it.
    pub(super) fn new(
        partitions: Vec<(LaneNumber, PartitionRef)>,
        options: QueueOptions,
        clock: Arc<dyn Clock>,
        blocking: Blocking,
    ) -> Result<(Actor, QueueRef), Unavailable> {
        let (sender, asks) = mpsc::channel(ASKS_MAX);
        let wake = Arc::new(Notify::new());
        let mut dispatcher = Dispatcher::new(weir_dispatch::Options {
            returns_in_turn: options.returns_in_turn,
            failures_max: options.failures_max,
            single_active: options.single_active,
            leased_max: options.leased_max,
            dead_letters: options.cemetery.is_some(),
            ..weir_dispatch::Options::default()
        });
        let mut lanes = BTreeMap::new();
        for (number, partition) in partitions {
            partition.ready()?;
            // Told first, looked at then: an append in between wakes for nothing, and none is missed.
            let growth = partition.view().observe(Arc::new(Growth(Arc::clone(&wake))));
            dispatcher.add_lane(number, lane_start(&partition).ok_or(Unavailable::Starting)?);
            let (waiting, told_then) = (Vec::new(), Vec::new());
            lanes.insert(number, Lane { partition, _growth: growth, waiting, told_then, on_their_way: 0 });
        }
        let actor = Actor {
            asks,
            wake: Arc::clone(&wake),
            clock,
            blocking,
            options,
            lanes,
            dispatcher,
            sinks: BTreeMap::new(),
            settling: FuturesUnordered::new(),
            burials: FuturesUnordered::new(),
            unburied: Vec::new(),
            used_at: Instant::now(),
            retry_at: None,
            read_again_at: None,
        };
        Ok((actor, QueueRef { asks: sender, wake }))
    }

    /// Works until it ends. When it has ended because nobody used it, nothing is on its way any more; an ask that comes
    /// too late finds it gone.
    pub(super) async fn run(mut self) -> Ended {
        loop {
            if !self.leads() {
                return Ended::NotLeader;
            }
            self.catch_up().await;
            self.dispatcher.expire(self.clock.now_ms());
            self.look_at_first().await;
            self.bury().await;
            self.propose_changes();
            let times = [self.retry_at, self.read_again_at, self.next_expiry(), self.ends_at()];
            let until = times.into_iter().flatten().fold(Instant::now() + LOOK_AGAIN, Instant::min);
            tokio::select! {
                biased;
                Some(settled) = self.settling.next() => self.settled(settled),
                Some(burial) = self.burials.next() => match burial {
                    Burial::Done(place) => self.dispatcher.buried(place),
                    Burial::Again(dead) => {
                        self.unburied.push(dead);
                        self.retry_at = Some(Instant::now() + BURY_AGAIN);
                    }
                },
                ask = self.asks.recv(), if !self.is_behind() => match ask {
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

    /// Whether this node leads the queue and it has not been deleted.
    fn leads(&self) -> bool {
        self.lanes.values().all(|lane| lane.partition.ready().is_ok() && !lane.partition.view().is_closed())
    }

    /// When the actor may end, if nobody uses the queue until then. One whose records may expire and must then go
    /// somewhere has work to do even so.
    fn ends_at(&self) -> Option<Instant> {
        let waits = self.options.cemetery.is_some() && self.dispatcher.ready() > 0;
        match self.options.expires {
            _ if !self.is_unused() => None,
            Some(expires) => Some(self.used_at + expires),
            None => (!waits).then(|| self.used_at + self.options.idle),
        }
    }

    /// Whether nobody has anything of it, and nothing is on its way.
    fn is_unused(&self) -> bool {
        self.dispatcher.consumers() == 0
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

    /// Until when the first record expires; looked at only while nobody takes it.
    fn next_expiry(&mut self) -> Option<Instant> {
        let at = self.dispatcher.first_expires_at()?;
        let in_ms = at.saturating_sub(self.clock.now_ms()).max(0);
        Some(Instant::now() + Duration::from_millis(in_ms.cast_unsigned()))
    }

    fn note_growth(&mut self) {
        for (number, lane) in &self.lanes {
            self.dispatcher.appended(*number, lane.partition.next_offset());
        }
        if let Some(max) = self.options.records_max {
            let over = self.dispatcher.ready().saturating_sub(max);
            self.dispatcher.drop_first(over);
        }
    }

    /// What has come by now is first for consumers that wait for it, before somebody asks for it, or counts it.
    async fn catch_up(&mut self) {
        self.note_growth();
        self.hand_out().await;
    }

    /// Hands out what there is for those who take it, reading it as needed.
    async fn hand_out(&mut self) {
        let mut out: Vec<Delivery<QueueRecord>> = Vec::new();
        while !self.is_behind() {
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

    fn read_failed(&mut self, error: &ReadError, want: Want) {
        tracing::error!(%error, ?want, "a queue's records could not be read; it tries again");
        self.read_again_at = Some(Instant::now() + READ_AGAIN);
    }

    /// Where records may expire and must then go somewhere, the first one is looked at although nobody takes it.
    async fn look_at_first(&mut self) {
        if self.options.cemetery.is_none() || self.read_again_at.is_some() {
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

    /// Publishes what is dead.
    async fn bury(&mut self) {
        let Some(cemetery) = self.options.cemetery.clone() else { return };
        while self.burials.len() < BURIALS_MAX {
            let dead = self.unburied.pop().or_else(|| self.dispatcher.take_dead(1).pop());
            let Some(dead) = dead else { return };
            match self.read_one(dead.place).await {
                Ok(record) => {
                    let cemetery = cemetery.clone();
                    let burial = cemetery.bury(dead, record.map(|record| record.record));
                    self.burials.push(Box::pin(burial));
                }
                Err(error) => {
                    tracing::error!(%error, "a dead record could not be read; it tries again");
                    self.unburied.push(dead);
                    self.retry_at = Some(Instant::now() + BURY_AGAIN);
                    return;
                }
            }
        }
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

    async fn read(&mut self, want: Want) -> Result<(), ReadError> {
        match want {
            Want::One(place) => {
                let record = self.read_one(place).await?;
                self.dispatcher.supply_one(place, record);
            }
            Want::From(place) => match self.read_from(place, READ_BYTES).await {
                Ok(run) => self.dispatcher.supply(place.lane, run.records, run.next),
                // Retention has let it go.
                Err(ReadError::OutOfRange { log_start, .. }) if log_start > place.offset => {
                    self.dispatcher.supply(place.lane, [], log_start);
                }
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// One record; none if it is not in the log any more.
    // Alone, because the futures that this actor waits for are not shared between threads.
    async fn read_one(&mut self, place: Place) -> Result<Option<QueueRecord>, ReadError> {
        match self.read_from(place, READ_ONE_BYTES).await {
            Ok(run) => {
                let found = run.records.into_iter().find(|(offset, _)| *offset == place.offset);
                Ok(found.map(|(_, record)| record))
            }
            Err(ReadError::OutOfRange { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a run of records, waiting for the disk elsewhere.
    async fn read_from(&mut self, place: Place, bytes: usize) -> Result<Run, ReadError> {
        let Some(lane) = self.lanes.get(&place.lane) else { return Err(ReadError::Closed) };
        let ttl_ms = self.options.ttl_ms;
        let view = Arc::clone(lane.partition.view());
        let run = match read_run(&view, place.offset, bytes, ttl_ms, true) {
            Err(ReadError::WouldBlock) => {
                let read = move || read_run(&view, place.offset, bytes, ttl_ms, false);
                // It fails only when the runtime is going down.
                self.blocking.run(read).await.unwrap_or(Err(ReadError::Closed))?
            }
            read => read?,
        };
        if run.next <= place.offset {
            let why = "there is nothing where the log says that there is a record".into();
            return Err(ReadError::Corrupt { offset: place.offset, why });
        }
        Ok(run)
    }

    async fn carry_out_many(&mut self, first: Ask) {
        self.used_at = Instant::now();
        self.carry_out(first).await;
        for _ in 1..ASKS_AT_ONCE {
            match self.asks.try_recv() {
                Ok(ask) => self.carry_out(ask).await,
                Err(_) => return,
            }
        }
    }

    async fn carry_out(&mut self, ask: Ask) {
        // A reply that nobody waits for any more is nobody's loss, except where it carries a record.
        match ask {
            Ask::Subscribe(consumer, reply) => {
                let subscribed = self.subscribe(consumer);
                if let Err(Ok((consumer, _))) = reply.send(subscribed) {
                    self.dispatcher.cancel(consumer);
                    self.sinks.remove(&consumer);
                }
            }
            Ask::Cancel(consumer, reply) => {
                self.dispatcher.cancel(consumer);
                self.sinks.remove(&consumer);
                let _ = reply.send(());
            }
            Ask::Credit(consumer, more) => self.dispatcher.add_credit(consumer, more),
            Ask::Settle(owner, places, disposition, reply) => {
                for place in places {
                    // After a change of leaders an owner may settle what is not its own any more.
                    let _ = self.dispatcher.settle(owner, place, disposition);
                }
                if let Some(reply) = reply {
                    self.tell_when_durable(Reply::Settled(reply));
                }
            }
            Ask::CloseOwner(owner, failed) => {
                for consumer in self.dispatcher.close_owner(owner, failed) {
                    self.sinks.remove(&consumer);
                }
            }
            Ask::Get(owner, settled, reply) => {
                let got = self.get(owner, settled).await;
                if let Err(Ok(Some(delivery))) = reply.send(got)
                    && !settled
                {
                    let release = Disposition::Release { failed: false };
                    let _ = self.dispatcher.settle(owner, delivery.place, release);
                }
            }
            Ask::Purge(reply) => {
                self.catch_up().await;
                let purged = self.dispatcher.purge();
                self.tell_when_durable(Reply::Purged(reply, purged));
            }
            Ask::Figures(reply) => {
                self.catch_up().await;
                let _ = reply.send(QueueFigures {
                    ready: self.dispatcher.ready(),
                    leased: self.dispatcher.leased() as u64,
                    consumers: self.dispatcher.consumers(),
                });
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
        loop {
            match self.dispatcher.get(owner, settled, self.clock.now_ms()) {
                Got::Record(delivery) => return Ok(Some(delivered(delivery))),
                Got::Empty => return Ok(None),
                Got::Wanted(want) => self.read(want).await?,
            }
        }
    }

    /// Tells somebody when all that has just been settled is durable.
    fn tell_when_durable(&mut self, reply: Reply) {
        self.gather_changes();
        let told = Arc::new(Told { reply, failed: AtomicBool::new(false) });
        for lane in self.lanes.values_mut().filter(|lane| !lane.waiting.is_empty()) {
            lane.told_then.push(Arc::clone(&told));
        }
        // If nothing waits, it is told at once.
        Told::tell(told);
    }

    fn gather_changes(&mut self) {
        for (number, changes) in self.dispatcher.take_changes() {
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            match lane.waiting.last_mut() {
                Some(last) if last.settlements.len() < SETTLEMENTS_PER_COMMAND => {
                    last.handed_out = last.handed_out.max(changes.handed_out);
                    last.settlements.extend(changes.settlements);
                }
                _ => lane.waiting.push(changes),
            }
        }
    }

    /// Puts what has changed in the shards' lines, as far as there is room.
    fn propose_changes(&mut self) {
        self.gather_changes();
        for (number, lane) in &mut self.lanes {
            while lane.on_their_way < COMMANDS_ON_THEIR_WAY && !lane.waiting.is_empty() {
                let changes = next_command(&mut lane.waiting);
                // What they wait for may lie in several commands; the last of these to be durable tells them.
                let told = match lane.waiting.is_empty() {
                    true => std::mem::take(&mut lane.told_then),
                    false => lane.told_then.clone(),
                };
                let command = Command::Settle {
                    partition: lane.partition.id(),
                    subscription: SubscriptionId::QUEUE,
                    handed_out: changes.handed_out,
                    settlements: changes.settlements.clone(),
                };
                let handle: &ShardHandle = lane.partition.handle();
                match handle.submit(command) {
                    Ok(pending) => {
                        lane.on_their_way += 1;
                        let number = *number;
                        self.settling.push(Box::pin(async move { (number, changes, told, pending.await) }));
                    }
                    Err(error) => {
                        lane.waiting.insert(0, changes);
                        lane.told_then.splice(0..0, told);
                        tracing::debug!(%error, "settlements wait");
                        self.retry_at = Some(Instant::now() + RETRY);
                        break;
                    }
                }
            }
        }
    }

    fn settled(&mut self, (number, changes, told, outcome): Settled) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.on_their_way -= 1;
        match outcome {
            Ok(Outcome::Done) => told.into_iter().for_each(Told::tell),
            // The partition is gone, and all that was in it.
            Ok(_) => told.into_iter().for_each(Told::fail),
            // Settling twice does no harm, and what was given back is noted once more at worst.
            Err(ProposeError::Overloaded | ProposeError::Timeout) => {
                lane.waiting.insert(0, changes);
                lane.told_then.splice(0..0, told);
                self.retry_at = Some(Instant::now() + RETRY);
            }
            Err(error) => {
                tracing::debug!(%error, "settlements were not taken; the next leader hands out again");
                told.into_iter().for_each(Told::fail);
            }
        }
    }
}

/// Changes for one command, out of those that wait.
fn next_command(waiting: &mut Vec<LaneChanges>) -> LaneChanges {
    let mut next = LaneChanges::default();
    while let Some(first) = waiting.first_mut() {
        next.handed_out = next.handed_out.max(first.handed_out);
        let room = SETTLEMENTS_PER_COMMAND - next.settlements.len();
        if first.settlements.len() > room {
            next.settlements.extend(first.settlements.drain(..room));
            break;
        }
        next.settlements.append(&mut first.settlements);
        waiting.remove(0);
    }
    next
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
