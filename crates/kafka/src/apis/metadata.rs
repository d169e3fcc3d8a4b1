//! Metadata: topics, partitions, and who leads them. Asking for a topic may create it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use weir_broker::{Action, AdminError, LookupError, Topic};
use weir_kafka_wire::messages::metadata::{
    MetadataRequestTopic, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use weir_kafka_wire::{ErrorCode, KafkaStr, MetadataRequest, MetadataResponse, Uuid};
use weir_model::TopicId;
use weir_model::names::check_topic_name;

use super::cluster;
use crate::errors::Failure;
use crate::session::Call;

/// Topics of one request that are created at the same time.
const CREATIONS_AT_ONCE: usize = 16;
/// From this version on an empty list means no topic; before, it meant all.
const EMPTY_MEANS_NONE_FROM_VERSION: i16 = 1;

pub(crate) async fn answer(call: Call, request: MetadataRequest) -> MetadataResponse {
    let broker = &call.front.broker;
    let with_operations = request.include_topic_authorized_operations;
    let topics = match request.topics {
        Some(asked) if !(asked.is_empty() && call.version < EMPTY_MEANS_NONE_FROM_VERSION) => {
            named(&call, asked, request.allow_auto_topic_creation, with_operations).await
        }
        _ => {
            // Queues may have names that no Kafka client can say.
            let topics = broker.topics().into_iter().filter(|topic| check_topic_name(topic.name()).is_ok());
            let topics = topics.filter(|topic| call.may_know(topic.name()));
            topics.map(|topic| describe(&call, &topic, with_operations)).collect()
        }
    };
    let cluster = broker.cluster();
    let brokers = cluster::endpoints(&call).into_iter().map(|endpoint| MetadataResponseBroker {
        node_id: endpoint.node_id,
        host: endpoint.host,
        port: endpoint.port,
        rack: endpoint.rack,
    });
    MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some(KafkaStr::from(&cluster.cluster_id)),
        controller_id: cluster.controller.map_or(-1, cluster::kafka_id),
        topics,
        cluster_authorized_operations: cluster::operations(
            request.include_cluster_authorized_operations,
            || call.cluster_operations(),
        ),
        ..Default::default()
    }
}

/// The topics that were asked for by name or id, each once.
async fn named(
    call: &Call,
    asked: Vec<MetadataRequestTopic>,
    may_create: bool,
    with_operations: bool,
) -> Vec<MetadataResponseTopic> {
    let mut seen = BTreeSet::new();
    let asked = asked.into_iter().filter(|topic| seen.insert((topic.topic_id, topic.name.clone())));
    let asked: Vec<_> = asked.collect();
    futures_util::stream::iter(asked)
        .map(|topic| one(call, topic, may_create, with_operations))
        .buffered(CREATIONS_AT_ONCE)
        .collect()
        .await
}

async fn one(
    call: &Call,
    asked: MetadataRequestTopic,
    may_create: bool,
    with_operations: bool,
) -> MetadataResponseTopic {
    let refused = |code: ErrorCode, name: Option<KafkaStr>, topic_id: Uuid| {
        call.count_error();
        let topic_authorized_operations = cluster::operations(with_operations, || {
            call.topic_operations(name.as_deref().unwrap_or_default())
        });
        MetadataResponseTopic {
            error_code: code,
            name,
            topic_id,
            topic_authorized_operations,
            ..Default::default()
        }
    };
    if !asked.topic_id.is_zero() {
        return match call.front.broker.topic_by_id(TopicId(asked.topic_id.0)) {
            Some(topic) if call.may_know(topic.name()) => describe(call, &topic, with_operations),
            _ => refused(ErrorCode::UNKNOWN_TOPIC_ID, asked.name, asked.topic_id),
        };
    }
    let Some(name) = asked.name else {
        return refused(ErrorCode::INVALID_REQUEST, Some(KafkaStr::new()), Uuid::ZERO);
    };
    match topic_or_create(call, &name, may_create).await {
        Ok(topic) => describe(call, &topic, with_operations),
        Err(code) => refused(code, Some(name), Uuid::ZERO),
    }
}

/// The topic, made if that is wanted, allowed and done soon.
async fn topic_or_create(call: &Call, name: &KafkaStr, may_create: bool) -> Result<Arc<Topic>, ErrorCode> {
    let broker = &call.front.broker;
    if !call.may_know(name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    if let Some(topic) = broker.topic(name) {
        return Ok(topic);
    }
    if weir_model::names::check_topic_name(name).is_err() {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    if !(may_create && broker.options().auto_create_topics) {
        return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    if !call.may(Action::Configure, name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    // A task of its own, because a client that goes away meanwhile must not leave half a topic waiting
    // for whoever asks next.
    let creating = tokio::spawn({
        let (broker, name) = (broker.clone(), name.to_string());
        async move { broker.topic_or_create(&name).await }
    });
    match tokio::time::timeout(call.front.options.topic_creation_wait, creating).await {
        Ok(Ok(Ok(topic))) => Ok(topic),
        Ok(Ok(Err(AdminError::Unavailable(_)))) => Err(ErrorCode::LEADER_NOT_AVAILABLE),
        Ok(Ok(Err(error))) => Err(Failure::from(&error).code),
        // It is being made; clients ask again.
        Ok(Err(_)) | Err(_) => Err(ErrorCode::LEADER_NOT_AVAILABLE),
    }
}

fn describe(call: &Call, topic: &Topic, with_operations: bool) -> MetadataResponseTopic {
    let partitions = (0..topic.partition_count()).map(|index| partition(call, topic, index as i32));
    MetadataResponseTopic {
        name: Some(KafkaStr::from(topic.name())),
        topic_id: Uuid(topic.id().0),
        is_internal: topic.is_internal(),
        partitions: partitions.collect(),
        topic_authorized_operations: cluster::operations(with_operations, || {
            call.topic_operations(topic.name())
        }),
        ..Default::default()
    }
}

fn partition(call: &Call, topic: &Topic, index: i32) -> MetadataResponsePartition {
    let without_leader = |replicas: Vec<i32>, leader_epoch: i32| MetadataResponsePartition {
        error_code: ErrorCode::LEADER_NOT_AVAILABLE,
        partition_index: index,
        leader_id: -1,
        leader_epoch,
        isr_nodes: replicas.clone(),
        replica_nodes: replicas,
        ..Default::default()
    };
    match call.front.broker.partition_info(topic, index) {
        Ok(info) => {
            let replicas: Vec<i32> = info.replicas.iter().copied().map(cluster::kafka_id).collect();
            let Some(leader) = info.leader else { return without_leader(replicas, info.leader_epoch) };
            MetadataResponsePartition {
                partition_index: index,
                leader_id: cluster::kafka_id(leader),
                leader_epoch: info.leader_epoch,
                // Every record that is acknowledged is on a majority, whichever nodes these are; Kafka's
                // notion of a set in sync has no counterpart.
                isr_nodes: replicas.clone(),
                replica_nodes: replicas,
                ..Default::default()
            }
        }
        Err(
            LookupError::UnknownPartition { .. } | LookupError::NotOpen { .. } | LookupError::Unavailable(_),
        ) => without_leader(Vec::new(), -1),
    }
}
