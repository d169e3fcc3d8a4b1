//! What the connection's user may do. What each operation needs is `weir-access`'s to say; here are the names that it is
//! about.

use weir_amqp_wire::{BasicProperties, ReplyCode, Table, Value};
use weir_broker::{Operation, Parties};
use weir_model::routing::{ExchangeKind, ExchangeMeta, RoutingKind};

use super::{Connection, Ended};
use crate::errors::Failure;

impl Connection {
    /// Takes the pass over into the users and permissions of now.
    pub(super) fn renew_pass(&mut self) -> Result<(), Ended> {
        let access = self.front.broker.access();
        if access.is_same(&self.access) {
            return Ok(());
        }
        let (user, namespace) = (self.pass.user().to_owned(), &self.namespace);
        let renewed = self.pass.renew(&access);
        let words = match renewed {
            Ok(()) => None,
            Err(_) if access.user(&user).is_none() => Some(format!("user '{user}' is deleted")),
            Err(_) if access.namespace(namespace).is_none() => {
                Some(format!("vhost '{namespace}' is deleted"))
            }
            Err(forbidden) => Some(forbidden.to_string()),
        };
        self.access = access;
        match words {
            None => Ok(()),
            Some(words) => Err(Ended::Failed(Failure::new(ReplyCode::ConnectionForced, words), 0, 0)),
        }
    }

    /// Checks that the user may do this.
    pub(super) fn check(&mut self, operation: Operation, parties: Parties<'_>) -> Result<(), Failure> {
        Ok(self.pass.check(operation, parties)?)
    }

    /// Checks that the user may use these keys with the exchange in an operation, if it is one of type `topic`.
    pub(super) fn check_keys<'a>(
        &mut self,
        operation: Operation,
        parties: Parties<'_>,
        exchange: &str,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), Failure> {
        if !self.router()?.exchange(exchange).is_some_and(|meta| is_topic(meta)) {
            return Ok(());
        }
        Ok(keys.into_iter().try_for_each(|key| self.pass.check_routing(operation, parties, key))?)
    }
}

fn is_topic(meta: &ExchangeMeta) -> bool {
    meta.kind == ExchangeKind::Plain(RoutingKind::Topic)
}

/// The further keys of a message, as far as they can be read: its headers `CC` and `BCC`.
pub(super) fn further_keys(properties: &BasicProperties) -> impl Iterator<Item = &[u8]> {
    let headers: Option<&Table> = properties.headers.as_ref();
    let values =
        ["CC", "BCC"].into_iter().filter_map(move |name| headers?.get(name)).filter_map(
            |value| match value {
                Value::Array(values) => Some(values),
                _ => None,
            },
        );
    values.flatten().filter_map(|value| value.as_bytes().map(|bytes| &bytes[..]))
}
