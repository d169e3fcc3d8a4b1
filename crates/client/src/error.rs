//! What can go wrong, told apart by what a caller can do about it.

use std::sync::Arc;
use std::time::Duration;

use weir_kafka_wire::{DecodeError, EncodeError, ErrorCode};

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection string, or an option, cannot be used.
    #[error("{0}")]
    Options(String),
    /// No connection could be made.
    #[error("{address} cannot be reached: {why}")]
    Unreachable {
        /// Where to.
        address: String,
        /// What the operating system said.
        why: Arc<str>,
    },
    /// The connection ended while something was under way on it.
    #[error("the connection to {address} ended: {why}")]
    Disconnected {
        /// Where to.
        address: String,
        /// Why, as far as it is known.
        why: Arc<str>,
    },
    /// No answer within the time allowed.
    #[error("{what}: no answer within {after:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// The broker refused, with its own code and perhaps its own words.
    #[error("{what}: {}{code}", .message.as_ref().map(|words| format!("{words}; ")).unwrap_or_default())]
    Refused {
        /// What was asked for.
        what: String,
        /// The protocol's code.
        code: ErrorCode,
        /// The broker's words.
        message: Option<String>,
    },
    /// The other end does not speak a version of the protocol that is spoken here.
    #[error("{address} does not serve {api} in a version that this client speaks")]
    Version {
        /// The other end.
        address: String,
        /// The API.
        api: &'static str,
    },
    /// The other end sent something that is not the protocol.
    #[error("{address} sent an answer that cannot be read: {why}")]
    Malformed {
        /// The other end.
        address: String,
        /// What is wrong with it.
        why: DecodeError,
    },
    /// A request cannot be written.
    #[error("the request cannot be written: {0}")]
    Unwritable(#[from] EncodeError),
    /// Stored records cannot be read.
    #[error("{topic}/{partition} at offset {offset}: the records cannot be read: {why}")]
    Records {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where the batch begins that cannot be read.
        offset: i64,
        /// What is wrong with it.
        why: String,
    },
    /// A record is larger than a batch may be.
    #[error("the record has {bytes} bytes; {max} are allowed in a batch")]
    RecordTooLarge {
        /// Its size with key and headers.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The client was closed, or the task that did the work is gone.
    #[error("the client is closed")]
    Closed,
}

impl ClientError {
    /// Whether the same operation may succeed when it is tried again as it is. Retries with back-off have
    /// already happened inside the client when such an error reaches the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. }
            | ClientError::Disconnected { .. }
            | ClientError::TimedOut { .. } => true,
            ClientError::Refused { code, .. } => code.is_retriable(),
            ClientError::Options(_)
            | ClientError::Version { .. }
            | ClientError::Malformed { .. }
            | ClientError::Unwritable(_)
            | ClientError::Records { .. }
            | ClientError::RecordTooLarge { .. }
            | ClientError::Closed => false,
        }
    }

    /// The broker's code, if it was the broker that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// A refusal with this code, unless the code says that all is well.
    pub(crate) fn check(code: ErrorCode, what: impl FnOnce() -> String) -> Result<(), ClientError> {
        match code.ok() {
            Ok(()) => Ok(()),
            Err(code) => Err(ClientError::Refused { what: what(), code, message: None }),
        }
    }
}
