//! The partition log against a naive model, on a disk that loses power at every operation in turn.
//!
//! The model is the list of batches that can be read, a copy of it at each checkpoint, and what was
//! appended since, which stands for the journal. After a crash the log opens at the last checkpoint
//! that was completed, holds what it held then, and takes the journal's tail again.

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_log::disk::SimDisk;
use weir_log::partition::{
    HandleCache, PartitionError, PartitionLog, PartitionManifest, ReadOptions, scrub_segments,
};
use weir_model::Offset;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch, split_batches, verify_batch};

const DIR: &str = "/shards/3/9";

fn batch(base: Offset, rng: &mut SmallRng) -> StoredBatch {
    let mut builder = BatchBuilder::new();
    for _ in 0..rng.random_range(1..5) {
        let value = vec![rng.random(); rng.random_range(1..1500)];
        builder.push(rng.random_range(0..1_000_000), None, Some(&value), &[]);
    }
    let bytes = builder.build();
    let header = BatchHeader::parse(&bytes).unwrap();
    StoredBatch::place(&header, bytes, base, 3)
}

#[derive(Clone, Debug)]
enum Applied {
    Append(Vec<StoredBatch>),
    Roll,
}

#[derive(Clone, Default)]
struct Model {
    /// What can be read, by base offset.
    batches: BTreeMap<Offset, StoredBatch>,
    start: Offset,
    end: Offset,
}

impl Model {
    fn apply(&mut self, log: &mut PartitionLog, applied: &Applied) -> Result<(), PartitionError> {
        match applied {
            Applied::Roll => log.roll(),
            Applied::Append(batches) => {
                log.append(batches, 0)?;
                for batch in batches {
                    self.end = batch.last_offset + 1;
                    self.batches.insert(batch.base_offset, batch.clone());
                }
            }
        }
        Ok(())
    }

    fn check(&self, log: &PartitionLog) {
        let reader = log.reader();
        assert_eq!((reader.start(), reader.end()), (self.start, self.end));
        let options = ReadOptions { max_bytes: 3000, at_least_one: true, cached_only: false };
        let (mut offset, mut read) = (self.start, Vec::new());
        loop {
            let chunk = reader.read(offset, options).unwrap();
            if chunk.batches == 0 {
                break;
            }
            for (header, bytes) in split_batches(&chunk.bytes).unwrap() {
                verify_batch(&bytes).unwrap();
                read.push((header.base_offset, bytes));
            }
            offset = chunk.next_offset;
        }
        let expected: Vec<_> = self
            .batches
            .values()
            .filter(|batch| batch.last_offset >= self.start)
            .map(|batch| (batch.base_offset, batch.to_contiguous()))
            .collect();
        assert_eq!(read.len(), expected.len());
        assert!(read == expected);
        assert_eq!(scrub_segments(&reader, &mut |_| true).unwrap().corrupt, []);
        for timestamp in [0, 500_000, 999_000] {
            let expected = self
                .batches
                .values()
                .find(|batch| batch.last_offset >= self.start && batch.max_timestamp >= timestamp);
            let hit = reader.find_timestamp(timestamp, false).unwrap();
            assert_eq!(hit.map(|hit| hit.base_offset), expected.map(|batch| batch.base_offset));
        }
    }
}

/// A node's life around one partition.
struct Life {
    disk: SimDisk,
    rng: SmallRng,
    log: PartitionLog,
    model: Model,
    durable: (PartitionManifest, Model),
    journal: Vec<Applied>,
}

fn open(disk: &SimDisk, manifest: &PartitionManifest) -> Result<PartitionLog, PartitionError> {
    let handles = HandleCache::new(disk.shared(), 4);
    PartitionLog::open(&handles, Path::new(DIR), manifest).map(|(log, _)| log)
}

impl Life {
    fn new(seed: u64) -> Life {
        let disk = SimDisk::new(seed);
        let log = open(&disk, &PartitionManifest::default()).unwrap();
        let rng = SmallRng::seed_from_u64(seed);
        let durable = (PartitionManifest::default(), Model::default());
        Life { disk, rng, log, model: Model::default(), durable, journal: Vec::new() }
    }

    fn step(&mut self) -> Result<(), PartitionError> {
        match self.rng.random_range(0..20) {
            0..10 => {
                let mut batches = Vec::new();
                let mut end = self.model.end;
                for _ in 0..self.rng.random_range(1..6) {
                    batches.push(batch(end, &mut self.rng));
                    end = batches[batches.len() - 1].last_offset + 1;
                }
                self.apply(Applied::Append(batches))?;
            }
            10..13 => self.apply(Applied::Roll)?,
            13..16 => self.checkpoint()?,
            16..18 => {
                let start = self.rng.random_range(self.model.start..=self.model.end);
                self.log.retire_below(start);
                self.model.start = start;
            }
            _ => self.rewrite()?,
        }
        Ok(())
    }

    fn apply(&mut self, applied: Applied) -> Result<(), PartitionError> {
        self.journal.push(applied);
        self.model.apply(&mut self.log, &self.journal[self.journal.len() - 1])
    }

    fn checkpoint(&mut self) -> Result<(), PartitionError> {
        let dirty = self.log.take_dirty();
        let (manifest, ticket) = self.log.manifest()?;
        let (model, applied) = (self.model.clone(), self.journal.len());
        if self.rng.random_range(0..3) == 0 {
            // Beside the checkpoint, life goes on: this must not count for its manifest.
            self.model.start = self.rng.random_range(self.model.start..=self.model.end);
            self.log.retire_below(self.model.start);
        }
        dirty.sync(&self.disk)?;
        self.durable = (manifest, model);
        self.journal.drain(..applied);
        self.log.unlink_retired(ticket)?;
        Ok(())
    }

    /// Drops some batches of one or two closed segments.
    fn rewrite(&mut self) -> Result<(), PartitionError> {
        let closed: Vec<_> =
            self.log.reader().segments().into_iter().filter(|segment| segment.closed).collect();
        if closed.is_empty() {
            return Ok(());
        }
        let first = self.rng.random_range(0..closed.len());
        let inputs = &closed[first..closed.len().min(first + self.rng.random_range(1..3))];
        let (from, to) = (inputs[0].base, inputs[inputs.len() - 1].last_offset);
        let bases: Vec<Offset> = inputs.iter().map(|segment| segment.base).collect();
        let mut rewrite = self.log.begin_rewrite(&bases)?;
        let mut dropped = Vec::new();
        for batch in self.model.batches.range(from..=to).map(|(_, batch)| batch) {
            if self.rng.random_range(0..3) == 0 {
                dropped.push(batch.base_offset);
            } else {
                rewrite.push(&batch.to_contiguous())?;
            }
        }
        self.log.commit_rewrite(rewrite.finish()?)?;
        dropped.iter().for_each(|base| drop(self.model.batches.remove(base)));
        Ok(())
    }

    fn restart(&mut self, disturb: impl Fn(&SimDisk)) {
        disturb(&self.disk);
        let (manifest, model) = self.durable.clone();
        self.log = open(&self.disk, &manifest).expect("what a durable manifest names is there");
        self.model = model;
        self.model.check(&self.log);
        for applied in &self.journal {
            self.model.apply(&mut self.log, applied).unwrap();
        }
        self.model.check(&self.log);
    }
}

fn check(seed: u64, steps: usize, crash_at: Option<u64>, disturb: impl Fn(&SimDisk)) -> u64 {
    let mut life = Life::new(seed);
    for _ in 0..2 {
        if let Some(operation) = crash_at {
            life.disk.crash_at(life.disk.operations() + operation);
        }
        for _ in 0..steps {
            if life.step().is_err() {
                assert!(life.disk.is_down());
                break;
            }
        }
        if !life.disk.is_down() {
            life.model.check(&life.log);
        }
        life.restart(&disturb);
    }
    life.disk.operations()
}

#[test]
fn power_loss_at_every_operation_leaves_what_the_manifest_names() {
    for seed in 0..4 {
        let operations = check(seed, 60, None, SimDisk::crash) / 2;
        for operation in 0..operations {
            check(seed, 60, Some(operation), SimDisk::crash);
        }
    }
}

#[test]
fn power_loss_after_many_different_runs_leaves_what_the_manifest_names() {
    for seed in 100..500 {
        check(seed, 5 + seed as usize % 60, None, SimDisk::crash);
    }
}

#[test]
fn a_killed_process_leaves_what_the_manifest_names() {
    for seed in 1000..1200 {
        check(seed, 5 + seed as usize % 60, None, SimDisk::kill_process);
    }
}
