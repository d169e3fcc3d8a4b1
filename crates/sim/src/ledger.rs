//! What the clients know, and what must therefore be true of the log in the end.
//!
//! Writers note every batch before they send it and again when it is acknowledged; readers note
//! every record that they saw. After the calm phase the contents of every replica are held against
//! these notes. The names of the checks are those of Jepsen's Kafka workload where it has one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A partition of the simulation, by number.
pub type Partition = u64;

/// One batch of a writer: everything in it shares the writer and the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchName {
    /// Which writer.
    pub writer: u64,
    /// The writer's first sequence of the batch, unique per writer.
    pub sequence: i32,
}

/// One record: its batch and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value {
    /// The batch.
    pub batch: BatchName,
    /// From 0.
    pub index: i32,
}

impl Value {
    /// The record's value as bytes, `writer:sequence:index`.
    pub fn encode(&self) -> Vec<u8> {
        format!("{}:{}:{}", self.batch.writer, self.batch.sequence, self.index).into_bytes()
    }

    /// Reads what [`Value::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Option<Value> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split(':');
        let value = Value {
            batch: BatchName { writer: parts.next()?.parse().ok()?, sequence: parts.next()?.parse().ok()? },
            index: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(value)
    }
}

/// A batch that a writer sent at least once.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    partition: Partition,
    records: i32,
    /// Whether the producer is numbered, so that repeats must not show.
    idempotent: bool,
    acknowledged_at: Option<i64>,
}

/// Everything that the clients noted.
#[derive(Debug, Default)]
pub struct Ledger {
    attempts: BTreeMap<BatchName, Attempt>,
    seen: BTreeMap<(Partition, i64), Value>,
    damage: Vec<Damage>,
}

/// The records of one partition as one replica has them: offset and value, in order.
pub type Contents = Vec<(i64, Value)>;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// An acknowledged record is not where the acknowledgement said.
    LostWrite {
        /// Where.
        partition: Partition,
        /// The acknowledged offset of the record.
        offset: i64,
        /// What should be there.
        value: Value,
        /// What is there.
        found: Option<Value>,
    },
    /// A record that nobody wrote.
    Unexpected {
        /// Where.
        partition: Partition,
        /// At which offset.
        offset: i64,
        /// What.
        value: Value,
    },
    /// A numbered batch stands in the log twice.
    Duplicate {
        /// Where.
        partition: Partition,
        /// Which.
        value: Value,
        /// The second copy's offset.
        offset: i64,
    },
    /// A writer's batches do not stand in the order in which it sent them.
    Reordered {
        /// Where.
        partition: Partition,
        /// At which offset the order breaks.
        offset: i64,
        /// The batch found there.
        batch: BatchName,
    },
    /// Offsets are not dense.
    Gap {
        /// Where.
        partition: Partition,
        /// The offset that was expected.
        expected: i64,
        /// The offset that was found.
        found: i64,
    },
    /// Two replicas, or two reads, have different records at one offset.
    Divergence {
        /// Where.
        partition: Partition,
        /// At which offset.
        offset: i64,
        /// What one has.
        one: Option<Value>,
        /// What the other has.
        other: Option<Value>,
    },
    /// An offset was acknowledged for two batches.
    OffsetGivenTwice {
        /// Where.
        partition: Partition,
        /// Which.
        offset: i64,
    },
    /// The cluster did not come right within the calm phase.
    Unavailable {
        /// What was being waited for.
        what: String,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Ledger {
    /// A writer is about to send this batch for the first time.
    pub fn attempt(&mut self, batch: BatchName, partition: Partition, records: i32, idempotent: bool) {
        self.attempts.insert(batch, Attempt { partition, records, idempotent, acknowledged_at: None });
    }

    /// The batch was acknowledged, its first record at `base_offset`.
    pub fn acknowledged(&mut self, batch: BatchName, base_offset: i64) {
        if let Some(attempt) = self.attempts.get_mut(&batch) {
            attempt.acknowledged_at = Some(base_offset);
        }
    }

    /// A reader saw this record before the end.
    pub fn saw(&mut self, partition: Partition, offset: i64, value: Value) {
        if let Some(before) = self.seen.insert((partition, offset), value)
            && before != value
        {
            self.damage.push(Damage::Divergence { partition, offset, one: Some(before), other: Some(value) });
        }
    }

    /// Something else that must not be was noticed on the way.
    pub fn note(&mut self, damage: Damage) {
        self.damage.push(damage);
    }

    /// Number of acknowledged batches.
    pub fn acknowledged_count(&self) -> usize {
        self.attempts.values().filter(|attempt| attempt.acknowledged_at.is_some()).count()
    }

    /// Number of batches sent.
    pub fn attempt_count(&self) -> usize {
        self.attempts.len()
    }

    /// Number of records that readers saw before the end.
    pub fn seen_count(&self) -> usize {
        self.seen.len()
    }

    /// Holds the contents of every replica, by partition, against the notes.
    pub fn check(&self, replicas: &[BTreeMap<Partition, Contents>]) -> Vec<Damage> {
        let mut damage = self.damage.clone();
        let Some((first, others)) = replicas.split_first() else { return damage };
        for (partition, contents) in first {
            check_density(*partition, contents, &mut damage);
            self.check_writers(*partition, contents, &mut damage);
            for other in others {
                let empty = Vec::new();
                check_same(*partition, contents, other.get(partition).unwrap_or(&empty), &mut damage);
            }
        }
        self.check_acknowledged(first, &mut damage);
        for ((partition, offset), value) in &self.seen {
            let found = at(first, *partition, *offset);
            if found != Some(*value) {
                damage.push(Damage::Divergence {
                    partition: *partition,
                    offset: *offset,
                    one: Some(*value),
                    other: found,
                });
            }
        }
        damage
    }

    fn check_writers(&self, partition: Partition, contents: &Contents, damage: &mut Vec<Damage>) {
        let mut present = BTreeSet::new();
        let mut newest: BTreeMap<u64, Value> = BTreeMap::new();
        for &(offset, value) in contents {
            let Some(attempt) = self.attempts.get(&value.batch) else {
                damage.push(Damage::Unexpected { partition, offset, value });
                continue;
            };
            if attempt.partition != partition || value.index >= attempt.records {
                damage.push(Damage::Unexpected { partition, offset, value });
            }
            if !attempt.idempotent {
                continue;
            }
            if !present.insert(value) {
                damage.push(Damage::Duplicate { partition, value, offset });
            } else if newest.get(&value.batch.writer).is_some_and(|newest| *newest > value) {
                damage.push(Damage::Reordered { partition, offset, batch: value.batch });
            }
            newest.entry(value.batch.writer).and_modify(|n| *n = (*n).max(value)).or_insert(value);
        }
    }

    fn check_acknowledged(&self, contents: &BTreeMap<Partition, Contents>, damage: &mut Vec<Damage>) {
        let mut given = BTreeSet::new();
        for (batch, attempt) in &self.attempts {
            let Some(base) = attempt.acknowledged_at else { continue };
            for index in 0..attempt.records {
                let offset = base + i64::from(index);
                let value = Value { batch: *batch, index };
                if !given.insert((attempt.partition, offset)) {
                    damage.push(Damage::OffsetGivenTwice { partition: attempt.partition, offset });
                }
                let found = at(contents, attempt.partition, offset);
                if found != Some(value) {
                    damage.push(Damage::LostWrite { partition: attempt.partition, offset, value, found });
                }
            }
        }
    }
}

fn at(contents: &BTreeMap<Partition, Contents>, partition: Partition, offset: i64) -> Option<Value> {
    let contents = contents.get(&partition)?;
    let place = contents.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
    Some(contents[place].1)
}

fn check_density(partition: Partition, contents: &Contents, damage: &mut Vec<Damage>) {
    for pair in contents.windows(2) {
        if pair[1].0 != pair[0].0 + 1 {
            damage.push(Damage::Gap { partition, expected: pair[0].0 + 1, found: pair[1].0 });
        }
    }
}

fn check_same(partition: Partition, one: &Contents, other: &Contents, damage: &mut Vec<Damage>) {
    for place in 0..one.len().max(other.len()) {
        if one.get(place) != other.get(place) {
            let offset = one.get(place).or(other.get(place)).map_or(-1, |(offset, _)| *offset);
            damage.push(Damage::Divergence {
                partition,
                offset,
                one: one.get(place).map(|(_, value)| *value),
                other: other.get(place).map(|(_, value)| *value),
            });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(writer: u64, sequence: i32) -> Value {
        Value { batch: BatchName { writer, sequence }, index: 0 }
    }

    /// A ledger of three acknowledged batches of one writer at offsets 0, 1 and 2.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for sequence in 0..3 {
            ledger.attempt(BatchName { writer: 1, sequence }, 0, 1, true);
            ledger.acknowledged(BatchName { writer: 1, sequence }, i64::from(sequence));
        }
        ledger
    }

    fn check(contents: &[(i64, Value)]) -> Vec<Damage> {
        let replica: BTreeMap<_, _> = [(0, contents.to_vec())].into();
        ledger().check(&[replica.clone(), replica])
    }

    #[test]
    fn what_was_acknowledged_and_is_there_is_no_damage() {
        assert_eq!(check(&[(0, value(1, 0)), (1, value(1, 1)), (2, value(1, 2))]), vec![]);
    }

    #[test]
    fn a_lost_write_is_found() {
        let damage = check(&[(0, value(1, 0)), (1, value(1, 1))]);
        assert!(matches!(damage[..], [Damage::LostWrite { offset: 2, found: None, .. }]), "{damage:?}");
    }

    #[test]
    fn a_duplicate_is_found() {
        let damage = check(&[(0, value(1, 0)), (1, value(1, 1)), (2, value(1, 2)), (3, value(1, 1))]);
        assert!(matches!(damage[..], [Damage::Duplicate { offset: 3, .. }]), "{damage:?}");
    }

    #[test]
    fn a_reordering_is_found() {
        let mut ledger = Ledger::default();
        (0..2).for_each(|sequence| ledger.attempt(BatchName { writer: 1, sequence }, 0, 1, true));
        let damage = ledger.check(&[[(0, vec![(0, value(1, 1)), (1, value(1, 0))])].into()]);
        assert!(matches!(damage[..], [Damage::Reordered { offset: 1, .. }]), "{damage:?}");
    }

    #[test]
    fn a_record_that_nobody_wrote_is_found() {
        let damage = check(&[(0, value(1, 0)), (1, value(1, 1)), (2, value(1, 2)), (3, value(9, 1))]);
        assert!(matches!(damage[..], [Damage::Unexpected { offset: 3, .. }]), "{damage:?}");
    }

    #[test]
    fn a_gap_is_found() {
        let mut ledger = Ledger::default();
        (0..2).for_each(|sequence| ledger.attempt(BatchName { writer: 1, sequence }, 0, 1, true));
        let damage = ledger.check(&[[(0, vec![(0, value(1, 0)), (2, value(1, 1))])].into()]);
        assert!(matches!(damage[..], [Damage::Gap { expected: 1, found: 2, .. }]), "{damage:?}");
    }

    #[test]
    fn replicas_that_differ_are_found() {
        let mut ledger = Ledger::default();
        (0..2).for_each(|sequence| ledger.attempt(BatchName { writer: 1, sequence }, 0, 1, true));
        let one: BTreeMap<_, _> = [(0, vec![(0, value(1, 0))])].into();
        let other: BTreeMap<_, _> = [(0, vec![(0, value(1, 1))])].into();
        assert!(matches!(ledger.check(&[one, other])[..], [Damage::Divergence { offset: 0, .. }]));
    }

    #[test]
    fn a_read_that_did_not_last_is_found() {
        let mut ledger = ledger();
        ledger.saw(0, 5, value(1, 2));
        let contents = vec![(0, value(1, 0)), (1, value(1, 1)), (2, value(1, 2))];
        let damage = ledger.check(&[[(0, contents)].into()]);
        assert!(matches!(damage[..], [Damage::Divergence { offset: 5, .. }]), "{damage:?}");
    }

    #[test]
    fn an_offset_acknowledged_twice_is_found() {
        let mut ledger = ledger();
        ledger.attempt(BatchName { writer: 2, sequence: 0 }, 0, 1, true);
        ledger.acknowledged(BatchName { writer: 2, sequence: 0 }, 1);
        let contents = vec![(0, value(1, 0)), (1, value(1, 1)), (2, value(1, 2))];
        let damage = ledger.check(&[[(0, contents)].into()]);
        assert!(damage.contains(&Damage::OffsetGivenTwice { partition: 0, offset: 1 }), "{damage:?}");
    }
}
