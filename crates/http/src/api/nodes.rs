//! `/api/v1/nodes`: the nodes of the cluster as this one sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use weir_broker::{AdminError, Broker, NodeInfo, ShardInfo};
use weir_model::NodeId;

use super::{Answer, body};
use crate::error::ApiError;
use crate::front::Front;

/// A node.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    id: u64,
    /// Whether it is connected with the node that answers, or is it.
    live: bool,
    /// Whether an operator wants it to lead nothing.
    draining: bool,
    /// Whether an operator wants it to be of the cluster no more.
    leaving: bool,
    /// Shards of which it has a replica that counts or will count.
    replicas: usize,
    /// Shards that it leads.
    leads: usize,
    zone: Option<String>,
    /// None if it has not said anything of itself yet.
    version: Option<String>,
    /// Where its listeners are, by protocol name.
    advertised: BTreeMap<String, String>,
}

/// What may be altered of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alteration {
    draining: Option<bool>,
    leaving: Option<bool>,
}

fn has_replica(shard: &ShardInfo, node: NodeId) -> bool {
    shard.voters.contains(&node) || shard.listening.contains(&node)
}

pub(super) fn listed(nodes: &[NodeInfo], shards: &[ShardInfo]) -> Vec<Listed> {
    let one = |node: &NodeInfo| Listed {
        id: node.id.0,
        live: node.live,
        draining: node.draining,
        leaving: node.leaving,
        replicas: shards.iter().filter(|shard| has_replica(shard, node.id)).count(),
        leads: shards.iter().filter(|shard| shard.leader == Some(node.id)).count(),
        zone: node.zone.clone(),
        version: node.version.clone(),
        advertised: node.advertised.iter().map(|(name, at)| (name.clone(), at.to_string())).collect(),
    };
    nodes.iter().map(one).collect()
}

pub(super) async fn list(State(front): State<Arc<Front>>) -> Json<Vec<Listed>> {
    Json(all(&front.broker))
}

pub(super) async fn describe(State(front): State<Arc<Front>>, Path(id): Path<u64>) -> Answer<Listed> {
    one(&front.broker, id).map(Json)
}

pub(super) async fn alter(
    State(front): State<Arc<Front>>,
    Path(id): Path<u64>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Listed> {
    let Alteration { draining, leaving } = body(bytes)?;
    // One that never said anything is a name that somebody mistyped.
    if let Some(draining) = draining {
        front.broker.set_draining(NodeId(id), draining).await?;
    }
    if let Some(leaving) = leaving {
        front.broker.set_leaving(NodeId(id), leaving).await?;
    }
    // What was decided may not be applied here yet.
    one(&front.broker, id).map(|node| {
        let (draining, leaving) = (draining.unwrap_or(node.draining), leaving.unwrap_or(node.leaving));
        Json(Listed { draining, leaving, ..node })
    })
}

fn all(broker: &Broker) -> Vec<Listed> {
    listed(&broker.cluster().nodes, &broker.shards())
}

fn one(broker: &Broker, id: u64) -> Result<Listed, ApiError> {
    let found = all(broker).into_iter().find(|node| node.id == id);
    found.ok_or_else(|| AdminError::UnknownNode(NodeId(id)).into())
}
