//! `/api/v1/log`: which topic and partition an id on disk belongs to.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use weir_model::queue::{is_hidden, split_name};

use crate::front::Front;

/// A partition's log.
#[derive(Debug, Serialize)]
pub(super) struct PartitionLog {
    shard: u32,
    partition_id: u64,
    /// Its directory below the data directory.
    directory: String,
    topic: String,
    partition: usize,
    /// First offset that is there; none if the partition is not open.
    log_start: Option<i64>,
    /// Offset that the next record will get.
    next_offset: Option<i64>,
    bytes: Option<u64>,
}

/// The broker's own topics have names that nobody can type; they are shown in brackets.
fn shown(name: &str) -> String {
    if is_hidden(name) { format!("({})", split_name(name).1) } else { name.to_owned() }
}

pub(super) async fn list(State(front): State<Arc<Front>>) -> Json<Vec<PartitionLog>> {
    let mut logs = Vec::new();
    for topic in front.broker.topics_with_hidden() {
        for (partition, meta) in topic.meta.partitions.iter().enumerate() {
            let open = front.broker.partition(&topic, partition as i32).ok();
            logs.push(PartitionLog {
                shard: meta.shard.0,
                partition_id: meta.id.0,
                directory: format!("shards/{}/{}", meta.shard, meta.id),
                topic: shown(topic.name()),
                partition,
                log_start: open.as_ref().map(|open| open.log_start()),
                next_offset: open.as_ref().map(|open| open.next_offset()),
                bytes: open.as_ref().map(|open| open.bytes()),
            });
        }
    }
    logs.sort_by_key(|log| (log.shard, log.partition_id));
    Json(logs)
}
