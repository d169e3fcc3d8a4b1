//! `/api/v1/topics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use weir_broker::{Broker, ConfigSource, CreateTopic, Topic};

use super::{Answer, body};
use crate::error::ApiError;
use crate::front::Front;

/// A topic in a listing.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    name: String,
    id: String,
    partitions: usize,
    /// Records that are there.
    records: i64,
    /// What they take on disk or in memory.
    bytes: u64,
}

/// A topic in full.
#[derive(Debug, Serialize)]
pub(super) struct Described {
    #[serde(flatten)]
    listed: Listed,
    created_at_ms: i64,
    partition_list: Vec<PartitionState>,
    config: Vec<Setting>,
}

#[derive(Debug, Serialize)]
struct PartitionState {
    partition: usize,
    partition_id: u64,
    shard: u32,
    leader: Option<u64>,
    leader_epoch: Option<i32>,
    replicas: Vec<u64>,
    log_start: Option<i64>,
    next_offset: Option<i64>,
    bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    source: &'static str,
    doc: &'static str,
}

/// A topic to be created.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    partitions: Option<u32>,
    replicas: Option<u16>,
    #[serde(default)]
    config: BTreeMap<String, String>,
    #[serde(default)]
    validate_only: bool,
}

/// What is to be different.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alter {
    /// New number of partitions.
    partitions: Option<u32>,
    /// Overrides to set; null takes one away.
    #[serde(default)]
    config: BTreeMap<String, Option<String>>,
    #[serde(default)]
    validate_only: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    deleted: String,
}

pub(super) async fn list(State(front): State<Arc<Front>>) -> Json<Vec<Listed>> {
    Json(front.broker.topics().iter().map(|topic| listed(&front.broker, topic)).collect())
}

pub(super) async fn create(
    State(front): State<Arc<Front>>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Described>), ApiError> {
    let Create { name, partitions, replicas, config, validate_only } = body(bytes)?;
    let create = CreateTopic { name, partitions, replication: replicas, config };
    let topic = front.broker.create_topic(create, validate_only).await?;
    let status = if validate_only { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(described(&front.broker, &topic))))
}

pub(super) async fn describe(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Answer<Described> {
    let topic = find(&front.broker, &name)?;
    Ok(Json(described(&front.broker, &topic)))
}

pub(super) async fn alter(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Described> {
    let Alter { partitions, config, validate_only } = body(bytes)?;
    if partitions.is_none() && config.is_empty() {
        return Err(ApiError::bad_request(
            "nothing is to be different",
            "give partitions, or config with settings to set (a value) or to take away (null)",
        ));
    }
    let mut topic = find(&front.broker, &name)?;
    if !config.is_empty() {
        let mut overrides = topic.meta.config.clone();
        for (name, value) in config {
            match value {
                Some(value) => drop(overrides.insert(name, value)),
                None => drop(overrides.remove(&name)),
            }
        }
        topic = front.broker.alter_topic(topic.id(), overrides, validate_only).await?;
    }
    if let Some(total) = partitions {
        topic = front.broker.add_partitions(topic.id(), total, validate_only).await?;
    }
    Ok(Json(described(&front.broker, &topic)))
}

pub(super) async fn delete(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Answer<Deleted> {
    let topic = find(&front.broker, &name)?;
    front.broker.delete_topic(topic.id()).await?;
    Ok(Json(Deleted { deleted: name }))
}

/// The topic of this name.
pub(super) fn find(broker: &Broker, name: &str) -> Result<Arc<Topic>, ApiError> {
    broker.topic(name).ok_or_else(|| ApiError::unknown_topic(name))
}

fn listed(broker: &Broker, topic: &Topic) -> Listed {
    let open = (0..topic.partition_count()).filter_map(|index| broker.partition(topic, index as i32).ok());
    let (records, bytes) = open.fold((0, 0), |(records, bytes), partition| {
        (records + (partition.next_offset() - partition.log_start()), bytes + partition.bytes())
    });
    let name = topic.name().to_owned();
    Listed { name, id: topic.id().to_string(), partitions: topic.partition_count(), records, bytes }
}

fn described(broker: &Broker, topic: &Topic) -> Described {
    let partition_list = topic
        .meta
        .partitions
        .iter()
        .enumerate()
        .map(|(partition, meta)| {
            let info = broker.partition_info(topic, partition as i32).ok();
            let open = broker.partition(topic, partition as i32).ok();
            PartitionState {
                partition,
                partition_id: meta.id.0,
                shard: meta.shard.0,
                leader: info.as_ref().and_then(|info| info.leader).map(|node| node.0),
                leader_epoch: info.as_ref().map(|info| info.leader_epoch),
                replicas: info
                    .map_or_else(Vec::new, |info| info.replicas.iter().map(|node| node.0).collect()),
                log_start: open.as_ref().map(|open| open.log_start()),
                next_offset: open.as_ref().map(|open| open.next_offset()),
                bytes: open.as_ref().map(|open| open.bytes()),
            }
        })
        .collect();
    let config = broker
        .describe_topic(topic)
        .into_iter()
        .map(|entry| Setting {
            name: entry.name,
            value: entry.value,
            source: match entry.source {
                ConfigSource::Topic => "topic",
                ConfigSource::Broker => "broker",
                ConfigSource::Default => "default",
            },
            doc: entry.doc,
        })
        .collect();
    Described { listed: listed(broker, topic), created_at_ms: topic.meta.created_at, partition_list, config }
}
