//! Errors for programs and people: a word that does not change, a sentence, and what to do.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use weir_broker::queues::{GetError, QueueGone, RedriveError};
use weir_broker::topology::TopologyError;
use weir_broker::{AccessError, AdminError, GroupError, LookupError, PublishError, ReadError, Unavailable};
use weir_model::command::Refusal;

/// Why a request was refused.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: Body,
}

#[derive(Debug, Serialize)]
struct Body {
    /// For programs.
    error: &'static str,
    /// For people.
    message: String,
    /// What to do about it.
    remedy: String,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        error: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ApiError {
        ApiError { status, body: Body { error, message: message.into(), remedy: remedy.into() } }
    }

    pub(crate) fn bad_request(message: impl Into<String>, remedy: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message, remedy)
    }

    pub(crate) fn no_such_path() -> ApiError {
        let remedy = "there are /health/live, /health/ready, /metrics, and under /api/v1: cluster, config, groups, log, namespaces, nodes, queues, topics, users";
        ApiError::new(StatusCode::NOT_FOUND, "no_such_path", "there is nothing at this path", remedy)
    }

    pub(crate) fn no_such_method() -> ApiError {
        let message = "this path does not take this method";
        let remedy = "GET reads, POST creates or acts, PUT sets, PATCH alters, DELETE deletes";
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", message, remedy)
    }

    pub(crate) fn other_site() -> ApiError {
        let message = "a page of another site may not change anything here";
        let remedy = "use the command line, or a client that is not a browser";
        ApiError::new(StatusCode::FORBIDDEN, "other_site", message, remedy)
    }

    pub(crate) fn no_credentials() -> ApiError {
        let message = "users were created here, so that everybody has to say who they are";
        let remedy =
            "send a user's name and password as Basic authentication; `weir` takes --user and WEIR_PASSWORD";
        ApiError::new(StatusCode::UNAUTHORIZED, "not_authenticated", message, remedy)
    }

    pub(crate) fn wrong_credentials() -> ApiError {
        let message = "the name and the password are not those of a user who may connect from there";
        ApiError::new(StatusCode::UNAUTHORIZED, "wrong_credentials", message, "the node's log says more")
    }

    pub(crate) fn not_allowed(user: &str, tag: &str) -> ApiError {
        let message = format!("user '{user}' has not the tag '{tag}', which this needs");
        ApiError::new(StatusCode::FORBIDDEN, "not_allowed", message, "ask an administrator for it")
    }

    pub(crate) fn unknown_user(name: &str) -> ApiError {
        AccessError::Refused(Refusal::UnknownUser(name.to_owned())).into()
    }

    pub(crate) fn unknown_topic(name: &str) -> ApiError {
        AdminError::UnknownTopic(name.to_owned()).into()
    }

    pub(crate) fn unknown_group(name: &str) -> ApiError {
        let message = format!("there is no group '{name}'");
        ApiError::new(StatusCode::NOT_FOUND, "unknown_group", message, "GET /api/v1/groups lists the groups")
    }

    pub(crate) fn unknown_queue(name: &str) -> ApiError {
        let message = format!("there is no queue '{name}'");
        ApiError::new(StatusCode::NOT_FOUND, "unknown_queue", message, "GET /api/v1/queues lists the queues")
    }

    pub(crate) fn not_empty(name: &str) -> ApiError {
        let message = format!("the group '{name}' has members");
        let remedy = "stop its consumers, wait until their session timeout has passed, and try again";
        ApiError::new(StatusCode::CONFLICT, "not_empty", message, remedy)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let asks = self.status == StatusCode::UNAUTHORIZED;
        let mut response = (self.status, Json(self.body)).into_response();
        if asks {
            let basic = HeaderValue::from_static("Basic realm=\"weir\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
        }
        response
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> ApiError {
        let refusal = match error {
            AccessError::Unacceptable(why) => {
                return ApiError::bad_request(why.to_string(), "change what is said there");
            }
            AccessError::Admin(error) => return error.into(),
            AccessError::Refused(refusal) => refusal,
        };
        let conflict = StatusCode::CONFLICT;
        let (status, word, remedy) = match &refusal {
            Refusal::UnknownUser(_) => {
                (StatusCode::NOT_FOUND, "unknown_user", "GET /api/v1/users lists the users")
            }
            Refusal::UserExists(_) => {
                (conflict, "user_exists", "choose another name, or change the one that is there")
            }
            Refusal::LastAdministrator(_) => {
                (conflict, "last_administrator", "create another user with the tag 'administrator' first")
            }
            Refusal::UnknownNamespace(_) => {
                (StatusCode::NOT_FOUND, "unknown_namespace", "GET /api/v1/namespaces lists the namespaces")
            }
            Refusal::NamespaceExists(_) => (conflict, "namespace_exists", "choose another name"),
            _ => (conflict, "in_use", "the default namespace stays; for others try again"),
        };
        ApiError::new(status, word, refusal.to_string(), remedy)
    }
}

impl From<Unavailable> for ApiError {
    fn from(error: Unavailable) -> ApiError {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (status, word, remedy) = match &error {
            Unavailable::NotLeader { .. } => {
                (unavailable, "not_leader", "ask the node that leads, or try again")
            }
            Unavailable::Starting => (unavailable, "starting", "try again in a moment"),
            Unavailable::Overloaded => (unavailable, "overloaded", "try again in a moment"),
            Unavailable::DiskFull => (
                StatusCode::INSUFFICIENT_STORAGE,
                "disk_full",
                "delete topics or records, lower their retention, or add disk space",
            ),
            Unavailable::TimedOut => {
                (StatusCode::GATEWAY_TIMEOUT, "timed_out", "look whether it took effect before trying again")
            }
            Unavailable::TooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "ask for less at a time")
            }
            Unavailable::ShuttingDown => (unavailable, "shutting_down", "try again when the node is back"),
            Unavailable::Stopped(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "stopped",
                "read the node's log; the shard needs an operator",
            ),
        };
        ApiError::new(status, word, error.to_string(), remedy)
    }
}

impl From<AdminError> for ApiError {
    fn from(error: AdminError) -> ApiError {
        let message = error.to_string();
        let (status, word, remedy) = match error {
            AdminError::Unavailable(error) => return error.into(),
            AdminError::InvalidName(_) => (
                StatusCode::BAD_REQUEST,
                "invalid_name",
                "choose a name of letters, digits, '.', '_' and '-'",
            ),
            AdminError::TopicExists(_) => {
                (StatusCode::CONFLICT, "topic_exists", "choose another name, or alter the topic that exists")
            }
            AdminError::UnknownTopic(_) => {
                (StatusCode::NOT_FOUND, "unknown_topic", "GET /api/v1/topics lists the topics")
            }
            AdminError::UnknownPartition { .. } => {
                (StatusCode::NOT_FOUND, "unknown_partition", "GET /api/v1/topics/NAME lists its partitions")
            }
            AdminError::InvalidPartitions(_) => (
                StatusCode::BAD_REQUEST,
                "invalid_partitions",
                "the number can only be raised, within the limit",
            ),
            AdminError::InvalidReplication(_) => {
                (StatusCode::BAD_REQUEST, "invalid_replication", "leave the number of replicas out")
            }
            AdminError::InvalidConfig(_) => (
                StatusCode::BAD_REQUEST,
                "invalid_config",
                "GET /api/v1/topics/NAME lists every setting of a topic",
            ),
            AdminError::OffsetOutOfRange { .. } => {
                (StatusCode::BAD_REQUEST, "offset_out_of_range", "choose an offset within the range")
            }
            AdminError::UnknownNode(_) => {
                (StatusCode::NOT_FOUND, "unknown_node", "GET /api/v1/cluster lists the nodes")
            }
            AdminError::LastNode(_) => (StatusCode::CONFLICT, "last_node", "have another node join first"),
            AdminError::Limit { .. } => {
                (StatusCode::INSUFFICIENT_STORAGE, "limit_reached", "delete what is not needed any more")
            }
            AdminError::Conflict(_) => {
                (StatusCode::CONFLICT, "conflict", "read the current state and try again")
            }
        };
        ApiError::new(status, word, message, remedy)
    }
}

impl From<GroupError> for ApiError {
    fn from(error: GroupError) -> ApiError {
        match error {
            GroupError::Unavailable(error) => error.into(),
            GroupError::InvalidName(error) => {
                let remedy = "choose another name";
                ApiError::new(StatusCode::BAD_REQUEST, "invalid_name", error.to_string(), remedy)
            }
            GroupError::UnknownGroup => {
                let remedy = "GET /api/v1/groups lists the groups";
                ApiError::new(StatusCode::NOT_FOUND, "unknown_group", "there is no such group", remedy)
            }
            GroupError::NotEmpty
            | GroupError::UnknownMember
            | GroupError::RebalanceInProgress
            | GroupError::IllegalGeneration => {
                let remedy = "stop its consumers, wait until their session timeout has passed, and try again";
                ApiError::new(StatusCode::CONFLICT, "not_empty", "the group has members", remedy)
            }
            error => ApiError::bad_request(error.to_string(), "change the request"),
        }
    }
}

impl From<TopologyError> for ApiError {
    fn from(error: TopologyError) -> ApiError {
        let message = error.to_string();
        match error {
            TopologyError::Admin(error) => error.into(),
            TopologyError::NoSuchQueue(name) => ApiError::unknown_queue(&name),
            TopologyError::NotAQueue(_) => {
                let remedy = "GET /api/v1/topics lists the topics";
                ApiError::new(StatusCode::BAD_REQUEST, "not_a_queue", message, remedy)
            }
            TopologyError::InUse(_) => {
                ApiError::new(StatusCode::CONFLICT, "in_use", message, "stop its consumers and try again")
            }
            _ => ApiError::bad_request(message, "change the request"),
        }
    }
}

impl From<QueueGone> for ApiError {
    fn from(error: QueueGone) -> ApiError {
        let remedy = "ask the node that leads, or try again";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_leader", error.to_string(), remedy)
    }
}

impl From<RedriveError> for ApiError {
    fn from(error: RedriveError) -> ApiError {
        let message = error.to_string();
        match error {
            RedriveError::Topology(error) => error.into(),
            RedriveError::Gone(error) | RedriveError::Unreadable(GetError::Gone(error)) => error.into(),
            RedriveError::Publish(PublishError::Unavailable(error)) => error.into(),
            RedriveError::ToItself(_) => ApiError::bad_request(message, "name another queue"),
            RedriveError::Unreadable(_) | RedriveError::Publish(_) => {
                let remedy = "read the node's log; what was taken back before stays where it is";
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "redrive_failed", message, remedy)
            }
        }
    }
}

impl From<LookupError> for ApiError {
    fn from(error: LookupError) -> ApiError {
        let message = error.to_string();
        match error {
            LookupError::Unavailable(error) => error.into(),
            LookupError::UnknownPartition { .. } => {
                let remedy = "GET /api/v1/topics/NAME lists its partitions";
                ApiError::new(StatusCode::NOT_FOUND, "unknown_partition", message, remedy)
            }
            LookupError::NotOpen { .. } => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_open", message, "try again in a moment")
            }
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> ApiError {
        match error {
            ReadError::Unavailable(error) => error.into(),
            error => {
                let remedy = "read the node's log";
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "read_failed", error.to_string(), remedy)
            }
        }
    }
}
