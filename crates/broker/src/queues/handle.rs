//! How sessions talk to a queue's actor.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Notify, mpsc, oneshot};
use weir_dispatch::{ConsumerId, LaneNumber, NewConsumer, OwnerId, Place, SubscribeError};
use weir_model::subscription::Disposition;
use weir_shard::ReadError;

use super::holdings::Lasting;
use super::{QueueDeliveries, QueueDelivery, QueueOptions, Reservation};
use crate::read::PartitionRef;

/// The queue's actor has ended, or cannot be reached: its node does not lead it any more, or is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is not led by the same node any more")]
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
    /// As [`GetError::Unreadable`], on the node that leads the queue.
    #[error("the node that leads the queue: {0}")]
    Elsewhere(String),
}

/// What a queue is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Records that wait for somebody.
    pub ready: u64,
    /// Bytes of their values, where these are counted: in queues that bound them.
    pub ready_bytes: Option<u64>,
    /// Records that are with somebody.
    pub leased: u64,
    /// Consumers.
    pub consumers: usize,
}

/// Whoever waits until something is durable.
pub(crate) type Replies = Vec<oneshot::Sender<()>>;

/// A queue that somebody leads: this node, or another one that it can reach. Cheap to clone.
///
/// When that ends, so does what it is good for, but for one thing: what is settled by it, and owners that are closed, reach
/// whoever leads the queue next.
#[derive(Clone)]
pub struct QueueRef {
    asks: mpsc::Sender<Ask>,
    wake: Arc<Notify>,
    lasting: Lasting,
}

impl fmt::Debug for QueueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueRef").field("gone", &self.asks.is_closed()).finish_non_exhaustive()
    }
}

/// What an actor is asked for.
#[derive(Debug)]
pub(crate) enum Ask {
    Subscribe(NewConsumer, oneshot::Sender<Result<(ConsumerId, QueueDeliveries), SubscribeError>>),
    Cancel(ConsumerId, oneshot::Sender<()>),
    Credit(ConsumerId, u32),
    Settle(OwnerId, Vec<Place>, Disposition, Replies),
    /// By somebody to whom another leader handed them out.
    SettleAgain(OwnerId, Vec<Place>, Disposition, Replies),
    CloseOwner(OwnerId, bool),
    /// Another leader has handed records to an owner, who still has them.
    Adopt(OwnerId, Vec<Place>),
    /// An owner has no others than these.
    KeepOnly(OwnerId, BTreeSet<Place>),
    /// Everybody has said what he has, or is not waited for any longer: records are handed out from here on.
    Begin,
    Get(OwnerId, bool, oneshot::Sender<Result<Option<QueueDelivery>, GetError>>),
    Purge(oneshot::Sender<u64>),
    /// With whether whoever asks uses the queue by that.
    Figures(bool, oneshot::Sender<QueueFigures>),
    Reserve(u64, u64, oneshot::Sender<Option<Reservation>>),
    Configure(Box<QueueOptions>),
    AddLane(LaneNumber, PartitionRef),
}

impl Ask {
    /// Whether the queue is used by it. Settling, publishing, purging and looking do not count, as in RabbitMQ.
    pub(super) fn is_use(&self) -> bool {
        matches!(
            self,
            Ask::Subscribe(..) | Ask::Cancel(..) | Ask::Get(..) | Ask::CloseOwner(..) | Ask::Figures(true, _)
        )
    }
}

impl QueueRef {
    /// The handle to whoever listens at the other end.
    pub(crate) fn new(asks: mpsc::Sender<Ask>, wake: Arc<Notify>, lasting: Lasting) -> QueueRef {
        QueueRef { asks, wake, lasting }
    }

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

    /// An owner settles what was leased to it. What it does not have is passed over. If the queue's leader is gone the next
    /// one is told, as soon as there is one; fails only if there is nothing to settle any more.
    pub async fn settle(
        &self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
    ) -> Result<(), QueueGone> {
        self.tell(Ask::Settle(owner, places, disposition, Replies::new())).await
    }

    /// As [`QueueRef::settle`], of what an earlier leader handed out to the owner: it holds too if the record waits, and
    /// nobody else has it.
    pub async fn settle_again(
        &self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
    ) -> Result<(), QueueGone> {
        self.tell(Ask::SettleAgain(owner, places, disposition, Replies::new())).await
    }

    /// As [`QueueRef::settle_again`]; returns when it is durable, which may be when somebody else leads.
    pub async fn settle_again_durably(
        &self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
    ) -> Result<(), QueueGone> {
        self.ask(|reply| Ask::SettleAgain(owner, places, disposition, vec![reply])).await
    }

    /// As [`QueueRef::settle`]; returns when it is durable, which may be when somebody else leads.
    pub async fn settle_durably(
        &self,
        owner: OwnerId,
        places: Vec<Place>,
        disposition: Disposition,
    ) -> Result<(), QueueGone> {
        self.ask(|reply| Ask::Settle(owner, places, disposition, vec![reply])).await
    }

    /// An owner is gone, with its consumers; what it had comes back, as a failure or not.
    pub async fn close_owner(&self, owner: OwnerId, failed: bool) -> Result<(), QueueGone> {
        self.tell(Ask::CloseOwner(owner, failed)).await
    }

    /// The record that comes next, leased to the owner or settled at once; none if none waits.
    pub async fn get(&self, owner: OwnerId, settled: bool) -> Result<Option<QueueDelivery>, GetError> {
        self.ask(|reply| Ask::Get(owner, settled, reply)).await?
    }

    /// Settles all records that wait. Returns how many these were, when that is durable.
    pub async fn purge(&self) -> Result<u64, QueueGone> {
        self.ask(Ask::Purge).await
    }

    /// What the queue is doing, for somebody who uses it.
    pub async fn figures(&self) -> Result<QueueFigures, QueueGone> {
        self.ask(|reply| Ask::Figures(true, reply)).await
    }

    /// What the queue is doing, for somebody who only looks: a queue that expires does so all the same.
    pub async fn look(&self) -> Result<QueueFigures, QueueGone> {
        self.ask(|reply| Ask::Figures(false, reply)).await
    }

    /// Room for records and so many bytes of their values; none if there is none.
    pub(crate) async fn reserve(&self, records: u64, bytes: u64) -> Result<Option<Reservation>, QueueGone> {
        self.ask(|reply| Ask::Reserve(records, bytes, reply)).await
    }

    /// The queue behaves in another way from here on.
    pub(crate) async fn configure(&self, options: QueueOptions) -> Result<(), QueueGone> {
        self.tell(Ask::Configure(Box::new(options))).await
    }

    /// The queue has one more lane, with a subscription.
    pub(crate) async fn add_lane(
        &self,
        number: LaneNumber,
        partition: PartitionRef,
    ) -> Result<(), QueueGone> {
        self.tell(Ask::AddLane(number, partition)).await
    }

    /// Whether both are handles to one actor.
    pub(crate) fn is_same(&self, other: &QueueRef) -> bool {
        self.asks.same_channel(&other.asks)
    }

    /// A gate that was shut may be open again: whoever waited for it gets records.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether the actor has ended.
    pub fn is_gone(&self) -> bool {
        self.asks.is_closed()
    }

    /// Returns when the actor has ended.
    pub(crate) async fn until_gone(&self) {
        self.asks.closed().await;
    }

    pub(crate) async fn tell(&self, ask: Ask) -> Result<(), QueueGone> {
        match self.asks.send(ask).await {
            Ok(()) => Ok(()),
            // What lasts reaches whoever leads next.
            Err(SendError(ask)) => self.lasting.keep(ask).map_err(|_| QueueGone),
        }
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, QueueGone> {
        let (reply, answer) = oneshot::channel();
        self.tell(ask(reply)).await?;
        answer.await.map_err(|_| QueueGone)
    }
}
