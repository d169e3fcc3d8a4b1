//! What a partition knows of the producers that number their batches, so that a repeat is answered
//! with the first copy's place and a gap is refused. The rules are those of Kafka's
//! `ProducerStateManager` (KIP-98, KIP-185, KIP-360).
//!
//! A producer that is not known, or not known any more, may begin with any sequence; a new epoch
//! begins at sequence 0; an older epoch is refused; a repeat is recognised among the last batches of
//! the current epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::batch::{BatchHeader, StoredBatch};
use weir_model::command::Refusal;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Offset, TimestampMs};

use crate::limits::{
    BATCHES_PER_PRODUCER_MAX, PRODUCER_EXPIRY_MS, PRODUCER_SWEEP_MS, PRODUCERS_PER_PARTITION_MAX,
};

/// Producers that share a chunk: ids are handed out in runs, so those near each other come together.
const PRODUCERS_PER_CHUNK: i64 = 64;

/// How much room is made when there is none: scanning all producers is paid for by this many.
const PRODUCERS_EVICTED_AT_ONCE: usize = PRODUCERS_PER_PARTITION_MAX / 16;

/// One batch of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerBatch {
    pub first_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub leader_epoch: i32,
    pub time: TimestampMs,
}

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub epoch: i16,
    /// Entry time of its last batch.
    pub last_time: TimestampMs,
    count: u8,
    batches: [ProducerBatch; BATCHES_PER_PRODUCER_MAX],
}

/// What is to be done with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Append,
    /// It is there already.
    Duplicate(ProducerBatch),
    Refuse(Refusal),
}

impl Producer {
    fn new(epoch: i16) -> Producer {
        Producer { epoch, last_time: 0, count: 0, batches: Default::default() }
    }

    /// The batches in the order in which they came.
    pub(crate) fn batches(&self) -> &[ProducerBatch] {
        &self.batches[..self.count as usize]
    }

    fn push(&mut self, batch: ProducerBatch) {
        if self.count as usize == BATCHES_PER_PRODUCER_MAX {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        self.batches[self.count as usize] = batch;
        self.count += 1;
        self.last_time = batch.time;
    }

    fn is_expired(&self, now: TimestampMs) -> bool {
        now.saturating_sub(self.last_time) >= PRODUCER_EXPIRY_MS
    }

    fn judge(&self, header: &BatchHeader) -> Verdict {
        let (first, last) = (header.base_sequence, header.last_sequence());
        if header.producer_epoch < self.epoch {
            return Verdict::Refuse(Refusal::StaleProducerEpoch {
                producer_id: header.producer_id,
                current: self.epoch,
                got: header.producer_epoch,
            });
        }
        if header.producer_epoch == self.epoch {
            let repeat = self.batches().iter().find(|b| b.first_sequence == first && b.last_sequence == last);
            if let Some(batch) = repeat {
                return Verdict::Duplicate(*batch);
            }
        }
        let expected = match self.batches().last() {
            Some(batch) if header.producer_epoch == self.epoch => next_sequence(batch.last_sequence),
            _ => 0,
        };
        if first == expected {
            Verdict::Append
        } else {
            Verdict::Refuse(Refusal::OutOfOrderSequence {
                producer_id: header.producer_id,
                expected,
                got: first,
            })
        }
    }
}

/// Sequences wrap from `i32::MAX` to 0.
fn next_sequence(last: i32) -> i32 {
    last.checked_add(1).unwrap_or(0)
}

/// All producers of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    chunks: BTreeMap<i64, Arc<BTreeMap<i64, Producer>>>,
    len: usize,
    swept_at: TimestampMs,
}

impl Producers {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Producer> {
        self.chunks.get(&chunk_of(id))?.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Producer)> {
        self.chunks.values().flat_map(|chunk| chunk.iter()).map(|(id, producer)| (*id, producer))
    }

    /// Whether the batch follows what its producer sent before.
    pub(crate) fn judge(&self, header: &BatchHeader, now: TimestampMs) -> Verdict {
        match self.get(header.producer_id) {
            Some(producer) if !producer.is_expired(now) => producer.judge(header),
            _ => Verdict::Append,
        }
    }

    /// Remembers a batch that [`Producers::judge`] let pass and that got its place.
    pub(crate) fn appended(&mut self, header: &BatchHeader, batch: &StoredBatch, now: TimestampMs) {
        let id = header.producer_id;
        let known = self.get(id).is_some_and(|producer| !producer.is_expired(now));
        if !known {
            self.make_room(now);
        }
        let chunk = Arc::make_mut(self.chunks.entry(chunk_of(id)).or_default());
        let producer = match chunk.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                self.len += 1;
                entry.insert(Producer::new(header.producer_epoch))
            }
        };
        if producer.epoch != header.producer_epoch || !known {
            *producer = Producer::new(header.producer_epoch);
        }
        producer.push(ProducerBatch {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            leader_epoch: batch.leader_epoch,
            time: now,
        });
    }

    /// Before a producer is added: forgets expired ones now and then, and the longest idle ones when
    /// there are too many.
    fn make_room(&mut self, now: TimestampMs) {
        let full = self.len >= PRODUCERS_PER_PARTITION_MAX;
        if full || now.saturating_sub(self.swept_at) >= PRODUCER_SWEEP_MS {
            self.swept_at = now;
            self.retain(|_, producer| !producer.is_expired(now));
        }
        if self.len >= PRODUCERS_PER_PARTITION_MAX {
            let mut by_age: Vec<(TimestampMs, i64)> =
                self.iter().map(|(id, producer)| (producer.last_time, id)).collect();
            by_age.sort_unstable();
            let newest_evicted = by_age[PRODUCERS_EVICTED_AT_ONCE - 1];
            self.retain(|id, producer| (producer.last_time, id) > newest_evicted);
        }
    }

    fn retain(&mut self, keep: impl Fn(i64, &Producer) -> bool) {
        for chunk in self.chunks.values_mut() {
            if chunk.iter().any(|(id, producer)| !keep(*id, producer)) {
                Arc::make_mut(chunk).retain(|id, producer| keep(*id, producer));
            }
        }
        self.chunks.retain(|_, chunk| !chunk.is_empty());
        self.len = self.chunks.values().map(|chunk| chunk.len()).sum();
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.i64(self.swept_at);
        out.u32(self.len as u32);
        for (id, producer) in self.iter() {
            out.i64(id);
            out.i16(producer.epoch);
            out.list(producer.batches(), |out, batch| {
                out.i32(batch.first_sequence);
                out.i32(batch.last_sequence);
                out.i64(batch.base_offset);
                out.i64(batch.last_offset);
                out.i32(batch.leader_epoch);
                out.i64(batch.time);
            });
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Producers, DecodeError> {
        let swept_at = reader.i64()?;
        let list = reader.list(50, decode_producer)?;
        if list.len() > PRODUCERS_PER_PARTITION_MAX {
            return Err(reader.error("more producers than a partition may have"));
        }
        let mut producers = Producers { swept_at, ..Producers::default() };
        for (id, producer) in list {
            let chunk = Arc::make_mut(producers.chunks.entry(chunk_of(id)).or_default());
            if chunk.insert(id, producer).is_some() {
                return Err(reader.error("a producer is there twice"));
            }
            producers.len += 1;
        }
        Ok(producers)
    }
}

fn chunk_of(id: i64) -> i64 {
    id.div_euclid(PRODUCERS_PER_CHUNK)
}

fn decode_producer(reader: &mut Reader) -> Result<(i64, Producer), DecodeError> {
    let id = reader.i64()?;
    let mut producer = Producer::new(reader.i16()?);
    let batches = reader.list(36, |r| {
        Ok(ProducerBatch {
            first_sequence: r.i32()?,
            last_sequence: r.i32()?,
            base_offset: r.i64()?,
            last_offset: r.i64()?,
            leader_epoch: r.i32()?,
            time: r.i64()?,
        })
    })?;
    if batches.is_empty() || batches.len() > BATCHES_PER_PRODUCER_MAX {
        return Err(reader.error("a producer has no batches or too many"));
    }
    batches.into_iter().for_each(|batch| producer.push(batch));
    Ok((id, producer))
}
