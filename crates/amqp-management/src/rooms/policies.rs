//! `/api/policies` and `/api/operator-policies`.

use serde_json::{Map, Value, json};
use weir_model::policy::{ApplyTo, PolicyKey, PolicyMeta};

use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::listing;
use crate::resource::Named;

pub(super) fn list(ask: &Ask, operator: bool, namespace: Option<&str>) -> Result<Answer> {
    let all = all(ask, operator, &ask.one_or_all(namespace)?)?;
    Ok(Answer::Json(listing::list(all, &ask.query, &["vhost", "name"])?))
}

/// The policies of some namespaces.
pub(super) fn all(ask: &Ask, operator: bool, namespaces: &[String]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for namespace in namespaces {
        all.extend(ask.broker.policies(namespace, operator)?.iter().map(|policy| shown(policy)));
    }
    Ok(all)
}

fn shown(policy: &PolicyMeta) -> Value {
    json!({
        "vhost": policy.key.namespace,
        "name": policy.key.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to.name(),
        "priority": policy.priority,
        "definition": json::from_arguments(&policy.definition),
    })
}

pub(super) fn describe(ask: &Ask, operator: bool, named: &Named) -> Result<Answer> {
    ask.need_namespace(&named.namespace).map_err(|_| Failure::nothing_there())?;
    let all = ask.broker.policies(&named.namespace, operator)?;
    let found = all.iter().find(|policy| policy.key.name == named.name);
    let found = found.ok_or_else(Failure::nothing_there)?;
    Ok(Answer::Json(listing::with_columns(shown(found), &ask.query)))
}

pub(super) async fn put(ask: &Ask, operator: bool, named: &Named) -> Result<Answer> {
    need_maker(ask, operator)?;
    ask.need_entry(&named.namespace)?;
    let policy = read(&ask.object()?, operator, named)?;
    let is_there =
        ask.broker.policies(&named.namespace, operator)?.iter().any(|known| known.key == policy.key);
    ask.broker.put_policy(policy).await?;
    Ok(if is_there { Answer::Done } else { Answer::Created(None) })
}

pub(super) async fn delete(ask: &Ask, operator: bool, named: &Named) -> Result<Answer> {
    need_maker(ask, operator)?;
    ask.need_entry(&named.namespace).map_err(|_| Failure::nothing_there())?;
    let Named { namespace, name } = named.clone();
    ask.broker.delete_policy(PolicyKey { namespace, operator, name }).await?;
    Ok(Answer::Done)
}

fn need_maker(ask: &Ask, operator: bool) -> Result<()> {
    if operator { ask.user.need_administrator() } else { ask.user.need_policymaker() }
}

/// A policy as a body, or a definition, describes it.
pub(super) fn read(body: &Map<String, Value>, operator: bool, named: &Named) -> Result<PolicyMeta> {
    let Named { namespace, name } = named.clone();
    let apply_to = json::some_text(body, "apply-to")?.unwrap_or(ApplyTo::default().name());
    let apply_to = ApplyTo::from_name(apply_to).ok_or_else(|| {
        Failure::bad_request(format!("there is nothing that policies apply to of the name '{apply_to}'"))
    })?;
    let priority = match body.get("priority") {
        None | Some(Value::Null) => 0,
        Some(number) => number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| Failure::bad_request("'priority' must be a whole number"))?,
    };
    if !body.get("definition").is_some_and(Value::is_object) {
        return Err(Failure::bad_request("'definition' must be an object"));
    }
    let pattern = json::need_text(body, "pattern")?.to_owned();
    let definition = json::arguments(body, "definition")?;
    Ok(PolicyMeta { key: PolicyKey { namespace, operator, name }, pattern, apply_to, priority, definition })
}
