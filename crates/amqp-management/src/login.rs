//! Who asks, and what the user may do here: HTTP's basic authentication, the roles of RabbitMQ's management API, and the
//! permissions of AMQP for what is done through it.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use weir_access::Management;
use weir_broker::{Broker, Identity, Operation, Parties, Pass, Peer};

use crate::failure::{Failure, Result};

/// A user who has logged in, or nobody where that is enough.
#[derive(Clone, Debug)]
pub(crate) struct User(Option<Identity>);

/// Letters of a name that goes to the log although nobody has it.
const NAME_SAID_MAX: usize = 64;

impl User {
    /// Nobody.
    pub(crate) fn nobody() -> User {
        User(None)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("", Identity::name)
    }

    pub(crate) fn tags(&self) -> &[String] {
        self.0.as_ref().map_or(&[], Identity::tags)
    }

    fn roles(&self) -> Management {
        self.0.as_ref().map(Identity::management).unwrap_or_default()
    }

    /// Whether the user sees what is everybody's: nodes, all connections.
    pub(crate) fn may_monitor(&self) -> bool {
        self.roles().monitoring
    }

    /// Refuses who may not monitor.
    pub(crate) fn need_monitor(&self) -> Result<()> {
        allowed(self.roles().monitoring, "Not monitor user")
    }

    /// Refuses who may not administer.
    pub(crate) fn need_administrator(&self) -> Result<()> {
        allowed(self.roles().administration, "Not administrator user")
    }

    /// Refuses who may not make policies.
    pub(crate) fn need_policymaker(&self) -> Result<()> {
        allowed(self.roles().policies, "Not policymaker user")
    }

    /// Whether the user may work in a namespace.
    pub(crate) fn may_enter(&self, namespace: &str) -> bool {
        self.0.as_ref().is_some_and(|identity| identity.may_enter(namespace))
    }

    /// Whether a message of the user may name this one as its sender.
    pub(crate) fn may_send_as(&self, user: &str) -> bool {
        self.0.as_ref().is_some_and(|identity| identity.may_send_as(user))
    }

    /// The user within a namespace, to ask whether AMQP would allow something there.
    pub(crate) fn enter(&self, namespace: &str) -> Result<Pass> {
        let refused = || Failure::not_authorised("Access refused.");
        let identity = self.0.as_ref().ok_or_else(refused)?;
        identity.enter(namespace).map_err(|forbidden| Failure::not_authorised(forbidden.to_string()))
    }

    /// Refuses an operation that AMQP would not allow.
    pub(crate) fn check(&self, namespace: &str, operation: Operation, parties: Parties<'_>) -> Result<()> {
        let checked = self.enter(namespace)?.check(operation, parties);
        checked.map_err(|forbidden| Failure::not_authorised(forbidden.to_string()))
    }
}

fn allowed(is: bool, otherwise: &str) -> Result<()> {
    if is { Ok(()) } else { Err(Failure::not_authorised(otherwise)) }
}

/// The user that a request names and proves to be.
pub(crate) async fn log_in(broker: &Broker, headers: &HeaderMap, peer: IpAddr) -> Result<User> {
    let (name, password) = credentials(headers).ok_or_else(Failure::login_failed)?;
    let identity = match broker.authenticate(&name, password.into(), Peer::from(peer)).await {
        Ok(identity) => identity,
        Err(denied) => {
            let name: String = name.chars().take(NAME_SAID_MAX).collect();
            tracing::warn!(%peer, name, "a login to the management API was refused: {denied}");
            return Err(Failure::login_failed());
        }
    };
    let user = User(Some(identity));
    allowed(user.roles().may_use, "Not management user")?;
    Ok(user)
}

/// RFC 7617: `Basic`, and name and password with a colon between them, in base64.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Bytes::from(STANDARD.decode(encoded.trim()).ok()?);
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (name, password) = decoded.split_at(colon);
    Some((std::str::from_utf8(name).ok()?.to_owned(), password.get(1..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_a_header() {
        let read = |authorization: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
            credentials(&headers)
        };
        let guest = Some(("guest".to_owned(), b"guest".to_vec()));
        assert_eq!(read("Basic Z3Vlc3Q6Z3Vlc3Q="), guest);
        assert_eq!(read("basic Z3Vlc3Q6Z3Vlc3Q="), guest);
        assert_eq!(read("Basic Z3Vlc3Q6"), Some(("guest".to_owned(), Vec::new())));
        assert_eq!(read("Basic YTpiOmM="), Some(("a".to_owned(), b"b:c".to_vec())));
        for wrong in ["Basic Z3Vlc3Q=", "Basic !", "Bearer Z3Vlc3Q6Z3Vlc3Q=", "Basic"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }
}
