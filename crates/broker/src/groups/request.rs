//! What group members ask and are answered, free of any wire format.

use bytes::Bytes;
use weir_model::command::OffsetCommit;
use weir_model::{Offset, TimestampMs, TopicId};

use crate::errors::{GroupError, OffsetError};

/// A member wants to take part in the next generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinRequest {
    /// The group's name.
    pub group: String,
    /// The member's id, empty for a new member.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// A member unheard of for this long is out, in milliseconds.
    pub session_timeout_ms: i32,
    /// It has this long to join again in a rebalance, in milliseconds. Clients too old to say it
    /// (JoinGroup version 0) mean their session timeout.
    pub rebalance_timeout_ms: i32,
    /// The kind of group, "consumer" for consumers.
    pub protocol_type: String,
    /// The strategies that it supports in its order of preference, each with its own data.
    pub protocols: Vec<(String, Bytes)>,
    /// Whether a new member is first given an id to join with (JoinGroup 4 and later), so that a
    /// client whose first attempt got lost does not haunt the group.
    pub require_known_member_id: bool,
    /// Whether a returning static leader can be told not to assign again (JoinGroup 9 and later).
    pub can_skip_assignment: bool,
    /// Why it joins, for the log.
    pub reason: Option<String>,
}

/// The member takes part in this generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The member's id from here on.
    pub member_id: String,
    /// The generation.
    pub generation: i32,
    /// The kind of group.
    pub protocol_type: String,
    /// The strategy that was chosen.
    pub protocol: String,
    /// Member id of the one that computes assignments.
    pub leader: String,
    /// The leader need not compute anything.
    pub skip_assignment: bool,
    /// All members with their data for the chosen strategy; only the leader gets them.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// Its data for the chosen strategy.
    pub metadata: Bytes,
}

/// A member wants its assignment; the leader brings all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRequest {
    /// The group's name.
    pub group: String,
    /// Generation that it joined.
    pub generation: i32,
    /// The member's id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// The kind of group, checked if given.
    pub protocol_type: Option<String>,
    /// The strategy, checked if given.
    pub protocol: Option<String>,
    /// From the leader: who gets what, by member id.
    pub assignments: Vec<(String, Bytes)>,
}

/// A member's assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// The kind of group.
    pub protocol_type: String,
    /// The strategy.
    pub protocol: String,
    /// What the leader assigned to it; empty if nothing.
    pub assignment: Bytes,
}

/// A member is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// The group's name.
    pub group: String,
    /// Generation that it is in.
    pub generation: i32,
    /// The member's id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
}

/// Members go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveRequest {
    /// The group's name.
    pub group: String,
    /// Who goes.
    pub members: Vec<LeavingMember>,
}

/// A member that goes. A static member may be named by its instance id alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeavingMember {
    /// The member's id, or empty.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
}

/// What came of each leaving member, in the order of the request.
pub type Left = Vec<Result<(), GroupError>>;

/// Positions to be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitRequest {
    /// The group's name.
    pub group: String,
    /// Generation of the member; negative from a consumer that manages its own assignment.
    pub generation: i32,
    /// The member's id, or empty.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// The positions; `committed_at` is not looked at.
    pub offsets: Vec<OffsetCommit>,
}

/// What came of each position, in the order of the request.
pub type Committed = Vec<Result<(), OffsetError>>;

/// A stored position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Which topic.
    pub topic_id: TopicId,
    /// Which of its partitions.
    pub partition: i32,
    /// The next offset that the group will read.
    pub offset: Offset,
    /// Leader epoch of the last record read, or -1.
    pub leader_epoch: i32,
    /// What the client committed with it.
    pub metadata: String,
    /// When it was committed.
    pub committed_at: TimestampMs,
}

/// Where a group is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It has no members; there may be positions.
    Empty,
    /// Members are joining the next generation.
    PreparingRebalance,
    /// The generation is complete; the leader is computing assignments.
    CompletingRebalance,
    /// Every member has its assignment.
    Stable,
    /// It does not exist.
    Dead,
}

impl GroupState {
    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
        }
    }
}

/// A group in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Its name.
    pub group: String,
    /// The kind of group; empty for one that only has positions.
    pub protocol_type: String,
    /// Where it is in its life.
    pub state: GroupState,
}

/// A group in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its name.
    pub group: String,
    /// Where it is in its life.
    pub state: GroupState,
    /// The current generation.
    pub generation: i32,
    /// The kind of group; empty for one that only has positions.
    pub protocol_type: String,
    /// The strategy, empty unless the group is stable.
    pub protocol: String,
    /// The members in the order in which they joined.
    pub members: Vec<MemberDescription>,
}

/// A member in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// Its id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// Its data for the chosen strategy; empty unless the group is stable.
    pub metadata: Bytes,
    /// What it was assigned; empty unless the group is stable.
    pub assignment: Bytes,
}
