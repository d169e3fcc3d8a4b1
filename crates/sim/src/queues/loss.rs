//! What was acknowledged is accepted by somebody in the end, or rejected, or is where the dead are.

use super::check::deliveries;
use super::damage::QueueDamage;
use super::keys::is_repeat;
use super::records::{Deed, Kind, Sorted};
use crate::declared::rules;

pub fn check(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    for (&message, sent) in sorted.sent.iter().filter(|(_, sent)| sent.due.is_none()) {
        let (Some(told), Some(&queue)) = (sent.acknowledged, sent.queues.first()) else { continue };
        let buried = rules(queue).dead_go_to.filter(|dead| sorted.places.contains_key(&(*dead, message)));
        let is_there = sorted.places.contains_key(&(queue, message)) || buried.is_some();
        if !is_there && !is_repeat(sorted, queue, &message, sent, told) {
            damage.push(QueueDamage::Lost { queue, message });
        }
    }
    for (&(queue, _), deeds) in &sorted.deeds {
        let Some((last, handed)) = deliveries(deeds).max_by_key(|(deed, _)| (deed.term, deed.index)) else {
            continue;
        };
        let message = handed.message;
        let dead = rules(queue).dead_go_to;
        let is_buried = dead.is_some_and(|dead| sorted.places.contains_key(&(dead, message)));
        if !is_settled_after(deeds, last) && !is_buried {
            damage.push(QueueDamage::Lost { queue, message });
        }
        let is_rejected = deeds.iter().any(|deed| matches!(deed.kind, Kind::Settled { reject: true }));
        if is_rejected && dead.is_some() && !is_buried {
            damage.push(QueueDamage::NotBuried { queue, message });
        }
    }
}

/// Whether whoever got it last, in the newest leadership, settled it.
fn is_settled_after(deeds: &[Deed], last: &Deed) -> bool {
    let by_whom = deeds.iter().filter(|deed| deed.session == last.session && deed.index > last.index);
    by_whom.into_iter().any(|deed| matches!(deed.kind, Kind::Settling))
}
