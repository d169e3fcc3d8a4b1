//! What fronts ask of groups.

use weir_model::{NodeId, TopicId};

use super::request::*;
use crate::broker::Broker;
use crate::errors::{GroupError, OffsetError, Unavailable};

impl Broker {
    /// The node whose shard has this group; an error while the shard has no leader.
    pub fn group_coordinator(&self, group: &str) -> Result<NodeId, GroupError> {
        let _ = group;
        Err(Unavailable::Starting.into())
    }

    /// Takes part in the next generation. Answered when that generation is complete.
    pub async fn join_group(&self, request: JoinRequest) -> Result<Joined, GroupError> {
        let _ = request;
        Err(Unavailable::Starting.into())
    }

    /// Fetches the member's assignment. Answered when the leader has brought it and it is durable.
    pub async fn sync_group(&self, request: SyncRequest) -> Result<Synced, GroupError> {
        let _ = request;
        Err(Unavailable::Starting.into())
    }

    /// Says that a member is alive.
    pub async fn heartbeat(&self, request: HeartbeatRequest) -> Result<(), GroupError> {
        let _ = request;
        Err(Unavailable::Starting.into())
    }

    /// Takes members out of a group.
    pub async fn leave_group(&self, request: LeaveRequest) -> Result<Left, GroupError> {
        let _ = request;
        Err(Unavailable::Starting.into())
    }

    /// Stores positions. Answered when they are durable.
    pub async fn commit_offsets(&self, request: CommitRequest) -> Result<Committed, GroupError> {
        let _ = request;
        Err(Unavailable::Starting.into())
    }

    /// A group's positions: of these partitions, or all. What was never committed is left out; a
    /// group that does not exist has none.
    pub async fn fetch_offsets(
        &self,
        group: &str,
        partitions: Option<&[(TopicId, i32)]>,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let _ = (group, partitions);
        Err(Unavailable::Starting.into())
    }

    /// Removes positions of a group, except of topics that a member is subscribed to.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[(TopicId, i32)],
    ) -> Result<Vec<Result<(), OffsetError>>, GroupError> {
        let _ = (group, partitions);
        Err(Unavailable::Starting.into())
    }

    /// Removes an empty group with its positions.
    pub async fn delete_group(&self, group: &str) -> Result<(), GroupError> {
        let _ = group;
        Err(Unavailable::Starting.into())
    }

    /// All groups whose coordinator is on this node.
    pub fn list_groups(&self) -> Vec<GroupListing> {
        Vec::new()
    }

    /// A group in full. One that does not exist is described as [`GroupState::Dead`].
    pub fn describe_group(&self, group: &str) -> Result<GroupDescription, GroupError> {
        let _ = group;
        Err(Unavailable::Starting.into())
    }
}
