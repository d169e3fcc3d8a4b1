//! What can go wrong, one type per operation, told apart by cause so that a front can choose its
//! protocol's own code and a person can read what to do.

use weir_cluster::ProposeError;
use weir_model::batch::BatchError;
use weir_model::command::{Outcome, Refusal};
use weir_model::names::InvalidName;
use weir_model::settings::SettingError;
use weir_model::{NodeId, Offset};

/// The shard that would have to do it cannot do it now. All but `Stopped` pass by themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Another node leads the shard, or nobody does at the moment.
    #[error("this node does not lead the shard{}", .leader.map(|node| format!("; node {node} does")).unwrap_or_default())]
    NotLeader {
        /// Who does, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// The shard is still reading its state or has not applied the beginning of its leadership.
    #[error("the shard is starting")]
    Starting,
    /// More is on its way to the disk than may wait.
    #[error("too much is waiting for the disk; try again")]
    Overloaded,
    /// There is no disk space left for further records.
    #[error("the disk is nearly full; delete records or topics, or add space")]
    DiskFull,
    /// No answer within the time allowed. The operation may still happen.
    #[error("no answer in time; the operation may still take effect")]
    TimedOut,
    /// The request is larger than a shard takes in one piece.
    #[error("the request takes {bytes} bytes; a shard takes {max} in one piece")]
    TooLarge {
        /// What it takes.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The node is being stopped.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The shard stopped because going on would harm data; the operator is needed.
    #[error("the shard has stopped: {0}")]
    Stopped(String),
}

/// A partition could not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The topic has no partition of this index.
    #[error("the topic '{topic}' has {partitions} partition(s), there is no partition {index}")]
    UnknownPartition {
        /// Which topic.
        topic: String,
        /// What was asked for.
        index: i32,
        /// How many there are.
        partitions: usize,
    },
    /// The partition exists but its shard does not have it yet, or no longer.
    #[error("partition {index} of topic '{topic}' is not open yet; try again")]
    NotOpen {
        /// Which topic.
        topic: String,
        /// Which partition.
        index: i32,
    },
    /// The shard is not here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A batch was not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The bytes are not a batch that can be stored: corrupt, cut short, of an old format.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The bytes hold more, or less, than exactly one batch.
    #[error("{bytes} bytes after the first batch; send exactly one batch for each partition")]
    NotOneBatch {
        /// How many bytes are left over.
        bytes: usize,
    },
    /// The batch is larger than the topic allows.
    #[error("the batch has {bytes} bytes; the topic allows {max} (max.message.bytes)")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Control batches are written by brokers only.
    #[error("the batch is a control batch; clients cannot write these")]
    Control,
    /// The batch belongs to a transaction.
    #[error("transactions are not served; remove transactional.id from the producer")]
    Transactional,
    /// The batch says that its timestamps are the broker's, on a topic where they are the producer's.
    #[error("the batch claims LogAppendTime timestamps, but the topic has message.timestamp.type=CreateTime")]
    TimestampType,
    /// The records of a queue are handed out one by one, and those of the batch cannot be taken apart.
    #[error("the batch cannot be opened, which it must be in a queue: {0}")]
    Unopenable(String),
    /// The partition was deleted meanwhile.
    #[error("the partition does not exist any more")]
    UnknownPartition,
    /// The idempotent producer skipped something.
    #[error("producer {producer_id}: sequence {got} does not follow; {expected} was expected")]
    OutOfOrderSequence {
        /// Whose.
        producer_id: i64,
        /// What would have followed.
        expected: i32,
        /// What came.
        got: i32,
    },
    /// A newer producer with the same id has taken over.
    #[error("producer {producer_id}: epoch {got} is older than the current epoch {current}")]
    StaleProducerEpoch {
        /// Whose.
        producer_id: i64,
        /// The newest.
        current: i16,
        /// What came.
        got: i16,
    },
    /// A queue has no room for it, and refuses what it has no room for.
    #[error("the queue '{0}' is full")]
    QueueFull(String),
    /// The shard refused it for a reason that no other variant names, such as a bound.
    #[error("{0}")]
    Refused(String),
    /// The shard cannot take it now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Records could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The offset was never given out, or its record is gone.
    #[error(
        "offset {offset} is out of range; the partition has {log_start} up to, not including, {next_offset}"
    )]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// First offset that is there.
        log_start: Offset,
        /// Offset that the next record will get.
        next_offset: Offset,
    },
    /// The partition was deleted meanwhile.
    #[error("the partition does not exist any more")]
    UnknownPartition,
    /// What the disk holds is not what was written. It is reported and never skipped.
    #[error("the stored records are corrupt: {0}")]
    Corrupt(String),
    /// The disk answered with an error.
    #[error("reading failed: {0}")]
    Io(String),
    /// The shard cannot answer now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// An administrative operation was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The name cannot be a topic's.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The name is taken.
    #[error("the topic '{0}' exists already")]
    TopicExists(String),
    /// There is no such topic.
    #[error("there is no topic '{0}'")]
    UnknownTopic(String),
    /// There is no such partition.
    #[error("there is no partition {index} in topic '{topic}'")]
    UnknownPartition {
        /// Which topic.
        topic: String,
        /// Which index.
        index: i32,
    },
    /// The number of partitions is out of bounds.
    #[error("{0}")]
    InvalidPartitions(String),
    /// The number of replicas is out of bounds.
    #[error("{0}")]
    InvalidReplication(String),
    /// A setting is unknown, out of bounds or without support.
    #[error(transparent)]
    InvalidConfig(#[from] SettingError),
    /// The offset to trim up to is out of range.
    #[error("offset {offset} is out of range; the partition has {log_start} up to {next_offset}")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: Offset,
        /// First offset that is there.
        log_start: Offset,
        /// Offset that the next record will get.
        next_offset: Offset,
    },
    /// There is no such node.
    #[error("there is no node {0} that said anything of itself")]
    UnknownNode(NodeId),
    /// Without it there would be no node.
    #[error("node {0} cannot leave: there is no other node that stays")]
    LastNode(NodeId),
    /// A bound is reached.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// What there would be too many of.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Somebody else changed the same thing at the same time, or a shard refused it; the words say.
    #[error("{0}")]
    Conflict(String),
    /// The shard cannot do it now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A group operation failed. One type for all of them: they share their causes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The name cannot be a group's.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The session timeout is out of bounds.
    #[error("the session timeout {asked_ms} ms is not between {min_ms} and {max_ms} ms")]
    InvalidSessionTimeout {
        /// What the member asked for.
        asked_ms: i32,
        /// `group.min.session.timeout.ms`.
        min_ms: i32,
        /// `group.max.session.timeout.ms`.
        max_ms: i32,
    },
    /// The request contradicts itself or exceeds a bound; the words say how.
    #[error("{0}")]
    InvalidRequest(String),
    /// Join again with this id.
    #[error("join again with the member id {member_id}")]
    MemberIdRequired {
        /// The id.
        member_id: String,
    },
    /// The group does not have this member.
    #[error("the group does not have this member; join again")]
    UnknownMember,
    /// Another member with the same instance id has taken over.
    #[error("another member with the same group.instance.id has taken over")]
    FencedInstance,
    /// The generation is not the current one.
    #[error("the generation is not the group's current one; join again")]
    IllegalGeneration,
    /// A rebalance is under way.
    #[error("the group is rebalancing; join again")]
    RebalanceInProgress,
    /// The member's protocols do not fit those of the others.
    #[error("the member's protocol type or protocols do not fit the group's")]
    InconsistentProtocol,
    /// The group has as many members as it may.
    #[error("the group has the most members it may have, {max} (group.max.size)")]
    GroupFull {
        /// The bound.
        max: usize,
    },
    /// There is no such group.
    #[error("there is no such group")]
    UnknownGroup,
    /// The group has members.
    #[error("the group is not empty; stop its members first")]
    NotEmpty,
    /// The shard cannot do it now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// One partition's position was not committed, or not deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffsetError {
    /// The metadata is larger than allowed.
    #[error("the metadata has {bytes} bytes; {max} are allowed (offset.metadata.max.bytes)")]
    MetadataTooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// There is no such topic or partition.
    #[error("there is no such topic or partition")]
    UnknownPartition,
    /// A member of the group is subscribed to the topic.
    #[error("the group is subscribed to the topic; stop its members first")]
    Subscribed,
}

impl From<ProposeError> for Unavailable {
    fn from(error: ProposeError) -> Unavailable {
        match error {
            // The next leader may have the command or not: who asked has to ask again either way.
            ProposeError::NotLeader { leader } | ProposeError::LeadershipLost { leader } => {
                Unavailable::NotLeader { leader }
            }
            ProposeError::Overloaded => Unavailable::Overloaded,
            ProposeError::DiskFull { .. } => Unavailable::DiskFull,
            ProposeError::TooLarge { bytes, bytes_max } => Unavailable::TooLarge { bytes, max: bytes_max },
            ProposeError::ShuttingDown => Unavailable::ShuttingDown,
            ProposeError::Stopped(why) => Unavailable::Stopped(why),
            ProposeError::Timeout => Unavailable::TimedOut,
        }
    }
}

/// The error for an outcome that is not the one an operation is after.
pub(crate) fn refused(outcome: Outcome) -> AdminError {
    match outcome {
        Outcome::Refused(Refusal::TopicExists(name)) => AdminError::TopicExists(name),
        Outcome::Refused(Refusal::UnknownTopic(id)) => AdminError::UnknownTopic(id.to_string()),
        Outcome::Refused(Refusal::Limit { what, limit }) => AdminError::Limit { what, limit },
        Outcome::Refused(other) => AdminError::Conflict(other.to_string()),
        other => AdminError::Conflict(format!("the shard answered something else than asked: {other:?}")),
    }
}
