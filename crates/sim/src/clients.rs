//! The clients of a run: writers that never give up a batch, readers that read from any node, and the
//! auditor that reads everything in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep, timeout_at};
use weir_model::PartitionId;
use weir_model::batch::{BATCH_HEADER_BYTES, BatchBuilder, decode_records, split_batches, verify_batch};

use crate::ledger::{BatchName, Contents, Damage, Ledger, Partition, Value};
use crate::net::Peer;
use crate::scenario::{CALM, NODES, PARTITIONS};

/// Port on which a node answers clients.
pub const CLIENT_PORT: u16 = 9092;

/// Most bytes in the answer to one read.
const READ_BYTES_MAX: u32 = 64 << 10;

/// What a client asks of a node.
#[derive(Debug, Clone)]
pub enum Ask {
    /// Append a batch.
    Append(PartitionId, Bytes),
    /// Read batches from an offset on.
    Read(PartitionId, i64, u32),
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The batch's first record has this offset.
    Appended(i64),
    /// Not now, or not here: try again, elsewhere if you like.
    Retry,
    /// Never.
    Refused(String),
    /// Stored batches, and the offset behind the last readable record.
    Batches(i64, Bytes),
}

impl Ask {
    /// As sent.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Ask::Append(partition, batch) => {
                out.put_u8(1);
                out.put_u64(partition.0);
                out.put_slice(batch);
            }
            Ask::Read(partition, offset, max_bytes) => {
                out.put_u8(2);
                out.put_u64(partition.0);
                out.put_i64(*offset);
                out.put_u32(*max_bytes);
            }
        }
        out.freeze()
    }

    /// Reads what [`Ask::encode`] wrote.
    pub fn decode(mut bytes: Bytes) -> Option<Ask> {
        if bytes.len() < 9 {
            return None;
        }
        match (bytes.get_u8(), PartitionId(bytes.get_u64())) {
            (1, partition) => Some(Ask::Append(partition, bytes)),
            (2, partition) if bytes.len() == 12 => {
                Some(Ask::Read(partition, bytes.get_i64(), bytes.get_u32()))
            }
            _ => None,
        }
    }
}

impl Answer {
    /// As sent.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Answer::Appended(offset) => {
                out.put_u8(1);
                out.put_i64(*offset);
            }
            Answer::Retry => out.put_u8(2),
            Answer::Refused(why) => {
                out.put_u8(3);
                out.put_slice(why.as_bytes());
            }
            Answer::Batches(end, batches) => {
                out.put_u8(4);
                out.put_i64(*end);
                out.put_slice(batches);
            }
        }
        out.freeze()
    }

    /// Reads what [`Answer::encode`] wrote.
    pub fn decode(mut bytes: Bytes) -> Option<Answer> {
        if bytes.is_empty() {
            return None;
        }
        match bytes.get_u8() {
            1 if bytes.len() == 8 => Some(Answer::Appended(bytes.get_i64())),
            2 => Some(Answer::Retry),
            3 => Some(Answer::Refused(String::from_utf8_lossy(&bytes).into_owned())),
            4 if bytes.len() >= 8 => Some(Answer::Batches(bytes.get_i64(), bytes)),
            _ => None,
        }
    }
}

/// What the clients of a run share.
#[derive(Clone)]
pub struct Shared {
    /// Notes of what was sent, acknowledged and seen.
    pub ledger: Arc<Mutex<Ledger>>,
    /// Writers that have not finished.
    pub writers: Arc<Mutex<u32>>,
    /// Simulated time from the start until faults end.
    pub faults_until: Duration,
}

fn peers() -> Vec<Peer> {
    (0..NODES).map(|node| Peer::new(&host(node), CLIENT_PORT)).collect()
}

/// The name of a node's host in the simulated network.
pub fn host(node: usize) -> String {
    format!("node-{node}")
}

async fn ask(peer: &Peer, ask: &Ask) -> Option<Answer> {
    peer.call(ask.encode()).await.and_then(Answer::decode)
}

/// Writes batches to one partition, one at a time, each until it is acknowledged, until the faults have
/// ended. Odd writers number their batches as an idempotent producer does; even ones do not.
pub async fn writer(id: u64, seed: u64, shared: Shared) {
    let mut rng = SmallRng::seed_from_u64(seed ^ (id << 32));
    let start = Instant::now();
    let peers = peers();
    let partition = id % PARTITIONS;
    let idempotent = id % 2 == 1;
    let mut sequence = 0;
    let mut node = rng.random_range(0..NODES);
    while start.elapsed() < shared.faults_until {
        let name = BatchName { writer: id, sequence };
        let records = rng.random_range(1..5);
        let batch = build(name, records, idempotent, rng.random_range(0..2_000));
        shared.ledger.lock().attempt(name, partition, records, idempotent);
        let request = Ask::Append(partition_id(partition), batch);
        let deadline = start + shared.faults_until + CALM;
        loop {
            match timeout_at(deadline, ask(&peers[node], &request)).await {
                Ok(Some(Answer::Appended(offset))) => {
                    tracing::info!(writer = id, sequence, offset, node, "acknowledged");
                    shared.ledger.lock().acknowledged(name, offset);
                    break;
                }
                Ok(Some(Answer::Refused(why))) => {
                    tracing::info!(writer = id, sequence, why, "refused");
                    let what = format!("writer {id}, sequence {sequence}: refused for ever: {why}");
                    shared.ledger.lock().note(Damage::Unavailable { what });
                    *shared.writers.lock() -= 1;
                    return;
                }
                Ok(_) => {
                    node = rng.random_range(0..NODES);
                    sleep(Duration::from_millis(rng.random_range(5..200))).await;
                }
                Err(_) => {
                    let what =
                        format!("writer {id}, sequence {sequence}: not acknowledged within the calm phase");
                    shared.ledger.lock().note(Damage::Unavailable { what });
                    *shared.writers.lock() -= 1;
                    return;
                }
            }
        }
        sequence += records;
        sleep(Duration::from_millis(rng.random_range(0..40))).await;
    }
    *shared.writers.lock() -= 1;
}

fn build(name: BatchName, records: i32, idempotent: bool, padding: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    if idempotent {
        builder = builder.producer(name.writer as i64, 0, name.sequence);
    }
    let padding = vec![b'.'; padding];
    for index in 0..records {
        let value = Value { batch: name, index }.encode();
        builder.push(i64::from(name.sequence), Some(&padding), Some(&value), &[]);
    }
    builder.build()
}

/// The partition's id in the cluster.
pub fn partition_id(partition: Partition) -> PartitionId {
    PartitionId(partition + 1)
}

/// Follows every partition, reading from a node at random each time, until the faults have ended.
pub async fn reader(seed: u64, shared: Shared) {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x0dd5_eed5);
    let start = Instant::now();
    let peers = peers();
    let mut positions = [0; PARTITIONS as usize];
    while start.elapsed() < shared.faults_until {
        let partition = rng.random_range(0..PARTITIONS);
        let position = positions[partition as usize];
        let peer = &peers[rng.random_range(0..NODES)];
        if let Some((_, records)) = read(peer, partition, position, &shared).await {
            for &(offset, value) in records.iter().filter(|(offset, _)| *offset >= position) {
                shared.ledger.lock().saw(partition, offset, value);
                positions[partition as usize] = offset + 1;
            }
        }
        sleep(Duration::from_millis(rng.random_range(1..50))).await;
    }
}

/// One read: the offset behind the last readable record, and the records.
async fn read(peer: &Peer, partition: Partition, offset: i64, shared: &Shared) -> Option<(i64, Contents)> {
    let Some(Answer::Batches(end, bytes)) =
        ask(peer, &Ask::Read(partition_id(partition), offset, READ_BYTES_MAX)).await
    else {
        return None;
    };
    match decode(&bytes) {
        Ok(records) => Some((end, records)),
        Err(why) => {
            let what = format!("partition {partition}, read at {offset}: {why}");
            shared.ledger.lock().note(Damage::Unavailable { what });
            None
        }
    }
}

fn decode(bytes: &Bytes) -> Result<Contents, String> {
    let mut contents = Vec::new();
    for (_, batch) in split_batches(bytes).map_err(|error| error.to_string())? {
        let header = verify_batch(&batch).map_err(|error| error.to_string())?;
        for record in decode_records(&header, batch.slice(BATCH_HEADER_BYTES..)) {
            let record = record.map_err(|error| error.to_string())?;
            let value = record.value.as_deref().and_then(Value::decode).ok_or("a value that nobody wrote")?;
            contents.push((record.offset, value));
        }
    }
    Ok(contents)
}

/// Waits for the writers, then reads every partition from every node until all have the same ends, and
/// holds everything against the ledger.
pub async fn auditor(shared: Shared, verdict: Arc<Mutex<Option<Vec<Damage>>>>) {
    let start = Instant::now();
    let deadline = start + shared.faults_until + 2 * CALM;
    while *shared.writers.lock() > 0 {
        sleep(Duration::from_millis(100)).await;
    }
    let peers = peers();
    loop {
        let mut replicas = Vec::new();
        for peer in &peers {
            replicas.push(read_all(peer, deadline, &shared).await);
        }
        let lengths =
            |replica: &BTreeMap<Partition, Contents>| replica.values().map(Vec::len).collect::<Vec<_>>();
        let settled = replicas.iter().all(|replica| lengths(replica) == lengths(&replicas[0]));
        if settled || Instant::now() >= deadline {
            *verdict.lock() = Some(shared.ledger.lock().check(&replicas));
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn read_all(peer: &Peer, deadline: Instant, shared: &Shared) -> BTreeMap<Partition, Contents> {
    let mut all = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let mut contents: Contents = Vec::new();
        loop {
            let position = contents.last().map_or(0, |(offset, _)| offset + 1);
            match read(peer, partition, position, shared).await {
                Some((end, records)) => {
                    contents.extend(records.into_iter().filter(|(offset, _)| *offset >= position));
                    if contents.last().map_or(0, |(offset, _)| offset + 1) >= end {
                        break;
                    }
                }
                None => sleep(Duration::from_millis(100)).await,
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        all.insert(partition, contents);
    }
    all
}
