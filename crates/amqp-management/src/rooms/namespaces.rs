//! `/api/vhosts`: a virtual host is a namespace.

use serde_json::{Map, Value, json};
use weir_model::access::{AccessChange, NamespaceMeta, PermissionMeta};

use super::nodes::this_node;
use super::{put, queues};
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::listing;

pub(super) async fn list(ask: &Ask) -> Result<Answer> {
    let mut shown = Vec::new();
    for namespace in ask.namespaces()? {
        shown.push(self::shown(ask, &namespace).await?);
    }
    Ok(Answer::Json(listing::list(shown, &ask.query, &["name"])?))
}

pub(super) async fn describe(ask: &Ask, namespace: &str) -> Result<Answer> {
    ask.need_namespace(namespace).map_err(|_| Failure::nothing_there())?;
    Ok(Answer::Json(listing::with_columns(shown(ask, namespace).await?, &ask.query)))
}

/// Whoever creates one may do everything in it, as in RabbitMQ.
pub(super) async fn create(ask: &Ask, name: &str) -> Result<Answer> {
    ask.user.need_administrator()?;
    let namespace = read(&ask.object()?, name)?;
    let known = ask.broker.access().namespace(name).cloned();
    let namespace = match &known {
        Some(known) => NamespaceMeta { limits: known.limits, ..namespace },
        None => namespace,
    };
    ask.broker.change_access(AccessChange::PutNamespace { namespace, new: false }).await?;
    if known.is_some() {
        return Ok(Answer::Done);
    }
    let permission = PermissionMeta::everything(ask.user.name(), name);
    ask.broker.change_access(AccessChange::PutPermission { permission }).await?;
    Ok(Answer::Created(None))
}

/// A namespace as a body, or a definition, describes it.
pub(super) fn read(body: &Map<String, Value>, name: &str) -> Result<NamespaceMeta> {
    if json::flag(body, "tracing")? {
        return Err(Failure::not_served("messages are not traced"));
    }
    Ok(NamespaceMeta {
        name: name.to_owned(),
        description: json::some_text(body, "description")?.unwrap_or_default().to_owned(),
        tags: json::words(body, "tags")?,
        default_queue_type: json::some_text(body, "default_queue_type")?
            .filter(|kind| !kind.is_empty() && *kind != "undefined")
            .map(str::to_owned),
        ..NamespaceMeta::default()
    })
}

pub(super) async fn delete(ask: &Ask, name: &str) -> Result<Answer> {
    ask.user.need_administrator()?;
    if ask.broker.access().namespace(name).is_none() {
        return Err(Failure::nothing_there());
    }
    ask.broker.delete_namespace(name).await?;
    Ok(Answer::Done)
}

async fn shown(ask: &Ask, namespace: &str) -> Result<Value> {
    let infos = queues::infos(ask, &[namespace.to_owned()])?;
    let mut shown = json!({
        "name": namespace,
        "tracing": false,
        "cluster_state": { this_node(&ask.broker): "running" },
    });
    if let Some(known) = ask.broker.access().namespace(namespace) {
        let NamespaceMeta { description, tags, default_queue_type, .. } = &**known;
        put(&mut shown, "description", Some(description.clone()));
        put(&mut shown, "tags", Some(tags.clone()));
        put(&mut shown, "metadata", Some(json!({ "description": description, "tags": tags })));
        put(&mut shown, "default_queue_type", default_queue_type.clone());
    }
    if let (Some(totals), Value::Object(shown)) = (queues::totals(ask, &infos).await, &mut shown)
        && let Value::Object(counts) = queues::counts(&totals)
    {
        shown.extend(counts);
    }
    Ok(shown)
}
