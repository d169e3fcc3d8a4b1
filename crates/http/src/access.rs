//! Who asks, and whether that may be: Basic authentication against the cluster's users.
//!
//! As long as there is only the default user, with the password that everybody knows, nobody has to say who they are.
//! Health is for everybody always: whoever restarts a node need not know a password.

use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use weir_broker::{Identity, Peer};

use crate::error::ApiError;
use crate::front::Front;

/// Longest `Authorization` that is read, in bytes: name and password at their longest, in base64.
const AUTHORIZATION_BYTES_MAX: usize = 8 << 10;

/// Lets requests through that may be made.
pub(crate) async fn guard(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/health/") {
        return next.run(request).await;
    }
    let from = request.extensions().get::<ConnectInfo<weir_http_server::Peer>>();
    let peer = from.map_or(Peer::Remote, |ConnectInfo(peer)| Peer::from(peer.0.ip()));
    let said = credentials(request.headers());
    match who(&front, said, peer).await.and_then(|who| check(&who, request.method())) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// What a request says who it is from.
type Said = Result<Option<(String, Bytes)>, ApiError>;

async fn who(front: &Front, said: Said, peer: Peer) -> Result<Identity, ApiError> {
    match said? {
        Some((user, password)) => front.broker.authenticate(&user, password, peer).await.map_err(|denied| {
            tracing::warn!("a request to the admin API was refused: {denied}");
            ApiError::wrong_credentials()
        }),
        None => front.broker.access().anonymous().ok_or_else(ApiError::no_credentials),
    }
}

/// The name and the password of a request, if it has any.
fn credentials(headers: &HeaderMap) -> Said {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let read = || {
        let value = value.to_str().ok().filter(|value| value.len() <= AUTHORIZATION_BYTES_MAX)?;
        let (scheme, encoded) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = STANDARD.decode(encoded.trim()).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let user = String::from_utf8(decoded.get(..colon)?.to_vec()).ok()?;
        Some((user, Bytes::copy_from_slice(decoded.get(colon + 1..)?)))
    };
    match read() {
        Some(read) => Ok(Some(read)),
        None => Err(ApiError::bad_request(
            "the Authorization header cannot be read",
            "send name and password as HTTP's Basic authentication does",
        )),
    }
}

/// Whoever reads has to be allowed to see everything, and whoever changes something, to change everything.
fn check(who: &Identity, method: &Method) -> Result<(), ApiError> {
    let management = who.management();
    let (allowed, tag) = match *method {
        Method::GET | Method::HEAD => (management.monitoring, "monitoring"),
        _ => (management.administration, "administrator"),
    };
    if allowed { Ok(()) } else { Err(ApiError::not_allowed(who.name(), tag)) }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(value: &str) -> Option<Option<(String, Bytes)>> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        credentials(&headers).ok()
    }

    #[test]
    fn credentials_are_read_or_refused() {
        let ann =
            |password: &'static str| Some(Some(("ann".to_owned(), Bytes::from_static(password.as_bytes()))));
        assert_eq!(credentials(&HeaderMap::new()).ok(), Some(None));
        assert_eq!(read(&format!("Basic {}", STANDARD.encode("ann:secret"))), ann("secret"));
        assert_eq!(read(&format!("basic {}", STANDARD.encode("ann:se:cret"))), ann("se:cret"));
        assert_eq!(read(&format!("Basic {}", STANDARD.encode("ann:"))), ann(""));
        for refused in ["Basic", "Bearer abc", "Basic ***", "Basic YW5u"] {
            assert_eq!(read(refused), None, "{refused}");
        }
        assert_eq!(read(&format!("Basic {}", "A".repeat(10_000))), None);
    }
}
