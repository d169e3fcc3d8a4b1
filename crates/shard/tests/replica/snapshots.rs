//! A replica that is behind is given another one's checkpoint, and goes on from there, whenever it crashes meanwhile.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weir_log::disk::{Fault, FaultKind, Operation, SimDisk};
use weir_model::command::{Command, Outcome};
use weir_model::{Offset, PartitionId, SegmentId, SubscriptionId};
use weir_shard::{
    InstallError, ReadError, SegmentWriter, Shard, SnapshotError, SnapshotFile, SnapshotSource,
    SnapshotWanted, Staging,
};

use super::crashes::{End, Story, story};
use super::observers::Counter;
use super::support::{
    OPTIONS, Replica, SHARD, TERM, append, batch, check_reads, check_reads_exactly, close, names, open,
    open_partition, read_all, replay, shard_dir, trim, write_all,
};

/// What was sent.
#[derive(Debug, Default)]
struct Sent {
    /// Bytes of segments.
    segment_bytes: u64,
    checksums: usize,
    steps: usize,
}

/// Brings what is wanted, in pieces, for so many steps at most. Whether all is there.
fn bring(
    source: &SnapshotSource,
    staging: &mut Staging,
    steps: usize,
    sent: &mut Sent,
) -> Result<bool, SnapshotError> {
    for _ in 0..steps {
        sent.steps += 1;
        match staging.wanted() {
            None => return Ok(true),
            Some(SnapshotWanted::Bytes { file, from, to }) => {
                let bytes = source.read(file, from, to.min(from + 700))?;
                if let SnapshotFile::Segment(..) = file {
                    sent.segment_bytes += bytes.len() as u64;
                }
                staging.take_bytes(file, from, &bytes)?;
            }
            Some(SnapshotWanted::Checksum { file, from, to }) => {
                sent.checksums += 1;
                staging.take_checksum(file, from, to, source.checksum(file, from, to)?)?;
            }
        }
    }
    Ok(staging.wanted().is_none())
}

/// All of a transfer and of an install.
fn install(from: &Shard, to: &mut Shard) -> Result<Sent, String> {
    let source = from.snapshots().source().map_err(|e| e.to_string())?.expect("a checkpoint");
    let mut staging = to.snapshots().begin(source.id()).map_err(|e| e.to_string())?;
    let mut sent = Sent::default();
    assert!(bring(&source, &mut staging, usize::MAX, &mut sent).map_err(|e| e.to_string())?);
    let staged = staging.finish().expect("nothing is wanted");
    let installed = to.begin_install(staged).run().map_err(|e| e.to_string())?;
    to.complete_install(installed);
    Ok(sent)
}

impl Replica {
    /// Takes over another replica's last checkpoint, which must be that of its last entry.
    fn install(&mut self, from: &Replica) -> Sent {
        let sent = install(&from.shard, &mut self.shard).unwrap();
        (self.journal, self.expected) = (from.journal.clone(), from.expected.clone());
        sent
    }

    /// Another replica that has applied the same, on a disk of its own.
    pub fn twin(&self, seed: u64) -> Replica {
        let mut twin = Replica::new(seed);
        for entry in &self.journal {
            twin.apply_entry(entry.clone());
        }
        twin
    }

    fn segment_bytes(&self, id: u64) -> u64 {
        self.partition(id).bytes()
    }
}

pub fn fill(replica: &mut Replica, partition: u64, batches: usize) {
    for _ in 0..batches {
        replica.apply(vec![append(partition, batch(2, 90, 5, None))]);
    }
}

#[test]
fn a_replica_that_is_behind_goes_on_from_the_snapshot() {
    for seed in 20..40 {
        let (leader, mut follower, mut writer) = behind(seed, &story(seed));
        let story = story(seed);
        let last = story.journal.len() as u64;
        install(&leader, &mut follower).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(follower.view().applied_index(), last);
        assert_eq!(follower.machine().clone().digest(), story.digests[last as usize], "seed {seed}");
        check_reads_exactly(&follower, &story.expected);
        assert_eq!(follower.view().unwritten_bytes(), 0);
        assert!(!write_all(&mut writer).unwrap().more);
        check_reads_exactly(&follower, &story.expected);
    }
}

#[test]
fn what_follows_a_snapshot_is_applied_and_survives() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024), open_partition(2, 1024), open_partition(3, 1024)]);
    fill(&mut leader, 1, 20);
    let mut follower = leader.twin(2);
    follower.checkpoint().unwrap();
    // Applied here and only in memory.
    fill(&mut leader, 2, 3);
    for entry in leader.journal[follower.journal.len()..].iter().cloned() {
        follower.apply_entry(entry);
    }
    leader.apply(vec![trim(1, 20), close(3), open_partition(4, 1024)]);
    fill(&mut leader, 1, 7);
    fill(&mut leader, 2, 9);
    fill(&mut leader, 4, 11);
    leader.checkpoint().unwrap();

    let closed = follower.partition(3);
    follower.install(&leader);
    follower.check();
    assert!(closed.is_closed());
    assert_eq!(closed.read(0, 100, false), Err(ReadError::Closed));
    let had = leader.journal.len();
    leader.apply(vec![trim(2, 4)]);
    fill(&mut leader, 1, 9);
    fill(&mut leader, 2, 1);
    fill(&mut leader, 4, 30);
    for entry in leader.journal[had..].iter().cloned() {
        follower.apply_entry(entry);
    }
    for replica in [&mut leader, &mut follower] {
        replica.write().unwrap();
        replica.check();
    }
    assert_eq!(leader.digest(), follower.digest());
    follower.reopen();
    follower.check();
    for replica in [&mut leader, &mut follower] {
        replica.checkpoint().unwrap();
        replica.checkpoint().unwrap();
    }
    assert_eq!(leader.digest(), follower.digest());
    for partition in ["1", "2", "3", "4"] {
        let logs = |replica: &Replica| -> Vec<String> {
            names(&replica.disk, partition).into_iter().filter(|name| name.ends_with(".log")).collect()
        };
        assert_eq!(logs(&leader), logs(&follower), "partition {partition}");
    }
    assert_eq!(names(&follower.disk, "incoming"), Vec::<String>::new());
    follower.reopen();
    follower.check();
}

#[test]
fn segments_that_are_here_are_not_sent_again() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024), open_partition(2, 1 << 20)]);
    fill(&mut leader, 1, 30);
    fill(&mut leader, 2, 30);
    let mut follower = leader.twin(2);
    follower.write().unwrap();
    let here = follower.segment_bytes(1) + follower.segment_bytes(2);
    fill(&mut leader, 1, 10);
    fill(&mut leader, 2, 10);
    leader.checkpoint().unwrap();
    let sent = follower.install(&leader);
    let all = leader.segment_bytes(1) + leader.segment_bytes(2);
    // Also of the segments that have grown since, only the rest.
    assert_eq!(sent.segment_bytes, all - here);
    follower.check();
    follower.reopen();
    follower.check();
}

#[test]
fn a_segment_that_is_damaged_here_is_sent() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024)]);
    fill(&mut leader, 1, 30);
    let mut follower = leader.twin(2);
    follower.checkpoint().unwrap();
    fill(&mut leader, 1, 1);
    leader.checkpoint().unwrap();
    let path = shard_dir().join("1/00000000000000000000.log");
    assert!(follower.disk.flip_bit(&path, 300, 2));
    let damaged = follower.partition(1).segments()[0].bytes;
    let sent = follower.install(&leader);
    assert!(sent.segment_bytes > damaged, "{sent:?}");
    follower.check();
    follower.reopen();
    follower.check();
}

#[test]
fn what_is_damaged_on_its_way_is_refused_and_changes_nothing() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024)]);
    fill(&mut leader, 1, 30);
    leader.checkpoint().unwrap();
    let source = leader.shard.snapshots().source().unwrap().unwrap();
    for kind in 0..3 {
        let follower = Replica::new(2);
        let mut staging = follower.shard.snapshots().begin(source.id()).unwrap();
        let error = loop {
            let Some(SnapshotWanted::Bytes { file, from, to }) = staging.wanted() else { panic!("taken") };
            let mut bytes = source.read(file, from, to).unwrap().to_vec();
            let of_kind = match file {
                SnapshotFile::Manifest => 0,
                SnapshotFile::State(_) => 1,
                SnapshotFile::Segment(..) => 2,
            };
            if of_kind == kind {
                let at = bytes.len() / 2;
                bytes[at] ^= 4;
            }
            if let Err(error) = staging.take_bytes(file, from, &bytes) {
                break error;
            }
        };
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{error}");
        assert_eq!(follower.shard.view().applied_index(), 0);
        follower.check();
    }
}

#[test]
fn what_comes_twice_or_late_or_from_nowhere_is_left() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024)]);
    fill(&mut leader, 1, 10);
    leader.checkpoint().unwrap();
    let mut follower = Replica::new(2);
    let source = leader.shard.snapshots().source().unwrap().unwrap();
    let mut staging = follower.shard.snapshots().begin(source.id()).unwrap();
    while let Some(SnapshotWanted::Bytes { file, from, to }) = staging.wanted() {
        let bytes = source.read(file, from, to.min(from + 100)).unwrap();
        staging.take_bytes(file, from + 1, &bytes).unwrap();
        staging.take_bytes(SnapshotFile::State(999), from, &bytes).unwrap();
        staging.take_bytes(file, from, b"").unwrap();
        staging.take_bytes(file, from, &bytes).unwrap();
        staging.take_bytes(file, from, &bytes).unwrap();
        staging.take_checksum(file, from, to, 0).unwrap();
    }
    let staged = staging.finish().unwrap();
    let installed = follower.shard.begin_install(staged).run().unwrap();
    follower.shard.complete_install(installed);
    (follower.journal, follower.expected) = (leader.journal.clone(), leader.expected.clone());
    follower.check();
    for file in
        [SnapshotFile::State(77), SnapshotFile::Segment(PartitionId(9), SegmentId { base: 0, generation: 0 })]
    {
        source.read(file, 0, 1).unwrap_err();
    }
    source.read(SnapshotFile::Manifest, 5, 4).unwrap_err();
    source.read(SnapshotFile::Manifest, u64::MAX - 1, u64::MAX).unwrap_err();
    source.checksum(SnapshotFile::Manifest, 0, u64::MAX).unwrap_err();
}

#[test]
fn an_attempt_goes_on_with_what_an_earlier_one_of_another_checkpoint_has_staged() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1 << 20), open_partition(2, 1024)]);
    fill(&mut leader, 1, 30);
    fill(&mut leader, 2, 30);
    leader.checkpoint().unwrap();
    let mut follower = Replica::new(2);
    let source = leader.shard.snapshots().source().unwrap().unwrap();
    let mut staging = follower.shard.snapshots().begin(source.id()).unwrap();
    let mut first = Sent::default();
    while first.segment_bytes < 9_000 {
        assert!(!bring(&source, &mut staging, 1, &mut first).unwrap());
    }
    drop((staging, source));
    fill(&mut leader, 1, 3);
    fill(&mut leader, 2, 3);
    leader.checkpoint().unwrap();
    let second = follower.install(&leader);
    let all = leader.segment_bytes(1) + leader.segment_bytes(2);
    assert_eq!(first.segment_bytes + second.segment_bytes, all);
    follower.check();
}

#[test]
fn files_stay_as_long_as_they_are_sent() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024), open_partition(2, 1024)]);
    fill(&mut leader, 1, 30);
    fill(&mut leader, 2, 30);
    leader.checkpoint().unwrap();
    let (journal, expected) = (leader.journal.clone(), leader.expected.clone());
    let source = leader.shard.snapshots().source().unwrap().unwrap();
    leader.apply(vec![trim(1, 50), close(2)]);
    for _ in 0..40 {
        fill(&mut leader, 1, 1);
        leader.checkpoint().unwrap();
    }
    let before = names(&leader.disk, "1").len();
    let mut follower = Replica::new(2);
    let mut staging = follower.shard.snapshots().begin(source.id()).unwrap();
    assert!(bring(&source, &mut staging, usize::MAX, &mut Sent::default()).unwrap());
    let installed = follower.shard.begin_install(staging.finish().unwrap()).run().unwrap();
    follower.shard.complete_install(installed);
    (follower.journal, follower.expected) = (journal, expected);
    follower.check();
    drop(source);
    leader.apply(vec![append(1, batch(1, 1, 5, None))]);
    leader.checkpoint().unwrap();
    assert!(names(&leader.disk, "1").len() < before);
    assert_eq!(names(&leader.disk, "2"), Vec::<String>::new());
    leader.check();
}

#[test]
fn whoever_reads_goes_on_over_the_switch() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1 << 20), open_partition(2, 1 << 20)]);
    for _ in 0..4 {
        leader.apply(vec![append(1, batch(1, 40_000, 5, None))]);
    }
    let mut follower = leader.twin(2);
    follower.checkpoint().unwrap();
    let partition = follower.partition(1);
    let before = read_all(&partition, 0, 1 << 20);
    let range = partition.range(0, 1 << 20).expect("at hand and sound");
    let counter = Arc::new(Counter::default());
    let _guard = partition.observe(counter.clone());
    let (gone, told) = (follower.partition(2), Arc::new(Counter::default()));
    let _other_guard = gone.observe(told.clone());

    for _ in 0..4 {
        leader.apply(vec![append(1, batch(1, 40_000, 5, None))]);
    }
    leader.apply(vec![close(2)]);
    leader.checkpoint().unwrap();
    follower.install(&leader);
    assert_eq!(counter.seen()[2], 0);
    assert!(counter.seen()[1] >= 4 * 40_000, "{:?}", counter.seen());
    assert_eq!(told.seen()[2], 1);
    let len = range.range.len();
    assert_eq!(range.range.first(len).unwrap(), before[..len]);
    let after = read_all(&partition, 0, 1 << 20);
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after, leader.expected[&PartitionId(1)].bytes_from(0));
    assert!(Arc::ptr_eq(&partition, &follower.partition(1)), "the view is the same");
    // And is written to.
    follower.apply(vec![append(1, batch(1, 10, 5, None))]);
    follower.write().unwrap();
    follower.check();
}

#[test]
fn subscriptions_and_timers_come_over() {
    let mut leader = Replica::new(1);
    let open = Command::OpenSubscription {
        partition: PartitionId(1),
        subscription: SubscriptionId::QUEUE,
        start: 0,
    };
    leader.apply(vec![open_partition(1, 1024), open]);
    let mut follower = leader.twin(2);
    let timed = Command::AppendTimed {
        partition: PartitionId(1),
        deadlines: vec![(0, 9_000_000)],
        batch: batch(2, 50, 5, None),
    };
    let settle = Command::Settle {
        partition: PartitionId(1),
        subscription: SubscriptionId::QUEUE,
        handed_out: 2,
        settlements: vec![weir_model::subscription::Settlement {
            from: 1,
            to: 1,
            disposition: weir_model::subscription::Disposition::Accept,
        }],
    };
    let outcomes = leader.apply(vec![timed, settle]);
    assert!(!outcomes.iter().any(|outcome| matches!(outcome, Outcome::Refused(_))), "{outcomes:?}");
    leader.checkpoint().unwrap();
    install(&leader.shard, &mut follower.shard).unwrap();
    let (ours, theirs) = (follower.shard.view(), leader.shard.view());
    let id = (PartitionId(1), SubscriptionId::QUEUE);
    assert_eq!(ours.subscription(id.0, id.1), theirs.subscription(id.0, id.1));
    assert!(ours.subscription(id.0, id.1).is_some());
    assert_eq!(ours.timers(id.0), theirs.timers(id.0));
    assert!(ours.timers(id.0).is_some());
    assert_eq!(ours.entry_time(), theirs.entry_time());
}

#[test]
fn a_snapshot_that_is_not_later_is_none() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024)]);
    leader.checkpoint().unwrap();
    let mut follower = leader.twin(2);
    follower.checkpoint().unwrap();
    let source = leader.shard.snapshots().source().unwrap().unwrap();
    let mut staging = follower.shard.snapshots().begin(source.id()).unwrap();
    assert!(bring(&source, &mut staging, usize::MAX, &mut Sent::default()).unwrap());
    let stale = follower.shard.begin_install(staging.finish().unwrap()).run();
    assert!(matches!(stale, Err(InstallError::Stale { applied_index: 1 })), "{stale:?}");
    fill(&mut follower, 1, 3);
    follower.write().unwrap();
    follower.check();
}

#[test]
fn a_checkpoint_that_was_begun_before_the_switch_does_not_undo_it() {
    let mut leader = Replica::new(1);
    leader.apply(vec![open_partition(1, 1024)]);
    fill(&mut leader, 1, 3);
    let mut follower = leader.twin(2);
    let begun = follower.shard.begin_checkpoint(Bytes::from_static(b"old"));
    fill(&mut leader, 1, 9);
    leader.checkpoint().unwrap();
    follower.install(&leader);
    assert!(begun.is_ready());
    assert_eq!(begun.run().unwrap().applied_index, leader.journal.len() as u64);
    follower.reopen();
    follower.check();
    assert_eq!(follower.digest(), leader.digest());
}

/// A replica with all of a story and a checkpoint of it, and one with the first part, some of it in memory only.
fn behind(seed: u64, story: &Story) -> (Shard, Shard, SegmentWriter) {
    let leader = ahead(seed, story);
    let disk = SimDisk::new(seed + 1000);
    let (follower, writer) = first_part(&disk, story);
    (leader, follower, writer)
}

fn ahead(seed: u64, story: &Story) -> Shard {
    let (mut shard, mut writer, _) = open(&SimDisk::new(seed)).unwrap();
    for (entry, index) in story.journal.iter().zip(1..) {
        shard.apply(index, TERM, entry).unwrap();
        if index % 17 == 0 {
            write_all(&mut writer).unwrap();
            shard.begin_checkpoint(Bytes::from_static(b"raft")).run().unwrap();
        }
    }
    write_all(&mut writer).unwrap();
    shard.begin_checkpoint(Bytes::from_static(b"raft")).run().unwrap();
    shard
}

const FIRST_PART: u64 = 33;

fn first_part(disk: &SimDisk, story: &Story) -> (Shard, SegmentWriter) {
    let (mut shard, mut writer, _) = open(disk).unwrap();
    for (entry, index) in story.journal.iter().zip(1..=FIRST_PART) {
        shard.apply(index, TERM, entry).unwrap();
        if index % 4 == 0 {
            writer.run_once().unwrap();
        }
        if index == 14 {
            write_all(&mut writer).unwrap();
            shard.begin_checkpoint(Bytes::from_static(b"first")).run().unwrap();
        }
    }
    (shard, writer)
}

/// The machine goes down at every change of its disk in turn, from the first piece on.
fn crash_at_every_change(seed: u64, end: End) {
    let story = story(seed);
    let leader = ahead(seed, &story);
    let (from, to) = {
        let disk = SimDisk::new(seed);
        let (mut shard, _writer) = first_part(&disk, &story);
        let from = disk.operations();
        install(&leader, &mut shard).unwrap();
        (from, disk.operations())
    };
    assert!(to - from > 30, "only {} changes of the disk: not much of a test", to - from);
    let (mut old, mut new) = (0, 0);
    for at in from..=to {
        let disk = SimDisk::new(seed);
        let (mut shard, writer) = first_part(&disk, &story);
        disk.crash_at(at);
        let installed = install(&leader, &mut shard);
        let context = format!("seed {seed}, {end:?} at {at} of {from} to {to}");
        drop((shard, writer));
        match end {
            End::Power => disk.restart(),
            End::Kill => disk.kill_process(),
        }
        let (mut shard, mut writer, recovered) =
            open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(!names(&disk, "").contains(&"incoming".to_owned()), "{context}");
        let last = story.journal.len() as u64;
        let index = recovered.applied_index;
        assert_eq!(shard.machine().clone().digest(), story.digests[index as usize], "{context}");
        if index == last {
            new += 1;
            assert_eq!(recovered.raft_meta, Bytes::from_static(b"raft"), "{context}");
        } else {
            old += 1;
            installed.expect_err("what is installed is durable");
            assert_eq!(index, 14, "{context}");
            // The journal still has what it had.
            replay(&mut shard, &story.journal[..FIRST_PART as usize], index);
            assert_eq!(shard.machine().clone().digest(), story.digests[FIRST_PART as usize], "{context}");
            for partition in shard.view().partitions() {
                let log_start: Offset = partition.log_start();
                read_all(&partition, log_start, 700);
            }
            // It works, and is given the snapshot after all.
            write_all(&mut writer).unwrap_or_else(|error| panic!("{context}: {error}"));
            install(&leader, &mut shard).unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        check_reads(&shard, &story.expected);
        assert_eq!(shard.machine().clone().digest(), story.digests[last as usize], "{context}");
        drop((shard, writer));
        match end {
            End::Power => disk.crash(),
            End::Kill => disk.kill_process(),
        }
        let (shard, _, recovered) = open(&disk).unwrap_or_else(|error| panic!("{context}, again: {error}"));
        assert_eq!(recovered.applied_index, last, "{context}");
        check_reads(&shard, &story.expected);
    }
    assert!(old > 10 && new > 0, "seed {seed}, {end:?}: {old} times the old state, {new} times the new one");
}

#[test]
fn power_lost_at_every_change_of_the_disk_leaves_the_old_state_or_the_new_one() {
    (50..54).for_each(|seed| crash_at_every_change(seed, End::Power));
}

#[test]
fn process_killed_at_every_change_of_the_disk_leaves_the_old_state_or_the_new_one() {
    (54..57).for_each(|seed| crash_at_every_change(seed, End::Kill));
}

#[test]
fn a_disk_that_fails_leaves_the_old_state_or_stops_the_shard() {
    let story = story(60);
    let leader = ahead(60, &story);
    let (mut kept, mut stopped) = (0, 0);
    for operation in [Operation::Write, Operation::Sync, Operation::Name] {
        for after in 0..200 {
            let disk = SimDisk::new(after);
            let (mut shard, mut writer) = first_part(&disk, &story);
            disk.fail(Fault { operation, after, kind: FaultKind::Io });
            let failed = install(&leader, &mut shard);
            disk.heal();
            if failed.is_ok() {
                check_reads(&shard, &story.expected);
                break;
            }
            match write_all(&mut writer) {
                Ok(_) => {
                    kept += 1;
                    assert_eq!(shard.machine().clone().digest(), story.digests[FIRST_PART as usize]);
                    install(&leader, &mut shard).unwrap();
                    check_reads(&shard, &story.expected);
                }
                Err(_) => {
                    stopped += 1;
                    drop((shard, writer));
                    disk.kill_process();
                    let (mut shard, _, recovered) = open(&disk).unwrap();
                    let last = story.journal.len() as u64;
                    if recovered.applied_index != last {
                        replay(&mut shard, &story.journal[..FIRST_PART as usize], recovered.applied_index);
                        install(&leader, &mut shard).unwrap();
                    }
                    check_reads(&shard, &story.expected);
                }
            }
        }
    }
    assert!(kept > 20 && stopped > 2, "{kept} times the old state, {stopped} times the shard has stopped");
}

#[test]
fn what_an_earlier_process_has_staged_is_removed_by_a_start() {
    let disk = SimDisk::new(1);
    drop(open(&disk).unwrap());
    let mut leader = Replica::new(2);
    leader.apply(vec![open_partition(1, 1024)]);
    fill(&mut leader, 1, 10);
    leader.checkpoint().unwrap();
    let (shard, writer, _) = open(&disk).unwrap();
    let source = leader.shard.snapshots().source().unwrap().unwrap();
    let mut staging = shard.snapshots().begin(source.id()).unwrap();
    assert!(bring(&source, &mut staging, usize::MAX, &mut Sent::default()).unwrap());
    assert!(!names(&disk, "incoming").is_empty());
    drop((staging, shard, writer));
    disk.kill_process();
    let opened = Shard::open(disk.shared(), Path::new("/data/shards/3").to_owned(), SHARD, OPTIONS).unwrap();
    assert_eq!(opened.2.applied_index, 0);
    assert!(!names(&disk, "").contains(&"incoming".to_owned()));
}
