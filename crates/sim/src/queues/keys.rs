//! What is in a log twice: one sending of a message, or two messages of one business key.

use super::damage::QueueDamage;
use super::history::Message;
use super::records::{Kind, Moment, Sent, Sorted};
use crate::declared::{Keys, QueueNumber, rules};

pub fn check(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    sendings(sorted, damage);
    for (&(queue, key), messages) in &sorted.by_key {
        let places = |message: &Message| sorted.places.get(&(queue, *message)).into_iter().flatten().copied();
        let mut stored: Vec<(i64, Message)> =
            messages.iter().flat_map(|message| places(message).map(|place| (place, *message))).collect();
        stored.sort_unstable();
        for pair in stored.windows(2) {
            let [(_, first), (_, second)] = *pair else { continue };
            if was_known(sorted, queue, rules(queue).keys, &first, &second) {
                damage.push(QueueDamage::KeyTwice { queue, key, first, second });
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
    let deeds =
        sorted.places.get(&(queue, *message))?.iter().filter_map(|at| sorted.deeds.get(&(queue, *at)));
    let settling = deeds.flatten().filter(|deed| matches!(deed.kind, Kind::Settling));
    settling.map(|deed| deed.index).min()
}

/// From where in the history on a message is settled for certain.
fn settled_by(sorted: &Sorted, queue: QueueNumber, message: &Message) -> Option<usize> {
    let deeds =
        sorted.places.get(&(queue, *message))?.iter().filter_map(|at| sorted.deeds.get(&(queue, *at)));
    let settled = deeds.flatten().filter(|deed| matches!(deed.kind, Kind::Settled { .. }));
    settled.map(|deed| deed.index).min()
}

/// Whether another message of the same key is a reason for not storing one that was acknowledged.
pub fn is_repeat(sorted: &Sorted, queue: QueueNumber, message: &Message, sent: &Sent, told: Moment) -> bool {
    let same_key = sent.key.and_then(|key| sorted.by_key.get(&(queue, key))).into_iter().flatten();
    let others = same_key.filter(|other| *other != message);
    let mut others = others.filter_map(|other| Some((other, sorted.sent.get(other)?)));
    others.any(|(other, other_sent)| {
        let came_before = other_sent.sent.index < told.index;
        let was_still_known = match rules(queue).keys {
            Keys::Ignored => false,
            Keys::ForMs(ms) => sorted.known_by(queue, other).is_some_and(|by| by.at + ms > sent.sent.at),
            Keys::WhileWaiting => settled_by(sorted, queue, other).is_none_or(|by| by > sent.sent.index),
        };
        came_before && was_still_known
    })
}
