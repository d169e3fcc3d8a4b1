//! Subscriptions against a model that notes every record.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_model::subscription::DeadReason;

use super::*;

const FAR: Offset = 3 * BLOCK as i64;

const NOW: TimestampMs = 1_700_000_000_000;

fn settlement(from: Offset, to: Offset, disposition: Disposition) -> Settlement {
    Settlement { from, to, disposition }
}

fn accept(subscription: &mut Subscription, from: Offset, to: Offset, end: Offset) {
    subscription.settle(&settlement(from, to, Disposition::Accept), end, NOW);
}

fn reloaded(subscription: &Subscription) -> Subscription {
    let mut out = Writer::new();
    subscription.encode(&mut out);
    let mut reader = Reader::new("a subscription", out.finish());
    let loaded = Subscription::decode(&mut reader).unwrap();
    reader.finish().unwrap();
    loaded
}

#[test]
fn records_that_wait_are_noted_nowhere() {
    let mut subscription = Subscription::new(0);
    let end = 10_000_000;
    assert_eq!((subscription.unsettled(end), subscription.runs()), (10_000_000, 0));
    subscription.hand_out(5_000_000, end);
    assert_eq!(subscription.runs(), 0);
    accept(&mut subscription, 0, 4_999_999, end);
    assert_eq!(
        (subscription.head(), subscription.unsettled(end), subscription.runs()),
        (5_000_000, 5_000_000, 0)
    );
}

#[test]
fn one_stuck_record_costs_one_run_however_many_pass_it() {
    let mut subscription = Subscription::new(0);
    let end = 10_000_000;
    for from in (1..end).step_by(1000) {
        accept(&mut subscription, from, from + 999, end);
    }
    assert_eq!((subscription.head(), subscription.unsettled(end)), (0, 1));
    // One run in each block, because blocks are shared one by one.
    assert_eq!(subscription.runs(), 153);
    accept(&mut subscription, 0, 0, end);
    assert_eq!((subscription.head(), subscription.runs(), subscription.settled_above), (end, 0, 0));
}

#[test]
fn what_comes_back_keeps_its_marks_until_it_is_settled() {
    let mut subscription = Subscription::new(0);
    let release = |failed| Disposition::Release { failed };
    subscription.settle(&settlement(2, 5, release(false)), 10, NOW);
    subscription.settle(&settlement(4, 8, release(true)), 10, NOW + 1);
    let marks = |failures, returns, order: u64| Marks {
        failures,
        returns,
        order,
        at: NOW + order.cast_signed(),
        last_failed: order == 1,
        dead: None,
    };
    let expected = [(2, 3, marks(0, 1, 0)), (4, 5, marks(1, 2, 1)), (6, 8, marks(1, 1, 1))];
    assert_eq!(subscription.marked_runs().collect::<Vec<_>>(), expected);
    subscription.settle(&settlement(5, 6, Disposition::Reject { reason: DeadReason::Expired }), 10, NOW);
    subscription.settle(&settlement(6, 6, Disposition::Reject { reason: DeadReason::Rejected }), 10, NOW);
    let dead = subscription.marked_runs().filter(|run| run.2.dead == Some(DeadReason::Expired));
    assert_eq!(
        dead.map(|run| (run.0, run.1)).collect::<Vec<_>>(),
        [(5, 5), (6, 6)],
        "the first reason stays"
    );
    accept(&mut subscription, 0, 6, 10);
    assert_eq!(subscription.marked_runs().collect::<Vec<_>>(), [(7, 8, marks(1, 1, 1))]);
    assert_eq!(subscription.head(), 7);
}

#[test]
fn what_is_not_there_cannot_be_settled() {
    let mut subscription = Subscription::new(5);
    accept(&mut subscription, 0, 100, 8);
    assert_eq!((subscription.head(), subscription.handed_out()), (8, 8));
    accept(&mut subscription, 8, Offset::MAX, 8);
    subscription.settle(&settlement(9, 12, Disposition::Release { failed: true }), 9, NOW);
    subscription.hand_out(1000, 9);
    assert_eq!((subscription.head(), subscription.runs(), subscription.handed_out()), (8, 0, 9));
}

/// What the model notes of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Noted {
    settled: bool,
    marks: Marks,
}

#[derive(Default)]
struct Model {
    records: BTreeMap<Offset, Noted>,
    end: Offset,
    order: u64,
}

impl Model {
    fn settle(&mut self, settlement: &Settlement, now: TimestampMs) {
        let head = self.head();
        if settlement.from.max(head) > settlement.to.min(self.end - 1) {
            return;
        }
        for offset in settlement.from..=settlement.to.min(self.end - 1) {
            let Some(noted) = self.records.get_mut(&offset).filter(|noted| !noted.settled) else { continue };
            match settlement.disposition {
                Disposition::Accept => *noted = Noted { settled: true, marks: Marks::default() },
                Disposition::Release { failed } => {
                    noted.marks.failures += u16::from(failed);
                    noted.marks.returns += 1;
                    noted.marks.order = self.order;
                    (noted.marks.at, noted.marks.last_failed) = (now, failed);
                }
                Disposition::Reject { reason } => noted.marks.dead = noted.marks.dead.or(Some(reason)),
            }
        }
        self.order += u64::from(matches!(settlement.disposition, Disposition::Release { .. }));
    }

    fn head(&self) -> Offset {
        self.records.iter().find(|(_, noted)| !noted.settled).map_or(self.end, |(offset, _)| *offset)
    }
}

fn step() -> impl Strategy<Value = (Offset, Offset, Disposition)> {
    let disposition = prop_oneof![
        6 => Just(Disposition::Accept),
        2 => any::<bool>().prop_map(|failed| Disposition::Release { failed }),
        1 => Just(Disposition::Reject { reason: DeadReason::Rejected }),
        1 => Just(Disposition::Reject { reason: DeadReason::Expired }),
    ];
    (-3i64..140, 0i64..25, disposition).prop_map(|(from, more, disposition)| (from, from + more, disposition))
}

proptest! {
    /// Around the edge between two blocks, where the arithmetic is.
    #[test]
    fn a_subscription_does_what_noting_every_record_would(
        steps in proptest::collection::vec((step(), 0i64..20, 0u8..20), 1..60),
        start in 0i64..70,
    ) {
        let base = FAR - 70;
        let mut subscription = Subscription::new(base + start);
        let mut model = Model { end: base + start, ..Model::default() };
        for ((from, to, disposition), appended, special) in steps {
            for offset in model.end..model.end + appended {
                model.records.insert(offset, Noted::default());
            }
            model.end += appended;
            match special {
                0 => subscription = reloaded(&subscription),
                1 => {
                    let head = (base + from).min(model.end);
                    subscription.raise_head(head);
                    model.records.range_mut(..head).for_each(|(_, noted)| {
                        *noted = Noted { settled: true, marks: Marks::default() };
                    });
                }
                _ => {
                    let settlement = settlement(base + from, base + to, disposition);
                    // Some releases have no time, as those of old checkpoints do not.
                    let now = NOW * i64::from(special % 2);
                    subscription.settle(&settlement, model.end, now);
                    model.settle(&settlement, now);
                }
            }
            prop_assert_eq!(subscription.head(), model.head());
            let unsettled = model.records.values().filter(|noted| !noted.settled).count();
            prop_assert_eq!(subscription.unsettled(model.end), unsettled as u64);
            let mut marked: BTreeMap<Offset, Marks> = BTreeMap::new();
            for (from, to, marks) in subscription.marked_runs() {
                (from..=to).for_each(|offset| assert!(marked.insert(offset, marks).is_none()));
            }
            for (offset, noted) in &model.records {
                prop_assert_eq!(subscription.is_settled(*offset), noted.settled, "offset {}", offset);
                prop_assert_eq!(marked.remove(offset).unwrap_or_default(), noted.marks, "offset {}", offset);
            }
            prop_assert!(marked.is_empty());
            prop_assert_eq!(&reloaded(&subscription), &subscription);
        }
    }
}
