//! `/api/whoami`, `/api/users`, `/api/permissions`, `/api/topic-permissions`.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use weir_access::{export_password, import_password, portable_form, verify_password};
use weir_broker::Broker;
use weir_model::access::{
    AccessChange, DEFAULT_USER, PasswordHash, PermissionMeta, TopicPermissionMeta, UserMeta,
};

use super::put;
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::listing;
use crate::login::User;
use crate::resource::Of;

/// How a hash was made that does not say so, as in RabbitMQ.
const ALGORITHM_DEFAULT: &str = "rabbit_password_hashing_sha256";

pub(super) fn who_am_i(user: &User) -> Value {
    json!({ "name": user.name(), "tags": user.tags(), "is_internal_user": true })
}

pub(super) fn list(ask: &Ask) -> Result<Answer> {
    ask.user.need_administrator()?;
    let users = ask.broker.access_records()?.users;
    let users = users.iter().map(|user| shown(user)).collect();
    Ok(Answer::Json(listing::list(users, &ask.query, &["name"])?))
}

pub(super) fn describe(ask: &Ask, name: &str) -> Result<Answer> {
    if ask.user.name() != name {
        ask.user.need_administrator()?;
    }
    let access = ask.broker.access();
    let user = access.user(name).ok_or_else(Failure::nothing_there)?;
    Ok(Answer::Json(listing::with_columns(shown(user), &ask.query)))
}

/// A user as it is listed, and as definitions have it.
pub(super) fn shown(user: &UserMeta) -> Value {
    let mut limits = json!({});
    put(&mut limits, "max-connections", user.limits.connections_max);
    put(&mut limits, "max-channels", user.limits.channels_max);
    let hash = portable_form(&user.passwords);
    let mut shown = json!({
        "name": user.name,
        "password_hash": hash.map(export_password).unwrap_or_default(),
        "tags": user.tags,
        "limits": limits,
    });
    put(&mut shown, "hashing_algorithm", hash.map(|hash| hash.algorithm.name()));
    shown
}

pub(super) async fn declare(ask: &Ask, name: &str) -> Result<Answer> {
    ask.user.need_administrator()?;
    let body = ask.object()?;
    if !body.contains_key("tags") {
        return Err(Failure::bad_request("the key 'tags' is missing"));
    }
    let known = ask.broker.access().user(name).cloned();
    let mut user = read(&ask.broker, &body, name).await?;
    if let Some(known) = &known {
        user.limits = known.limits;
    }
    ask.broker.change_access(AccessChange::PutUser { user, new: false }).await?;
    Ok(if known.is_some() { Answer::Done } else { Answer::Created(None) })
}

/// A user as a body, or a definition, describes it. One without a password cannot log in with one.
pub(super) async fn read(broker: &Broker, body: &Map<String, Value>, name: &str) -> Result<UserMeta> {
    let passwords = match (json::some_text(body, "password")?, json::some_text(body, "password_hash")?) {
        (Some(password), _) => broker.hash_password(Bytes::copy_from_slice(password.as_bytes())).await?,
        (None, Some(hash)) => {
            let algorithm = json::some_text(body, "hashing_algorithm")?.unwrap_or(ALGORITHM_DEFAULT);
            let imported = import_password(algorithm, hash);
            imported.map_err(|error| Failure::bad_request(error.to_string()))?.into_iter().collect()
        }
        (None, None) => Vec::new(),
    };
    let passwords = as_known(broker, name, passwords);
    let tags = json::words(body, "tags")?;
    Ok(UserMeta { name: name.to_owned(), passwords, tags, ..UserMeta::default() })
}

/// A definition has one form of a password where several may be stored: one that is among them means all of them. And
/// the password that everybody knows means the beginning, in which nobody has to log in: importing what an unchanged
/// RabbitMQ exports changes nothing about that.
fn as_known(broker: &Broker, name: &str, passwords: Vec<PasswordHash>) -> Vec<PasswordHash> {
    let initial = UserMeta::initial();
    let is_default = |hash: &PasswordHash| verify_password(hash, DEFAULT_USER.as_bytes());
    if name == initial.name && passwords.iter().any(is_default) {
        return initial.passwords;
    }
    match broker.access().user(name) {
        Some(known) if passwords.iter().any(|hash| known.passwords.contains(hash)) => known.passwords.clone(),
        _ => passwords,
    }
}

pub(super) async fn delete(ask: &Ask, name: &str) -> Result<Answer> {
    ask.user.need_administrator()?;
    if ask.broker.access().user(name).is_none() {
        return Err(Failure::nothing_there());
    }
    ask.broker.change_access(AccessChange::DeleteUser { name: name.to_owned() }).await?;
    Ok(Answer::Done)
}

/// Of these, those that are asked for. Who or what is named must be there.
fn chosen(ask: &Ask, of: &Of, all: Vec<Value>) -> Result<Vec<Value>> {
    ask.user.need_administrator()?;
    let access = ask.broker.access();
    let (namespace, user) = match of {
        Of::All => (None, None),
        Of::User(user) => (None, Some(user)),
        Of::Namespace(namespace) => (Some(namespace), None),
        Of::Both { namespace, user } => (Some(namespace), Some(user)),
    };
    let there = namespace.is_none_or(|name| access.namespace(name).is_some())
        && user.is_none_or(|name| access.user(name).is_some());
    if !there {
        return Err(Failure::nothing_there());
    }
    let is = |one: &Value, field: &str, wanted: Option<&String>| {
        wanted.is_none_or(|wanted| one[field] == *wanted.as_str())
    };
    Ok(all.into_iter().filter(|one| is(one, "vhost", namespace) && is(one, "user", user)).collect())
}

pub(super) fn list_permissions(ask: &Ask, of: &Of) -> Result<Answer> {
    let mut found = chosen(ask, of, permissions(&ask.broker)?)?;
    if matches!(of, Of::Both { .. }) {
        let one = found.pop().ok_or_else(Failure::nothing_there)?;
        return Ok(Answer::Json(listing::with_columns(one, &ask.query)));
    }
    Ok(Answer::Json(listing::list(found, &ask.query, &["vhost", "user"])?))
}

pub(super) fn list_topic_permissions(ask: &Ask, of: &Of) -> Result<Answer> {
    let found = chosen(ask, of, topic_permissions(&ask.broker)?)?;
    if matches!(of, Of::Both { .. }) && found.is_empty() {
        return Err(Failure::nothing_there());
    }
    Ok(Answer::Json(listing::list(found, &ask.query, &["vhost", "user", "exchange"])?))
}

/// What users may do in namespaces.
pub(super) fn permissions(broker: &Broker) -> Result<Vec<Value>> {
    let permissions = broker.access_records()?.permissions;
    let shown = permissions.iter().map(|permission| {
        json!({
            "user": permission.user,
            "vhost": permission.namespace,
            "configure": permission.configure,
            "write": permission.write,
            "read": permission.read,
        })
    });
    Ok(shown.collect())
}

/// Which routing keys users may use.
pub(super) fn topic_permissions(broker: &Broker) -> Result<Vec<Value>> {
    let permissions = broker.access_records()?.topic_permissions;
    let shown = permissions.iter().map(|permission| {
        json!({
            "user": permission.user,
            "vhost": permission.namespace,
            "exchange": permission.exchange,
            "write": permission.write,
            "read": permission.read,
        })
    });
    Ok(shown.collect())
}

/// Refuses permissions of whom or where there is none.
fn need_both(ask: &Ask, namespace: &str, user: &str) -> Result<()> {
    ask.user.need_administrator()?;
    let access = ask.broker.access();
    if access.namespace(namespace).is_none() {
        return Err(Failure::not_found("vhost_not_found"));
    }
    match access.user(user) {
        Some(_) => Ok(()),
        None => Err(Failure::bad_request(format!("there is no user '{user}'"))),
    }
}

pub(super) async fn permit(ask: &Ask, namespace: &str, user: &str) -> Result<Answer> {
    need_both(ask, namespace, user)?;
    let permission = read_permission(&ask.object()?, namespace, user)?;
    let is_new =
        !permissions(&ask.broker)?.iter().any(|one| one["vhost"] == *namespace && one["user"] == *user);
    ask.broker.change_access(AccessChange::PutPermission { permission }).await?;
    Ok(if is_new { Answer::Created(None) } else { Answer::Done })
}

/// A permission as a body, or a definition, has it.
pub(super) fn read_permission(
    body: &Map<String, Value>,
    namespace: &str,
    user: &str,
) -> Result<PermissionMeta> {
    let text = |name: &str| json::need_text(body, name).map(str::to_owned);
    Ok(PermissionMeta {
        user: user.to_owned(),
        namespace: namespace.to_owned(),
        configure: text("configure")?,
        write: text("write")?,
        read: text("read")?,
    })
}

pub(super) async fn forbid(ask: &Ask, namespace: &str, user: &str) -> Result<Answer> {
    let of = Of::Both { namespace: namespace.to_owned(), user: user.to_owned() };
    if chosen(ask, &of, permissions(&ask.broker)?)?.is_empty() {
        return Err(Failure::nothing_there());
    }
    let change = AccessChange::DeletePermission { user: user.to_owned(), namespace: namespace.to_owned() };
    ask.broker.change_access(change).await?;
    Ok(Answer::Done)
}

pub(super) async fn permit_topics(ask: &Ask, namespace: &str, user: &str) -> Result<Answer> {
    need_both(ask, namespace, user)?;
    let permission = read_topic_permission(&ask.object()?, namespace, user)?;
    let known = topic_permissions(&ask.broker)?;
    let is_new = !known.iter().any(|one| {
        one["vhost"] == *namespace && one["user"] == *user && one["exchange"] == *permission.exchange.as_str()
    });
    ask.broker.change_access(AccessChange::PutTopicPermission { permission }).await?;
    Ok(if is_new { Answer::Created(None) } else { Answer::Done })
}

/// A topic permission as a body, or a definition, has it.
pub(super) fn read_topic_permission(
    body: &Map<String, Value>,
    namespace: &str,
    user: &str,
) -> Result<TopicPermissionMeta> {
    let text = |name: &str| json::need_text(body, name).map(str::to_owned);
    Ok(TopicPermissionMeta {
        user: user.to_owned(),
        namespace: namespace.to_owned(),
        exchange: text("exchange")?,
        write: text("write")?,
        read: text("read")?,
    })
}

pub(super) async fn forbid_topics(ask: &Ask, namespace: &str, user: &str) -> Result<Answer> {
    let of = Of::Both { namespace: namespace.to_owned(), user: user.to_owned() };
    if chosen(ask, &of, topic_permissions(&ask.broker)?)?.is_empty() {
        return Err(Failure::nothing_there());
    }
    let (user, namespace) = (user.to_owned(), namespace.to_owned());
    ask.broker.change_access(AccessChange::DeleteTopicPermission { user, namespace, exchange: None }).await?;
    Ok(Answer::Done)
}
