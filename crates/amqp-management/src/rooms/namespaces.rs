//! `/api/vhosts`: a virtual host is a namespace.

use serde_json::{Value, json};

use super::nodes::this_node;
use super::queues;
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
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

/// One that is there is there: there is nothing about it that could be set.
pub(super) fn create(ask: &Ask, namespace: &str) -> Result<Answer> {
    ask.user.need_administrator()?;
    match ask.broker.namespaces()?.contains(namespace) {
        true => Ok(Answer::Done),
        false => Err(Failure::not_served("virtual hosts cannot be created yet")),
    }
}

pub(super) fn delete(ask: &Ask, namespace: &str) -> Result<Answer> {
    ask.user.need_administrator()?;
    match ask.broker.namespaces()?.contains(namespace) {
        true => Err(Failure::not_served("virtual hosts cannot be deleted yet")),
        false => Err(Failure::nothing_there()),
    }
}

async fn shown(ask: &Ask, namespace: &str) -> Result<Value> {
    let infos = queues::infos(ask, &[namespace.to_owned()])?;
    let mut shown = json!({
        "name": namespace,
        "tracing": false,
        "default_queue_type": "classic",
        "cluster_state": { this_node(&ask.broker): "running" },
    });
    if let (Some(totals), Value::Object(shown)) = (queues::totals(ask, &infos).await, &mut shown)
        && let Value::Object(counts) = queues::counts(&totals)
    {
        shown.extend(counts);
    }
    Ok(shown)
}
