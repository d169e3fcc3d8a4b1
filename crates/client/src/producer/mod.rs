//! Sending records to one topic.
//!
//! * [`delivery`]: what a caller waits for.
//! * [`partitioner`]: which partition a key belongs to.
//! * [`lane`]: what waits for one partition and what is under way to it; no I/O.
//! * [`sender`]: the task that empties the lanes.

mod delivery;
mod lane;
mod partitioner;
mod sender;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use weir_kafka_wire::InitProducerIdRequest;
use weir_model::batch::{Compression, Header};

pub use delivery::{Delivered, Delivery};

use crate::clock::wall_clock_ms;
use crate::error::ClientError;
use crate::network::Network;
use lane::{Identity, Lane};

/// Fewest bytes of room that a record takes in the buffer: its share of the book-keeping.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// A record to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Where to; by the key, or anywhere, if it does not say.
    pub partition: Option<i32>,
    /// Key, or none. Records of one key go to one partition and keep their order.
    pub key: Option<Bytes>,
    /// Value, or none.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<Header>,
    /// Milliseconds since 1970; the time of sending if it does not say.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    /// A record with this value.
    pub fn new(value: impl Into<Bytes>) -> Record {
        Record { value: Some(value.into()), ..Record::default() }
    }

    /// With this key.
    pub fn key(mut self, key: impl Into<Bytes>) -> Record {
        self.key = Some(key.into());
        self
    }

    /// With a further header.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Record {
        self.headers.push(Header { key: key.into(), value: Some(value.into()) });
        self
    }

    /// To this partition.
    pub fn partition(mut self, partition: i32) -> Record {
        self.partition = Some(partition);
        self
    }

    /// Made at this time, in milliseconds since 1970.
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Record {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    fn bytes(&self) -> usize {
        let header = |header: &Header| header.key.len() + header.value.as_ref().map_or(0, Bytes::len);
        self.key.as_ref().map_or(0, Bytes::len)
            + self.value.as_ref().map_or(0, Bytes::len)
            + self.headers.iter().map(header).sum::<usize>()
            + RECORD_OVERHEAD_BYTES
    }
}

/// When the broker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Never: a record counts as delivered once it is on its way.
    None,
    /// When a majority has the record on stable storage.
    All,
}

/// How records are sent.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// When the broker answers.
    pub acks: Acks,
    /// Number the batches, so that one that is sent twice is stored once.
    pub idempotent: bool,
    /// How batches are compressed.
    pub compression: Compression,
    /// How long a batch that is not full waits for more records while another one of its partition is under
    /// way. With none under way it leaves at once.
    pub linger: Duration,
    /// A batch is full at this size, in bytes before compression.
    pub batch_bytes: usize,
    /// Records of this size together may wait or be under way; sending more waits for room.
    pub buffer_bytes: usize,
    /// Batches of one partition that may be under way. Kafka's rule: a broker recognises the last five.
    pub in_flight: usize,
    /// A record is given up this long after it was sent.
    pub delivery_timeout: Duration,
    /// Whether asking for the topic may create it.
    pub create_topic: bool,
}

/// More batches of a partition under way than this could not be told apart from new ones by a broker.
const IN_FLIGHT_MAX: usize = 5;

/// Most that the buffer can be set to: a semaphore counts it.
const BUFFER_BYTES_MAX: usize = 1 << 30;

impl Default for ProducerOptions {
    fn default() -> Self {
        ProducerOptions {
            acks: Acks::All,
            idempotent: true,
            compression: Compression::None,
            linger: Duration::from_millis(5),
            batch_bytes: 256 << 10,
            buffer_bytes: 32 << 20,
            in_flight: IN_FLIGHT_MAX,
            delivery_timeout: Duration::from_secs(120),
            create_topic: true,
        }
    }
}

/// A producer in the making.
#[derive(Debug)]
#[must_use = "nothing is sent before it is opened"]
pub struct ProducerBuilder {
    network: Arc<Network>,
    topic: String,
    options: ProducerOptions,
}

impl ProducerBuilder {
    pub(crate) fn new(network: Arc<Network>, topic: String) -> ProducerBuilder {
        ProducerBuilder { network, topic, options: ProducerOptions::default() }
    }

    /// With all of these options.
    pub fn options(mut self, options: ProducerOptions) -> ProducerBuilder {
        self.options = options;
        self
    }

    /// Compress batches.
    pub fn compression(mut self, compression: Compression) -> ProducerBuilder {
        self.options.compression = compression;
        self
    }

    /// Let a batch wait for more records while another one is under way.
    pub fn linger(mut self, linger: Duration) -> ProducerBuilder {
        self.options.linger = linger;
        self
    }

    /// When the broker answers.
    pub fn acks(mut self, acks: Acks) -> ProducerBuilder {
        self.options.acks = acks;
        self
    }

    /// Number the batches or not.
    pub fn idempotent(mut self, idempotent: bool) -> ProducerBuilder {
        self.options.idempotent = idempotent;
        self
    }

    /// Finds the topic and gets an identity.
    pub async fn open(mut self) -> Result<Producer, ClientError> {
        let options = &mut self.options;
        options.in_flight = options.in_flight.clamp(1, IN_FLIGHT_MAX);
        options.buffer_bytes = options.buffer_bytes.clamp(1 << 10, BUFFER_BYTES_MAX);
        options.batch_bytes = options.batch_bytes.clamp(1, options.buffer_bytes);
        // Without an answer there is nothing to send again.
        options.idempotent &= options.acks == Acks::All;
        let topic = self.network.topic(&self.topic, options.create_topic).await?;
        let identity = match options.idempotent {
            true => Some(new_identity(&self.network).await?),
            false => None,
        };
        let lanes = topic.leaders.iter().map(|_| Lane::new(identity)).collect();
        let shared = Arc::new(Shared {
            room: Semaphore::new(self.options.buffer_bytes),
            network: self.network,
            topic: self.topic,
            options: self.options,
            lanes: Mutex::new(Lanes { lanes, identity, ..Lanes::default() }),
            wake: Notify::new(),
            settled: Notify::new(),
        });
        tokio::spawn(sender::run(shared.clone()));
        Ok(Producer { handle: Arc::new(Handle { shared }) })
    }
}

async fn new_identity(network: &Network) -> Result<Identity, ClientError> {
    let mut retry = network.retry();
    loop {
        match ask_identity(network).await {
            Ok(identity) => return Ok(identity),
            Err(error) => retry.after(error).await?,
        }
    }
}

async fn ask_identity(network: &Network) -> Result<Identity, ClientError> {
    let request = InitProducerIdRequest::default();
    let answer = network.any().await?.call(&request).await?;
    ClientError::check(answer.error_code, || "getting a producer id".to_owned())?;
    Ok(Identity { id: answer.producer_id, epoch: answer.producer_epoch })
}

/// Sends records to one topic. Cheap to clone; all clones share one buffer and one order.
#[derive(Clone, Debug)]
pub struct Producer {
    handle: Arc<Handle>,
}

/// The last of these to go tells the task that no more will come.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lanes.lock().closing = true;
        self.shared.wake.notify_one();
    }
}

/// Between the callers and the task.
#[derive(Debug)]
pub(crate) struct Shared {
    network: Arc<Network>,
    topic: String,
    options: ProducerOptions,
    lanes: Mutex<Lanes>,
    /// Bytes of room in the buffer.
    room: Semaphore,
    /// There is something to do for the task.
    wake: Notify,
    /// A batch was settled.
    settled: Notify,
}

#[derive(Debug, Default)]
struct Lanes {
    /// By partition.
    lanes: Vec<Lane>,
    /// What lanes that are added later start with.
    identity: Option<Identity>,
    /// The lane that records without a key go to until its batch is closed.
    sticky: usize,
    /// No more records will come.
    closing: bool,
    /// The task has ended; nothing is sent any more.
    ended: bool,
}

impl Producer {
    /// Hands a record over. This waits for room in the buffer; the [`Delivery`] resolves when the record is
    /// durable. Records of a partition are stored in the order in which these calls return.
    pub async fn send(&self, record: Record) -> Result<Delivery, ClientError> {
        let shared = &self.handle.shared;
        let bytes = record.bytes();
        let max = shared.options.buffer_bytes;
        if bytes > max {
            return Err(ClientError::RecordTooLarge { bytes, max });
        }
        let room = shared.room.acquire_many(bytes as u32).await.map_err(|_| ClientError::Closed)?;
        let now = Instant::now();
        let timestamp = record.timestamp_ms.unwrap_or_else(wall_clock_ms);
        let mut lanes = shared.lanes.lock();
        if lanes.ended {
            return Err(ClientError::Closed);
        }
        let index = lanes.choose(&record, &shared.topic)?;
        let lane = &mut lanes.lanes[index];
        let deadline = now + shared.options.delivery_timeout;
        // The room comes back when the record's batch is settled.
        room.forget();
        let (delivery, closed) =
            lane.append(&record, timestamp, bytes, now, deadline, shared.options.batch_bytes, index as i32);
        let worth_waking = closed || lane.is_fresh();
        if closed && record.key.is_none() && record.partition.is_none() {
            lanes.sticky = lanes.sticky.wrapping_add(1);
        }
        drop(lanes);
        if worth_waking {
            shared.wake.notify_one();
        }
        Ok(delivery)
    }

    /// Waits until everything handed over so far is settled. What failed is told by its delivery.
    pub async fn flush(&self) {
        let shared = &self.handle.shared;
        shared.lanes.lock().lanes.iter_mut().for_each(Lane::close_open);
        shared.wake.notify_one();
        loop {
            let settled = shared.settled.notified();
            let idle = |lanes: &Lanes| lanes.ended || lanes.lanes.iter().all(Lane::is_idle);
            if idle(&shared.lanes.lock()) {
                return;
            }
            settled.await;
        }
    }

    /// Number of the topic's partitions, as far as it is known.
    pub fn partitions(&self) -> usize {
        self.handle.shared.lanes.lock().lanes.len()
    }
}

impl Lanes {
    fn choose(&self, record: &Record, topic: &str) -> Result<usize, ClientError> {
        let count = self.lanes.len().max(1);
        if let Some(partition) = record.partition {
            return usize::try_from(partition).ok().filter(|index| *index < self.lanes.len()).ok_or_else(
                || {
                    let there = self.lanes.len();
                    ClientError::Options(format!(
                        "the topic '{topic}' has {there} partition(s), there is no partition {partition}"
                    ))
                },
            );
        }
        Ok(match &record.key {
            Some(key) => partitioner::partition_of_key(key, count),
            None => self.sticky % count,
        })
    }
}
