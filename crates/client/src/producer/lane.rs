//! What waits for one partition and what is under way to it. A state machine without I/O: the sender
//! takes batches out, and says what became of them.
//!
//! Several batches of a partition may be under way at once and must still be stored in order, each once.
//! So when one fails in a way that can be mended, nothing more leaves until all that is under way has come
//! back; then whatever was not stored leaves again, in order, under the same numbers. A broker refuses what
//! does not follow, so a batch can only be stored at its place.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use weir_kafka_wire::ErrorCode;
use weir_model::batch::{BatchBuilder, Compression};

use super::Record;
use super::delivery::{Delivery, Outcome};
use crate::error::ClientError;

/// A pause after a failure; it doubles while failures go on.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Who numbers the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

/// A batch that accepts no more records.
#[derive(Debug)]
pub(super) struct Batch {
    /// Rises within the lane: the order in which batches must be stored.
    serial: u64,
    content: Content,
    count: i32,
    /// Room that it takes in the buffer.
    pub(super) room: usize,
    deadline: Instant,
    /// What its records wait for.
    pub(super) outcome: Arc<Outcome>,
}

/// A batch is written as late as possible, because its numbers stand within its checksum.
#[derive(Debug)]
enum Content {
    Unwritten(BatchBuilder),
    /// Written without numbers, or with numbers that do not hold any more.
    Unnumbered(Bytes),
    Numbered(Bytes),
}

#[derive(Debug)]
struct Open {
    builder: BatchBuilder,
    outcome: Arc<Outcome>,
    room: usize,
    opened: Instant,
    deadline: Instant,
}

/// What the sender should do about a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Take a batch.
    Now,
    /// Look again then.
    At(Instant),
    /// Nothing until something happens.
    Idle,
    /// Give the lane a new identity first.
    Identity,
}

/// One partition's records on their way.
#[derive(Debug)]
pub(super) struct Lane {
    open: Option<Open>,
    /// Closed, in order.
    queue: VecDeque<Batch>,
    /// Serials of what is under way.
    under_way: BTreeSet<u64>,
    /// Came back and leaves again once nothing is under way.
    again: Vec<Batch>,
    /// Nothing leaves before this, after a failure.
    not_before: Option<Instant>,
    /// How long the next pause is.
    pause: Duration,
    next_serial: u64,
    identity: Option<Identity>,
    next_sequence: i32,
    /// The numbers do not hold any more: the lane needs a new identity before anything leaves.
    renumber: bool,
}

impl Lane {
    pub(super) fn new(identity: Option<Identity>) -> Lane {
        Lane {
            open: None,
            queue: VecDeque::new(),
            under_way: BTreeSet::new(),
            again: Vec::new(),
            not_before: None,
            pause: FIRST_PAUSE,
            next_serial: 0,
            identity,
            next_sequence: 0,
            renumber: false,
        }
    }

    /// Adds a record. Whether its batch was full and is closed now is told beside its delivery.
    pub(super) fn append(
        &mut self,
        record: &Record,
        timestamp: i64,
        room: usize,
        now: Instant,
        deadline: Instant,
        batch_bytes: usize,
        partition: i32,
    ) -> (Delivery, bool) {
        let mut closed = false;
        if self.open.as_ref().is_some_and(|open| open.room + room > batch_bytes) {
            self.close_open();
            closed = true;
        }
        let open = self.open.get_or_insert_with(|| Open {
            builder: BatchBuilder::new(),
            outcome: Outcome::new(partition),
            room: 0,
            opened: now,
            deadline,
        });
        let delivery = open.outcome.delivery(i64::from(open.builder.record_count()));
        open.builder.push(timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
        open.room += room;
        if open.room >= batch_bytes {
            self.close_open();
            closed = true;
        }
        (delivery, closed)
    }

    /// Whether the open batch has just been begun, so that the sender does not know of it.
    pub(super) fn is_fresh(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.builder.record_count() == 1)
    }

    /// Closes the batch that is open, if one is.
    pub(super) fn close_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.queue.push_back(Batch {
            serial: self.next_serial,
            count: open.builder.record_count(),
            content: Content::Unwritten(open.builder),
            room: open.room,
            deadline: open.deadline,
            outcome: open.outcome,
        });
        self.next_serial += 1;
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none() && self.queue.is_empty() && self.under_way.is_empty() && self.again.is_empty()
    }

    /// What to do now.
    pub(super) fn due(&self, now: Instant, linger: Duration, in_flight: usize) -> Due {
        let recovering = !self.again.is_empty() || self.renumber;
        if (recovering && !self.under_way.is_empty()) || self.under_way.len() >= in_flight {
            return Due::Idle;
        }
        if self.open.is_none() && self.queue.is_empty() && self.again.is_empty() {
            return Due::Idle;
        }
        if let Some(not_before) = self.not_before.filter(|not_before| *not_before > now) {
            return Due::At(not_before);
        }
        if self.renumber {
            return Due::Identity;
        }
        match &self.open {
            Some(open) if self.queue.is_empty() && self.again.is_empty() && !self.under_way.is_empty() => {
                let due = open.opened + linger;
                if due <= now { Due::Now } else { Due::At(due) }
            }
            _ => Due::Now,
        }
    }

    /// The next batch, written and numbered, to be sent now.
    pub(super) fn take(&mut self, compression: Compression) -> Option<(Batch, Bytes)> {
        self.again.sort_by_key(|batch| batch.serial);
        for batch in std::mem::take(&mut self.again).into_iter().rev() {
            self.queue.push_front(batch);
        }
        if self.queue.is_empty() {
            self.close_open();
        }
        let mut batch = self.queue.pop_front()?;
        let bytes = match batch.content {
            Content::Numbered(bytes) => bytes,
            Content::Unwritten(builder) => {
                let numbers = self.number(batch.count);
                write(builder, numbers, compression)
            }
            Content::Unnumbered(bytes) => match self.number(batch.count) {
                Some((identity, sequence)) => renumber(&bytes, identity, sequence),
                None => bytes,
            },
        };
        batch.content = Content::Numbered(bytes.clone());
        self.under_way.insert(batch.serial);
        Some((batch, bytes))
    }

    fn number(&mut self, count: i32) -> Option<(Identity, i32)> {
        let identity = self.identity?;
        let sequence = self.next_sequence;
        // Sequences wrap from the largest to 0, as Kafka's do.
        self.next_sequence = ((i64::from(sequence) + i64::from(count)) % (1i64 << 31)) as i32;
        Some((identity, sequence))
    }

    /// A new identity: numbers begin anew, for everything that has not been stored.
    pub(super) fn renew(&mut self, identity: Identity) {
        self.identity = Some(identity);
        self.next_sequence = 0;
        self.renumber = false;
        for batch in self.queue.iter_mut().chain(&mut self.again) {
            if let Content::Numbered(bytes) = &batch.content {
                batch.content = Content::Unnumbered(bytes.clone());
            }
        }
    }

    /// After a failure nothing leaves for a while, each time twice as long; until when is told.
    pub(super) fn pause(&mut self, now: Instant) -> Instant {
        let until = now + self.pause;
        self.not_before = Some(until);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        until
    }

    /// What became of a batch. Gives it back when it is settled for good, with its result.
    pub(super) fn came_back(
        &mut self,
        batch: Batch,
        result: Result<i64, ClientError>,
        now: Instant,
    ) -> Option<(Batch, Result<i64, ClientError>)> {
        self.under_way.remove(&batch.serial);
        let error = match result {
            Ok(base_offset) => {
                self.not_before = None;
                self.pause = FIRST_PAUSE;
                return Some((batch, Ok(base_offset)));
            }
            Err(error) => error,
        };
        if error.code() == Some(ErrorCode::DUPLICATE_SEQUENCE_NUMBER) {
            // It is stored already, so long ago that the broker does not know where.
            return Some((batch, Ok(-1)));
        }
        let again = error.is_retryable() || self.numbers_are_wrong(&batch, &error);
        if !again || batch.deadline <= now {
            return Some((batch, Err(error)));
        }
        if self.again.is_empty() {
            self.pause(now);
        }
        self.again.push(batch);
        None
    }

    /// Whether the broker refused the batch because it does not follow the one before. If an earlier batch
    /// is still to be stored that is only natural. If it is the first, its numbers will never fit: an earlier
    /// one was given up, or the broker has forgotten the producer. Then it is certain that neither it nor
    /// anything behind it is stored, and the lane begins anew under another identity.
    fn numbers_are_wrong(&mut self, batch: &Batch, error: &ClientError) -> bool {
        let about_numbers = matches!(
            error.code(),
            Some(
                ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
                    | ErrorCode::UNKNOWN_PRODUCER_ID
                    | ErrorCode::INVALID_PRODUCER_EPOCH
            )
        );
        if !about_numbers || self.identity.is_none() {
            return false;
        }
        let earlier_under_way = self.under_way.first().is_some_and(|serial| *serial < batch.serial);
        let earlier_again = self.again.iter().any(|earlier| earlier.serial < batch.serial);
        if !earlier_under_way && !earlier_again {
            self.renumber = true;
        }
        true
    }

    /// Gives up what has waited too long.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<Batch> {
        if self.open.as_ref().is_some_and(|open| open.deadline <= now) {
            self.close_open();
        }
        let waiting: Vec<Batch> = self.queue.drain(..).chain(self.again.drain(..)).collect();
        let (expired, kept): (Vec<Batch>, Vec<Batch>) =
            waiting.into_iter().partition(|batch| batch.deadline <= now);
        // What came back stands in front again, where it belongs.
        self.queue = kept.into();
        self.queue.make_contiguous().sort_by_key(|batch| batch.serial);
        expired
    }

    /// Gives everything up that has not left; for the end.
    pub(super) fn drain(&mut self) -> Vec<Batch> {
        self.close_open();
        self.queue.drain(..).chain(self.again.drain(..)).collect()
    }
}

fn write(builder: BatchBuilder, numbers: Option<(Identity, i32)>, compression: Compression) -> Bytes {
    let builder = match numbers {
        Some((identity, sequence)) => builder.producer(identity.id, identity.epoch, sequence),
        None => builder,
    };
    if compression == Compression::None {
        return builder.build();
    }
    match weir_compression::compress(compression, None, builder.section()) {
        // Compression that does not make a batch smaller only costs its readers.
        Ok(section) if section.len() < builder.section_bytes() => builder.build_with(compression, &section),
        Ok(_) | Err(_) => builder.build(),
    }
}

/// Where the numbers stand in a batch: producer id, epoch, sequence; see [`weir_model::batch`].
const NUMBERS_AT: usize = 43;
const CRC_AT: usize = 17;
const CRC_COVERS_FROM: usize = 21;

/// The same batch under other numbers.
fn renumber(batch: &Bytes, identity: Identity, sequence: i32) -> Bytes {
    let mut renumbered = BytesMut::from(&batch[..]);
    let mut numbers = [0; 14];
    numbers[0..8].copy_from_slice(&identity.id.to_be_bytes());
    numbers[8..10].copy_from_slice(&identity.epoch.to_be_bytes());
    numbers[10..14].copy_from_slice(&sequence.to_be_bytes());
    renumbered[NUMBERS_AT..NUMBERS_AT + numbers.len()].copy_from_slice(&numbers);
    let crc = crc32c::crc32c(&renumbered[CRC_COVERS_FROM..]);
    renumbered[CRC_AT..CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
    renumbered.freeze()
}
