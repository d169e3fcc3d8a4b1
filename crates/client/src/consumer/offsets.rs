//! Places in the log: its ends, and by time.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use weir_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopic, timestamp,
};
use weir_kafka_wire::{ErrorCode, KafkaStr, ListOffsetsRequest};

use crate::error::ClientError;
use crate::network::Network;

/// Where to begin reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record that is there.
    Start,
    /// Behind the last record.
    End,
    /// At this offset.
    Offset(i64),
    /// At the first record of this time or later, in milliseconds since 1970; behind the last if there is
    /// none.
    Time(i64),
}

impl fmt::Display for StartAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartAt::Start => f.write_str("start"),
            StartAt::End => f.write_str("end"),
            StartAt::Offset(offset) => write!(f, "{offset}"),
            StartAt::Time(time) => write!(f, "@{time}"),
        }
    }
}

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<StartAt, String> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        match text {
            "start" => Ok(StartAt::Start),
            "end" => Ok(StartAt::End),
            _ => match text.strip_prefix('@') {
                Some(time) => number(time).map(StartAt::Time),
                None => number(text).map(StartAt::Offset),
            }
            .ok_or_else(|| {
                format!("'{text}' is none of start, end, OFFSET and @TIME (milliseconds since 1970)")
            }),
        }
    }
}

/// The offset of this place in each of these partitions.
pub(crate) async fn find(
    network: &Network,
    topic: &str,
    partitions: &[i32],
    place: StartAt,
) -> Result<BTreeMap<i32, i64>, ClientError> {
    let asked = match place {
        StartAt::Offset(offset) => return Ok(partitions.iter().map(|p| (*p, offset)).collect()),
        StartAt::Start => timestamp::EARLIEST,
        StartAt::End => timestamp::LATEST,
        StartAt::Time(time) => time,
    };
    let mut found = list(network, topic, partitions, asked).await?;
    let none: Vec<i32> = partitions.iter().copied().filter(|p| found.get(p).is_none_or(|o| *o < 0)).collect();
    if !none.is_empty() {
        found.extend(list(network, topic, &none, timestamp::LATEST).await?);
    }
    Ok(found)
}

async fn list(
    network: &Network,
    topic: &str,
    partitions: &[i32],
    asked: i64,
) -> Result<BTreeMap<i32, i64>, ClientError> {
    let mut found = BTreeMap::new();
    let mut retry = network.retry();
    loop {
        let open: Vec<i32> = partitions.iter().copied().filter(|p| !found.contains_key(p)).collect();
        if open.is_empty() {
            return Ok(found);
        }
        if let Err(error) = list_once(network, topic, &open, asked, &mut found).await {
            network.forget(topic);
            retry.after(error).await?;
        }
    }
}

/// Asks every leader once; what was found is kept even if one of them fails.
async fn list_once(
    network: &Network,
    topic: &str,
    partitions: &[i32],
    asked: i64,
    found: &mut BTreeMap<i32, i64>,
) -> Result<(), ClientError> {
    let info = network.topic(topic, false).await?;
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for &partition in partitions {
        let leader = usize::try_from(partition).ok().and_then(|index| info.leaders.get(index));
        let leader = leader.ok_or_else(|| {
            let there = info.leaders.len();
            ClientError::Options(format!(
                "the topic '{topic}' has {there} partition(s), there is no partition {partition}"
            ))
        })?;
        let code = ErrorCode::LEADER_NOT_AVAILABLE;
        let leader = leader.ok_or_else(|| refused(topic, partition, code))?;
        by_leader.entry(leader).or_default().push(partition);
    }
    for (leader, partitions) in by_leader {
        let partitions = partitions.into_iter().map(|partition_index| ListOffsetsPartition {
            partition_index,
            timestamp: asked,
            ..Default::default()
        });
        let topics = vec![ListOffsetsTopic { name: KafkaStr::from(topic), partitions: partitions.collect() }];
        let request = ListOffsetsRequest { topics, ..Default::default() };
        let response = network.node(leader).await?.call(&request).await?;
        for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
            let ListOffsetsPartitionResponse { partition_index, error_code, offset, .. } = *partition;
            if !error_code.is_none() {
                return Err(refused(topic, partition_index, error_code));
            }
            found.insert(partition_index, offset);
        }
    }
    Ok(())
}

fn refused(topic: &str, partition: i32, code: ErrorCode) -> ClientError {
    ClientError::Refused { what: format!("finding an offset in {topic}/{partition}"), code, message: None }
}
