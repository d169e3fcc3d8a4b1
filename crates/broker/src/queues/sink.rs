//! From a queue's actor to a session: deliveries in the order in which they were handed out, with a bound on those
//! that the session has not taken yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};
use weir_dispatch::{ConsumerId, Gate, OwnerId, Place, Waiting};
use weir_model::subscription::Marks;

use super::QueueRecord;

/// Records that wait for a session to take them. A consumer that settles what it gets has less on its way, by its
/// credit; one that does not is held back by this.
const UNTAKEN_MAX: usize = 4_096;

/// Bytes of them, beside what is at hand when they are handed out.
const UNTAKEN_BYTES_MAX: usize = 4 << 20;

/// A record for a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDelivery {
    /// For whom; none if it was asked for.
    pub consumer: Option<ConsumerId>,
    /// Who settles it.
    pub owner: OwnerId,
    /// What is settled.
    pub place: Place,
    /// The record.
    pub record: QueueRecord,
    /// Whether it may have been handed out before.
    pub redelivered: bool,
    /// What is noted of it.
    pub marks: Marks,
}

/// The receiving end of a consumer, or of several.
#[derive(Debug)]
pub struct QueueDeliveries {
    receiver: mpsc::UnboundedReceiver<Vec<QueueDelivery>>,
    untaken: Arc<Untaken>,
    /// Of the actor, which may wait for room.
    wake: Arc<Notify>,
}

/// The sending end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    sender: mpsc::UnboundedSender<Vec<QueueDelivery>>,
    untaken: Arc<Untaken>,
}

/// What waits for a session.
#[derive(Debug, Default)]
struct Untaken {
    records: AtomicUsize,
    bytes: AtomicUsize,
}

impl Untaken {
    fn has_room(&self) -> bool {
        self.records.load(Ordering::Acquire) < UNTAKEN_MAX
            && self.bytes.load(Ordering::Acquire) < UNTAKEN_BYTES_MAX
    }
}

fn bytes_of(deliveries: &[QueueDelivery]) -> usize {
    deliveries.iter().map(|delivery| delivery.record.bytes()).sum()
}

/// Both ends. The actor is woken when there is room again after there was none.
pub(crate) fn sink(wake: Arc<Notify>) -> (Sink, QueueDeliveries) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let untaken = Arc::new(Untaken::default());
    (Sink { sender, untaken: Arc::clone(&untaken) }, QueueDeliveries { receiver, untaken, wake })
}

impl QueueDeliveries {
    /// The next records; none once the queue is gone, or its leader is another.
    pub async fn next(&mut self) -> Option<Vec<QueueDelivery>> {
        let deliveries = self.receiver.recv().await?;
        let records = self.untaken.records.fetch_sub(deliveries.len(), Ordering::AcqRel);
        let bytes = self.untaken.bytes.fetch_sub(bytes_of(&deliveries), Ordering::AcqRel);
        if (records >= UNTAKEN_MAX || bytes >= UNTAKEN_BYTES_MAX) && self.untaken.has_room() {
            self.wake.notify_one();
        }
        Some(deliveries)
    }
}

impl Sink {
    /// Sends records for which there is room, see [`SinkGate`]; false if nobody takes them any more.
    pub(crate) fn send(&self, deliveries: Vec<QueueDelivery>) -> bool {
        self.untaken.bytes.fetch_add(bytes_of(&deliveries), Ordering::AcqRel);
        self.sender.send(deliveries).is_ok()
    }

    /// Takes room for one record.
    fn reserve(&self) -> bool {
        // Only the actor reserves, so that nobody takes what is left in between.
        let room = self.untaken.has_room();
        if room {
            self.untaken.records.fetch_add(1, Ordering::AcqRel);
        }
        room
    }

    fn unreserve(&self) {
        self.untaken.records.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A gate of the session, and room in the sink.
pub(crate) struct SinkGate {
    pub sink: Sink,
    pub session: Option<Arc<dyn Gate>>,
}

impl Gate for SinkGate {
    fn take(&self) -> bool {
        if !self.sink.reserve() {
            return false;
        }
        let open = self.session.as_ref().is_none_or(|gate| gate.take());
        if !open {
            self.sink.unreserve();
        }
        open
    }
}
