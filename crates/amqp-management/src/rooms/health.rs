//! `/api/health/checks` and `/api/aliveness-test`: 200 where all is well, and 503 where it is not.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use regex::bytes::RegexBuilder;
use serde_json::{Value, json};
use weir_model::queue::{QueueKind, split_name};

use super::nodes::{rabbitmq_name, this_node};
use super::queues;
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::resource::Check;

/// What a compiled pattern may take, in bytes.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

/// Queues without a leader that are named; of more nobody reads the names.
const QUEUES_NAMED_MAX: usize = 100;

pub(super) fn aliveness(ask: &Ask, namespace: &str) -> Result<Answer> {
    ask.need_entry(namespace).map_err(|_| Failure::nothing_there())?;
    ready(ask)
}

pub(super) fn check(ask: &Ask, check: Check) -> Result<Answer> {
    match check {
        Check::Alarms => Ok(alarms(ask)),
        Check::Port(port) => self::port(ask, &port),
        Check::Protocols(protocols) => Ok(self::protocols(ask, &protocols)),
        // A namespace is served wherever the node is.
        Check::Namespaces | Check::Ready => ready(ask),
        Check::NodeIsQuorumCritical => Ok(quorum_critical(ask)),
        Check::QueuesWithoutLeader { namespace, pattern } => {
            without_leader(ask, namespace.as_deref(), pattern.as_deref())
        }
        // No listener has a certificate that could expire.
        Check::CertificateExpiration => Ok(well()),
        Check::MetadataStore => match ask.broker.namespaces() {
            Ok(_) => Ok(well()),
            Err(error) => Ok(failed(json!({ "reason": error.to_string() }))),
        },
    }
}

fn well() -> Answer {
    Answer::Json(json!({ "status": "ok" }))
}

fn failed(mut details: Value) -> Answer {
    super::put(&mut details, "status", Some("failed"));
    Answer::Status(StatusCode::SERVICE_UNAVAILABLE, details)
}

fn ready(ask: &Ask) -> Result<Answer> {
    Ok(match ask.broker.not_ready_because() {
        None => well(),
        Some(reason) => failed(json!({ "reason": reason })),
    })
}

fn alarms(ask: &Ask) -> Answer {
    match ask.broker.is_disk_full() {
        false => well(),
        true => failed(json!({
            "reason": "There are alarms in effect in the cluster",
            "alarms": [{ "node": this_node(&ask.broker), "resource": "disk" }],
        })),
    }
}

fn port(ask: &Ask, port: &str) -> Result<Answer> {
    let port: u16 = port.parse().map_err(|_| Failure::bad_request("Invalid port"))?;
    let ports: Vec<u16> = ask.broker.listeners().iter().map(|listener| listener.address.port()).collect();
    Ok(match ports.contains(&port) {
        true => Answer::Json(json!({ "status": "ok", "port": port })),
        false => failed(json!({ "reason": "No active listener", "missing": port, "ports": ports })),
    })
}

fn protocols(ask: &Ask, protocols: &str) -> Answer {
    let listeners = ask.broker.listeners();
    let active: BTreeSet<&str> = listeners.iter().map(|listener| rabbitmq_name(listener.protocol)).collect();
    let wanted: BTreeSet<String> = protocols.split(',').map(protocol).collect();
    let missing: Vec<&String> = wanted.iter().filter(|wanted| !active.contains(wanted.as_str())).collect();
    match missing.is_empty() {
        true => Answer::Json(json!({ "status": "ok", "protocols": active })),
        false => failed(json!({ "reason": "No active listener", "missing": missing, "protocols": active })),
    }
}

/// The name of a protocol, by any of those that RabbitMQ takes.
fn protocol(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let plain: String = name.chars().filter(|letter| !matches!(letter, '.' | '-' | '_')).collect();
    match plain.as_str() {
        "amqp091" | "amqp10" => "amqp".to_owned(),
        "amqps" => "amqp/ssl".to_owned(),
        "http1" | "http11" | "httpapi" | "management" | "managementui" | "ui" => "http".to_owned(),
        "mqtt31" | "mqtt311" => "mqtt".to_owned(),
        "stomp10" | "stomp11" | "stomp12" => "stomp".to_owned(),
        _ => name,
    }
}

fn quorum_critical(ask: &Ask) -> Answer {
    // Where there is one node nothing has a quorum to lose.
    match ask.broker.cluster().nodes.len() {
        0 | 1 => Answer::Json(json!({ "status": "ok", "reason": "single node cluster" })),
        _ => well(),
    }
}

fn without_leader(ask: &Ask, namespace: Option<&str>, pattern: Option<&str>) -> Result<Answer> {
    let pattern = match pattern {
        None => None,
        Some(pattern) => Some(
            RegexBuilder::new(pattern)
                .unicode(false)
                .size_limit(PATTERN_COMPILED_BYTES_MAX)
                .build()
                .map_err(|error| Failure::bad_request(error.to_string()))?,
        ),
    };
    let mut found = Vec::new();
    for info in queues::infos(ask, &ask.one_or_all(namespace)?)? {
        let (namespace, name) = split_name(info.topic.name());
        let looked_at = info.meta.kind == QueueKind::Quorum
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(name.as_bytes()));
        let partition = ask.broker.partition_info(&info.topic, 0);
        if looked_at && partition.map_or(true, |partition| partition.leader.is_none()) {
            found.push(json!({ "name": name, "virtual_host": namespace, "type": info.meta.kind.name() }));
        }
        if found.len() == QUEUES_NAMED_MAX {
            break;
        }
    }
    Ok(match found.is_empty() {
        true => well(),
        false => failed(json!({ "reason": "There are queues without a leader", "queues": found })),
    })
}

#[cfg(test)]
mod tests {
    use super::protocol;

    #[test]
    fn protocols_have_many_names() {
        let names =
            ["AMQP", "amqp0.9.1", "amqp0-9-1", "amqp0_9_1", "amqp1.0", "management", "amqps", "kafka", "x-y"];
        let known = ["amqp", "amqp", "amqp", "amqp", "amqp", "http", "amqp/ssl", "kafka", "x-y"];
        assert_eq!(names.map(protocol), known);
    }
}
