//! The power goes, or the process dies, at every single change of the disk in turn.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_log::disk::{Fault, FaultKind, Operation, SimDisk};
use weir_model::command::{Command, Outcome};
use weir_model::entry::Entry;
use weir_model::{Offset, PartitionId, SegmentId, SubscriptionId};
use weir_shard::{CheckpointError, Effect, Machine, WriteError};

use super::support::{
    Expectations, Expected, Traffic, check_reads, check_reads_exactly, expect, open, replay, write_all,
};

const ENTRIES: usize = 80;

/// How the machine goes down.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Power,
    Kill,
}

/// The entries, the digest of the state after each, and what must be readable after the last.
pub(super) struct Story {
    pub(super) journal: Vec<Entry>,
    pub(super) digests: Vec<u64>,
    pub(super) expected: Expectations,
    /// How often segments are written anew.
    rewrites: usize,
}

pub(super) fn story(seed: u64) -> Story {
    let mut traffic = Traffic::new(seed);
    let mut machine = Machine::new();
    let digests = vec![machine.digest()];
    let mut story = Story { journal: Vec::new(), digests, expected: BTreeMap::new(), rewrites: 0 };
    let mut segments = Segments::default();
    for index in 1..=ENTRIES as u64 {
        let rewriting = segments.sparse(&machine, &story.expected, &mut traffic);
        let (entry, dropped) = match rewriting {
            Some((command, dropped)) => (Entry { time: 0, commands: vec![command] }, dropped),
            None => (traffic.entry(), Vec::new()),
        };
        let mut effects = Vec::new();
        let outcomes = machine.apply(index, 1, &entry, &mut effects).unwrap();
        if let Some(Command::RewriteSegments { partition, .. }) = entry.commands.first() {
            assert_eq!(outcomes, [Outcome::Done]);
            story.expected.get_mut(partition).unwrap().let_go(&dropped);
            story.rewrites += 1;
        }
        segments.follow(&effects);
        expect(&mut story.expected, &entry, &outcomes);
        story.digests.push(machine.digest());
        story.journal.push(entry);
    }
    story
}

/// The segments of every partition, each with the last offset in it, as effects tell of them.
#[derive(Default)]
struct Segments(BTreeMap<PartitionId, Vec<(SegmentId, Offset)>>);

impl Segments {
    fn follow(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Appended { partition, batch, starts_segment } => {
                    let segments = self.0.entry(*partition).or_default();
                    if *starts_segment {
                        let id = SegmentId { base: batch.base_offset, generation: 0 };
                        segments.push((id, batch.last_offset));
                    }
                    segments.last_mut().unwrap().1 = batch.last_offset;
                }
                Effect::Trimmed { partition, segments_dropped, .. } => {
                    self.0.get_mut(partition).unwrap().retain(|(id, _)| !segments_dropped.contains(id));
                }
                Effect::Rewritten { partition, segments: old, new, .. } => {
                    let segments = self.0.get_mut(partition).unwrap();
                    let at = segments.iter().position(|(id, _)| *id == old[0]).unwrap();
                    let new = new.map(|new| (new.id, new.last_offset));
                    segments.splice(at..at + old.len(), new);
                }
                Effect::PartitionClosed(partition) => drop(self.0.remove(partition)),
                _ => {}
            }
        }
    }

    /// A rewrite of neighbouring segments without some of the batches of which everything is settled, and these.
    fn sparse(
        &self,
        machine: &Machine,
        expected: &Expectations,
        traffic: &mut Traffic,
    ) -> Option<(Command, Vec<Offset>)> {
        let mut several = self.0.iter().filter(|(_, segments)| segments.len() > 1);
        several.find_map(|(partition, segments)| {
            let first = traffic.below(segments.len() as i64 - 1) as usize;
            let end = (first + 1 + traffic.below(2) as usize).min(segments.len() - 1);
            sparse_of(*partition, &segments[first..end], machine, &expected[partition], traffic)
        })
    }
}

/// Of one partition, of these segments.
fn sparse_of(
    partition: PartitionId,
    segments: &[(SegmentId, Offset)],
    machine: &Machine,
    log: &Expected,
    traffic: &mut Traffic,
) -> Option<(Command, Vec<Offset>)> {
    let (base, last_offset) = (segments[0].0.base, segments[segments.len() - 1].1);
    let state = machine.subscription(partition, SubscriptionId::QUEUE)?;
    let batches = || log.batches.iter().filter(|b| b.base_offset >= base && b.base_offset <= last_offset);
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for batch in batches() {
        let is_settled = (batch.base_offset..=batch.last_offset).all(|at| state.is_settled(at));
        if is_settled && !traffic.chance(4) { dropped.push(batch) } else { kept.push(batch) }
    }
    // A state in which the first segment is not needed any more is none.
    if dropped.is_empty() || kept.last().is_some_and(|last| last.last_offset < log.log_start) {
        return None;
    }
    let command = Command::RewriteSegments {
        partition,
        segments: segments.iter().map(|(id, _)| *id).collect(),
        kept: kept.iter().map(|batch| (batch.base_offset, batch.last_offset)).collect(),
        bytes: kept.iter().map(|batch| batch.len() as u64).sum(),
        max_timestamp: kept.iter().map(|batch| batch.max_timestamp).max().unwrap_or(-1),
    };
    Some((command, dropped.iter().map(|batch| batch.base_offset).collect()))
}

/// Lives until the disk goes away. Returns the index that the last good checkpoint covered, and
/// whether it came to the end.
fn live(disk: &SimDisk, story: &Story) -> (u64, bool) {
    let mut durable = 0;
    let Ok((mut shard, mut writer, recovered)) = open(disk) else { return (durable, false) };
    assert_eq!(shard.machine().clone().digest(), story.digests[recovered.applied_index as usize]);
    for (entry, index) in story.journal.iter().zip(1..).skip(recovered.applied_index as usize) {
        shard.apply(index, 1, entry).unwrap();
        // What passes by itself, or says that it may be tried again, does not end a life.
        let full = |error: &WriteError| matches!(error, WriteError::Full(_)) && !disk.is_down();
        if index % 4 == 0 && writer.run_once().is_err_and(|error| !full(&error)) {
            return (durable, false);
        }
        if index % 11 == 0 {
            // Begun before the writer has come so far, and run after more was applied and written.
            let task = shard.begin_checkpoint(Bytes::from(index.to_le_bytes().to_vec()));
            match write_all(&mut writer) {
                Ok(_) => {}
                Err(error) if full(&error) => continue,
                Err(_) => return (durable, false),
            }
            match task.run() {
                Ok(done) => durable = done.applied_index,
                Err(CheckpointError::Disk(_)) if !disk.is_down() => {}
                Err(_) => return (durable, false),
            }
        }
    }
    (durable, write_all(&mut writer).is_ok())
}

/// Returns how often segments are written anew.
fn check(seed: u64, end: End) -> usize {
    let story = story(seed);
    let total = {
        let disk = SimDisk::new(seed);
        assert!(live(&disk, &story).1);
        disk.operations()
    };
    assert!(total > 100, "only {total} changes of the disk: not much of a test");
    for at in 0..total {
        let disk = SimDisk::new(seed ^ at << 32);
        disk.crash_at(at);
        let (durable, _) = live(&disk, &story);
        let end_now = || match end {
            End::Power => disk.restart(),
            End::Kill => disk.kill_process(),
        };
        end_now();
        let (mut shard, mut writer, recovered) =
            open(&disk).unwrap_or_else(|error| panic!("seed {seed}, {end:?} at {at}: {error}"));
        let context = format!("seed {seed}, {end:?} at {at}, back at entry {}", recovered.applied_index);
        assert!(recovered.applied_index >= durable, "{context}: the checkpoint at {durable} is lost");
        let index = recovered.applied_index;
        assert_eq!(shard.machine().clone().digest(), story.digests[index as usize], "{context}");
        let meta = if index == 0 { Bytes::new() } else { Bytes::from(index.to_le_bytes().to_vec()) };
        assert_eq!(recovered.raft_meta, meta, "{context}");

        replay(&mut shard, &story.journal, index);
        assert_eq!(shard.machine().clone().digest(), story.digests[ENTRIES], "{context}");
        check_reads(&shard, &story.expected);
        write_all(&mut writer).unwrap();
        check_reads(&shard, &story.expected);
        shard.begin_checkpoint(Bytes::from_static(b"last")).run().unwrap();

        // From the files alone.
        end_now();
        let (shard, _, recovered) = open(&disk).unwrap();
        assert_eq!(recovered.applied_index, ENTRIES as u64);
        check_reads_exactly(&shard, &story.expected);
    }
    story.rewrites
}

#[test]
fn power_lost_at_every_change_of_the_disk() {
    assert!((1..4).map(|seed| check(seed, End::Power)).sum::<usize>() > 0, "nothing is written anew");
}

#[test]
fn process_killed_at_every_change_of_the_disk() {
    assert!((4..6).map(|seed| check(seed, End::Kill)).sum::<usize>() > 0, "nothing is written anew");
}

/// The process dies; the next one only opens the shard, and then the power goes: what it found in the
/// page cache may not have been durable, and what it did about it may survive all the same.
#[test]
fn power_lost_behind_an_opening() {
    for seed in 8..11 {
        let story = story(seed);
        let total = {
            let disk = SimDisk::new(seed);
            live(&disk, &story);
            disk.operations()
        };
        for at in 0..total {
            let disk = SimDisk::new(seed ^ at << 32);
            disk.crash_at(at);
            let (durable, _) = live(&disk, &story);
            disk.kill_process();
            let seen = open(&disk).unwrap().2.applied_index;
            disk.crash();
            let (mut shard, _, recovered) =
                open(&disk).unwrap_or_else(|error| panic!("seed {seed} at {at}: {error}"));
            let index = recovered.applied_index;
            assert!(index >= durable, "seed {seed} at {at}");
            // The caller lets go of the journal up to what it is told.
            assert!(index >= seen, "seed {seed} at {at}: entries {index} to {seen} are in neither");
            replay(&mut shard, &story.journal, index);
            check_reads(&shard, &story.expected);
        }
    }
}

#[test]
fn crashes_on_top_of_each_other() {
    let story = story(7);
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut traffic = Traffic::new(seed);
        let mut durable = 0;
        for _ in 0..12 {
            disk.crash_at(disk.operations() + traffic.below(120) as u64);
            let mut failing = false;
            while traffic.chance(3) {
                failing = true;
                let operation =
                    [Operation::Sync, Operation::Name, Operation::Write][traffic.below(3) as usize];
                let kind = [FaultKind::Io, FaultKind::NoSpace][traffic.below(2) as usize];
                disk.fail(Fault { operation, after: traffic.below(60) as u64, kind });
            }
            let (at, ended) = live(&disk, &story);
            assert!(ended || failing || disk.is_down(), "seed {seed}: something else failed");
            durable = durable.max(at);
            disk.heal();
            if traffic.chance(2) { disk.crash() } else { disk.kill_process() }
        }
        let (mut shard, _, recovered) = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(recovered.applied_index >= durable, "seed {seed}");
        replay(&mut shard, &story.journal, recovered.applied_index);
        check_reads(&shard, &story.expected);
    }
}
