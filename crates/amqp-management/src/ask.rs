//! A request whose user is known, with what it brings along.

use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::{Map, Value};
use weir_broker::Broker;

use crate::failure::{Failure, Result};
use crate::json;
use crate::login::{Doorkeeper, User};

/// Pairs in a query that are looked at; more are passed over.
const QUERY_PAIRS_MAX: usize = 64;

/// A request.
pub(crate) struct Ask {
    pub broker: Arc<Broker>,
    pub doorkeeper: Arc<dyn Doorkeeper>,
    pub user: User,
    pub headers: HeaderMap,
    pub query: Query,
    pub body: Bytes,
}

/// What stands behind the question mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Query {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let parsed = pairs.take(QUERY_PAIRS_MAX).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (json::unquote_plus(name), json::unquote_plus(value))
        });
        Query(parsed.collect())
    }

    /// The first value of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the value of this name is `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

impl Ask {
    /// The body: an object. No body, and `null`, are an empty one, as in RabbitMQ.
    pub(crate) fn object(&self) -> Result<Map<String, Value>> {
        object(&self.body)
    }

    /// Refuses a namespace that is not there, or that the user may not enter.
    pub(crate) fn need_namespace(&self, namespace: &str) -> Result<()> {
        let there = self.broker.namespaces()?.contains(namespace);
        if there && (self.doorkeeper.may_enter(&self.user, namespace) || self.user.may_monitor()) {
            Ok(())
        } else {
            Err(Failure::not_found("vhost_not_found"))
        }
    }

    /// Refuses a namespace that is not there, or in which the user may change nothing.
    pub(crate) fn need_entry(&self, namespace: &str) -> Result<()> {
        let there = self.broker.namespaces()?.contains(namespace);
        let may = self.doorkeeper.may_enter(&self.user, namespace) || self.user.need_administrator().is_ok();
        if there && may { Ok(()) } else { Err(Failure::not_found("vhost_not_found")) }
    }

    /// The namespaces that the user may see.
    pub(crate) fn namespaces(&self) -> Result<Vec<String>> {
        let all = self.broker.namespaces()?.into_iter();
        let seen =
            |namespace: &String| self.user.may_monitor() || self.doorkeeper.may_enter(&self.user, namespace);
        Ok(all.filter(seen).collect())
    }

    /// One namespace if one is named, and otherwise all that the user may see.
    pub(crate) fn one_or_all(&self, namespace: Option<&str>) -> Result<Vec<String>> {
        match namespace {
            None => self.namespaces(),
            Some(namespace) => {
                self.need_namespace(namespace).map_err(|_| Failure::nothing_there())?;
                Ok(vec![namespace.to_owned()])
            }
        }
    }
}

/// Reads a body as an object.
fn object(body: &[u8]) -> Result<Map<String, Value>> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::String(_)) => Err(Failure::bad_request(
            "the body is a JSON string, not an object; it may have been encoded twice",
        )),
        Ok(_) | Err(_) => Err(Failure::bad_request("not_json")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        let query = Query::parse(Some("page=2&name=a+b%2Fc&if-empty=true&flag&page=3"));
        assert_eq!(query.get("page"), Some("2"));
        assert_eq!(query.get("name"), Some("a b/c"));
        assert_eq!((query.get("flag"), query.get("sort")), (Some(""), None));
        assert!(query.is_true("if-empty") && !query.is_true("if-unused"));
        assert_eq!(Query::parse(None).get(""), None);
    }

    #[test]
    fn a_body_is_an_object_or_nothing() {
        for nothing in ["", "null", "{}"] {
            assert_eq!(object(nothing.as_bytes()), Ok(Map::new()));
        }
        for wrong in ["[]", "1", "\"{}\"", "{", "\u{feff}"] {
            assert!(object(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
