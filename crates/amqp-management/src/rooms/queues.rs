//! `/api/queues`.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};
use weir_broker::queues::QueueFigures;
use weir_broker::topology::{
    QueueDeclaration, QueueInfo, TopologyError, check_equivalent, check_not_reserved, check_queue_name,
};
use weir_broker::{Operation, Parties};
use weir_model::policy::PolicyMeta;
use weir_model::queue::{QueueKind, split_name};
use weir_model::routing::{ArgumentValue, argument};

use super::nodes::node_name;
use super::{put, sessions};
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::listing;
use crate::resource::Named;

/// Queues whose messages are counted for a total; of more there is none.
const QUEUES_SUMMED_MAX: usize = 1_000;

/// Queues that are asked what they are doing because a list is sorted by that.
const QUEUES_SORTED_MAX: usize = 10_000;

/// Columns that a queue has to be asked for.
const ASKED_FOR: [&str; 4] = ["messages", "messages_ready", "messages_unacknowledged", "consumers"];

/// The queues of these namespaces.
pub(super) fn infos(ask: &Ask, namespaces: &[String]) -> Result<Vec<QueueInfo>> {
    let mut infos = ask.broker.queues(None)?;
    infos.retain(|info| {
        let (namespace, _) = split_name(info.topic.name());
        namespaces.iter().any(|known| known == namespace)
    });
    Ok(infos)
}

/// What all these queues are doing together; none if they are too many, or one cannot be asked.
pub(super) async fn totals(ask: &Ask, infos: &[QueueInfo]) -> Option<QueueFigures> {
    if infos.len() > QUEUES_SUMMED_MAX {
        return None;
    }
    let mut sum = QueueFigures::default();
    for info in infos {
        let QueueFigures { ready, leased, consumers, .. } = ask.broker.queue_figures(info).await.ok()?;
        sum.ready += ready;
        sum.leased += leased;
        sum.consumers += consumers;
    }
    Some(sum)
}

/// How many messages there are.
pub(super) fn counts(figures: &QueueFigures) -> Value {
    json!({
        "messages": figures.ready + figures.leased,
        "messages_ready": figures.ready,
        "messages_unacknowledged": figures.leased,
    })
}

pub(super) async fn list(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    let infos = infos(ask, &ask.one_or_all(namespace)?)?;
    let mut shown: Vec<Value> = infos.iter().map(|info| self::shown(ask, info)).collect();
    let sorted_by_figures = listing::sorted_by(&ask.query).is_some_and(|column| ASKED_FOR.contains(&column));
    if sorted_by_figures {
        if shown.len() > QUEUES_SORTED_MAX {
            let reason =
                format!("more than {QUEUES_SORTED_MAX} queues cannot be sorted by what they are doing");
            return Err(Failure::new(StatusCode::BAD_REQUEST, "too_many_items", reason));
        }
        add_figures(ask, &mut shown).await;
    }
    let mut listing = listing::choose(shown, &ask.query, &["vhost", "name"])?;
    if !sorted_by_figures {
        add_figures(ask, &mut listing.items).await;
    }
    Ok(Answer::Json(listing.into_json(&ask.query)))
}

/// Asks the queues behind items of a list what they are doing.
async fn add_figures(ask: &Ask, items: &mut [Value]) {
    for item in items {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        // It may have gone, or its leader be another: then nothing is known of it.
        let Ok(Some(info)) = ask.broker.find_queue(text("vhost"), text("name")) else { continue };
        let Ok(figures) = ask.broker.queue_figures(&info).await else { continue };
        put_figures(item, &figures);
    }
}

fn put_figures(item: &mut Value, figures: &QueueFigures) {
    if let (Value::Object(item), Value::Object(counts)) = (item, counts(figures)) {
        item.extend(counts);
        item.insert("consumers".into(), json!(figures.consumers));
    }
}

fn shown(ask: &Ask, info: &QueueInfo) -> Value {
    let (namespace, name) = split_name(info.topic.name());
    let mut shown = json!({
        "name": name,
        "vhost": namespace,
        "durable": info.meta.durable,
        "auto_delete": info.meta.auto_delete,
        "exclusive": info.meta.exclusive,
        "arguments": json::from_arguments(&info.meta.arguments),
        "type": info.meta.kind.name(),
    });
    if let Some(facts) = &info.topic.queue {
        let name = |policy: &Option<Arc<PolicyMeta>>| policy.as_ref().map(|policy| policy.key.name.clone());
        put(&mut shown, "policy", name(&facts.applied.policy));
        put(&mut shown, "operator_policy", name(&facts.applied.operator));
        let definition = json::from_arguments(&facts.applied.definition());
        put(&mut shown, "effective_policy_definition", Some(definition));
    }
    let Ok(partition) = ask.broker.partition_info(&info.topic, 0) else { return shown };
    let leader = partition.leader.map(node_name);
    put(&mut shown, "state", Some(if leader.is_some() { "running" } else { "down" }));
    if info.meta.kind == QueueKind::Quorum {
        let members: Vec<String> = partition.replicas.into_iter().map(node_name).collect();
        put(&mut shown, "members", Some(members));
        put(&mut shown, "leader", leader.clone());
    }
    put(&mut shown, "node", leader);
    shown
}

/// The queue of this name.
pub(super) fn find(ask: &Ask, named: &Named) -> Result<QueueInfo> {
    ask.need_namespace(&named.namespace).map_err(|_| Failure::nothing_there())?;
    match ask.broker.find_queue(&named.namespace, &named.name) {
        Ok(Some(info)) => Ok(info),
        // A topic of this name is no queue.
        Ok(None) | Err(TopologyError::NotAQueue(_)) => Err(Failure::nothing_there()),
        Err(error) => Err(error.into()),
    }
}

/// As [`find`], for an operation that changes a queue: not one that belongs to a connection.
pub(super) fn find_to_change(ask: &Ask, named: &Named, operation: Operation) -> Result<QueueInfo> {
    ask.need_entry(&named.namespace).map_err(|_| Failure::nothing_there())?;
    let info = find(ask, named)?;
    ask.user.check(&named.namespace, operation, Parties::one(&named.name))?;
    if info.meta.exclusive {
        return Err(locked(named));
    }
    Ok(info)
}

pub(super) fn locked(named: &Named) -> Failure {
    let Named { namespace, name } = named;
    Failure::bad_request(format!(
        "cannot obtain exclusive access to locked queue '{name}' in vhost '{namespace}'. It belongs to the \
         connection that declared it."
    ))
}

pub(super) async fn describe(ask: &Ask, named: &Named) -> Result<Answer> {
    let info = find(ask, named)?;
    let mut shown = shown(ask, &info);
    if let Ok(figures) = ask.broker.queue_figures(&info).await {
        put_figures(&mut shown, &figures);
    }
    put(&mut shown, "consumer_details", Some(sessions::consumers_of_queue(ask, named).await));
    Ok(Answer::Json(listing::with_columns(shown, &ask.query)))
}

pub(super) async fn declare(ask: &Ask, named: &Named) -> Result<Answer> {
    let Named { namespace, name } = named;
    ask.need_entry(namespace)?;
    ask.user.check(namespace, Operation::QueueDeclare, Parties::one(name))?;
    let body = ask.object()?;
    let declaration = QueueDeclaration {
        durable: json::flag(&body, "durable")?,
        auto_delete: json::flag(&body, "auto_delete")?,
        // One that nobody but its connection uses, and there is none.
        exclusive: false,
        arguments: json::arguments(&body, "arguments")?,
    };
    let wanted = declaration.clone().meta(namespace, name)?;
    let (there, created) = match ask.broker.find_queue(namespace, name)? {
        Some(there) => (there, false),
        None => {
            check_queue_name(name)?;
            check_not_reserved("queue", name)?;
            if let Some(exchange) = argument(&wanted.arguments, "x-dead-letter-exchange")
                && let Some(exchange) = exchange.as_text()
            {
                let parties = Parties::two(name, exchange);
                ask.user.check(namespace, Operation::QueueDeclareDeadLetter, parties)?;
            }
            ask.broker.create_queue(namespace, name, wanted).await?
        }
    };
    if !created {
        check_equivalent(name, namespace, &there.meta, &declaration)?;
        return Ok(Answer::Done);
    }
    ask.broker.wake_queue(&there).await?;
    Ok(Answer::Created(None))
}

pub(super) async fn delete(ask: &Ask, named: &Named) -> Result<Answer> {
    let info = find_to_change(ask, named, Operation::QueueDelete)?;
    let Named { namespace, name } = named;
    let (if_unused, if_empty) = (ask.query.is_true("if-unused"), ask.query.is_true("if-empty"));
    if if_unused || if_empty {
        let figures = ask.broker.queue_figures(&info).await?;
        if if_unused && figures.consumers > 0 {
            return Err(Failure::bad_request(format!("queue '{name}' in vhost '{namespace}' in use")));
        }
        if if_empty && figures.ready > 0 {
            return Err(Failure::bad_request(format!("queue '{name}' in vhost '{namespace}' not empty")));
        }
    }
    ask.broker.delete_queue(&info).await?;
    Ok(Answer::Done)
}

pub(super) async fn purge(ask: &Ask, named: &Named) -> Result<Answer> {
    let info = find_to_change(ask, named, Operation::QueuePurge)?;
    if info.meta.kind == QueueKind::Stream {
        let Named { namespace, name } = named;
        return Err(Failure::bad_request(format!(
            "queue.purge not supported by stream queue '{name}' in vhost '{namespace}'"
        )));
    }
    ask.broker.open_queue(&info).await?.purge().await?;
    Ok(Answer::Done)
}

/// RabbitMQ has had actions for mirrored queues, and has none any more.
pub(super) fn act(ask: &Ask, named: &Named) -> Result<Answer> {
    ask.user.need_administrator()?;
    find(ask, named)?;
    let body = ask.object()?;
    let action = json::need_text(&body, "action")?;
    Err(Failure::bad_request(format!("unknown action '{action}'")))
}

/// The arguments of a queue that was exported: with its type, where they do not name it.
pub(super) fn with_kind(mut declaration: QueueDeclaration, kind: Option<&str>) -> QueueDeclaration {
    const KIND: &str = "x-queue-type";
    let named = declaration.arguments.iter().any(|(name, _)| name == KIND);
    if let Some(kind) = kind.filter(|kind| !named && *kind != QueueKind::Classic.name()) {
        declaration.arguments.push((KIND.to_owned(), ArgumentValue::text(kind)));
    }
    declaration
}
