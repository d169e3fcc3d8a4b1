//! `/api/exchanges`.

use serde_json::{Value, json};
use weir_broker::topology::{ExchangeDeclaration, check_equivalent_exchange, check_not_reserved};
use weir_broker::{Operation, Parties};
use weir_model::routing::ExchangeMeta;

use super::put;
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::listing;
use crate::resource::Named;

/// How an exchange routes where its declaration does not say.
const KIND_DEFAULT: &str = "direct";

pub(super) fn list(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    let mut all = Vec::new();
    for namespace in ask.one_or_all(namespace)? {
        all.push(default_exchange(&namespace));
        for exchange in ask.broker.router(&namespace)?.exchanges() {
            all.push(shown_with_policy(ask, &exchange)?);
        }
    }
    Ok(Answer::Json(listing::list(all, &ask.query, &["vhost", "name"])?))
}

pub(super) fn shown(exchange: &ExchangeMeta) -> Value {
    json!({
        "name": exchange.name,
        "vhost": exchange.namespace,
        "type": exchange.kind.name(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": json::from_arguments(&exchange.arguments),
    })
}

/// An exchange, and the policy that counts for it.
fn shown_with_policy(ask: &Ask, exchange: &ExchangeMeta) -> Result<Value> {
    let mut shown = shown(exchange);
    let policy = ask.broker.policy_of_exchange(&exchange.namespace, &exchange.name)?;
    put(&mut shown, "policy", policy.map(|policy| policy.key.name.clone()));
    Ok(shown)
}

/// The exchange without a name, which routes to the queue that the key names. It is stored nowhere.
fn default_exchange(namespace: &str) -> Value {
    json!({
        "name": "",
        "vhost": namespace,
        "type": KIND_DEFAULT,
        "durable": true,
        "auto_delete": false,
        "internal": false,
        "arguments": {},
    })
}

/// Refuses an exchange that is not there.
pub(super) fn need(ask: &Ask, named: &Named) -> Result<Value> {
    ask.need_namespace(&named.namespace).map_err(|_| Failure::nothing_there())?;
    if named.name.is_empty() {
        return Ok(default_exchange(&named.namespace));
    }
    let router = ask.broker.router(&named.namespace)?;
    let exchange = router.exchange(&named.name).ok_or_else(Failure::nothing_there)?;
    shown_with_policy(ask, exchange)
}

pub(super) fn describe(ask: &Ask, named: &Named) -> Result<Answer> {
    Ok(Answer::Json(listing::with_columns(need(ask, named)?, &ask.query)))
}

/// The default exchange is nobody's to change.
pub(super) fn refuse_default(name: &str) -> Result<()> {
    match name.is_empty() {
        true => Err(Failure::not_authorised("operation not permitted on the default exchange")),
        false => Ok(()),
    }
}

pub(super) async fn declare(ask: &Ask, named: &Named) -> Result<Answer> {
    let Named { namespace, name } = named;
    ask.need_entry(namespace)?;
    refuse_default(name)?;
    ask.user.check(namespace, Operation::ExchangeDeclare, Parties::one(name))?;
    let body = ask.object()?;
    let declaration = ExchangeDeclaration {
        kind: json::some_text(&body, "type")?.unwrap_or(KIND_DEFAULT).to_owned(),
        durable: json::flag(&body, "durable")?,
        auto_delete: json::flag(&body, "auto_delete")?,
        internal: json::flag(&body, "internal")?,
        arguments: json::arguments(&body, "arguments")?,
    };
    let wanted = declaration.meta(namespace, name)?;
    let known = ask.broker.router(namespace)?.exchange(name).cloned();
    if let Some(known) = known {
        check_equivalent_exchange(&known, &wanted)?;
        return Ok(Answer::Done);
    }
    check_not_reserved("exchange", name)?;
    if let Some(alternate) = &wanted.alternate_exchange {
        let parties = Parties::two(name, alternate);
        ask.user.check(namespace, Operation::ExchangeDeclareAlternate, parties)?;
    }
    let there = ask.broker.declare_exchange(wanted.clone()).await?;
    check_equivalent_exchange(&there, &wanted)?;
    Ok(Answer::Created(None))
}

pub(super) async fn delete(ask: &Ask, named: &Named) -> Result<Answer> {
    ask.need_entry(&named.namespace).map_err(|_| Failure::nothing_there())?;
    need(ask, named)?;
    refuse_default(&named.name)?;
    ask.user.check(&named.namespace, Operation::ExchangeDelete, Parties::one(&named.name))?;
    check_not_reserved("exchange", &named.name)?;
    let if_unused = ask.query.is_true("if-unused");
    ask.broker.delete_exchange(&named.namespace, &named.name, if_unused).await?;
    Ok(Answer::Done)
}
