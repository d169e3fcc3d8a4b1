//! All checks, and those of a record's settlement.

use super::damage::QueueDamage;
use super::history::{Event, Handed};
use super::records::{Deed, Kind, Sorted};
use super::{counts, keys, loss, order, parking};

/// Holds a history against the rules.
pub fn check(events: &[Event]) -> Vec<QueueDamage> {
    let sorted = Sorted::new(events);
    let mut damage = Vec::new();
    contents(&sorted, &mut damage);
    settlements(&sorted, &mut damage);
    order::check(&sorted, &mut damage);
    counts::check(&sorted, &mut damage);
    parking::check(&sorted, &mut damage);
    keys::check(&sorted, &mut damage);
    loss::check(&sorted, &mut damage);
    damage
}

/// The deliveries among deeds.
pub fn deliveries(deeds: &[Deed]) -> impl Iterator<Item = (&Deed, &Handed)> {
    deeds.iter().filter_map(|deed| match &deed.kind {
        Kind::Handed(handed) => Some((deed, handed)),
        _ => None,
    })
}

/// What stands where.
fn contents(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    for (&(queue, offset), deeds) in &sorted.deeds {
        let mut handed = deliveries(deeds).map(|(_, handed)| handed.message);
        let Some(message) = handed.next() else { continue };
        if let Some(other) = handed.find(|other| *other != message) {
            damage.push(QueueDamage::Changed { queue, offset, was: message, is: other });
        }
        let dead_come_here = |from: u8| crate::declared::rules(from).dead_go_to == Some(queue);
        let belongs = sorted
            .sent
            .get(&message)
            .is_some_and(|sent| sent.queues.iter().any(|target| *target == queue || dead_come_here(*target)));
        if !belongs {
            damage.push(QueueDamage::Unexpected { queue, offset, message });
        }
    }
}

/// Nothing that is settled comes again, and nothing is with two at once.
fn settlements(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    for (&(queue, offset), deeds) in &sorted.deeds {
        let settled = deeds.iter().find(|deed| matches!(deed.kind, Kind::Settled { .. }));
        if let Some(settled) = settled {
            let again = deliveries(deeds).find(|(deed, _)| deed.index > settled.index);
            if let Some((again, handed)) = again {
                damage.push(QueueDamage::CameAgain {
                    queue,
                    offset,
                    message: handed.message,
                    settled_in: settled.term,
                    handed_in: again.term,
                });
            }
        }
        for (at, (deed, _)) in deliveries(deeds).enumerate() {
            let next = deliveries(deeds).skip(at + 1).find(|(next, _)| next.term == deed.term);
            let Some((next, _)) = next else { continue };
            let given_back = deeds.iter().any(|between| {
                matches!(between.kind, Kind::Releasing { .. })
                    && between.session == deed.session
                    && (deed.index..next.index).contains(&between.index)
            });
            if !given_back && !sorted.is_closed_before(deed.session, next.index) {
                let (first, second) = (deed.session, next.session);
                damage.push(QueueDamage::WithTwo { queue, offset, first, second });
            }
        }
    }
}
