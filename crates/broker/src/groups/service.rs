//! What fronts ask of groups, handed to the coordinator of the group.

use weir_model::command::{Command, OffsetCommit, Outcome};
use weir_model::names::check_group_name;
use weir_model::{NodeId, ShardId, TopicId};

use super::coordinator::{Answer, Input};
use super::driver::Cell;
use super::request::*;
use crate::admin::ready;
use crate::broker::Broker;
use crate::errors::{GroupError, OffsetError, Unavailable};

impl Broker {
    /// The node whose shard has this group; an error while the shard has no leader.
    pub fn group_coordinator(&self, group: &str) -> Result<NodeId, GroupError> {
        check_group_name(group)?;
        let shard = self.shard(self.shard_of_group(group))?;
        Ok(self.leader_of(shard).ok_or(Unavailable::NotLeader { leader: None })?)
    }

    /// Takes part in the next generation. Answered when that generation is complete.
    pub async fn join_group(&self, request: JoinRequest) -> Result<Joined, GroupError> {
        check_group_name(&request.group)?;
        let cell = match self.known_cell(&request.group)? {
            Some(cell) => cell,
            None if request.member_id.is_empty() => self.new_cell(&request.group)?,
            None => return Err(GroupError::UnknownMember),
        };
        let fresh_id = self.ids.member_id(&request.client_id);
        match self.ask(&cell, |ticket| Input::Join(ticket, request, fresh_id)).await? {
            Answer::Join(answer) => answer,
            _ => Err(mixed_up()),
        }
    }

    /// Fetches the member's assignment. Answered when the leader has brought it and it is durable.
    pub async fn sync_group(&self, request: SyncRequest) -> Result<Synced, GroupError> {
        let cell = self.known_cell(&request.group)?.ok_or(GroupError::UnknownMember)?;
        match self.ask(&cell, |ticket| Input::Sync(ticket, request)).await? {
            Answer::Sync(answer) => answer,
            _ => Err(mixed_up()),
        }
    }

    /// Says that a member is alive.
    pub async fn heartbeat(&self, request: HeartbeatRequest) -> Result<(), GroupError> {
        let cell = self.known_cell(&request.group)?.ok_or(GroupError::UnknownMember)?;
        match self.ask(&cell, |ticket| Input::Heartbeat(ticket, request)).await? {
            Answer::Heartbeat(answer) => answer,
            _ => Err(mixed_up()),
        }
    }

    /// Takes members out of a group.
    pub async fn leave_group(&self, request: LeaveRequest) -> Result<Left, GroupError> {
        let Some(cell) = self.known_cell(&request.group)? else {
            return Ok(vec![Err(GroupError::UnknownMember); request.members.len()]);
        };
        match self.ask(&cell, |ticket| Input::Leave(ticket, request)).await? {
            Answer::Leave(answer) => answer,
            _ => Err(mixed_up()),
        }
    }

    /// Stores positions. Answered when they are durable.
    pub async fn commit_offsets(&self, request: CommitRequest) -> Result<Committed, GroupError> {
        check_group_name(&request.group)?;
        let cell = match self.known_cell(&request.group)? {
            Some(cell) => cell,
            // A consumer that assigns partitions to itself and only keeps its positions here.
            None if request.generation < 0 && request.member_id.is_empty() => {
                self.new_cell(&request.group)?
            }
            None => return Err(GroupError::IllegalGeneration),
        };
        let verdicts: Committed = request.offsets.iter().map(|commit| self.check_commit(commit)).collect();
        let good = request.offsets.into_iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_ok());
        let offsets: Vec<OffsetCommit> = good.map(|(commit, _)| commit).collect();
        self.commit(&cell, request.generation, request.member_id, request.instance_id, offsets).await?;
        Ok(verdicts)
    }

    fn check_commit(&self, commit: &OffsetCommit) -> Result<(), OffsetError> {
        let (bytes, max) = (commit.metadata.len(), self.options.groups.offset_metadata_bytes_max);
        if bytes > max {
            return Err(OffsetError::MetadataTooLarge { bytes, max });
        }
        let topic = self.topic_by_id(commit.topic_id).ok_or(OffsetError::UnknownPartition)?;
        match usize::try_from(commit.partition) {
            Ok(partition) if partition < topic.partition_count() => Ok(()),
            _ => Err(OffsetError::UnknownPartition),
        }
    }

    /// A group's positions: of these partitions, or all. What was never committed is left out; a
    /// group that does not exist has none.
    pub async fn fetch_offsets(
        &self,
        group: &str,
        partitions: Option<&[(TopicId, i32)]>,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let shard = self.shard(self.shard_of_group(group))?;
        ready(shard)?;
        let Some(state) = shard.view().group(group) else { return Ok(Vec::new()) };
        let catalog = self.meta()?.view().catalog();
        // Of a topic that was deleted: somebody committed while it went.
        let exists = |commit: &&OffsetCommit| catalog.topic_by_id(commit.topic_id).is_some();
        Ok(match partitions {
            None => state.offsets().filter(exists).map(committed).collect(),
            Some(wanted) => wanted
                .iter()
                .filter_map(|(topic_id, partition)| state.offset(*topic_id, *partition))
                .filter(exists)
                .map(committed)
                .collect(),
        })
    }

    /// Removes positions of a group, except of topics that a member is subscribed to.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[(TopicId, i32)],
    ) -> Result<Vec<Result<(), OffsetError>>, GroupError> {
        check_group_name(group)?;
        let Some(cell) = self.known_cell(group)? else { return Err(GroupError::UnknownGroup) };
        let subscribed = cell.subscribed_topics()?;
        let verdict = |(topic_id, _): &(TopicId, i32)| match self.topic_by_id(*topic_id) {
            Some(topic) if subscribed.contains(topic.name()) => Err(OffsetError::Subscribed),
            Some(_) => Ok(()),
            None => Err(OffsetError::UnknownPartition),
        };
        let verdicts: Vec<_> = partitions.iter().map(verdict).collect();
        let good = partitions.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_ok());
        let partitions: Vec<_> = good.map(|(partition, _)| *partition).collect();
        if !partitions.is_empty() {
            let command = Command::DeleteOffsets { group: group.to_owned(), partitions };
            self.propose_to(self.shard_of_group(group), command).await?;
        }
        Ok(verdicts)
    }

    /// Removes an empty group with its positions.
    pub async fn delete_group(&self, group: &str) -> Result<(), GroupError> {
        check_group_name(group)?;
        let Some(cell) = self.known_cell(group)? else { return Err(GroupError::UnknownGroup) };
        let outcome = self.delete(&cell)?.await;
        self.forget_cell(&cell);
        match outcome.map_err(Unavailable::from)? {
            Outcome::Done => Ok(()),
            _ => Err(GroupError::UnknownGroup),
        }
    }

    /// All groups whose coordinator is on this node, by name.
    pub fn list_groups(&self) -> Vec<GroupListing> {
        let mut listings = Vec::new();
        for shard in self.node.data_shards() {
            let Ok(handle) = self.shard(shard) else { continue };
            if !handle.leadership().ready {
                continue;
            }
            let mut names: std::collections::BTreeSet<String> = handle.view().groups().into_iter().collect();
            names.extend(self.groups.names(shard));
            listings.extend(names.into_iter().filter_map(|group| self.listing(shard, group)));
        }
        listings.sort_by(|a, b| a.group.cmp(&b.group));
        listings
    }

    fn listing(&self, shard: ShardId, group: String) -> Option<GroupListing> {
        let stored = self.shard(shard).ok()?.view().group(&group);
        if let Some(cell) = self.groups.get(shard, &group)
            && (stored.is_some() || !cell.is_blank())
        {
            return cell.listing();
        }
        let state = stored?;
        let protocol_type = state.membership().map(|m| m.protocol_type.clone()).unwrap_or_default();
        Some(GroupListing { group, protocol_type, state: GroupState::Empty })
    }

    /// A group in full. One that does not exist is described as [`GroupState::Dead`].
    pub fn describe_group(&self, group: &str) -> Result<GroupDescription, GroupError> {
        check_group_name(group)?;
        let cell = self.known_cell(group)?;
        let stored = self.shard(self.shard_of_group(group))?.view().group(group).is_some();
        match cell.filter(|cell| stored || !cell.is_blank()) {
            Some(cell) => Ok(cell.describe()),
            None => Ok(GroupDescription {
                group: group.to_owned(),
                state: GroupState::Dead,
                generation: 0,
                protocol_type: String::new(),
                protocol: String::new(),
                members: Vec::new(),
            }),
        }
    }

    /// The shard that has a group: by a hash of its name that is the same for ever.
    pub(crate) fn shard_of_group(&self, group: &str) -> ShardId {
        let shards = self.node.data_shards();
        let at = stable_hash(group.as_bytes()) % shards.len().max(1) as u64;
        shards.get(at as usize).copied().unwrap_or_default()
    }

    /// The coordinator of a group, if there is such a group.
    pub(super) fn known_cell(&self, group: &str) -> Result<Option<std::sync::Arc<Cell>>, GroupError> {
        self.cell(group, false)
    }

    /// The coordinator of a group, made if there is no such group.
    pub(super) fn new_cell(&self, group: &str) -> Result<std::sync::Arc<Cell>, GroupError> {
        self.cell(group, true)?.ok_or(GroupError::UnknownGroup)
    }
}

fn committed(commit: &OffsetCommit) -> CommittedOffset {
    CommittedOffset {
        topic_id: commit.topic_id,
        partition: commit.partition,
        offset: commit.offset,
        leader_epoch: commit.leader_epoch,
        metadata: commit.metadata.clone(),
        committed_at: commit.committed_at,
    }
}

/// The coordinator answered a request with the answer to another kind, which cannot be.
fn mixed_up() -> GroupError {
    Unavailable::Stopped("a group's coordinator answered something else than it was asked".into()).into()
}

/// FNV-1a. It decides where groups live, so it must never change.
fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
