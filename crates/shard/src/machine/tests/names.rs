//! Topics and groups under random commands against plain maps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_model::command::{Command, GroupMembership, OffsetCommit, Outcome, Refusal};
use weir_model::entry::Entry;
use weir_model::{ShardId, TopicId};

use super::{Machine, reloaded};

#[derive(Clone, Debug)]
enum Step {
    Create { name: u8, id: u8, partitions: usize },
    Delete { id: u8 },
    Forget { id: u8 },
    Add { id: u8, expected: u32, partitions: usize },
    Commit { group: u8, topic: u8, partition: i32, offset: i64 },
    Store { group: u8, generation: i32 },
    DeleteOffset { group: u8, topic: u8, partition: i32 },
    DeleteGroup { group: u8 },
    DropTopic { topic: u8 },
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    // Partitions of two chunks of a group's positions.
    let partition = || prop_oneof![0i32..3, 63i32..66];
    prop_oneof![
        4 => (0u8..4, 1u8..6, 0usize..4).prop_map(|(name, id, partitions)| Step::Create { name, id, partitions }),
        2 => (1u8..6).prop_map(|id| Step::Delete { id }),
        2 => (1u8..6).prop_map(|id| Step::Forget { id }),
        2 => (1u8..6, 0u32..5, 0usize..3)
            .prop_map(|(id, expected, partitions)| Step::Add { id, expected, partitions }),
        6 => (0u8..3, 1u8..4, partition(), 0i64..100)
            .prop_map(|(group, topic, partition, offset)| Step::Commit { group, topic, partition, offset }),
        1 => (0u8..3, 0i32..9).prop_map(|(group, generation)| Step::Store { group, generation }),
        3 => (0u8..3, 1u8..4, partition())
            .prop_map(|(group, topic, partition)| Step::DeleteOffset { group, topic, partition }),
        1 => (0u8..3).prop_map(|group| Step::DeleteGroup { group }),
        1 => (1u8..4).prop_map(|topic| Step::DropTopic { topic }),
        1 => Just(Step::Reload),
    ]
}

/// A group's generation and positions.
type Group = (Option<i32>, BTreeMap<(u8, i32), i64>);

#[derive(Default)]
struct Model {
    /// Name, partition ids, and whether it is being deleted, by id.
    topics: BTreeMap<u8, (u8, Vec<u64>, bool)>,
    next_partition: u64,
    groups: BTreeMap<u8, Group>,
}

/// What an outcome must be.
#[derive(Debug, PartialEq)]
enum Wanted {
    Done,
    Partitions(Vec<u64>),
    Refused,
}

impl Model {
    fn mint(&mut self, count: usize) -> Vec<u64> {
        let first = self.next_partition;
        self.next_partition += count as u64;
        (first..self.next_partition).collect()
    }

    fn step(&mut self, step: &Step) -> Wanted {
        match *step {
            Step::Create { name, id, partitions } => {
                let named = self.topics.iter().find(|(_, topic)| topic.0 == name && !topic.2);
                match named {
                    Some((same, topic)) if *same == id => Wanted::Partitions(topic.1.clone()),
                    Some(_) => Wanted::Refused,
                    None if self.topics.contains_key(&id) => Wanted::Refused,
                    None => {
                        let minted = self.mint(partitions);
                        self.topics.insert(id, (name, minted.clone(), false));
                        Wanted::Partitions(minted)
                    }
                }
            }
            Step::Delete { id } => match self.topics.get_mut(&id).filter(|topic| !topic.2) {
                Some(topic) => {
                    topic.2 = true;
                    Wanted::Done
                }
                None => Wanted::Refused,
            },
            Step::Forget { id } => match self.topics.get(&id).is_some_and(|topic| topic.2) {
                true => {
                    self.topics.remove(&id);
                    Wanted::Done
                }
                false => Wanted::Refused,
            },
            Step::Add { id, expected, partitions } => {
                match self.topics.get(&id).filter(|topic| !topic.2 && topic.1.len() == expected as usize) {
                    None => Wanted::Refused,
                    Some(_) => {
                        let minted = self.mint(partitions);
                        let all = &mut self.topics.get_mut(&id).unwrap().1;
                        all.extend(minted);
                        Wanted::Partitions(all.clone())
                    }
                }
            }
            Step::Commit { group, topic, partition, offset } => {
                self.groups.entry(group).or_default().1.insert((topic, partition), offset);
                Wanted::Done
            }
            Step::Store { group, generation } => {
                self.groups.entry(group).or_default().0 = Some(generation);
                Wanted::Done
            }
            Step::DeleteOffset { group, topic, partition } => match self.groups.get_mut(&group) {
                None => Wanted::Refused,
                Some(found) => {
                    found.1.remove(&(topic, partition));
                    self.drop_void();
                    Wanted::Done
                }
            },
            Step::DeleteGroup { group } => match self.groups.remove(&group) {
                None => Wanted::Refused,
                Some(_) => Wanted::Done,
            },
            Step::DropTopic { topic } => {
                self.groups.values_mut().for_each(|group| group.1.retain(|(of, _), _| *of != topic));
                self.drop_void();
                Wanted::Done
            }
            Step::Reload => Wanted::Done,
        }
    }

    fn drop_void(&mut self) {
        self.groups.retain(|_, (generation, offsets)| generation.is_some() || !offsets.is_empty());
    }
}

fn command(step: &Step) -> Option<Command> {
    let topic_id = |id: u8| TopicId([id; 16]);
    let placement = |count: usize| vec![ShardId(1); count];
    let group = |group: u8| format!("group {group}");
    Some(match *step {
        Step::Create { name, id, partitions } => Command::CreateTopic {
            name: format!("topic {name}"),
            topic_id: topic_id(id),
            placement: placement(partitions),
            config: BTreeMap::new(),
        },
        Step::Delete { id } => Command::DeleteTopic { topic_id: topic_id(id) },
        Step::Forget { id } => Command::ForgetTopic { topic_id: topic_id(id) },
        Step::Add { id, expected, partitions } => {
            Command::AddPartitions { topic_id: topic_id(id), expected, placement: placement(partitions) }
        }
        Step::Commit { group: name, topic, partition, offset } => {
            let (topic_id, metadata) = (topic_id(topic), String::new());
            let commit =
                OffsetCommit { topic_id, partition, offset, leader_epoch: 0, metadata, committed_at: 0 };
            Command::CommitOffsets { group: group(name), offsets: vec![commit] }
        }
        Step::Store { group: name, generation } => Command::StoreGroup {
            group: group(name),
            membership: GroupMembership { generation, ..GroupMembership::default() },
        },
        Step::DeleteOffset { group: name, topic, partition } => {
            Command::DeleteOffsets { group: group(name), partitions: vec![(topic_id(topic), partition)] }
        }
        Step::DeleteGroup { group: name } => Command::DeleteGroup { group: group(name) },
        Step::DropTopic { topic } => Command::DropTopicOffsets { topic_id: topic_id(topic) },
        Step::Reload => return None,
    })
}

fn check_outcome(outcome: Outcome, wanted: Wanted) {
    let got = match outcome {
        Outcome::Done => Wanted::Done,
        Outcome::Topic(meta) => Wanted::Partitions(meta.partitions.iter().map(|p| p.id.0).collect()),
        Outcome::Refused(
            Refusal::TopicExists(_)
            | Refusal::UnknownTopic(_)
            | Refusal::PartitionCount(_)
            | Refusal::UnknownGroup(_),
        ) => Wanted::Refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(got, wanted);
}

fn check_state(machine: &Machine, model: &Model) {
    let catalog = machine.catalog();
    let live = model.topics.iter().filter(|(_, topic)| !topic.2);
    assert_eq!(catalog.topic_count(), live.clone().count());
    for (id, (name, partitions, _)) in live {
        let topic = catalog.topic(&format!("topic {name}")).unwrap();
        assert_eq!(topic.id, TopicId([*id; 16]));
        assert_eq!(topic.partitions.iter().map(|p| p.id.0).collect::<Vec<_>>(), *partitions);
        assert_eq!(catalog.topic_by_id(topic.id), Some(topic));
    }
    let deleting: Vec<u8> = model.topics.iter().filter(|(_, topic)| topic.2).map(|(id, _)| *id).collect();
    let mut found: Vec<u8> = catalog.deleting().iter().map(|topic| topic.id.0[0]).collect();
    found.sort();
    assert_eq!(found, deleting);
    assert_eq!(machine.groups().count(), model.groups.len());
    for (name, (generation, offsets)) in &model.groups {
        let group = machine.group(&format!("group {name}")).unwrap();
        assert_eq!(group.membership().map(|membership| membership.generation), *generation);
        assert_eq!(group.offset_count(), offsets.len());
        let found: Vec<_> = group.offsets().map(|o| ((o.topic_id.0[0], o.partition), o.offset)).collect();
        assert_eq!(found, offsets.iter().map(|(place, offset)| (*place, *offset)).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn topics_and_groups_are_what_maps_would_be(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut machine, mut model) = (Machine::new(), Model::default());
        for (step, index) in steps.iter().zip(1..) {
            let wanted = model.step(step);
            match command(step) {
                Some(command) => {
                    let entry = Entry { time: 0, commands: vec![command] };
                    let outcomes = machine.apply(index, 1, &entry, &mut Vec::new()).unwrap();
                    check_outcome(outcomes.into_iter().next().unwrap(), wanted);
                }
                None => {
                    let mut loaded = reloaded(&machine);
                    assert_eq!(loaded.digest(), machine.digest());
                    machine = loaded;
                }
            }
            check_state(&machine, &model);
        }
    }
}
