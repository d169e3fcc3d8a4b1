//! What a shard can be asked to do, and what comes of it. Commands are the only way in which the
//! state of a shard changes; they carry everything that their effect depends on.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::access::AccessChange;
use crate::node::NodeMeta;
use crate::policy::{PolicyKey, PolicyMeta};
use crate::queue::QueueMeta;
use crate::routing::{BindingMeta, ExchangeMeta};
use crate::settings::PartitionSettings;
use crate::subscription::Settlement;
use crate::timer::TimerRow;
use crate::unique::UniqueKey;
use crate::{
    Incarnation, NodeId, Offset, PartitionId, SegmentId, ShardId, SubscriptionId, TimestampMs, TopicId,
};

/// One change to a shard's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    // Every shard.
    /// A leadership begins: the first command of every leader. `apply` counts these for the epochs.
    Lead {
        /// Who leads from here on.
        node: NodeId,
    },
    /// From here on the state machine behaves as this version. Proposed once all replicas support it.
    SetMachineVersion {
        /// The version.
        version: u32,
    },
    /// Every replica remembers the digest of its state at this index.
    TakeDigest,
    /// Every replica compares its digest of that index with this one; one that differs stops.
    CompareDigest {
        /// Index of the `TakeDigest`.
        index: u64,
        /// What the leader's state digested to.
        digest: u64,
    },

    /// From here on the node's commands come over a new line; those of an older one are refused.
    OpenRelay {
        /// Whose line.
        node: NodeId,
        /// What tells this line from all others of the node; drawn by it.
        token: u64,
    },
    /// Commands that a node brings to whoever leads. They are carried out if they come next on the node's line:
    /// what is sent again because nobody knew what became of it changes nothing, and nothing overtakes.
    Relayed {
        /// Whose line.
        node: NodeId,
        /// Which line of the node's.
        token: u64,
        /// From 1, one higher with each.
        sequence: u64,
        /// In their order; none of these can be among them.
        commands: Vec<Command>,
    },

    // The meta shard.
    /// Creates a topic; its partitions get ids. Refused if the name is taken.
    CreateTopic {
        /// Name, checked by the proposer.
        name: String,
        /// Identity, drawn by the proposer.
        topic_id: TopicId,
        /// The shard of each partition, by partition index.
        placement: Vec<ShardId>,
        /// Overrides of the broker's defaults.
        config: BTreeMap<String, String>,
    },
    /// Marks a topic as being deleted; it disappears from every listing at once.
    DeleteTopic {
        /// Which.
        topic_id: TopicId,
    },
    /// Forgets a deleted topic, once all its partitions are closed.
    ForgetTopic {
        /// Which.
        topic_id: TopicId,
    },
    /// Replaces a topic's overrides.
    ConfigureTopic {
        /// Which.
        topic_id: TopicId,
        /// All overrides from here on.
        config: BTreeMap<String, String>,
    },
    /// Adds partitions to a topic.
    AddPartitions {
        /// Which.
        topic_id: TopicId,
        /// The number of partitions that the proposer saw; refused if it is another by now.
        expected: u32,
        /// The shard of each new partition.
        placement: Vec<ShardId>,
    },
    /// Creates a topic that is a queue, as `CreateTopic` does. There is a partition for each of its lanes.
    CreateQueue {
        /// Name in the catalog, see [`crate::queue::full_name`].
        name: String,
        /// As in `CreateTopic`.
        topic_id: TopicId,
        /// As in `CreateTopic`.
        placement: Vec<ShardId>,
        /// As in `CreateTopic`.
        config: BTreeMap<String, String>,
        /// What makes it a queue.
        queue: QueueMeta,
    },
    /// Adds lanes to a queue, as `AddPartitions` does.
    AddLanes {
        /// Which.
        topic_id: TopicId,
        /// As in `AddPartitions`.
        expected: u32,
        /// As in `AddPartitions`.
        placement: Vec<ShardId>,
        /// The priority of each new partition.
        lanes: Vec<u8>,
    },
    /// Declares an exchange. One that is there already stays as it is.
    DeclareExchange {
        /// As it is to be.
        exchange: ExchangeMeta,
    },
    /// Deletes an exchange with the bindings from it and to it.
    DeleteExchange {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Refused if there are bindings from it.
        if_unused: bool,
    },
    /// Binds a queue or an exchange to an exchange. A repeat changes nothing.
    Bind {
        /// As it is to be.
        binding: BindingMeta,
    },
    /// Takes a binding back, if it is there.
    Unbind {
        /// Which.
        binding: BindingMeta,
    },
    /// Changes users, namespaces, or what users may do.
    ChangeAccess {
        /// How.
        change: AccessChange,
    },
    /// Makes a policy, or another one of it.
    PutPolicy {
        /// As it is to be.
        policy: PolicyMeta,
    },
    /// Takes a policy back.
    DeletePolicy {
        /// Which.
        key: PolicyKey,
    },
    /// Notes what a node says of itself, in place of what it said before. Whether it is draining stays.
    RegisterNode {
        /// What it says.
        node: NodeMeta,
    },
    /// Says whether a node is to lead nothing.
    SetDraining {
        /// Which node; refused if it is not registered.
        node: NodeId,
        /// Whether it is to.
        draining: bool,
    },
    /// Gives a node that came back without its data its next incarnation: from here on the replicas of those before are
    /// to be replaced, and nothing that they say counts. A repeat by the one that got it last gives the same again.
    NewIncarnation {
        /// Which node.
        node: NodeId,
        /// What tells the process that asks from all others of the node; drawn by it.
        token: u64,
    },
    /// Registers a node that joins the cluster, or one of a number that was removed from it, and gives it its next
    /// incarnation, as [`Command::NewIncarnation`] does.
    AdmitNode {
        /// What is known of it: who it is, and where the others reach it.
        node: NodeMeta,
        /// What tells the process that asks from all others of the node; drawn by it, and never 0.
        token: u64,
    },
    /// Says whether a node is to leave the cluster: it leads nothing from then on, and loses its votes and replicas one
    /// by one.
    SetLeaving {
        /// Which node; refused if it is not registered.
        node: NodeId,
        /// Whether it is to.
        leaving: bool,
    },
    /// Ends a node's being of the cluster. Nothing that it says counts from here on, and its number is nobody's until it
    /// is admitted again.
    ForgetNode {
        /// Which node; refused if it is not leaving. A repeat changes nothing.
        node: NodeId,
    },
    /// Hands out a run of producer ids that nobody else ever gets.
    AllocateProducerIds {
        /// How many, at least 1.
        count: u32,
    },

    // Data shards.
    /// Makes a partition known to its shard. A repeat changes nothing.
    OpenPartition {
        /// Which.
        partition: PartitionId,
        /// Its settings.
        settings: PartitionSettings,
        /// Leader epochs of the partition begin here.
        epoch_base: i32,
    },
    /// Replaces a partition's settings.
    ConfigurePartition {
        /// Which.
        partition: PartitionId,
        /// All settings from here on.
        settings: PartitionSettings,
    },
    /// Forgets a partition and its files.
    ClosePartition {
        /// Which.
        partition: PartitionId,
    },
    /// Appends one record batch, verified by the proposer.
    Append {
        /// Where to.
        partition: PartitionId,
        /// The batch as the producer sent it; its base offset and epoch mean nothing.
        batch: Bytes,
    },
    /// Raises the log start: records below it are gone. Segments wholly below lose their files.
    Trim {
        /// Which partition.
        partition: PartitionId,
        /// The first offset that remains.
        log_start: Offset,
    },
    /// Writes neighbouring segments anew as one that holds only some of their batches, or as none. Offsets stay what they
    /// are. Refused if a record that an individual subscription has not settled would be gone.
    RewriteSegments {
        /// Which partition.
        partition: PartitionId,
        /// Rising, at most [`crate::entry::REWRITTEN_SEGMENTS_MAX`]; not the one that is appended to.
        segments: Vec<SegmentId>,
        /// The batches that stay, as runs of offsets that begin and end where batches do; rising, at most
        /// [`crate::entry::KEPT_RUNS_MAX`].
        kept: Vec<(Offset, Offset)>,
        /// Their bytes.
        bytes: u64,
        /// The largest timestamp in them, or -1.
        max_timestamp: TimestampMs,
    },
    /// Appends one record batch, verified by the proposer, to several partitions of the shard. It stands once
    /// in the entry, and is stored once in each.
    AppendToAll {
        /// Where to, at most [`crate::entry::FAN_OUT_MAX`].
        partitions: Vec<PartitionId>,
        /// As in `Append`.
        batch: Bytes,
    },
    /// Appends one record batch, verified by the proposer, and sets deadlines of its records.
    AppendTimed {
        /// Where to.
        partition: PartitionId,
        /// Deadlines, each with the number of a record within the batch.
        deadlines: Vec<(u32, TimestampMs)>,
        /// As in `Append`.
        batch: Bytes,
    },
    /// Takes deadlines out that were met, or are not to be. Those that are not there are passed over.
    RemoveTimers {
        /// Of which partition.
        partition: PartitionId,
        /// Which.
        rows: Vec<TimerRow>,
    },
    /// Several commands that stand in one entry whatever happens: all of them are applied, or none is. None of
    /// them may be such a list itself, or concern every shard.
    Together {
        /// In this order, at most [`crate::entry::TOGETHER_MAX`].
        commands: Vec<Command>,
    },
    /// Appends one record batch, verified by the proposer, unless the partition knows one of its keys: then nothing
    /// is stored, and the answer is where the batch went that had it first.
    AppendUnique {
        /// Where to.
        partition: PartitionId,
        /// At most [`crate::unique::UNIQUE_KEYS_MAX`].
        keys: Vec<UniqueKey>,
        /// As in `Append`.
        batch: Bytes,
    },
    /// Appends batches within the shard that are made of records of an individual subscription, and settles these:
    /// all of it or, if one of the records is settled already, nothing. So what is moved is moved once, however
    /// often that is asked for.
    MoveRecords {
        /// Where the records are.
        partition: PartitionId,
        /// Which subscription settles them.
        subscription: SubscriptionId,
        /// Runs of records, each by its first and its last.
        records: Vec<(Offset, Offset)>,
        /// Deadlines of theirs that are taken out.
        deadlines: Vec<TimerRow>,
        /// Commands that append, in this order, at most [`crate::entry::TOGETHER_MAX`]; none if the records are to be
        /// nowhere. A partition that is gone takes what is for it with it.
        appends: Vec<Command>,
    },
    /// Makes an individual subscription of a partition. A repeat changes nothing.
    OpenSubscription {
        /// Of which partition.
        partition: PartitionId,
        /// Which one.
        subscription: SubscriptionId,
        /// The first offset that it is to get; a trimmed one means the first that is there.
        start: Offset,
    },
    /// Forgets an individual subscription.
    CloseSubscription {
        /// Of which partition.
        partition: PartitionId,
        /// Which one.
        subscription: SubscriptionId,
    },
    /// Settles records of an individual subscription, or gives them back.
    Settle {
        /// Of which partition.
        partition: PartitionId,
        /// Which one.
        subscription: SubscriptionId,
        /// Everything below this offset may have been handed out; 0 says nothing new.
        handed_out: Offset,
        /// What becomes of which records, in this order.
        settlements: Vec<Settlement>,
    },
    /// Stores a group's membership as of a completed rebalance.
    StoreGroup {
        /// The group's name.
        group: String,
        /// Its membership.
        membership: GroupMembership,
    },
    /// Stores positions of a group.
    CommitOffsets {
        /// The group's name.
        group: String,
        /// What is committed.
        offsets: Vec<OffsetCommit>,
    },
    /// Removes positions of a group.
    DeleteOffsets {
        /// The group's name.
        group: String,
        /// Which.
        partitions: Vec<(TopicId, i32)>,
    },
    /// Removes a group with all its positions.
    DeleteGroup {
        /// The group's name.
        group: String,
    },
    /// Removes all groups' positions in a deleted topic.
    DropTopicOffsets {
        /// Which.
        topic_id: TopicId,
    },
}

/// A committed position of a group in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// Which topic.
    pub topic_id: TopicId,
    /// Which of its partitions.
    pub partition: i32,
    /// The next offset that the group will read.
    pub offset: Offset,
    /// Leader epoch of the last record read, or -1.
    pub leader_epoch: i32,
    /// Whatever the client wants to have back with it.
    pub metadata: String,
    /// Entry time of the commit; filled in by `apply`.
    pub committed_at: TimestampMs,
}

/// A group's membership as of a completed rebalance: what its coordinator must know after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMembership {
    /// Rises with every completed rebalance, never falls.
    pub generation: i32,
    /// The kind of group, "consumer" for consumers.
    pub protocol_type: String,
    /// The assignment strategy that all members support; none in an empty group.
    pub protocol: Option<String>,
    /// Member id of the member that computes assignments.
    pub leader: Option<String>,
    /// The members, in the order in which they joined.
    pub members: Vec<GroupMember>,
    /// Entry time of the last change; filled in by `apply`.
    pub changed_at: TimestampMs,
}

/// One member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    /// Given by the coordinator.
    pub member_id: String,
    /// Given by the client, for static membership.
    pub instance_id: Option<String>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// A member unheard of for this long is out, in milliseconds.
    pub session_timeout_ms: i32,
    /// A member has this long to join again in a rebalance, in milliseconds.
    pub rebalance_timeout_ms: i32,
    /// The strategies that it supports in its order of preference, each with its own data.
    pub protocols: Vec<(String, Bytes)>,
    /// What it was assigned.
    pub assignment: Bytes,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, and there is no more to say.
    Done,
    /// The records are in the log.
    Appended(Appended),
    /// The records are in these logs, or were refused there: one for each partition that was named.
    AppendedToAll(Vec<Result<Appended, Refusal>>),
    /// What came of each of several commands, tied together or brought by another node; of those that append, if
    /// records were moved.
    Together(Vec<Outcome>),
    /// The topic exists now, with these partitions; or has these partitions from here on.
    Topic(TopicMeta),
    /// The exchange is there, like this.
    Exchange(ExchangeMeta),
    /// The run of producer ids begins here.
    ProducerIds {
        /// First of the run.
        first: i64,
    },
    /// The node is this incarnation from here on.
    Incarnation(Incarnation),
    /// The digest was taken.
    Digest {
        /// Index of the entry that took it.
        index: u64,
        /// Of the whole state.
        digest: u64,
    },
    /// It was refused and changed nothing.
    Refused(Refusal),
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the batch's first record.
    pub base_offset: Offset,
    /// Offset of the batch's last record.
    pub last_offset: Offset,
    /// First offset that the log still has.
    pub log_start: Offset,
    /// Epoch in which it was appended.
    pub leader_epoch: i32,
    /// Entry time of the append.
    pub time: TimestampMs,
    /// Whether the batch was there already and this is where the first copy went.
    pub duplicate: bool,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The shard does not have this partition.
    #[error("partition {0} is not in this shard")]
    UnknownPartition(PartitionId),
    /// The partition does not have this individual subscription.
    #[error("partition {0} has no subscription {1}")]
    UnknownSubscription(PartitionId, SubscriptionId),
    /// The segments cannot be written anew as was asked.
    #[error("the segments cannot be written anew: {0}")]
    Segments(&'static str),
    /// The bytes are not a batch that can be appended.
    #[error("{0}")]
    MalformedBatch(String),
    /// The batch's sequence does not follow the producer's last one.
    #[error("producer {producer_id}: sequence {got} does not follow; {expected} was expected")]
    OutOfOrderSequence {
        /// Whose.
        producer_id: i64,
        /// What would have followed.
        expected: i32,
        /// What came.
        got: i32,
    },
    /// The producer has been replaced by a newer one with the same id.
    #[error("producer {producer_id}: epoch {got} is older than the current epoch {current}")]
    StaleProducerEpoch {
        /// Whose.
        producer_id: i64,
        /// The newest epoch seen.
        current: i16,
        /// What came.
        got: i16,
    },
    /// The node has opened another line since.
    #[error("the node's commands come over another line by now")]
    UnknownRelay,
    /// It is not what comes next on the node's line: a repeat, or something before it is lacking.
    #[error("{expected} comes next on the node's line")]
    OutOfTurn {
        /// What comes next.
        expected: u64,
    },
    /// The topic's name is taken.
    #[error("the topic '{0}' exists already")]
    TopicExists(String),
    /// There is no such topic.
    #[error("there is no topic with id {0}")]
    UnknownTopic(TopicId),
    /// The topic has another number of partitions by now.
    #[error("the topic has {0} partitions")]
    PartitionCount(u32),
    /// There is no such exchange.
    #[error("there is no exchange '{0}'")]
    UnknownExchange(String),
    /// There are bindings from the exchange.
    #[error("there are bindings from the exchange '{0}'")]
    ExchangeInUse(String),
    /// The binding cannot be made; in words.
    #[error("{0}")]
    InvalidBinding(String),
    /// There is no such user.
    #[error("there is no user '{0}'")]
    UnknownUser(String),
    /// The user's name is taken.
    #[error("the user '{0}' exists already")]
    UserExists(String),
    /// Nobody else could change users any more.
    #[error("'{0}' is the last administrator who can log in; make another one first")]
    LastAdministrator(String),
    /// There is no such namespace.
    #[error("there is no namespace '{0}'")]
    UnknownNamespace(String),
    /// The namespace's name is taken.
    #[error("the namespace '{0}' exists already")]
    NamespaceExists(String),
    /// There are queues in the namespace, or it is the default one.
    #[error("the namespace '{0}' is in use")]
    NamespaceInUse(String),
    /// There is no such policy.
    #[error("there is no policy '{0}'")]
    UnknownPolicy(String),
    /// There is no such node.
    #[error("there is no node {0}")]
    UnknownNode(NodeId),
    /// There is no such group.
    #[error("there is no group '{0}'")]
    UnknownGroup(String),
    /// A command that may not stand in a list.
    #[error("such a command cannot be one of several")]
    NotTogether,
    /// Records cannot be moved of which one is settled.
    #[error("record {1} of partition {0} is settled already")]
    AlreadySettled(PartitionId, Offset),
    /// Records cannot be moved that are not there.
    #[error("partition {0} has no records from {1} to {2}")]
    NoSuchRecords(PartitionId, Offset, Offset),
    /// A deadline of a record that the batch does not have.
    #[error("the batch has no record {0}, for which there is a deadline")]
    NoSuchRecord(u32),
    /// A bound of the shard is reached.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// What there would be too many of.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
}

/// A topic as the meta shard knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMeta {
    /// Name.
    pub name: String,
    /// Identity.
    pub id: TopicId,
    /// Partitions by index.
    pub partitions: Vec<PartitionMeta>,
    /// Overrides of the broker's defaults.
    pub config: BTreeMap<String, String>,
    /// Entry time of its creation.
    pub created_at: TimestampMs,
}

/// A partition as the meta shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMeta {
    /// Identity.
    pub id: PartitionId,
    /// Where it lives.
    pub shard: ShardId,
}
