//! From a batch and the partitions that it goes to, to commands: one for each shard where that is enough, and one for
//! each record where a queue takes no record twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_cluster::ShardHandle;
use weir_model::batch::{BatchBuilder, Record, verify_batch};
use weir_model::command::Command;
use weir_model::unique::UniqueKey;
use weir_model::{PartitionId, ShardId, TimestampMs};

use super::unique::UniqueWindow;
use crate::errors::PublishError;
use crate::opening;
use crate::read::PartitionRef;

/// The commands for each shard.
pub(crate) type Appends = BTreeMap<ShardId, (ShardHandle, Vec<Command>)>;

/// What appends a batch to all of these partitions. Those that are named in `unique` take no record twice.
pub(crate) fn appends(
    partitions: &[PartitionRef],
    unique: &[(PartitionId, UniqueWindow)],
    batch: &Bytes,
    now: TimestampMs,
) -> Result<Appends, PublishError> {
    let bytes = verify_batch(batch)?.total_bytes();
    let mut appends = Appends::new();
    let mut together: BTreeMap<ShardId, Vec<PartitionId>> = BTreeMap::new();
    for partition in partitions {
        check_size(partition, bytes)?;
        let window = unique.iter().find(|(id, _)| *id == partition.id()).map(|(_, window)| window);
        let commands = &mut entry(&mut appends, partition).1;
        match window {
            None => together.entry(partition.shard()).or_default().push(partition.id()),
            Some(window) => {
                for record in records_of(batch)? {
                    let keys = window.key_of(&record, now).into_iter().collect();
                    commands.push(append_one(partition.id(), keys, &record));
                }
            }
        }
    }
    for (shard, partitions) in together {
        let command = match partitions[..] {
            [partition] => Command::Append { partition, batch: batch.clone() },
            _ => Command::AppendToAll { partitions, batch: batch.clone() },
        };
        if let Some((_, commands)) = appends.get_mut(&shard) {
            commands.push(command);
        }
    }
    Ok(appends)
}

/// What appends one record to all of these partitions, unless they know from where it comes.
pub(crate) fn appends_moved(
    partitions: &[PartitionRef],
    unique: &[(PartitionId, UniqueWindow)],
    record: &Record,
    origin: UniqueKey,
    now: TimestampMs,
) -> Result<Appends, PublishError> {
    let mut appends = Appends::new();
    for partition in partitions {
        let window = unique.iter().find(|(id, _)| *id == partition.id()).map(|(_, window)| window);
        let business = window.and_then(|window| window.key_of(record, now));
        let keys = business.into_iter().chain([origin]).collect();
        entry(&mut appends, partition).1.push(append_one(partition.id(), keys, record));
    }
    Ok(appends)
}

fn entry<'a>(appends: &'a mut Appends, partition: &PartitionRef) -> &'a mut (ShardHandle, Vec<Command>) {
    appends.entry(partition.shard()).or_insert_with(|| (partition.handle().clone(), Vec::new()))
}

fn append_one(partition: PartitionId, keys: Vec<UniqueKey>, record: &Record) -> Command {
    let mut builder = BatchBuilder::new();
    builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
    let batch = builder.build();
    match keys.is_empty() {
        true => Command::Append { partition, batch },
        false => Command::AppendUnique { partition, keys, batch },
    }
}

fn check_size(partition: &PartitionRef, bytes: usize) -> Result<(), PublishError> {
    let max = partition.settings().max_message_bytes as usize;
    if bytes > max { Err(PublishError::TooLarge { bytes, max }) } else { Ok(()) }
}

/// The records of a batch.
fn records_of(batch: &Bytes) -> Result<Vec<Record>, PublishError> {
    let header = verify_batch(batch)?;
    let records = opening::records_of(&header, batch).and_then(Iterator::collect);
    records.map_err(PublishError::Unopenable)
}
