//! From what went wrong below to what a client is told: a code, whose number says whether the channel or the
//! connection ends, and RabbitMQ's words where clients look at them.

use weir_amqp_message::NotAList;
use weir_amqp_wire::ReplyCode;
use weir_broker::Forbidden;
use weir_broker::errors::{AdminError, PublishError, Unavailable};
use weir_broker::queues::{GetError, QueueGone, SubscribeError};
use weir_broker::topology::{TopologyError, Undeclarable, Unrouted, locked};

use crate::channel::{TransactionFull, UnknownTag};

/// Why a method was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub code: ReplyCode,
    pub words: String,
}

impl Failure {
    pub(crate) fn new(code: ReplyCode, words: impl Into<String>) -> Failure {
        Failure { code, words: words.into() }
    }

    pub(crate) fn no_queue(name: &str, namespace: &str) -> Failure {
        Failure::new(ReplyCode::NotFound, format!("no queue '{name}' in vhost '{namespace}'"))
    }

    pub(crate) fn no_exchange(name: &str, namespace: &str) -> Failure {
        Failure::new(ReplyCode::NotFound, format!("no exchange '{name}' in vhost '{namespace}'"))
    }

    /// A queue is another connection's, or was not declared as exclusive as it is.
    pub(crate) fn locked(name: &str, namespace: &str) -> Failure {
        Failure::new(ReplyCode::ResourceLocked, locked(namespace, name))
    }

    pub(crate) fn precondition(words: impl Into<String>) -> Failure {
        Failure::new(ReplyCode::PreconditionFailed, words)
    }
}

impl From<Forbidden> for Failure {
    fn from(error: Forbidden) -> Failure {
        let code = match error {
            Forbidden::Namespace { .. } => ReplyCode::NotAllowed,
            Forbidden::Resource { .. } | Forbidden::Topic { .. } => ReplyCode::AccessRefused,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<UnknownTag> for Failure {
    fn from(error: UnknownTag) -> Failure {
        Failure::precondition(error.to_string())
    }
}

impl From<TransactionFull> for Failure {
    fn from(error: TransactionFull) -> Failure {
        Failure::precondition(error.to_string())
    }
}

impl From<NotAList> for Failure {
    fn from(error: NotAList) -> Failure {
        Failure::precondition(error.to_string())
    }
}

impl From<Undeclarable> for Failure {
    fn from(error: Undeclarable) -> Failure {
        let code = match error {
            Undeclarable::Refused(_) => ReplyCode::AccessRefused,
            Undeclarable::Locked(_) => ReplyCode::ResourceLocked,
            Undeclarable::Precondition(_) => ReplyCode::PreconditionFailed,
            Undeclarable::NotServed(_) => ReplyCode::NotImplemented,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Failure {
        let code = match error {
            Unavailable::ShuttingDown => ReplyCode::ConnectionForced,
            Unavailable::DiskFull | Unavailable::Overloaded => ReplyCode::ResourceError,
            _ => ReplyCode::InternalError,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        match error {
            AdminError::Unavailable(unavailable) => unavailable.into(),
            AdminError::UnknownTopic(name) => Failure::new(ReplyCode::NotFound, format!("no queue '{name}'")),
            AdminError::Limit { .. } => Failure::new(ReplyCode::ResourceError, error.to_string()),
            other => Failure::precondition(other.to_string()),
        }
    }
}

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Failure {
        match error {
            TopologyError::NoSuchQueue(_) | TopologyError::NoSuchExchange(_) => {
                Failure::new(ReplyCode::NotFound, error.to_string())
            }
            TopologyError::Stream(_) => Failure::new(ReplyCode::NotImplemented, error.to_string()),
            TopologyError::NotAQueue(_) => Failure::new(ReplyCode::ResourceLocked, error.to_string()),
            TopologyError::InUse(_) | TopologyError::Argument(_) | TopologyError::Binding(_) => {
                Failure::precondition(error.to_string())
            }
            TopologyError::Admin(error) => error.into(),
        }
    }
}

impl From<QueueGone> for Failure {
    fn from(error: QueueGone) -> Failure {
        Failure::new(ReplyCode::InternalError, error.to_string())
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Failure {
        Failure::new(ReplyCode::InternalError, error.to_string())
    }
}

impl From<Unrouted> for Failure {
    fn from(error: Unrouted) -> Failure {
        Failure::new(ReplyCode::InternalError, error.to_string())
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Failure {
        Failure::new(ReplyCode::AccessRefused, error.to_string())
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Failure {
        match error {
            PublishError::TooLarge { bytes, max } => Failure::precondition(format!(
                "message size {bytes} is larger than configured max size {max}"
            )),
            PublishError::Unavailable(unavailable) => unavailable.into(),
            other => Failure::new(ReplyCode::InternalError, other.to_string()),
        }
    }
}
