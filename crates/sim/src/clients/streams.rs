//! The clients of streams: writers that never give up a batch, and readers that read from any node.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep, timeout_at};
use weir_model::batch::{BATCH_HEADER_BYTES, BatchBuilder, decode_records, split_batches, verify_batch};

use super::{Shared, ask, peers};
use crate::asks::{Answer, Ask};
use crate::ledger::{BatchName, Contents, Damage, Partition, Value};
use crate::net::Peer;
use crate::scenario::{CALM, NODES, PARTITIONS};

/// Most bytes in the answer to one read.
const READ_BYTES_MAX: u32 = 64 << 10;

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
        let request = Ask::Append(partition, batch);
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
                    shared.has_sent();
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
                    shared.has_sent();
                    return;
                }
            }
        }
        sequence += records;
        sleep(Duration::from_millis(rng.random_range(0..40))).await;
    }
    shared.has_sent();
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
    let Some(Answer::Batches(end, bytes)) = ask(peer, &Ask::Read(partition, offset, READ_BYTES_MAX)).await
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

/// Everything that a node has of the streams, by partition; what it has not by the deadline is missing.
pub async fn read_all(peer: &Peer, deadline: Instant, shared: &Shared) -> BTreeMap<Partition, Contents> {
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
