//! `/api/nodes`: what is known of the nodes.

use serde_json::{Value, json};
use weir_broker::{Broker, ListenerInfo, NodeInfo};
use weir_model::NodeId;

use super::put;
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::listing;

/// What the cluster is called, here and where AMQP's clients are told.
pub(super) const CLUSTER_NAME: &str = "weir";

/// The version of RabbitMQ as which Weir introduces itself to AMQP's clients, too: they look for what it can do.
pub(super) const RABBITMQ_VERSION: &str = "4.3.0";

/// What a node is called, in the form that RabbitMQ's nodes have.
pub(super) fn node_name(node: NodeId) -> String {
    format!("{CLUSTER_NAME}@{}", node.0)
}

/// The node that answers.
pub(super) fn this_node(broker: &Broker) -> String {
    node_name(broker.cluster().node_id)
}

pub(super) fn list(ask: &Ask) -> Result<Answer> {
    ask.user.need_monitor()?;
    let nodes = ask.broker.cluster().nodes;
    let nodes = nodes.into_iter().map(|node| shown(&ask.broker, &node)).collect();
    Ok(Answer::Json(listing::list(nodes, &ask.query, &["name"])?))
}

pub(super) fn describe(ask: &Ask, name: &str) -> Result<Answer> {
    ask.user.need_monitor()?;
    let nodes = ask.broker.cluster().nodes;
    let node =
        nodes.into_iter().find(|node| node_name(node.id) == name).ok_or_else(Failure::nothing_there)?;
    Ok(Answer::Json(listing::with_columns(shown(&ask.broker, &node), &ask.query)))
}

fn shown(broker: &Broker, node: &NodeInfo) -> Value {
    if node.id != broker.cluster().node_id {
        return json!({
            "name": node_name(node.id),
            "type": "disc",
            "running": node.live,
            "being_drained": node.draining,
        });
    }
    let mut shown = json!({
        "name": node_name(node.id),
        "type": "disc",
        "running": broker.is_ready(),
        "being_drained": node.draining,
        "uptime": u64::try_from(broker.uptime().as_millis()).unwrap_or(u64::MAX),
        "os_pid": std::process::id().to_string(),
        "disk_free_alarm": broker.is_disk_full(),
        "partitions": [],
        "rates_mode": "none",
        "exchange_types": exchange_types(),
        "contexts": contexts(broker),
    });
    put(&mut shown, "processors", std::thread::available_parallelism().map(usize::from).ok());
    shown
}

/// The types of exchanges that can be declared.
pub(super) fn exchange_types() -> Value {
    let kinds = weir_model::routing::RoutingKind::ALL;
    kinds.into_iter().map(|kind| json!({ "name": kind.name(), "enabled": true })).collect()
}

/// Where this API is served.
pub(super) fn contexts(broker: &Broker) -> Value {
    let listeners = broker.listeners();
    let management = listeners.iter().filter(|listener| listener.protocol == MANAGEMENT);
    let shown = management.map(|listener| {
        json!({
            "node": this_node(broker),
            "description": "RabbitMQ Management",
            "path": "/",
            "ip": listener.address.ip().to_string(),
            "port": listener.address.port().to_string(),
        })
    });
    shown.collect()
}

/// Where this node listens, by RabbitMQ's names.
pub(super) fn listeners(broker: &Broker) -> Value {
    let shown = |listener: &ListenerInfo| {
        json!({
            "node": this_node(broker),
            "protocol": rabbitmq_name(listener.protocol),
            "ip_address": listener.address.ip().to_string(),
            "port": listener.address.port(),
            "tls": false,
        })
    };
    broker.listeners().iter().map(shown).collect()
}

const MANAGEMENT: &str = "amqp-management";

/// What RabbitMQ calls a protocol: there `http` is the management API. Weir's own API has a name like those of
/// other things that RabbitMQ serves over HTTP.
pub(super) fn rabbitmq_name(protocol: &'static str) -> &'static str {
    match protocol {
        MANAGEMENT => "http",
        "http" => "http/weir",
        other => other,
    }
}
