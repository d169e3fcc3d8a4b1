//! Errors: `{error, reason}` with RabbitMQ's status codes.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use weir_broker::AccessError;
use weir_broker::errors::{AdminError, LookupError, PublishError, Unavailable};
use weir_broker::queues::{GetError, QueueGone};
use weir_broker::topology::{PolicyError, TopologyError, Undeclarable, Unrouted};

/// What a browser is told when it must log in.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"RabbitMQ Management\"");

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    status: StatusCode,
    error: &'static str,
    reason: String,
}

/// What handlers come to.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: StatusCode, error: &'static str, reason: impl Into<String>) -> Failure {
        Failure { status, error, reason: reason.into() }
    }

    /// There is nothing of this path, in the words that RabbitMQ has for it.
    pub(crate) fn nothing_there() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "Object Not Found", "Not Found")
    }

    /// Something that the request names is not there.
    pub(crate) fn not_found(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub(crate) fn bad_request(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    /// An AMQP error, as RabbitMQ quotes it: number, name, words.
    pub(crate) fn amqp(code: weir_amqp_wire::ReplyCode, words: impl std::fmt::Display) -> Failure {
        Failure::bad_request(format!("{} {} - {words}", code.number(), code.name()))
    }

    /// Nobody who may use the API has said who asks. RabbitMQ spells it like this here, and otherwise below.
    pub(crate) fn login_failed() -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, "not_authorized", "Login failed")
    }

    /// The user may not do this.
    pub(crate) fn not_authorised(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, "not_authorised", reason)
    }

    /// It is part of RabbitMQ's API, and Weir does not do it.
    pub(crate) fn not_served(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
    }

    /// The same, and what it is about.
    pub(crate) fn of(self, what: &str) -> Failure {
        Failure { reason: format!("{what}: {}", self.reason), ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": self.error, "reason": self.reason }));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        response
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", error.to_string())
    }
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Failure {
        match error {
            LookupError::Unavailable(unavailable) => unavailable.into(),
            LookupError::NotOpen { .. } => Unavailable::Starting.into(),
            LookupError::UnknownPartition { .. } => Failure::nothing_there(),
        }
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Failure {
        match error {
            AccessError::Admin(error) => error.into(),
            AccessError::Unacceptable(_) | AccessError::Refused(_) => Failure::bad_request(error.to_string()),
        }
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        match error {
            AdminError::Unavailable(unavailable) => unavailable.into(),
            AdminError::UnknownTopic(_) => Failure::nothing_there(),
            other => Failure::bad_request(other.to_string()),
        }
    }
}

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Failure {
        match error {
            TopologyError::NoSuchQueue(_) | TopologyError::NoSuchExchange(_) => {
                Failure::not_found(error.to_string())
            }
            TopologyError::NotAQueue(_)
            | TopologyError::Stream(_)
            | TopologyError::InUse(_)
            | TopologyError::Argument(_)
            | TopologyError::Binding(_) => Failure::bad_request(error.to_string()),
            TopologyError::Admin(error) => error.into(),
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        match error {
            PolicyError::Admin(error) => error.into(),
            PolicyError::NoSuchPolicy(_) => Failure::nothing_there(),
            other => Failure::bad_request(other.to_string()),
        }
    }
}

impl From<Undeclarable> for Failure {
    fn from(error: Undeclarable) -> Failure {
        match error {
            Undeclarable::Refused(words) => Failure::not_authorised(words),
            Undeclarable::Locked(words) | Undeclarable::Precondition(words) => Failure::bad_request(words),
            Undeclarable::NotServed(words) => Failure::not_served(words),
        }
    }
}

impl From<QueueGone> for Failure {
    fn from(error: QueueGone) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", error.to_string())
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Failure {
        match error {
            GetError::Gone(gone) => gone.into(),
            GetError::Unreadable(_) | GetError::Elsewhere(_) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Failure::new(status, "internal_server_error", error.to_string())
            }
        }
    }
}

impl From<Unrouted> for Failure {
    fn from(error: Unrouted) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", error.to_string())
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Failure {
        match error {
            PublishError::Unavailable(unavailable) => unavailable.into(),
            other => Failure::bad_request(format!("rejected: the message was not published: {other}")),
        }
    }
}
