//! Offsets in a log: by time, by leader epoch, and where it begins.

use std::collections::BTreeSet;

use weir_broker::{Action, AdminError, ListedOffset, OffsetQuery, PartitionRef};
use weir_kafka_wire::messages::delete_records::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use weir_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse, timestamp,
};
use weir_kafka_wire::messages::offset_for_leader_epoch::{EpochEndOffset, OffsetForLeaderTopicResult};
use weir_kafka_wire::{
    DeleteRecordsRequest, DeleteRecordsResponse, ErrorCode, KafkaStr, ListOffsetsRequest,
    ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use super::fetch::check_epoch;
use crate::errors::Failure;
use crate::session::Call;

/// `offset` of DeleteRecords that stands for everything there is.
const UP_TO_HIGH_WATERMARK: i64 = -1;

/// The partition of a topic by name, of which the client may know.
fn find(call: &Call, topic: &KafkaStr, index: i32) -> Result<PartitionRef, ErrorCode> {
    if !call.may_know(topic) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let topic = call.front.broker.topic(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    call.front.broker.partition(&topic, index).map_err(|error| Failure::from(&error).code)
}

pub(crate) async fn list(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let mut seen = BTreeSet::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let repeated = !seen.insert((topic.name.clone(), asked.partition_index));
            let found = match repeated {
                true => Err(ErrorCode::INVALID_REQUEST),
                false => list_one(&call, &topic.name, asked).await,
            };
            partitions.push(listed(&call, asked.partition_index, found));
        }
        topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    ListOffsetsResponse { topics, ..Default::default() }
}

async fn list_one(
    call: &Call,
    topic: &KafkaStr,
    asked: &ListOffsetsPartition,
) -> Result<Option<ListedOffset>, ErrorCode> {
    let query = query(call.version, asked.timestamp)?;
    let partition = find(call, topic, asked.partition_index)?;
    check_epoch(&partition, asked.current_leader_epoch)?;
    let Some(query) = query else { return Ok(None) };
    partition.list_offset(query).await.map_err(|error| Failure::from(&error).code)
}

/// What a timestamp stands for; nothing is found for places on a tier that there is not.
fn query(version: i16, at: i64) -> Result<Option<OffsetQuery>, ErrorCode> {
    let (from_version, query) = match at {
        timestamp::LATEST => (1, Some(OffsetQuery::Latest)),
        timestamp::EARLIEST => (1, Some(OffsetQuery::Earliest)),
        timestamp::MAX_TIMESTAMP => (7, Some(OffsetQuery::MaxTimestamp)),
        timestamp::EARLIEST_LOCAL => (8, Some(OffsetQuery::Earliest)),
        timestamp::LATEST_TIERED => (9, None),
        timestamp::EARLIEST_PENDING_UPLOAD => (11, None),
        0.. => (1, Some(OffsetQuery::At(at))),
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    };
    if version < from_version { Err(ErrorCode::UNSUPPORTED_VERSION) } else { Ok(query) }
}

fn listed(
    call: &Call,
    partition_index: i32,
    found: Result<Option<ListedOffset>, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    match found {
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            partition_index,
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
            ..Default::default()
        },
        // Nothing at or after that time: offset -1 without an error.
        Ok(None) => ListOffsetsPartitionResponse { partition_index, ..Default::default() },
        Err(error_code) => {
            call.count_error();
            ListOffsetsPartitionResponse { partition_index, error_code, ..Default::default() }
        }
    }
}

pub(crate) async fn for_leader_epoch(
    call: Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let found = find(&call, &topic.topic, asked.partition).and_then(|partition| {
                check_epoch(&partition, asked.current_leader_epoch)?;
                Ok(partition.end_offset_for_epoch(asked.leader_epoch))
            });
            match found {
                Ok((leader_epoch, end_offset)) => EpochEndOffset {
                    partition: asked.partition,
                    leader_epoch,
                    end_offset,
                    ..Default::default()
                },
                Err(error_code) => {
                    call.count_error();
                    EpochEndOffset { partition: asked.partition, error_code, ..Default::default() }
                }
            }
        });
        OffsetForLeaderTopicResult { partitions: partitions.collect(), topic: topic.topic.clone() }
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

pub(crate) async fn delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let (low_watermark, error_code) =
                match delete_before(&call, &topic.name, asked.partition_index, asked.offset).await {
                    Ok(log_start) => (log_start, ErrorCode::NONE),
                    Err(code) => {
                        call.count_error();
                        (-1, code)
                    }
                };
            let partition_index = asked.partition_index;
            partitions.push(DeleteRecordsPartitionResult { partition_index, low_watermark, error_code });
        }
        topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    DeleteRecordsResponse { topics, ..Default::default() }
}

async fn delete_before(call: &Call, topic: &KafkaStr, index: i32, offset: i64) -> Result<i64, ErrorCode> {
    let before = match offset {
        UP_TO_HIGH_WATERMARK => None,
        0.. => Some(offset),
        _ => return Err(ErrorCode::OFFSET_OUT_OF_RANGE),
    };
    if !call.may(Action::Configure, topic) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let partition = find(call, topic, index)?;
    call.front.broker.delete_records(&partition, before).await.map_err(|error| match &error {
        // Asked of the partition's leader and not of the controller.
        AdminError::Unavailable(weir_broker::Unavailable::NotLeader { .. }) => {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        }
        error => Failure::from(error).code,
    })
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, OffsetQuery, query};

    #[test]
    fn places_in_the_log_are_known_from_their_versions_on() {
        assert_eq!(query(1, -1), Ok(Some(OffsetQuery::Latest)));
        assert_eq!(query(1, -2), Ok(Some(OffsetQuery::Earliest)));
        assert_eq!(query(6, -3), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(query(7, -3), Ok(Some(OffsetQuery::MaxTimestamp)));
        assert_eq!(query(7, -4), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(query(8, -4), Ok(Some(OffsetQuery::Earliest)));
        assert_eq!(query(9, -5), Ok(None));
        assert_eq!(query(11, -6), Ok(None));
        assert_eq!(query(11, -7), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(query(1, 12), Ok(Some(OffsetQuery::At(12))));
    }
}
