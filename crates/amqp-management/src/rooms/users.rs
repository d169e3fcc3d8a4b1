//! `/api/whoami`, `/api/users`, `/api/permissions`: as far as users are known.

use serde_json::{Value, json};

use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::listing;
use crate::login::User;
use crate::resource::Of;

/// Matches every name: a user who may enter a namespace may do everything there.
const EVERYTHING: &str = ".*";

pub(super) fn who_am_i(user: &User) -> Value {
    json!({ "name": user.name, "tags": user.tags, "is_internal_user": true })
}

pub(super) fn list(ask: &Ask) -> Result<Answer> {
    ask.user.need_administrator()?;
    let users = ask.doorkeeper.users().iter().map(shown).collect();
    Ok(Answer::Json(listing::list(users, &ask.query, &["name"])?))
}

pub(super) fn describe(ask: &Ask, name: &str) -> Result<Answer> {
    if ask.user.name != name {
        ask.user.need_administrator()?;
    }
    let users = ask.doorkeeper.users();
    let user = users.iter().find(|user| user.name == name).ok_or_else(Failure::nothing_there)?;
    Ok(Answer::Json(listing::with_columns(shown(user), &ask.query)))
}

pub(super) fn list_permissions(ask: &Ask, of: &Of) -> Result<Answer> {
    ask.user.need_administrator()?;
    let all = permissions(ask)?;
    let is = |permission: &Value, field: &str, wanted: &str| permission[field] == *wanted;
    let chosen: Vec<Value> = match of {
        Of::All => all,
        Of::User(user) => all.into_iter().filter(|one| is(one, "user", user)).collect(),
        Of::Namespace(namespace) => {
            ask.need_namespace(namespace).map_err(|_| Failure::nothing_there())?;
            all.into_iter().filter(|one| is(one, "vhost", namespace)).collect()
        }
        Of::Both { namespace, user } => {
            let found = all.into_iter().find(|one| is(one, "vhost", namespace) && is(one, "user", user));
            let one = found.ok_or_else(Failure::nothing_there)?;
            return Ok(Answer::Json(listing::with_columns(one, &ask.query)));
        }
    };
    if let Of::User(name) = of
        && !ask.doorkeeper.users().iter().any(|user| user.name == *name)
    {
        return Err(Failure::nothing_there());
    }
    Ok(Answer::Json(listing::list(chosen, &ask.query, &["vhost", "user"])?))
}

/// What every user may do in every namespace.
pub(super) fn permissions(ask: &Ask) -> Result<Vec<Value>> {
    let mut permissions = Vec::new();
    for namespace in ask.broker.namespaces()? {
        for user in ask.doorkeeper.users() {
            if ask.doorkeeper.may_enter(&user, &namespace) {
                permissions.push(json!({
                    "user": user.name,
                    "vhost": namespace,
                    "configure": EVERYTHING,
                    "write": EVERYTHING,
                    "read": EVERYTHING,
                }));
            }
        }
    }
    Ok(permissions)
}

pub(super) fn shown(user: &User) -> Value {
    json!({ "name": user.name, "tags": user.tags, "limits": {} })
}
