//! One channel: what it consumes, what its peer has not settled, what it has published and not been told of.

mod confirms;
mod prefetch;
mod transaction;
mod unsettled;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_amqp_wire::{Assembler, BasicProperties, ShortStr};
use weir_broker::queues::{ConsumerId, FurtherKeys, OwnerId, Place, QueueRef};
use weir_broker::streams::StreamCredit;
use weir_broker::topology::QueueInfo;
use weir_dispatch::NewConsumer;
use weir_model::TopicId;
use weir_model::routing::Arguments;

use crate::held::{Held, HeldShare};

pub(crate) use confirms::{Confirm, Confirms};
pub(crate) use prefetch::{SharedPrefetch, Unshared};
pub(crate) use transaction::{Transaction, TransactionFull};
pub(crate) use unsettled::{UnknownTag, Unsettled};

/// A record that is leased to its peer.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub topic: TopicId,
    pub queue: QueueRef,
    pub place: Place,
    /// To which consumer it went; none if it was asked for.
    pub consumer: Option<ConsumerKey>,
    /// Whether that consumer gets credit for it.
    pub credited: bool,
    /// How long its peer may take to settle it.
    pub timeout: Option<Duration>,
    /// Whether it counts in what the channel's consumers share; what was asked for does not.
    pub shared: bool,
    /// Whether another leader handed it out than the one that leads the queue now.
    pub again: bool,
}

/// A delivery that its peer has to settle.
#[derive(Clone, Debug)]
pub(crate) enum Delivered {
    /// From a queue.
    Leased(Leased),
    /// From a stream, where settling it only lets another come.
    Streamed(StreamCredit),
    /// From a queue that has it back already: settling it comes too late, and is no mistake.
    TakenBack,
}

/// A consumer that reads by offset.
#[derive(Debug)]
pub(crate) struct StreamConsumer {
    pub credit: StreamCredit,
    /// What it reads, and with what it was declared, for whoever asks.
    pub queue: String,
    pub prefetch: u16,
    pub arguments: Arguments,
}

/// A consumer within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConsumerKey {
    pub topic: TopicId,
    pub id: ConsumerId,
}

/// A consumer of a channel.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub info: QueueInfo,
    pub queue: QueueRef,
    pub id: ConsumerId,
    pub no_ack: bool,
    /// Whether its credit is counted, so that it gets more when its peer settles.
    pub bounded: bool,
    /// What it was declared with, for whoever asks.
    pub exclusive: bool,
    pub prefetch: u16,
    pub arguments: Arguments,
    /// How long what it gets may wait to be settled.
    pub timeout: Option<Duration>,
    /// What it asks of the queue.
    pub asked: NewConsumer,
}

/// A consumer of direct replies.
#[derive(Clone, Debug)]
pub(crate) struct ReplyConsumer {
    pub tag: ShortStr,
    /// Where replies to it are published to.
    pub mailbox: ShortStr,
}

/// A message that is checked, and of which it is known where it goes.
#[derive(Debug)]
pub(crate) struct Addressed {
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    /// Its keys beside that.
    pub further: FurtherKeys,
    pub mandatory: bool,
    pub properties: BasicProperties,
    pub body: bytes::Bytes,
    /// For how many milliseconds exchanges keep it back, if any does.
    pub delay_ms: i64,
}

/// What a channel does with messages and settlements.
#[derive(Debug, Default)]
pub(crate) enum Mode {
    /// Carries them out.
    #[default]
    Plain,
    /// Carries them out, and confirms messages.
    Confirm,
    /// Keeps them until they are committed.
    Transaction(Transaction),
}

/// One channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub owner: OwnerId,
    pub assembler: Assembler,
    pub mode: Mode,
    pub confirms: Confirms,
    pub unsettled: Unsettled<Delivered>,
    pub consumers: BTreeMap<ShortStr, Consumer>,
    pub streams: BTreeMap<ShortStr, StreamConsumer>,
    pub reply_consumer: Option<ReplyConsumer>,
    /// Queues that this channel has leases of, or had.
    pub queues: BTreeMap<TopicId, QueueRef>,
    /// Messages that each consumer declared from now on gets before it settles any; 0 for no limit.
    pub prefetch: u16,
    /// Shared by all consumers of the channel.
    pub shared_prefetch: Arc<SharedPrefetch>,
    /// The queue that was declared last: what an empty name means.
    pub last_queue: Option<ShortStr>,
    /// What has come of a message that has not come as a whole.
    pub unfinished: HeldShare,
    /// `channel.close` was sent; nothing but the answer counts.
    pub closing: bool,
}

impl Channel {
    pub(crate) fn new(owner: OwnerId, body_bytes_max: u64, held: &Held) -> Channel {
        Channel {
            owner,
            assembler: Assembler::new(body_bytes_max),
            mode: Mode::default(),
            confirms: Confirms::default(),
            unsettled: Unsettled::default(),
            consumers: BTreeMap::new(),
            streams: BTreeMap::new(),
            reply_consumer: None,
            queues: BTreeMap::new(),
            prefetch: 0,
            shared_prefetch: Arc::default(),
            last_queue: None,
            unfinished: held.share(),
            closing: false,
        }
    }
}
