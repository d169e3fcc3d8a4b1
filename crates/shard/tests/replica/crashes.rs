//! The power goes, or the process dies, at every single change of the disk in turn.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_log::disk::{Fault, FaultKind, Operation, SimDisk};
use weir_model::entry::Entry;
use weir_shard::{CheckpointError, Machine, WriteError};

use super::support::{Expectations, Traffic, check_reads, expect, open, replay, write_all};

const ENTRIES: usize = 60;

/// How the machine goes down.
#[derive(Clone, Copy, Debug)]
enum End {
    Power,
    Kill,
}

/// The entries, the digest of the state after each, and what must be readable after the last.
struct Story {
    journal: Vec<Entry>,
    digests: Vec<u64>,
    expected: Expectations,
}

fn story(seed: u64) -> Story {
    let mut traffic = Traffic::new(seed);
    let mut machine = Machine::new();
    let mut story = Story { journal: Vec::new(), digests: vec![machine.digest()], expected: BTreeMap::new() };
    for index in 1..=ENTRIES as u64 {
        let entry = traffic.entry();
        let outcomes = machine.apply(index, 1, &entry, &mut Vec::new()).unwrap();
        expect(&mut story.expected, &entry, &outcomes);
        story.digests.push(machine.digest());
        story.journal.push(entry);
    }
    story
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

fn check(seed: u64, end: End) {
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
        check_reads(&shard, &story.expected);
    }
}

#[test]
fn power_lost_at_every_change_of_the_disk() {
    (1..4).for_each(|seed| check(seed, End::Power));
}

#[test]
fn process_killed_at_every_change_of_the_disk() {
    (4..6).for_each(|seed| check(seed, End::Kill));
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
