//! What is in a log twice: one sending of a message, or two messages of one business key.

use std::collections::BTreeMap;

use super::damage::QueueDamage;
use super::history::Message;
use super::records::{Kind, Moment, Sent, Sorted};
use crate::declared::{Keys, QUEUES, QueueNumber, rules};

pub fn check(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    sendings(sorted, damage);
    for (queue, rules) in (0..).zip(&QUEUES).filter(|(_, rules)| rules.keys != Keys::Ignored) {
        for stored in stored_by_key(sorted, queue).into_values() {
            for pair in stored.windows(2) {
                let [(_, first, key), (_, second, _)] = pair else { continue };
                if was_known(sorted, queue, rules.keys, first, second) {
                    let (key, first, second) = (*key, *first, *second);
                    damage.push(QueueDamage::KeyTwice { queue, key, first, second });
                }
            }
        }
    }
}

/// A publisher sends each attempt once, so that it is in the log once; only a dead letter may be published again, if its
/// leader fails in between.
fn sendings(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    for (&(queue, message), places) in &sorted.places {
        let sent = sorted.sent.get(&message);
        let is_direct = sent.is_some_and(|sent| sent.due.is_none() && sent.queues.contains(&queue));
        if is_direct && places.len() > 1 {
            damage.push(QueueDamage::StoredTwice { queue, message });
        }
    }
}

/// The messages that are in a queue, by key, in their order there.
fn stored_by_key(sorted: &Sorted, queue: QueueNumber) -> BTreeMap<u32, Vec<(i64, Message, u32)>> {
    let mut stored: BTreeMap<u32, Vec<(i64, Message, u32)>> = BTreeMap::new();
    for ((_, message), places) in sorted.places.iter().filter(|((of, _), _)| *of == queue) {
        let Some(key) = sorted.sent.get(message).and_then(|sent| sent.key) else { continue };
        stored.entry(key).or_default().extend(places.iter().map(|place| (*place, *message, key)));
    }
    stored.values_mut().for_each(|list| list.sort_unstable());
    stored
}

/// Whether the first was surely known when the second came. Nobody outside knows when exactly a message was stored, but
/// not before it was sent, and not after its publisher was told or somebody got it.
fn was_known(sorted: &Sorted, queue: QueueNumber, keys: Keys, first: &Message, second: &Message) -> bool {
    let (Some(first_sent), Some(second_by)) = (sorted.sent.get(first), sorted.known_by(queue, second)) else {
        return false;
    };
    match keys {
        Keys::Ignored => false,
        Keys::ForMs(ms) => second_by.at < first_sent.sent.at + ms,
        Keys::WhileWaiting => settled_from(sorted, queue, first).is_none_or(|from| second_by.index < from),
    }
}

/// From where in the history on a message may be settled.
fn settled_from(sorted: &Sorted, queue: QueueNumber, message: &Message) -> Option<usize> {
    let deeds = sorted.places.get(&(queue, *message))?.iter().filter_map(|at| sorted.deeds.get(&(queue, *at)));
    let settling = deeds.flatten().filter(|deed| matches!(deed.kind, Kind::Settling));
    settling.map(|deed| deed.index).min()
}

/// From where in the history on a message is settled for certain.
fn settled_by(sorted: &Sorted, queue: QueueNumber, message: &Message) -> Option<usize> {
    let deeds = sorted.places.get(&(queue, *message))?.iter().filter_map(|at| sorted.deeds.get(&(queue, *at)));
    let settled = deeds.flatten().filter(|deed| matches!(deed.kind, Kind::Settled { .. }));
    settled.map(|deed| deed.index).min()
}

/// Whether another message of the same key is a reason for not storing one that was acknowledged.
pub fn is_repeat(sorted: &Sorted, queue: QueueNumber, message: &Message, sent: &Sent, told: Moment) -> bool {
    let same_key = sorted.places.keys().filter(|(of, other)| {
        let key = sorted.sent.get(other).and_then(|other| other.key);
        *of == queue && other != message && key.is_some() && key == sent.key
    });
    let mut others = same_key.filter_map(|(_, other)| Some((other, sorted.sent.get(other)?)));
    others.any(|(other, other_sent)| {
        let came_before = other_sent.sent.index < told.index;
        let was_still_known = match rules(queue).keys {
            Keys::Ignored => false,
            Keys::ForMs(ms) => {
                sorted.known_by(queue, other).is_some_and(|by| by.at + ms > sent.sent.at)
            }
            Keys::WhileWaiting => settled_by(sorted, queue, other).is_none_or(|by| by > sent.sent.index),
        };
        came_before && was_still_known
    })
}
