//! Where nodes listen, and DescribeCluster.

use std::net::IpAddr;

use weir_broker::{NodeInfo, Topic};
use weir_kafka_wire::messages::describe_cluster::DescribeClusterBroker;
use weir_kafka_wire::{DescribeClusterRequest, DescribeClusterResponse, ErrorCode, KafkaStr};
use weir_model::NodeId;

use crate::session::Call;

/// `endpoint_type` of a client that asks for brokers.
const ENDPOINT_BROKERS: i8 = 1;

/// The operations in answer to whether they were asked for.
pub(super) fn operations(asked: bool, all: impl FnOnce() -> i32) -> i32 {
    if asked { all() } else { i32::MIN }
}

/// A node's id as Kafka has it.
pub(super) fn kafka_id(node: NodeId) -> i32 {
    i32::try_from(node.0).unwrap_or(i32::MAX)
}

/// A node and where clients of this call's connection reach it.
pub(super) struct Endpoint {
    pub(super) node_id: i32,
    pub(super) host: KafkaStr,
    pub(super) port: i32,
    pub(super) rack: Option<KafkaStr>,
}

/// Where this call's client reaches the node. A node that advertises nothing is reached where the client
/// has reached it already; of another node that is unknown.
pub(super) fn endpoint(call: &Call, node: &NodeInfo, own: NodeId) -> Option<Endpoint> {
    let node_id = kafka_id(node.id);
    let rack = node.zone.as_deref().map(KafkaStr::from);
    // Whoever is here has reached this node already, and is told so unless an operator says something else.
    let told = if node.id == own { &call.front.broker.options().advertised } else { &node.advertised };
    if let Some(advertised) = told.get(call.front.options.protocol) {
        let host = KafkaStr::from(advertised.host.as_str());
        return Some(Endpoint { node_id, host, port: i32::from(advertised.port), rack });
    }
    (node.id == own).then(|| {
        let local = call.caller.local;
        Endpoint { node_id, host: host_of(local.ip()), port: i32::from(local.port()), rack }
    })
}

/// Who leads a partition, for a client that asked another node.
pub(super) struct LeaderHint {
    pub(super) leader_id: i32,
    pub(super) leader_epoch: i32,
    /// Where the leader is; none if nobody knows.
    pub(super) endpoint: Option<Endpoint>,
}

/// Who leads a partition, so that the client need not ask for metadata first (KIP-951).
pub(super) fn leader_hint(call: &Call, topic: &Topic, index: i32) -> Option<LeaderHint> {
    let broker = &call.front.broker;
    let info = broker.partition_info(topic, index).ok()?;
    let leader = info.leader?;
    let cluster = broker.cluster();
    let node = cluster.nodes.iter().find(|node| node.id == leader);
    Some(LeaderHint {
        leader_id: kafka_id(leader),
        leader_epoch: info.leader_epoch,
        endpoint: node.and_then(|node| endpoint(call, node, cluster.node_id)),
    })
}

/// An address as text; one of the fourth version that was taken for one of the sixth is turned back,
/// because many clients resolve and connect in the fourth only.
fn host_of(address: IpAddr) -> KafkaStr {
    KafkaStr::from(address.to_canonical().to_string())
}

/// All nodes that this call's client can be sent to.
pub(super) fn endpoints(call: &Call) -> Vec<Endpoint> {
    let cluster = call.front.broker.cluster();
    cluster.nodes.iter().filter_map(|node| endpoint(call, node, cluster.node_id)).collect()
}

pub(crate) async fn describe(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse {
    if request.endpoint_type != ENDPOINT_BROKERS {
        call.count_error();
        let message = "controllers have no endpoints of their own here; ask for brokers (endpoint type 1)";
        return DescribeClusterResponse {
            error_code: ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            error_message: Some(KafkaStr::from_static(message)),
            endpoint_type: request.endpoint_type,
            ..Default::default()
        };
    }
    if !call.is_known() {
        call.count_error();
        return DescribeClusterResponse {
            error_code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            error_message: Some(KafkaStr::from_static("the client has to authenticate")),
            ..Default::default()
        };
    }
    let cluster = call.front.broker.cluster();
    let brokers = endpoints(&call).into_iter().map(|endpoint| DescribeClusterBroker {
        broker_id: endpoint.node_id,
        host: endpoint.host,
        port: endpoint.port,
        rack: endpoint.rack,
        ..Default::default()
    });
    DescribeClusterResponse {
        cluster_id: KafkaStr::from(&cluster.cluster_id),
        controller_id: cluster.controller.map_or(-1, kafka_id),
        brokers: brokers.collect(),
        cluster_authorized_operations: operations(request.include_cluster_authorized_operations, || {
            call.cluster_operations()
        }),
        ..Default::default()
    }
}
