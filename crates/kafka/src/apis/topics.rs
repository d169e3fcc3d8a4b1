//! CreateTopics, DeleteTopics, CreatePartitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_broker::{Action, AdminError, CreateTopic, Topic};
use weir_kafka_wire::messages::create_partitions::{CreatePartitionsTopic, CreatePartitionsTopicResult};
use weir_kafka_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use weir_kafka_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use weir_kafka_wire::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, ErrorCode, KafkaStr, Uuid,
};
use weir_model::TopicId;

use super::configs::source_code;
use crate::errors::Failure;
use crate::session::Call;

/// Stands for "the broker's default" in numbers of partitions and replicas.
const DEFAULT: i32 = -1;

pub(crate) async fn create(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let repeated = repeated(request.topics.iter().map(|topic| &topic.name));
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let name = wanted.name.clone();
        let created = match repeated.contains(&name) {
            true => Err(named_twice(&name)),
            false => create_one(&call, wanted, request.validate_only).await,
        };
        topics.push(match created {
            Ok(topic) => describe_created(&call, name, &topic),
            Err(failure) => {
                call.count_error();
                CreatableTopicResult {
                    name,
                    error_code: failure.code,
                    error_message: failure.message,
                    configs: Some(Vec::new()),
                    ..Default::default()
                }
            }
        });
    }
    CreateTopicsResponse { topics, ..Default::default() }
}

/// The names that come more than once; which of the requests is meant nobody knows.
fn repeated<'a>(names: impl Iterator<Item = &'a KafkaStr>) -> BTreeSet<KafkaStr> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).cloned().collect()
}

fn named_twice(name: &KafkaStr) -> Failure {
    Failure::new(ErrorCode::INVALID_REQUEST, format!("the request names '{name}' twice"))
}

async fn create_one(call: &Call, wanted: CreatableTopic, validate_only: bool) -> Result<Arc<Topic>, Failure> {
    call.check_topic(Action::Configure, &wanted.name)?;
    let mut config = BTreeMap::new();
    for setting in &wanted.configs {
        let Some(value) = &setting.value else {
            let why = format!("{} has no value; leave it out to have the default", setting.name);
            return Err(Failure::new(ErrorCode::INVALID_CONFIG, why));
        };
        config.insert(setting.name.to_string(), value.to_string());
    }
    let (partitions, replication) = match wanted.assignments.is_empty() {
        true => (partitions_of(wanted.num_partitions)?, replication_of(wanted.replication_factor)?),
        false => {
            if wanted.num_partitions != DEFAULT || i32::from(wanted.replication_factor) != DEFAULT {
                let why = "replicas are assigned by hand; then partitions and replication factor must be -1";
                return Err(Failure::new(ErrorCode::INVALID_REQUEST, why));
            }
            let (partitions, replicas) = check_assignment(call, &wanted.assignments)?;
            (Some(partitions), Some(replicas))
        }
    };
    let create = CreateTopic { name: wanted.name.to_string(), partitions, replication, config };
    call.front.broker.create_topic(create, validate_only).await.map_err(|error| Failure::from(&error))
}

fn partitions_of(asked: i32) -> Result<Option<u32>, Failure> {
    match asked {
        DEFAULT => Ok(None),
        1.. => Ok(Some(asked as u32)),
        _ => {
            let why = format!("a topic cannot have {asked} partitions; at least 1, or -1 for the default");
            Err(Failure::new(ErrorCode::INVALID_PARTITIONS, why))
        }
    }
}

fn replication_of(asked: i16) -> Result<Option<u16>, Failure> {
    match asked {
        -1 => Ok(None),
        1.. => Ok(Some(asked as u16)),
        _ => {
            let why = format!("{asked} replicas are impossible; at least 1, or -1 for the default");
            Err(Failure::new(ErrorCode::INVALID_REPLICATION_FACTOR, why))
        }
    }
}

/// Replicas assigned by hand: partitions from 0 without a gap, existing nodes, and equally many for
/// each. Which nodes they name is checked and then left to the broker, because it places whole shards.
fn check_assignment(call: &Call, assignments: &[CreatableReplicaAssignment]) -> Result<(u32, u16), Failure> {
    let refuse = |why: String| Failure::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why);
    let mut indexes: Vec<i32> = assignments.iter().map(|one| one.partition_index).collect();
    indexes.sort_unstable();
    if indexes.iter().enumerate().any(|(expected, index)| *index != expected as i32) {
        return Err(refuse("the assigned partitions are not numbered from 0 without a gap".into()));
    }
    let replicas = assignments[0].broker_ids.len();
    for one in assignments {
        check_replicas(call, &one.broker_ids, replicas).map_err(refuse)?;
    }
    Ok((assignments.len() as u32, replicas as u16))
}

fn check_replicas(call: &Call, broker_ids: &[i32], replicas: usize) -> Result<(), String> {
    if broker_ids.is_empty() || broker_ids.len() != replicas {
        return Err("every partition must be assigned the same number of nodes, at least 1".into());
    }
    let nodes = call.front.broker.cluster().nodes;
    for (index, id) in broker_ids.iter().enumerate() {
        if !nodes.iter().any(|node| super::cluster::kafka_id(node.id) == *id) {
            return Err(format!("there is no node {id}"));
        }
        if broker_ids[..index].contains(id) {
            return Err(format!("node {id} is assigned twice to one partition"));
        }
    }
    Ok(())
}

fn describe_created(call: &Call, name: KafkaStr, topic: &Topic) -> CreatableTopicResult {
    let configs = call.front.broker.describe_topic(topic).into_iter().map(|entry| CreatableTopicConfigs {
        name: KafkaStr::from_static(entry.name),
        value: Some(KafkaStr::from(entry.value)),
        read_only: entry.read_only,
        config_source: source_code(entry.source),
        is_sensitive: false,
    });
    CreatableTopicResult {
        name,
        topic_id: Uuid(topic.id().0),
        num_partitions: topic.partition_count() as i32,
        replication_factor: replicas_of(call, topic),
        configs: Some(configs.collect()),
        ..Default::default()
    }
}

fn replicas_of(call: &Call, topic: &Topic) -> i16 {
    let info = call.front.broker.partition_info(topic, 0);
    info.map_or(1, |info| i16::try_from(info.replicas.len().max(1)).unwrap_or(i16::MAX))
}

pub(crate) async fn delete(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let by_name = request
        .topic_names
        .into_iter()
        .map(|name| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO });
    let asked: Vec<DeleteTopicState> = by_name.chain(request.topics).collect();
    let mut responses = Vec::with_capacity(asked.len());
    for one in asked {
        let found = find_to_delete(&call, &one);
        let (name, topic_id) = match &found {
            Ok(topic) => (Some(KafkaStr::from(topic.name())), Uuid(topic.id().0)),
            Err(_) => (one.name, one.topic_id),
        };
        let deleted = match found {
            Ok(topic) => {
                call.front.broker.delete_topic(topic.id()).await.map_err(|error| Failure::from(&error))
            }
            Err(failure) => Err(failure),
        };
        responses.push(match deleted {
            Ok(()) => DeletableTopicResult { name, topic_id, ..Default::default() },
            Err(failure) => {
                call.count_error();
                DeletableTopicResult {
                    name,
                    topic_id,
                    error_code: failure.code,
                    error_message: failure.message,
                }
            }
        });
    }
    DeleteTopicsResponse { responses, ..Default::default() }
}

fn find_to_delete(call: &Call, asked: &DeleteTopicState) -> Result<Arc<Topic>, Failure> {
    let broker = &call.front.broker;
    match &asked.name {
        Some(_) if !asked.topic_id.is_zero() => Err(Failure::new(
            ErrorCode::INVALID_REQUEST,
            "a topic is named by its name and by its id; use one",
        )),
        Some(name) => {
            call.check_topic(Action::Configure, name)?;
            broker.topic(name).ok_or_else(|| {
                Failure::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("there is no topic '{name}'"))
            })
        }
        None => {
            let unknown = || {
                let why = format!("there is no topic with id {}", asked.topic_id);
                Failure::new(ErrorCode::UNKNOWN_TOPIC_ID, why)
            };
            // Who may not know of it is not told its name either.
            let topic =
                broker.topic_by_id(TopicId(asked.topic_id.0)).filter(|topic| call.may_know(topic.name()));
            let topic = topic.ok_or_else(unknown)?;
            call.check_topic(Action::Configure, topic.name())?;
            Ok(topic)
        }
    }
}

pub(crate) async fn create_partitions(
    call: Call,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let repeated = repeated(request.topics.iter().map(|topic| &topic.name));
    let mut results = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let raised = match repeated.contains(&wanted.name) {
            true => Err(named_twice(&wanted.name)),
            false => raise_one(&call, &wanted, request.validate_only).await,
        };
        // Clients look their topics up in the answer, so that each is echoed whatever became of it.
        results.push(match raised {
            Ok(()) => CreatePartitionsTopicResult { name: wanted.name, ..Default::default() },
            Err(failure) => {
                call.count_error();
                CreatePartitionsTopicResult {
                    name: wanted.name,
                    error_code: failure.code,
                    error_message: failure.message,
                }
            }
        });
    }
    CreatePartitionsResponse { results, ..Default::default() }
}

async fn raise_one(call: &Call, wanted: &CreatePartitionsTopic, validate_only: bool) -> Result<(), Failure> {
    call.check_topic(Action::Configure, &wanted.name)?;
    let broker = &call.front.broker;
    let topic = broker
        .topic(&wanted.name)
        .ok_or_else(|| Failure::from(&AdminError::UnknownTopic(wanted.name.to_string())))?;
    let now = topic.partition_count();
    let total = u32::try_from(wanted.count).ok().filter(|total| *total as usize > now).ok_or_else(|| {
        let why = format!("the topic has {now} partitions; {} is not more", wanted.count);
        Failure::new(ErrorCode::INVALID_PARTITIONS, why)
    })?;
    if let Some(assignments) = &wanted.assignments {
        let added = total as usize - now;
        if assignments.len() != added {
            let why = format!("{added} partitions are added, but {} are assigned", assignments.len());
            return Err(Failure::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
        }
        let replicas = usize::from(replicas_of(call, &topic).unsigned_abs());
        for one in assignments {
            check_replicas(call, &one.broker_ids, replicas)
                .map_err(|why| Failure::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why))?;
        }
    }
    let raised = broker.add_partitions(topic.id(), total, validate_only).await;
    raised.map(|_| ()).map_err(|error| Failure::from(&error))
}
