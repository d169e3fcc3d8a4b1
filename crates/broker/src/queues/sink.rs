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
pub(crate) const UNTAKEN_MAX: usize = 4_096;

/// Bytes of them, beside what is at hand when they are handed out.
pub(crate) const UNTAKEN_BYTES_MAX: usize = 4 << 20;

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
#[derive(Debug)]
struct Untaken {
    records: AtomicUsize,
    bytes: AtomicUsize,
    /// Whoever hands out is woken when there is less than this again.
    records_max: usize,
    bytes_max: usize,
}

impl Untaken {
    fn has_room(&self) -> bool {
        self.records.load(Ordering::Acquire) < self.records_max
            && self.bytes.load(Ordering::Acquire) < self.bytes_max
    }
}

pub(crate) fn bytes_of(deliveries: &[QueueDelivery]) -> usize {
    deliveries.iter().map(|delivery| delivery.record.bytes()).sum()
}

/// Both ends. The actor is woken when there is room again after there was none.
pub(crate) fn sink(wake: Arc<Notify>) -> (Sink, QueueDeliveries) {
    sink_with(wake, UNTAKEN_MAX, UNTAKEN_BYTES_MAX)
}

/// As [`sink`], with less room, or more.
pub(crate) fn sink_with(wake: Arc<Notify>, records_max: usize, bytes_max: usize) -> (Sink, QueueDeliveries) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (records, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let untaken = Arc::new(Untaken { records, bytes, records_max, bytes_max });
    (Sink { sender, untaken: Arc::clone(&untaken) }, QueueDeliveries { receiver, untaken, wake })
}

impl QueueDeliveries {
    /// The next records; none once the queue is gone, or its leader is another.
    pub async fn next(&mut self) -> Option<Vec<QueueDelivery>> {
        let deliveries = self.receiver.recv().await?;
        let records = self.untaken.records.fetch_sub(deliveries.len(), Ordering::AcqRel);
        let bytes = self.untaken.bytes.fetch_sub(bytes_of(&deliveries), Ordering::AcqRel);
        let was_full = records >= self.untaken.records_max || bytes >= self.untaken.bytes_max;
        if was_full && self.untaken.has_room() {
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

    /// Sends records whether or not there is room for them; false if nobody takes them any more.
    pub(crate) fn push(&self, deliveries: Vec<QueueDelivery>) -> bool {
        self.untaken.records.fetch_add(deliveries.len(), Ordering::AcqRel);
        self.send(deliveries)
    }

    /// How many records the session has not taken, and bytes of them.
    pub(crate) fn untaken(&self) -> (u64, u64) {
        let (records, bytes) = (&self.untaken.records, &self.untaken.bytes);
        (records.load(Ordering::Acquire) as u64, bytes.load(Ordering::Acquire) as u64)
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
