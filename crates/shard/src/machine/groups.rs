//! Commands that concern groups: membership and committed positions.

use std::sync::Arc;

use weir_model::TopicId;
use weir_model::command::{GroupMembership, OffsetCommit, Outcome, Refusal};

use super::meta::limit;
use super::{Context, Effect, Machine};
use crate::limits::{
    GROUPS_PER_SHARD_MAX, MEMBERS_PER_GROUP_MAX, OFFSET_METADATA_BYTES_MAX, OFFSETS_PER_GROUP_MAX,
};
use crate::state::group::GroupState;

impl Machine {
    pub(super) fn store_group(
        &mut self,
        context: Context,
        name: &str,
        membership: &GroupMembership,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if membership.members.len() > MEMBERS_PER_GROUP_MAX {
            return limit("members per group", MEMBERS_PER_GROUP_MAX);
        }
        if self.lacks_room_for(name) {
            return limit("groups per shard", GROUPS_PER_SHARD_MAX);
        }
        let membership = GroupMembership { changed_at: context.now, ..membership.clone() };
        self.change_group(context, name).set_membership(membership);
        effects.push(Effect::GroupChanged(name.to_owned()));
        Outcome::Done
    }

    pub(super) fn commit_offsets(
        &mut self,
        context: Context,
        name: &str,
        offsets: &[OffsetCommit],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if offsets.is_empty() {
            return Outcome::Done;
        }
        if self.lacks_room_for(name) {
            return limit("groups per shard", GROUPS_PER_SHARD_MAX);
        }
        if offsets.iter().any(|offset| offset.metadata.len() > OFFSET_METADATA_BYTES_MAX) {
            return limit("bytes of metadata per committed offset", OFFSET_METADATA_BYTES_MAX);
        }
        let group = self.groups.get(name);
        let before = group.map_or(0, |group| group.offset_count());
        if before + offsets.len() > OFFSETS_PER_GROUP_MAX {
            let is_new =
                |o: &&OffsetCommit| group.is_none_or(|g| g.offset(o.topic_id, o.partition).is_none());
            if before + offsets.iter().filter(is_new).count() > OFFSETS_PER_GROUP_MAX {
                return limit("committed offsets per group", OFFSETS_PER_GROUP_MAX);
            }
        }
        let group = self.change_group(context, name);
        for offset in offsets {
            group.commit(OffsetCommit { committed_at: context.now, ..offset.clone() });
        }
        effects.push(Effect::GroupChanged(name.to_owned()));
        Outcome::Done
    }

    pub(super) fn delete_offsets(
        &mut self,
        context: Context,
        name: &str,
        partitions: &[(TopicId, i32)],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let Some(group) = self.groups.change(name, context.index).map(Arc::make_mut) else {
            return Outcome::Refused(Refusal::UnknownGroup(name.to_owned()));
        };
        let mut forgotten = false;
        for (topic_id, partition) in partitions {
            forgotten |= group.forget(*topic_id, *partition);
        }
        if forgotten {
            self.drop_if_void(context, name);
            effects.push(Effect::GroupChanged(name.to_owned()));
        }
        Outcome::Done
    }

    pub(super) fn delete_group(
        &mut self,
        context: Context,
        name: &str,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        match self.groups.remove(name, context.index) {
            None => Outcome::Refused(Refusal::UnknownGroup(name.to_owned())),
            Some(_) => {
                effects.push(Effect::GroupChanged(name.to_owned()));
                Outcome::Done
            }
        }
    }

    pub(super) fn drop_topic_offsets(
        &mut self,
        context: Context,
        topic_id: TopicId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let concerned: Vec<String> =
            self.groups.iter().filter(|(_, g)| g.has_topic(topic_id)).map(|(name, _)| name.clone()).collect();
        for name in concerned {
            if let Some(group) = self.groups.change(&name, context.index) {
                Arc::make_mut(group).forget_topic(topic_id);
            }
            self.drop_if_void(context, &name);
            effects.push(Effect::GroupChanged(name));
        }
        Outcome::Done
    }

    /// The group for changing it, made if it is not there.
    fn change_group(&mut self, context: Context, name: &str) -> &mut GroupState {
        if self.groups.get(name).is_none() {
            self.groups.insert(name.to_owned(), Arc::default(), context.index);
        }
        match self.groups.change(name, context.index) {
            Some(group) => Arc::make_mut(group),
            None => unreachable!("it was put there above"),
        }
    }

    fn lacks_room_for(&self, name: &str) -> bool {
        self.groups.len() >= GROUPS_PER_SHARD_MAX && self.groups.get(name).is_none()
    }

    /// A group of which nothing is left is not listed any more.
    fn drop_if_void(&mut self, context: Context, name: &str) {
        if self.groups.get(name).is_some_and(|group| group.is_void()) {
            self.groups.remove(name, context.index);
        }
    }
}
