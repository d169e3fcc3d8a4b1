//! `/api/v1/cluster` and `/api/v1/config`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::front::Front;

/// The cluster as this node sees it.
#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    version: &'static str,
    cluster_id: String,
    node_id: u64,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_ready_because: Option<String>,
    nodes: Vec<u64>,
    topics: usize,
    partitions: usize,
}

pub(super) async fn describe(State(front): State<Arc<Front>>) -> Json<Cluster> {
    let cluster = front.broker.cluster();
    let topics = front.broker.topics();
    let not_ready_because = front.broker.not_ready_because();
    Json(Cluster {
        version: env!("CARGO_PKG_VERSION"),
        cluster_id: cluster.cluster_id,
        node_id: cluster.node_id.0,
        ready: not_ready_because.is_none(),
        not_ready_because,
        nodes: cluster.nodes.iter().map(|node| node.id.0).collect(),
        topics: topics.len(),
        partitions: topics.iter().map(|topic| topic.partition_count()).sum(),
    })
}

/// The effective configuration of the running node, and where each value came from.
pub(super) async fn config(State(front): State<Arc<Front>>) -> Json<serde_json::Value> {
    Json(front.config.clone())
}
