//! The order of first deliveries, of each publisher's messages, and of what came back.

use std::collections::{BTreeMap, VecDeque};

use weir_model::queue::QueueKind;

use super::check::deliveries;
use super::damage::QueueDamage;
use super::history::{Handed, SessionId, Settling};
use super::records::{Kind, Session, Sorted};
use crate::declared::{QueueNumber, rules};

pub fn check(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    sorted.sessions.iter().for_each(|(id, session)| first_deliveries(*id, session, damage));
    marks(sorted, damage);
    publishers(sorted, damage);
    for (id, session) in sorted.sessions.iter().filter(|(_, session)| rules(session.queue).alone) {
        let said = session.settled.iter().filter(|(_, said)| !said.releases.is_empty());
        said.for_each(|(index, said)| returns(*id, session, *index, said, damage));
    }
}

/// Whoever gets records for the first time gets them in the order of the log.
fn first_deliveries(id: SessionId, session: &Session, damage: &mut Vec<QueueDamage>) {
    let mut last = i64::MIN;
    for (_, handed) in session.handed.iter().filter(|(_, handed)| !handed.redelivered) {
        let Handed { queue, offset, .. } = *handed;
        if offset <= last {
            damage.push(QueueDamage::NotInOrder { queue, session: id, offset, after: last });
        }
        last = last.max(offset);
    }
}

/// In one leadership a record comes for the first time once. A leadership also knows what was handed out before it, up to
/// the last record of which anything was durable then.
fn marks(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    let mut durable: BTreeMap<QueueNumber, Vec<(usize, u64, i64)>> = BTreeMap::new();
    for (&(queue, offset), deeds) in &sorted.deeds {
        let told =
            deeds.iter().filter(|deed| matches!(deed.kind, Kind::Settled { .. } | Kind::Released { .. }));
        durable.entry(queue).or_default().extend(told.map(|deed| (deed.index, deed.term, offset)));
    }
    for (&(queue, offset), deeds) in &sorted.deeds {
        for (deed, _) in deliveries(deeds).filter(|(_, handed)| !handed.redelivered) {
            let repeats =
                deliveries(deeds).any(|(other, _)| other.term == deed.term && other.index < deed.index);
            let is_known = durable.get(&queue).is_some_and(|durable| {
                durable.iter().any(|(index, term, settled)| {
                    *index < deed.index && *term < deed.term && *settled >= offset
                })
            });
            if repeats || is_known {
                damage.push(QueueDamage::NotMarked { queue, offset });
            }
        }
    }
}

/// What a publisher was told is durable stands in the order in which it was sent. An attempt that nobody answered may
/// stand anywhere, and one that was a repeat by its key nowhere.
fn publishers(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    let mut last: BTreeMap<(QueueNumber, u32), i64> = BTreeMap::new();
    // By queue, publisher and number.
    for ((queue, message), places) in &sorted.places {
        let sent = sorted.sent.get(message).filter(|sent| sent.due.is_none() && sent.queues.contains(queue));
        let is_acknowledged = sent.is_some_and(|sent| sent.acknowledged.is_some());
        let Some(place) = places.iter().min().filter(|_| is_acknowledged) else { continue };
        let last = last.entry((*queue, message.publisher)).or_insert(i64::MIN);
        if *place < *last {
            damage.push(QueueDamage::PublisherNotInOrder { queue: *queue, message: *message });
        }
        *last = (*last).max(*place);
    }
}

/// Where one consumer gets everything, what it gave back together comes again in the order that the kind of queue
/// promises; and before anything new, if nothing new was on its way to it already.
fn returns(id: SessionId, session: &Session, index: usize, said: &Settling, damage: &mut Vec<QueueDamage>) {
    let mut expected: VecDeque<i64> = said.releases.iter().copied().collect();
    if rules(session.queue).kind == QueueKind::Classic {
        expected.make_contiguous().sort_unstable();
    }
    let later = session.handed.iter().skip_while(|(at, _)| *at < index);
    for (_, handed) in later {
        let Some(next) = expected.front().copied() else { return };
        let is_new = !handed.redelivered && said.full;
        if handed.offset == next {
            expected.pop_front();
        } else if expected.contains(&handed.offset) || is_new {
            damage.push(QueueDamage::ReturnsNotInOrder {
                queue: session.queue,
                session: id,
                expected: next,
                found: handed.offset,
            });
            return;
        }
    }
}
