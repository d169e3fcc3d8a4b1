//! How often a record is said to have failed and come back.

use weir_model::Offset;

use super::check::deliveries;
use super::damage::QueueDamage;
use super::records::{Deed, Kind, Session, Sorted};
use crate::declared::{QueueNumber, rules};

pub fn check(sorted: &Sorted, damage: &mut Vec<QueueDamage>) {
    for (&(queue, offset), deeds) in &sorted.deeds {
        for (deed, handed) in deliveries(deeds) {
            let told = (handed.failures, handed.returns);
            if rules(queue).failures_max.is_some_and(|max| handed.failures > max) {
                damage.push(QueueDamage::TooOften { queue, offset, failures: handed.failures });
            }
            let counted = counted(deeds, deed);
            if told.0 < counted.0 || told.1 < counted.1 {
                damage.push(QueueDamage::CountFell { queue, offset, counted, told });
            }
            let most = most(sorted, (queue, offset), deeds, deed);
            if told.0 > most.0 || told.1 > most.1 {
                damage.push(QueueDamage::CountTooHigh { queue, offset, most, told });
            }
        }
    }
}

/// Failures and returns that a leader must know of: those that were durable in its leadership or one before, and what it
/// has told itself; a record that it handed out before has come back since.
fn counted(deeds: &[Deed], now: &Deed) -> (u16, u16) {
    let before = || deeds.iter().filter(|deed| deed.index < now.index);
    let durable = |only_failed: bool| {
        let told = before().filter(|deed| deed.term <= now.term);
        told.filter(|deed| match deed.kind {
            Kind::Released { failed } => failed || !only_failed,
            _ => false,
        })
        .count() as u16
    };
    let last = before().rev().find_map(|deed| match &deed.kind {
        Kind::Handed(handed) if deed.term == now.term => Some((handed.failures, handed.returns + 1)),
        _ => None,
    });
    let last = last.unwrap_or_default();
    (durable(true).max(last.0), durable(false).max(last.1))
}

/// Failures and returns that there can have been: what consumers said, and sessions of the queue that were closed while
/// they may have had the record, or whose node
/// ended without closing them in a leadership before.
fn most(sorted: &Sorted, (queue, offset): (QueueNumber, Offset), deeds: &[Deed], now: &Deed) -> (u16, u16) {
    let index = now.index;
    let said = |only_failed: bool| {
        let before = deeds.iter().filter(|deed| deed.index < index);
        before
            .filter(|deed| match deed.kind {
                Kind::Releasing { failed } => failed || !only_failed,
                _ => false,
            })
            .count() as u16
    };
    let closed = |only_failed: bool| {
        let ended = sorted.sessions.values().filter(|session| session.queue == queue);
        let ended = ended.filter(|session| match session.closed {
            Some((at, failed)) => at < index && (failed || !only_failed),
            None => session.term < now.term && has(session, offset),
        });
        ended.count() as u16
    };
    (said(true) + closed(true), said(false) + closed(false))
}

/// Whether a session got a record and has said nothing of it since.
fn has(session: &Session, offset: Offset) -> bool {
    let got = session.handed.iter().filter(|(_, handed)| handed.offset == offset).map(|(at, _)| *at).max();
    let is_said = |got: usize| {
        let said = session.settled.iter().filter(|(at, _)| *at > got);
        said.flat_map(|(_, said)| [&said.accepts, &said.releases, &said.rejects])
            .any(|all| all.contains(&offset))
    };
    got.is_some_and(|got| !is_said(got))
}
