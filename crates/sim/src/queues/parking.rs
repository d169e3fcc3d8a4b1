//! Parked records: each comes once, not before its time, and not at all if it was taken back.

use super::check::deliveries;
use super::damage::QueueDamage;
use super::records::Sorted;

pub fn check(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    for (&message, sent) in &sorted.sent {
        let Some(due) = sent.due else { continue };
        for &queue in &sent.queues {
            let places = sorted.places.get(&(queue, message)).map_or(&[][..], Vec::as_slice);
            if places.len() > 1 {
                damage.push(QueueDamage::ReleasedTwice { queue, message });
            }
            if sent.cancelled && !places.is_empty() {
                damage.push(QueueDamage::ReleasedThoughCancelled { queue, message });
            }
            if places.is_empty() && sent.acknowledged.is_some() && !sent.cancelling {
                damage.push(QueueDamage::NeverReleased { queue, message });
            }
            let seen = places.iter().filter_map(|offset| sorted.deeds.get(&(queue, *offset)));
            let first = seen.flat_map(|deeds| deliveries(deeds)).map(|(deed, _)| deed.at).min();
            if let Some(at) = first.filter(|at| *at < due) {
                damage.push(QueueDamage::TooEarly { queue, message, by_ms: due - at });
            }
        }
    }
}
