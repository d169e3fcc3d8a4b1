//! A group: who is in it as of the last completed rebalance, and up to where it has read.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::TopicId;
use weir_model::command::{GroupMembership, OffsetCommit};
use weir_model::wire::{DecodeError, Reader, Writer};

use crate::limits::{MEMBERS_PER_GROUP_MAX, OFFSETS_PER_GROUP_MAX};

/// Partitions of a topic whose positions share a chunk.
const PARTITIONS_PER_CHUNK: i32 = 64;

/// A group's positions by topic and run of partitions.
type OffsetChunks = BTreeMap<(TopicId, i32), Arc<BTreeMap<i32, OffsetCommit>>>;

/// One group. A snapshot: it does not change while somebody holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    membership: Option<Arc<GroupMembership>>,
    offsets: OffsetChunks,
    offset_count: usize,
}

impl GroupState {
    /// Who is in it; none if the group only ever committed positions.
    pub fn membership(&self) -> Option<&Arc<GroupMembership>> {
        self.membership.as_ref()
    }

    /// The committed position in one partition.
    pub fn offset(&self, topic_id: TopicId, partition: i32) -> Option<&OffsetCommit> {
        self.offsets.get(&chunk_of(topic_id, partition))?.get(&partition)
    }

    /// All committed positions, by topic and partition.
    pub fn offsets(&self) -> impl Iterator<Item = &OffsetCommit> {
        self.offsets.values().flat_map(|chunk| chunk.values())
    }

    /// How many positions there are.
    pub fn offset_count(&self) -> usize {
        self.offset_count
    }

    /// Whether nothing is known of it any more.
    pub(crate) fn is_void(&self) -> bool {
        self.membership.is_none() && self.offset_count == 0
    }

    pub(crate) fn set_membership(&mut self, mut membership: GroupMembership) {
        // What was decoded shares the buffer that it came in, which may be a thousand times larger.
        for member in &mut membership.members {
            member.assignment = Bytes::copy_from_slice(&member.assignment);
            member.protocols.iter_mut().for_each(|(_, data)| *data = Bytes::copy_from_slice(data));
        }
        self.membership = Some(Arc::new(membership));
    }

    pub(crate) fn commit(&mut self, commit: OffsetCommit) {
        let chunk = self.offsets.entry(chunk_of(commit.topic_id, commit.partition)).or_default();
        if Arc::make_mut(chunk).insert(commit.partition, commit).is_none() {
            self.offset_count += 1;
        }
    }

    /// Forgets a position. Returns whether there was one.
    pub(crate) fn forget(&mut self, topic_id: TopicId, partition: i32) -> bool {
        let key = chunk_of(topic_id, partition);
        let Some(chunk) = self.offsets.get_mut(&key).filter(|chunk| chunk.contains_key(&partition)) else {
            return false;
        };
        Arc::make_mut(chunk).remove(&partition);
        if chunk.is_empty() {
            self.offsets.remove(&key);
        }
        self.offset_count -= 1;
        true
    }

    pub(crate) fn has_topic(&self, topic_id: TopicId) -> bool {
        self.offsets.range((topic_id, i32::MIN)..=(topic_id, i32::MAX)).next().is_some()
    }

    /// Forgets all positions in a topic.
    pub(crate) fn forget_topic(&mut self, topic_id: TopicId) {
        self.offsets.retain(|(topic, _), _| *topic != topic_id);
        self.offset_count = self.offsets.values().map(|chunk| chunk.len()).sum();
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u8(u8::from(self.membership.is_some()));
        if let Some(membership) = &self.membership {
            membership.encode(out);
        }
        out.u32(self.offset_count as u32);
        self.offsets().for_each(|offset| offset.encode(out));
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<GroupState, DecodeError> {
        let mut group = GroupState::default();
        if reader.bool()? {
            let membership = GroupMembership::decode(reader)?;
            if membership.members.len() > MEMBERS_PER_GROUP_MAX {
                return Err(reader.error("more members than a group may have"));
            }
            group.set_membership(membership);
        }
        let offsets = reader.list(44, OffsetCommit::decode)?;
        if offsets.len() > OFFSETS_PER_GROUP_MAX {
            return Err(reader.error("more positions than a group may have"));
        }
        offsets.into_iter().for_each(|offset| group.commit(offset));
        Ok(group)
    }
}

fn chunk_of(topic_id: TopicId, partition: i32) -> (TopicId, i32) {
    (topic_id, partition.div_euclid(PARTITIONS_PER_CHUNK))
}
