//! Who reads what: the range assignor, which every Kafka client knows. The members of a group elect one
//! among them, and it divides each topic's partitions into ranges.

use std::collections::{BTreeMap, BTreeSet};

use weir_kafka_wire::ConsumerProtocolAssignment;
use weir_kafka_wire::messages::consumer_protocol::TopicPartition;

/// The assignor's name among clients.
pub(super) const NAME: &str = "range";

/// A member that wants to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reader {
    pub(super) member_id: String,
    /// A static member keeps its place among the others by this.
    pub(super) instance_id: Option<String>,
    pub(super) topics: BTreeSet<String>,
}

/// What each member gets, given each topic's number of partitions. Of a topic's members, ordered by name,
/// each gets the same number of neighbouring partitions, the first ones one more if they do not divide.
pub(super) fn assign(
    readers: &[Reader],
    partitions: &BTreeMap<String, usize>,
) -> BTreeMap<String, BTreeMap<String, Vec<i32>>> {
    let mut assignments: BTreeMap<String, BTreeMap<String, Vec<i32>>> =
        readers.iter().map(|reader| (reader.member_id.clone(), BTreeMap::new())).collect();
    for (topic, count) in partitions {
        let mut interested: Vec<&Reader> =
            readers.iter().filter(|reader| reader.topics.contains(topic)).collect();
        interested.sort_by_key(|reader| {
            // Kafka's order: static members by their own name, before the others.
            (reader.instance_id.is_none(), reader.instance_id.as_ref().unwrap_or(&reader.member_id))
        });
        let mut next = 0;
        for (index, reader) in interested.iter().enumerate() {
            let share = count / interested.len() + usize::from(index < count % interested.len());
            let range: Vec<i32> = (next..next + share).map(|partition| partition as i32).collect();
            next += share;
            if let Some(assignment) = assignments.get_mut(&reader.member_id).filter(|_| !range.is_empty()) {
                assignment.insert(topic.clone(), range);
            }
        }
    }
    assignments
}

/// An assignment as members tell it to each other.
pub(super) fn message(assignment: &BTreeMap<String, Vec<i32>>) -> ConsumerProtocolAssignment {
    let assigned_partitions = assignment
        .iter()
        .map(|(topic, partitions)| TopicPartition { topic: topic.into(), partitions: partitions.clone() });
    ConsumerProtocolAssignment { assigned_partitions: assigned_partitions.collect(), user_data: None }
}
