//! `/api/v1/cluster` and `/api/v1/config`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use weir_broker::ShardInfo;

use super::nodes::{self, Listed};
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
    nodes: Vec<Listed>,
    shards: Vec<Shard>,
    topics: usize,
    partitions: usize,
}

/// A shard.
#[derive(Debug, Serialize)]
struct Shard {
    id: u32,
    /// The node that leads it; none if there is none that this node can reach.
    leader: Option<u64>,
    term: u64,
    voters: Vec<u64>,
    /// Those of them that came back without their data and have no vote until they have caught up.
    catching_up: Vec<u64>,
    /// Nodes that have a replica which does not vote.
    listening: Vec<u64>,
    /// How far this node is with it.
    applied_index: u64,
}

impl From<&ShardInfo> for Shard {
    fn from(shard: &ShardInfo) -> Shard {
        Shard {
            id: shard.id.0,
            leader: shard.leader.map(|node| node.0),
            term: shard.term,
            voters: shard.voters.iter().map(|node| node.0).collect(),
            catching_up: shard.catching_up.iter().map(|node| node.0).collect(),
            listening: shard.listening.iter().map(|node| node.0).collect(),
            applied_index: shard.applied_index,
        }
    }
}

pub(super) async fn describe(State(front): State<Arc<Front>>) -> Json<Cluster> {
    let cluster = front.broker.cluster();
    let shards = front.broker.shards();
    let topics = front.broker.topics();
    let not_ready_because = front.broker.not_ready_because();
    Json(Cluster {
        version: env!("CARGO_PKG_VERSION"),
        cluster_id: cluster.cluster_id,
        node_id: cluster.node_id.0,
        ready: not_ready_because.is_none(),
        not_ready_because,
        nodes: nodes::listed(&cluster.nodes, &shards),
        shards: shards.iter().map(Shard::from).collect(),
        topics: topics.len(),
        partitions: topics.iter().map(|topic| topic.partition_count()).sum(),
    })
}

/// The effective configuration of the running node, and where each value came from.
pub(super) async fn config(State(front): State<Arc<Front>>) -> Json<serde_json::Value> {
    Json(front.config.clone())
}
