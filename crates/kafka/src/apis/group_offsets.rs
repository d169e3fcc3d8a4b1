//! OffsetCommit, OffsetFetch, OffsetDelete: how far groups are.
//!
//! Positions are kept by topic id, so that a topic created again under an old name does not inherit
//! them. Clients name topics by name, and by id from version 10 on.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_broker::groups::{CommitRequest, CommittedOffset};
use weir_broker::{Action, GroupError, Topic};
use weir_kafka_wire::messages::offset_commit::{
    OffsetCommitRequestTopic, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use weir_kafka_wire::messages::offset_delete::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use weir_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use weir_kafka_wire::{
    ErrorCode, KafkaStr, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, Uuid,
};
use weir_model::TopicId;
use weir_model::command::OffsetCommit;

use crate::errors::Failure;
use crate::session::Call;

/// First version of OffsetCommit and OffsetFetch that names topics by id.
const TOPIC_IDS_FROM_VERSION: i16 = 10;
/// First version of OffsetFetch that asks for several groups.
const SEVERAL_GROUPS_FROM_VERSION: i16 = 8;
/// First version of OffsetFetch with an error for the group as a whole.
const GROUP_ERROR_FROM_VERSION: i16 = 2;

/// The topic that a request names, if the client may read it.
fn find(call: &Call, name: &KafkaStr, id: Uuid) -> Result<Arc<Topic>, ErrorCode> {
    let may_read = |name: &str| match call.may(Action::Read, name) {
        true => Ok(()),
        false => Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
    };
    if call.version >= TOPIC_IDS_FROM_VERSION {
        let topic = call.front.broker.topic_by_id(TopicId(id.0)).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        may_read(topic.name())?;
        Ok(topic)
    } else {
        may_read(name)?;
        call.front.broker.topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }
}

fn has_partition(topic: &Topic, index: i32) -> bool {
    usize::try_from(index).is_ok_and(|index| index < topic.partition_count())
}

fn refused(call: &Call, error: &GroupError) -> ErrorCode {
    call.count_error();
    Failure::from(error).code
}

pub(crate) async fn commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let mut offsets = Vec::new();
    let mut topics: Vec<OffsetCommitResponseTopic> = Vec::with_capacity(request.topics.len());
    // Where in the answer the outcome of each position in `offsets` belongs.
    let mut places = Vec::new();
    for topic in request.topics {
        let partitions = read_positions(&call, &topic, topics.len(), &mut offsets, &mut places);
        topics.push(OffsetCommitResponseTopic { name: topic.name, topic_id: topic.topic_id, partitions });
    }
    let commit = CommitRequest {
        group: request.group_id.into(),
        generation: request.generation_id_or_member_epoch,
        member_id: request.member_id.into(),
        instance_id: request.group_instance_id.map(String::from),
        offsets,
    };
    let committed = match call.check_group(Action::Read, &commit.group) {
        Ok(()) => call.front.broker.commit_offsets(commit).await.map_err(|error| refused(&call, &error)),
        Err(failure) => {
            call.count_error();
            Err(failure.code)
        }
    };
    match committed {
        Ok(outcomes) => {
            for ((topic, partition), outcome) in places.into_iter().zip(outcomes) {
                if let Err(error) = outcome {
                    call.count_error();
                    topics[topic].partitions[partition].error_code = Failure::from(&error).code;
                }
            }
        }
        Err(code) => {
            for (topic, partition) in places {
                topics[topic].partitions[partition].error_code = code;
            }
        }
    }
    OffsetCommitResponse { topics, ..Default::default() }
}

/// One topic's positions; those of partitions that do not exist are refused here.
fn read_positions(
    call: &Call,
    topic: &OffsetCommitRequestTopic,
    place: usize,
    offsets: &mut Vec<OffsetCommit>,
    places: &mut Vec<(usize, usize)>,
) -> Vec<OffsetCommitResponsePartition> {
    let found = find(call, &topic.name, topic.topic_id);
    let mut answers = Vec::with_capacity(topic.partitions.len());
    for partition in &topic.partitions {
        let partition_index = partition.partition_index;
        let error_code = match &found {
            Ok(found) if has_partition(found, partition_index) => {
                places.push((place, answers.len()));
                offsets.push(OffsetCommit {
                    topic_id: found.id(),
                    partition: partition_index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.as_deref().unwrap_or_default().to_owned(),
                    committed_at: 0,
                });
                ErrorCode::NONE
            }
            Ok(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Err(code) => *code,
        };
        if !error_code.is_none() {
            call.count_error();
        }
        answers.push(OffsetCommitResponsePartition { partition_index, error_code });
    }
    answers
}

pub(crate) async fn fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse {
    if call.version >= SEVERAL_GROUPS_FROM_VERSION {
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            groups.push(fetch_group(&call, group).await);
        }
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..Default::default()
        });
        topics.collect()
    });
    let asked = OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() };
    let named = asked.topics.clone();
    let group = fetch_group(&call, asked).await;
    if !group.error_code.is_none() && call.version < GROUP_ERROR_FROM_VERSION {
        // There was no place for an error but in every partition.
        return OffsetFetchResponse {
            topics: failed_everywhere(named.unwrap_or_default(), group.error_code),
            ..Default::default()
        };
    }
    let topics = group.topics.into_iter();
    let topics =
        topics.map(|topic| OffsetFetchResponseTopic { name: topic.name, partitions: topic.partitions });
    OffsetFetchResponse { topics: topics.collect(), error_code: group.error_code, ..Default::default() }
}

fn failed_everywhere(
    topics: Vec<OffsetFetchRequestTopics>,
    code: ErrorCode,
) -> Vec<OffsetFetchResponseTopic> {
    let topics = topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partition_indexes.into_iter().map(|index| no_position(index, code)).collect(),
    });
    topics.collect()
}

async fn fetch_group(call: &Call, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup {
    let group_id = asked.group_id.clone();
    if !call.may_know(&group_id) {
        call.count_error();
        let error_code = ErrorCode::GROUP_AUTHORIZATION_FAILED;
        return OffsetFetchResponseGroup { group_id, error_code, ..Default::default() };
    }
    let found = match asked.topics {
        Some(topics) => fetch_named(call, &asked.group_id, topics).await,
        None => fetch_everything(call, &asked.group_id).await,
    };
    match found {
        Ok(topics) => OffsetFetchResponseGroup { group_id, topics, ..Default::default() },
        Err(error) => {
            OffsetFetchResponseGroup { group_id, error_code: refused(call, &error), ..Default::default() }
        }
    }
}

async fn fetch_named(
    call: &Call,
    group: &str,
    topics: Vec<OffsetFetchRequestTopics>,
) -> Result<Vec<OffsetFetchResponseTopics>, GroupError> {
    let found: Vec<_> = topics.iter().map(|topic| find(call, &topic.name, topic.topic_id)).collect();
    let mut partitions = Vec::new();
    for (topic, found) in topics.iter().zip(&found) {
        if let Ok(found) = found {
            partitions.extend(topic.partition_indexes.iter().map(|index| (found.id(), *index)));
        }
    }
    let committed = call.front.broker.fetch_offsets(group, Some(&partitions)).await?;
    let committed: BTreeMap<(TopicId, i32), CommittedOffset> =
        committed.into_iter().map(|one| ((one.topic_id, one.partition), one)).collect();
    let answers = topics.into_iter().zip(found).map(|(topic, found)| {
        // A topic that is not known by name has no positions, which is no error; one that is not known
        // by id is.
        let missing = match &found {
            Err(code @ (ErrorCode::UNKNOWN_TOPIC_ID | ErrorCode::TOPIC_AUTHORIZATION_FAILED)) => *code,
            _ => ErrorCode::NONE,
        };
        let partitions = topic.partition_indexes.into_iter().map(|index| {
            let one = found.as_ref().ok().and_then(|topic| committed.get(&(topic.id(), index)));
            one.map_or_else(|| no_position(index, missing), position)
        });
        OffsetFetchResponseTopics {
            partitions: partitions.collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        }
    });
    Ok(answers.collect())
}

async fn fetch_everything(call: &Call, group: &str) -> Result<Vec<OffsetFetchResponseTopics>, GroupError> {
    let mut topics: BTreeMap<TopicId, OffsetFetchResponseTopics> = BTreeMap::new();
    for committed in call.front.broker.fetch_offsets(group, None).await? {
        // Positions in a topic that is being deleted are on their way out.
        let Some(topic) = call.front.broker.topic_by_id(committed.topic_id) else { continue };
        if !call.may_know(topic.name()) {
            continue;
        }
        let answer = topics.entry(topic.id()).or_insert_with(|| OffsetFetchResponseTopics {
            name: KafkaStr::from(topic.name()),
            topic_id: Uuid(topic.id().0),
            ..Default::default()
        });
        answer.partitions.push(position(&committed));
    }
    Ok(topics.into_values().collect())
}

fn position(committed: &CommittedOffset) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index: committed.partition,
        committed_offset: committed.offset,
        committed_leader_epoch: committed.leader_epoch,
        metadata: Some(KafkaStr::from(committed.metadata.as_str())),
        error_code: ErrorCode::NONE,
    }
}

fn no_position(partition_index: i32, error_code: ErrorCode) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index,
        committed_offset: -1,
        metadata: Some(KafkaStr::new()),
        error_code,
        ..Default::default()
    }
}

pub(crate) async fn delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    if let Err(failure) = call.check_group(Action::Configure, &request.group_id) {
        call.count_error();
        return OffsetDeleteResponse { error_code: failure.code, ..Default::default() };
    }
    let mut asked = Vec::new();
    let mut places = Vec::new();
    let mut topics: Vec<OffsetDeleteResponseTopic> = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let may_read = call.may(Action::Read, &topic.name);
        let found = call.front.broker.topic(&topic.name).filter(|_| may_read);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let partition_index = partition.partition_index;
            let error_code = match &found {
                Some(found) if has_partition(found, partition_index) => {
                    places.push((topics.len(), partitions.len()));
                    asked.push((found.id(), partition_index));
                    ErrorCode::NONE
                }
                _ => {
                    call.count_error();
                    match may_read {
                        true => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                        false => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                    }
                }
            };
            partitions.push(OffsetDeleteResponsePartition { partition_index, error_code });
        }
        topics.push(OffsetDeleteResponseTopic { name: topic.name, partitions });
    }
    match call.front.broker.delete_offsets(&request.group_id, &asked).await {
        Ok(outcomes) => {
            for ((topic, partition), outcome) in places.into_iter().zip(outcomes) {
                if let Err(error) = outcome {
                    call.count_error();
                    topics[topic].partitions[partition].error_code = Failure::from(&error).code;
                }
            }
            OffsetDeleteResponse { topics, ..Default::default() }
        }
        Err(error) => OffsetDeleteResponse { error_code: refused(&call, &error), ..Default::default() },
    }
}
