//! The broker's errors in Kafka's codes.
//!
//! A code decides what a client does next, so the mapping follows what clients do and not what the
//! names suggest. What passes by itself gets a code that clients retry, and that makes them ask for
//! new metadata where another node may help. UNKNOWN_SERVER_ERROR is not in here: clients give up on it.

use weir_broker::{AdminError, GroupError, LookupError, OffsetError, PublishError, ReadError, Unavailable};
use weir_kafka_wire::{ErrorCode, KafkaStr};
use weir_model::batch::BatchError;

/// A code and the words to go with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: Option<KafkaStr>,
}

impl Failure {
    /// A code with words of our own.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure { code, message: Some(KafkaStr::from(message.into())) }
    }

    fn of(code: ErrorCode, error: &dyn std::error::Error) -> Failure {
        Failure::new(code, error.to_string())
    }
}

/// A shard of records cannot answer. Producers and consumers retry all of these, most after asking for
/// new metadata.
fn partition_unavailable(error: &Unavailable) -> ErrorCode {
    match error {
        Unavailable::NotLeader { .. } | Unavailable::Starting | Unavailable::ShuttingDown => {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        }
        Unavailable::Overloaded | Unavailable::TimedOut => ErrorCode::REQUEST_TIMED_OUT,
        Unavailable::DiskFull | Unavailable::Stopped(_) => ErrorCode::KAFKA_STORAGE_ERROR,
        Unavailable::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
    }
}

/// A shard of groups cannot answer. Members look for their coordinator again, or wait for it.
fn coordinator_unavailable(error: &Unavailable) -> ErrorCode {
    match error {
        Unavailable::NotLeader { .. } => ErrorCode::NOT_COORDINATOR,
        Unavailable::Starting => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        Unavailable::TooLarge { .. } => ErrorCode::INVALID_REQUEST,
        Unavailable::Overloaded
        | Unavailable::TimedOut
        | Unavailable::DiskFull
        | Unavailable::ShuttingDown
        | Unavailable::Stopped(_) => ErrorCode::COORDINATOR_NOT_AVAILABLE,
    }
}

/// The meta shard cannot answer. Administrative clients retry on the controller.
fn controller_unavailable(error: &Unavailable) -> ErrorCode {
    match error {
        Unavailable::NotLeader { .. } => ErrorCode::NOT_CONTROLLER,
        Unavailable::TooLarge { .. } => ErrorCode::INVALID_REQUEST,
        Unavailable::DiskFull => ErrorCode::KAFKA_STORAGE_ERROR,
        Unavailable::Starting
        | Unavailable::Overloaded
        | Unavailable::TimedOut
        | Unavailable::ShuttingDown
        | Unavailable::Stopped(_) => ErrorCode::REQUEST_TIMED_OUT,
    }
}

impl From<&LookupError> for Failure {
    fn from(error: &LookupError) -> Failure {
        let code = match error {
            LookupError::UnknownPartition { .. } => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            LookupError::NotOpen { .. } => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            LookupError::Unavailable(error) => partition_unavailable(error),
        };
        Failure::of(code, error)
    }
}

impl From<&PublishError> for Failure {
    fn from(error: &PublishError) -> Failure {
        let code = match error {
            PublishError::Batch(
                BatchError::Truncated { .. } | BatchError::Length(_) | BatchError::Crc { .. },
            ) => ErrorCode::CORRUPT_MESSAGE,
            PublishError::Batch(BatchError::Magic(_) | BatchError::Malformed(_))
            | PublishError::NotOneBatch { .. }
            | PublishError::Unopenable(_)
            | PublishError::Control => ErrorCode::INVALID_RECORD,
            PublishError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
            PublishError::TimestampType => ErrorCode::INVALID_TIMESTAMP,
            PublishError::Transactional => ErrorCode::INVALID_TXN_STATE,
            PublishError::UnknownPartition => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            PublishError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            PublishError::StaleProducerEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
            PublishError::QueueFull(_) | PublishError::Refused(_) => ErrorCode::POLICY_VIOLATION,
            PublishError::Unavailable(error) => partition_unavailable(error),
        };
        Failure::of(code, error)
    }
}

impl From<&ReadError> for Failure {
    fn from(error: &ReadError) -> Failure {
        let code = match error {
            ReadError::OutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            ReadError::UnknownPartition => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            // Damage does not pass by itself. Consumers try KAFKA_STORAGE_ERROR again for ever without a
            // word, and report this one to whoever uses them.
            ReadError::Corrupt(_) => ErrorCode::CORRUPT_MESSAGE,
            ReadError::Io(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            ReadError::Unavailable(error) => partition_unavailable(error),
        };
        Failure::of(code, error)
    }
}

impl From<&AdminError> for Failure {
    fn from(error: &AdminError) -> Failure {
        let code = match error {
            AdminError::InvalidName(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
            AdminError::TopicExists(_) => ErrorCode::TOPIC_ALREADY_EXISTS,
            AdminError::UnknownTopic(_) | AdminError::UnknownPartition { .. } => {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            }
            AdminError::InvalidPartitions(_) => ErrorCode::INVALID_PARTITIONS,
            AdminError::InvalidReplication(_) => ErrorCode::INVALID_REPLICATION_FACTOR,
            AdminError::InvalidConfig(_) => ErrorCode::INVALID_CONFIG,
            AdminError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            AdminError::Limit { .. } => ErrorCode::POLICY_VIOLATION,
            AdminError::Conflict(_) | AdminError::UnknownNode(_) | AdminError::LastNode(_) => {
                ErrorCode::INVALID_REQUEST
            }
            AdminError::Unavailable(error) => controller_unavailable(error),
        };
        Failure::of(code, error)
    }
}

impl From<&GroupError> for Failure {
    fn from(error: &GroupError) -> Failure {
        let code = match error {
            GroupError::InvalidName(_) => ErrorCode::INVALID_GROUP_ID,
            GroupError::InvalidSessionTimeout { .. } => ErrorCode::INVALID_SESSION_TIMEOUT,
            GroupError::InvalidRequest(_) => ErrorCode::INVALID_REQUEST,
            GroupError::MemberIdRequired { .. } => ErrorCode::MEMBER_ID_REQUIRED,
            GroupError::UnknownMember => ErrorCode::UNKNOWN_MEMBER_ID,
            GroupError::FencedInstance => ErrorCode::FENCED_INSTANCE_ID,
            GroupError::IllegalGeneration => ErrorCode::ILLEGAL_GENERATION,
            GroupError::RebalanceInProgress => ErrorCode::REBALANCE_IN_PROGRESS,
            GroupError::InconsistentProtocol => ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
            GroupError::GroupFull { .. } => ErrorCode::GROUP_MAX_SIZE_REACHED,
            GroupError::UnknownGroup => ErrorCode::GROUP_ID_NOT_FOUND,
            GroupError::NotEmpty => ErrorCode::NON_EMPTY_GROUP,
            GroupError::Unavailable(error) => coordinator_unavailable(error),
        };
        Failure::of(code, error)
    }
}

impl From<&OffsetError> for Failure {
    fn from(error: &OffsetError) -> Failure {
        let code = match error {
            OffsetError::MetadataTooLarge { .. } => ErrorCode::OFFSET_METADATA_TOO_LARGE,
            OffsetError::UnknownPartition => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            OffsetError::Subscribed => ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC,
        };
        Failure::of(code, error)
    }
}
