//! Random commands against a model that is as simple as it can be: every batch ever appended, in a
//! list, and every answer looked up in it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_model::command::{Appended, Command, Outcome, Refusal};
use weir_model::entry::Entry;
use weir_model::settings::PartitionSettings;
use weir_model::{NodeId, PartitionId};

use super::batches::batch;
use super::{Effect, Machine, reloaded};
use crate::limits::PRODUCER_EXPIRY_MS;

/// What happens in one entry.
#[derive(Clone, Debug)]
enum Step {
    /// Of a producer (id, epoch, sequence relative to the expected one), or of none.
    Append {
        records: usize,
        value: usize,
        producer: Option<(i64, i16, i32)>,
    },
    Repeat {
        back: usize,
    },
    Trim {
        log_start: i64,
    },
    Lead,
    Configure {
        segment_bytes: u32,
    },
    Wait {
        ms: i64,
    },
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    let producer = proptest::option::weighted(0.7, (0i64..3, 0i16..3, -1i32..3));
    prop_oneof![
        8 => (1usize..4, 0usize..200, producer)
            .prop_map(|(records, value, producer)| Step::Append { records, value, producer }),
        3 => (0usize..8).prop_map(|back| Step::Repeat { back }),
        1 => (0i64..60).prop_map(|log_start| Step::Trim { log_start }),
        1 => Just(Step::Lead),
        1 => (0u32..2000).prop_map(|segment_bytes| Step::Configure { segment_bytes }),
        1 => prop_oneof![0i64..2000, Just(PRODUCER_EXPIRY_MS)].prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Reload),
    ]
}

/// One batch that was appended.
#[derive(Clone, Debug)]
struct Stored {
    at: Appended,
    bytes: u64,
    producer: Option<(i64, i16, i32, i32)>,
    max_timestamp: i64,
}

/// Records, bytes of each value, and the producer of a batch that was sent.
type Sent = (usize, usize, Option<(i64, i16, i32)>);

struct Model {
    now: i64,
    log_start: i64,
    leaderships: i32,
    settings: PartitionSettings,
    /// All that were ever appended.
    batches: Vec<Stored>,
    /// Base, bytes, time of the first append: of all segments that ever were.
    segments: Vec<(i64, u64, i64)>,
    closed_active: bool,
}

impl Model {
    fn next_offset(&self) -> i64 {
        self.batches.last().map_or(0, |last| last.at.last_offset + 1)
    }

    /// The batches of a producer's current life and epoch, oldest first.
    fn known(&self, id: i64) -> Vec<&Stored> {
        let mut known: Vec<&Stored> = Vec::new();
        for batch in self.batches.iter().filter(|batch| batch.producer.is_some_and(|p| p.0 == id)) {
            let forgotten = known.last().is_some_and(|last| {
                batch.at.time - last.at.time >= PRODUCER_EXPIRY_MS
                    || last.producer.unwrap().1 != batch.producer.unwrap().1
            });
            if forgotten {
                known.clear();
            }
            known.push(batch);
        }
        if known.last().is_some_and(|last| self.now - last.at.time >= PRODUCER_EXPIRY_MS) {
            known.clear();
        }
        known
    }

    fn append(&mut self, records: usize, value: usize, producer: Option<(i64, i16, i32)>) -> Outcome {
        let last_sequence = |first: i32| first + records as i32 - 1;
        if let Some((id, epoch, first)) = producer {
            let known = self.known(id);
            if let Some(last) = known.last() {
                let (_, current, _, last_seen) = last.producer.unwrap();
                if epoch < current {
                    return Outcome::Refused(Refusal::StaleProducerEpoch {
                        producer_id: id,
                        current,
                        got: epoch,
                    });
                }
                let recent = known.iter().rev().take(5);
                let same = |b: &&&Stored| b.producer == Some((id, epoch, first, last_sequence(first)));
                if let Some(found) = recent.clone().find(same) {
                    return Outcome::Appended(Appended {
                        duplicate: true,
                        log_start: self.log_start,
                        ..found.at
                    });
                }
                let expected = if epoch == current { last_seen + 1 } else { 0 };
                if first != expected {
                    return Outcome::Refused(Refusal::OutOfOrderSequence {
                        producer_id: id,
                        expected,
                        got: first,
                    });
                }
            }
        }
        let base_offset = self.next_offset();
        let at = Appended {
            base_offset,
            last_offset: base_offset + records as i64 - 1,
            log_start: self.log_start,
            leader_epoch: self.leaderships,
            time: self.now,
            duplicate: false,
        };
        let bytes = batch(records, value, 0, producer).len() as u64;
        match self.segments.last_mut() {
            Some((_, size, first_time))
                if !self.closed_active
                    && *size + bytes <= u64::from(self.settings.segment_bytes)
                    && self.now - *first_time <= self.settings.segment_ms =>
            {
                *size += bytes;
            }
            _ => self.segments.push((base_offset, bytes, self.now)),
        }
        self.closed_active = false;
        let producer = producer.map(|(id, epoch, first)| (id, epoch, first, last_sequence(first)));
        self.batches.push(Stored { at, bytes, producer, max_timestamp: records as i64 - 1 });
        Outcome::Appended(at)
    }

    /// The segments that are left: base, bytes and newest timestamp.
    fn left(&self) -> Vec<(i64, u64, i64)> {
        let mut left = Vec::new();
        for (number, (base, bytes, _)) in self.segments.iter().enumerate() {
            let end = self.segments.get(number + 1).map_or(self.next_offset(), |next| next.0);
            if end > self.log_start {
                let within = |b: &&Stored| (*base..end).contains(&b.at.base_offset);
                let newest = self.batches.iter().filter(within).map(|b| b.max_timestamp).max().unwrap();
                assert_eq!(*bytes, self.batches.iter().filter(within).map(|b| b.bytes).sum::<u64>());
                left.push((*base, *bytes, newest));
            }
        }
        left
    }
}

const PARTITION: PartitionId = PartitionId(5);

fn run(steps: Vec<Step>) {
    let settings =
        PartitionSettings { segment_bytes: 600, segment_ms: 1_500, ..PartitionSettings::default() };
    let mut model = Model {
        now: 0,
        log_start: 0,
        leaderships: 0,
        settings: settings.clone(),
        batches: Vec::new(),
        segments: Vec::new(),
        closed_active: false,
    };
    let mut machine = Machine::new();
    let mut index = 0;
    let mut apply = |machine: &mut Machine, time: i64, command: Command| {
        index += 1;
        let mut effects = Vec::new();
        let outcomes =
            machine.apply(index, 1, &Entry { time, commands: vec![command] }, &mut effects).unwrap();
        (outcomes.into_iter().next().unwrap(), effects)
    };
    let open = Command::OpenPartition { partition: PARTITION, settings, epoch_base: 0 };
    apply(&mut machine, 0, open);
    let mut sent: Vec<Sent> = Vec::new();
    for step in steps {
        let append = match step {
            Step::Append { records, value, producer } => {
                let placed = producer.map(|(id, epoch, relative)| {
                    let known = model.known(id);
                    let next = known.last().map_or(0, |last| match last.producer.unwrap() {
                        (_, current, _, last) if current == epoch => last + 1,
                        _ => 0,
                    });
                    (id, epoch, (next + relative).max(0))
                });
                Some((records, value, placed))
            }
            Step::Repeat { back } => sent.len().checked_sub(back + 1).map(|at| sent[at]),
            Step::Trim { log_start } => {
                let (outcome, _) =
                    apply(&mut machine, model.now, Command::Trim { partition: PARTITION, log_start });
                assert_eq!(outcome, Outcome::Done);
                model.log_start = model.log_start.max(log_start.min(model.next_offset()));
                model.closed_active |= model.log_start == model.next_offset();
                None
            }
            Step::Lead => {
                apply(&mut machine, model.now, Command::Lead { node: NodeId(1) });
                model.leaderships += 1;
                None
            }
            Step::Configure { segment_bytes } => {
                model.settings.segment_bytes = segment_bytes;
                let settings = model.settings.clone();
                apply(
                    &mut machine,
                    model.now,
                    Command::ConfigurePartition { partition: PARTITION, settings },
                );
                None
            }
            Step::Wait { ms } => {
                model.now += ms;
                None
            }
            Step::Reload => {
                let mut loaded = reloaded(&machine);
                assert_eq!(loaded.digest(), machine.digest());
                machine = loaded;
                None
            }
        };
        if let Some((records, value, producer)) = append {
            sent.push((records, value, producer));
            let expected = model.append(records, value, producer);
            let command = Command::Append { partition: PARTITION, batch: batch(records, value, 0, producer) };
            let (outcome, effects) = apply(&mut machine, model.now, command);
            assert_eq!(outcome, expected);
            check_effect(&effects, &expected, model.segments.last().map(|last| last.0));
        }
        check_state(&machine, &model);
    }
}

fn check_effect(effects: &[Effect], outcome: &Outcome, active: Option<i64>) {
    match (effects, outcome) {
        ([Effect::Appended { batch, starts_segment, .. }], Outcome::Appended(at)) => {
            assert!(!at.duplicate);
            assert_eq!((batch.base_offset, batch.last_offset), (at.base_offset, at.last_offset));
            assert_eq!(*starts_segment, active == Some(at.base_offset));
        }
        ([], Outcome::Appended(at)) => assert!(at.duplicate),
        ([], Outcome::Refused(_)) => {}
        other => panic!("{other:?}"),
    }
}

fn check_state(machine: &Machine, model: &Model) {
    let state = machine.partition(PARTITION).unwrap();
    assert_eq!((state.log_start, state.next_offset), (model.log_start, model.next_offset()));
    let segments: Vec<_> = state
        .segments
        .iter()
        .map(|segment| (segment.id.base, segment.bytes, segment.max_timestamp))
        .collect();
    assert_eq!(segments, model.left());
    for batch in model.batches.iter().filter(|batch| batch.at.last_offset >= model.log_start) {
        assert_eq!(state.epochs.at(batch.at.last_offset), batch.at.leader_epoch);
    }
    let known: BTreeMap<i64, usize> =
        (0..3).map(|id| (id, model.known(id).len().min(5))).filter(|(_, count)| *count > 0).collect();
    let alive = |(id, producer): (i64, &crate::state::producers::Producer)| {
        (model.now - producer.last_time < PRODUCER_EXPIRY_MS).then_some((id, producer.batches().len()))
    };
    assert_eq!(state.producers.iter().filter_map(alive).collect::<BTreeMap<_, _>>(), known);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_partition_is_what_its_appends_say(steps in proptest::collection::vec(step(), 1..80)) {
        run(steps);
    }
}
