//! Direct replies: messages that go from a publisher to the channel of a requester, and through no queue.
//!
//! A requester consumes from a name that is no queue, [`REPLY_TO`]. What it publishes with that name in `reply-to` carries
//! the name of its mailbox instead, which whoever replies publishes to by the default exchange. Nothing of it is kept: a
//! reply whose requester is gone, or takes in too slowly, is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use weir_amqp_wire::{BasicProperties, ShortStr};
use weir_broker::queues::OwnerId;

/// The name that a requester consumes from, and with a dot and letters of its own that of its mailbox.
pub(crate) const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// Replies that wait for a connection. More are dropped.
const REPLIES_WAITING_MAX: usize = 4_096;

/// Bytes of them.
const REPLIES_WAITING_BYTES_MAX: usize = 4 << 20;

/// A message for a requester.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The requester's channel, and which of those that had its number.
    pub channel: u16,
    pub owner: OwnerId,
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    pub properties: BasicProperties,
    pub body: Bytes,
}

/// The end of a connection's replies that is put into mailboxes.
#[derive(Clone, Debug)]
pub(crate) struct ReplySender {
    sender: mpsc::Sender<Reply>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// The connection's own end.
#[derive(Debug)]
pub(crate) struct Replies {
    receiver: mpsc::Receiver<Reply>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Both ends.
pub(crate) fn replies() -> (ReplySender, Replies) {
    let (sender, receiver) = mpsc::channel(REPLIES_WAITING_MAX);
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    (ReplySender { sender, waiting_bytes: Arc::clone(&waiting_bytes) }, Replies { receiver, waiting_bytes })
}

impl Replies {
    /// The next one.
    pub(crate) async fn recv(&mut self) -> Option<Reply> {
        let reply = self.receiver.recv().await?;
        self.waiting_bytes.fetch_sub(reply.body.len(), Ordering::AcqRel);
        Some(reply)
    }
}

impl ReplySender {
    /// Whether there is room for it. One is taken however large it is.
    fn send(&self, reply: Reply) -> bool {
        let bytes = reply.body.len();
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        let fits = before == 0 || before + bytes <= REPLIES_WAITING_BYTES_MAX;
        let taken = fits && self.sender.try_send(reply).is_ok();
        if !taken {
            self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        taken
    }
}

#[derive(Debug)]
struct Mailbox {
    channel: u16,
    owner: OwnerId,
    replies: ReplySender,
}

/// The mailboxes of all connections, by name.
#[derive(Debug, Default)]
pub(crate) struct Mailboxes(Mutex<BTreeMap<ShortStr, Mailbox>>);

impl Mailboxes {
    pub(crate) fn open(&self, name: ShortStr, channel: u16, owner: OwnerId, replies: ReplySender) {
        self.0.lock().insert(name, Mailbox { channel, owner, replies });
    }

    pub(crate) fn close(&self, name: &ShortStr) {
        self.0.lock().remove(name);
    }

    pub(crate) fn is_open(&self, name: &ShortStr) -> bool {
        self.0.lock().contains_key(name)
    }

    /// Hands a message to a requester, if it is there and takes it.
    pub(crate) fn deliver(
        &self,
        name: &ShortStr,
        exchange: &ShortStr,
        properties: &BasicProperties,
        body: &Bytes,
    ) {
        let boxes = self.0.lock();
        let Some(Mailbox { channel, owner, replies }) = boxes.get(name) else { return };
        let reply = Reply {
            channel: *channel,
            owner: *owner,
            exchange: exchange.clone(),
            routing_key: name.clone(),
            properties: properties.clone(),
            body: body.clone(),
        };
        if !replies.send(reply) {
            tracing::debug!(%name, "a direct reply is dropped: its requester does not take it");
        }
    }
}

/// Whether a name is that of a mailbox, or of all of them.
pub(crate) fn is_mailbox(name: &[u8]) -> bool {
    name.strip_prefix(REPLY_TO.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}
