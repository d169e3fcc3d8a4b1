//! What is refused, with enough in it for the operator's log and the protocol's own error.

use crate::operation::{Action, ResourceKind};

/// Somebody was not let in.
///
/// This is for the operator's log. A client is told no more than that the log-in was refused: which of
/// these it was would help to guess names and passwords.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no such user.
    #[error("there is no user {0:?}")]
    UnknownUser(String),
    /// The password is another.
    #[error("the password of user {0:?} is another")]
    WrongPassword(String),
    /// A blank password is nobody's, even where none is set.
    #[error("user {0:?} sent a blank password, which is never accepted")]
    BlankPassword(String),
    /// The user has no password, and logs in by other means or not at all.
    #[error("user {0:?} has no password; set one, or use the means that the user was made for")]
    NoPassword(String),
    /// The password could not be checked; the node is being stopped.
    #[error("the password of user {0:?} could not be checked; the node is shutting down")]
    Unchecked(String),
    /// The user is a loopback user and came from elsewhere.
    #[error(
        "user {0:?} may connect only over loopback; \
         create a user of your own, or take this one out of loopback_users"
    )]
    LoopbackOnly(String),
}

/// Something is not allowed. The words are RabbitMQ's, which people search for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// The namespace may not be entered, or does not exist. AMQP: 530, not allowed.
    #[error("access to vhost '{namespace}' refused for user '{user}'")]
    Namespace {
        /// Which.
        namespace: String,
        /// To whom.
        user: String,
    },
    /// The resource may not be used like that. AMQP: 403, access refused.
    #[error(
        "{}access to {kind} '{name}' in vhost '{namespace}' refused for user '{user}'",
        .action.map(|action| format!("{action} ")).unwrap_or_default()
    )]
    Resource {
        /// Which kind of access; none if any would have been enough.
        action: Option<Action>,
        /// What kind of resource it is.
        kind: ResourceKind,
        /// Its name.
        name: String,
        /// Where.
        namespace: String,
        /// To whom.
        user: String,
    },
    /// The routing key may not be used with the topic exchange. AMQP: 403, access refused.
    #[error(
        "{action} access to topic '{routing_key}' in exchange '{exchange}' in vhost '{namespace}' \
         refused for user '{user}'"
    )]
    Topic {
        /// Which kind of access.
        action: Action,
        /// The routing key, what is not UTF-8 in it replaced.
        routing_key: String,
        /// The exchange's name.
        exchange: String,
        /// Where.
        namespace: String,
        /// To whom.
        user: String,
    },
}
