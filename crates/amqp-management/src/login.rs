//! Who asks, and what the user may do here: HTTP's basic authentication, and the roles of RabbitMQ's management API.
//!
//! How users are known is behind [`Doorkeeper`], and nowhere else.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_access::Management;
use weir_model::queue::DEFAULT_NAMESPACE;

use crate::failure::{Failure, Result};

/// A user who has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub name: String,
    pub tags: Vec<String>,
}

/// What is asked of whoever knows the users.
pub(crate) trait Doorkeeper: std::fmt::Debug + Send + Sync {
    /// The user of these credentials, if there is one who may log in from there.
    fn admit(&self, user: &str, password: &[u8], peer: IpAddr) -> Option<User>;

    /// All users, in the order of their names.
    fn users(&self) -> Vec<User>;

    /// Whether a user may work in a namespace.
    fn may_enter(&self, user: &User, namespace: &str) -> bool;
}

/// Until users are known here: the default user, over loopback, in the default namespace.
#[derive(Debug)]
pub(crate) struct DefaultUser;

const GUEST: &str = "guest";

impl Doorkeeper for DefaultUser {
    fn admit(&self, user: &str, password: &[u8], peer: IpAddr) -> Option<User> {
        let admitted = peer.to_canonical().is_loopback() && (user, password) == (GUEST, GUEST.as_bytes());
        admitted.then(|| self.users()).and_then(|users| users.into_iter().next())
    }

    fn users(&self) -> Vec<User> {
        vec![User { name: GUEST.into(), tags: vec!["administrator".into()] }]
    }

    fn may_enter(&self, user: &User, namespace: &str) -> bool {
        user.name == GUEST && namespace == DEFAULT_NAMESPACE
    }
}

impl User {
    fn roles(&self) -> Management {
        Management::of(&self.tags)
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
}

fn allowed(is: bool, otherwise: &str) -> Result<()> {
    if is { Ok(()) } else { Err(Failure::not_authorised(otherwise)) }
}

/// The user that a request names and proves to be.
pub(crate) fn log_in(doorkeeper: &dyn Doorkeeper, headers: &HeaderMap, peer: IpAddr) -> Result<User> {
    let failed = || Failure::not_authorised("Login failed");
    let (name, password) = credentials(headers).ok_or_else(failed)?;
    let Some(user) = doorkeeper.admit(&name, &password, peer) else {
        tracing::warn!(%peer, user = name.chars().take(NAME_SAID_MAX).collect::<String>(), "a login was refused");
        return Err(failed());
    };
    allowed(user.roles().may_use, "Not management user")?;
    Ok(user)
}

/// Letters of a name that goes to the log although nobody has it.
const NAME_SAID_MAX: usize = 64;

/// RFC 7617: `Basic`, and name and password with a colon between them, in base64.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (name, password) = decoded.split_at(colon);
    Some((std::str::from_utf8(name).ok()?.to_owned(), password.get(1..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
        headers
    }

    #[test]
    fn the_default_user_logs_in_over_loopback() {
        let log_in = |authorization: &str, peer: [u8; 4]| {
            log_in(&DefaultUser, &headers(authorization), IpAddr::from(peer)).map(|user| user.name)
        };
        let refused = Err(Failure::not_authorised("Login failed"));
        assert_eq!(log_in("Basic Z3Vlc3Q6Z3Vlc3Q=", [127, 0, 0, 1]), Ok("guest".into()));
        assert_eq!(log_in("basic Z3Vlc3Q6Z3Vlc3Q=", [127, 0, 0, 1]), Ok("guest".into()));
        assert_eq!(log_in("Basic Z3Vlc3Q6Z3Vlc3Q=", [10, 0, 0, 1]), refused);
        for wrong in ["Basic Z3Vlc3Q6", "Basic Z3Vlc3Q=", "Basic !", "Bearer Z3Vlc3Q6Z3Vlc3Q=", "Basic"] {
            assert_eq!(log_in(wrong, [127, 0, 0, 1]), refused, "{wrong}");
        }
        assert_eq!(super::log_in(&DefaultUser, &HeaderMap::new(), IpAddr::from([127, 0, 0, 1])).ok(), None);
    }

    #[test]
    fn roles_come_from_tags() {
        let user = |tag: &str| User { name: "ann".into(), tags: vec![tag.into()] };
        assert!(user("administrator").need_administrator().is_ok() && user("administrator").may_monitor());
        assert!(
            user("monitoring").need_administrator().is_err() && user("monitoring").need_monitor().is_ok()
        );
        assert!(user("management").need_monitor().is_err());
    }
}
