//! Disks that fail or are full, and files that are damaged.

use weir_log::disk::{Disk, Fault, FaultKind, Operation};
use weir_model::command::Command;
use weir_shard::{CheckpointError, ReadError, ShardError, WriteError};

use super::support::{Replica, Traffic, append, batch, names, open, open_partition, shard_dir};

fn with_records() -> Replica {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 4096), open_partition(2, 4096)]);
    for _ in 0..20 {
        replica.apply(vec![append(1, batch(2, 100, 0, None)), append(2, batch(1, 10, 0, None))]);
    }
    replica
}

fn fail(replica: &Replica, operation: Operation, after: u64, kind: FaultKind) {
    replica.disk.fail(Fault { operation, after, kind });
}

#[test]
fn a_full_disk_is_waited_for() {
    let mut replica = Replica::new(1);
    let settings = weir_model::settings::PartitionSettings::default();
    let partition = weir_model::PartitionId(1);
    replica.apply(vec![Command::OpenPartition { partition, settings, epoch_base: 0 }]);
    for _ in 0..40 {
        replica.apply(vec![append(1, batch(2, 100, 0, None))]);
    }
    for after in [0, 3, 1, 2, 4] {
        fail(&replica, Operation::Write, after, FaultKind::NoSpace);
        let failed = replica.write();
        assert!(matches!(failed, Err(WriteError::Full(_))), "{failed:?}");
        replica.check();
    }
    replica.write().unwrap();
    assert_eq!(replica.shard.view().unwritten_bytes(), 0);
    replica.check();
    replica.checkpoint().unwrap();
    replica.reopen();
    replica.check();
}

/// Every batch begins a segment, and nobody makes a checkpoint: files must not stay open until one is made.
#[test]
fn files_that_are_not_synced_are_bounded() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 200)]);
    for _ in 0..30 {
        replica.apply(vec![append(1, batch(2, 100, 0, None))]);
    }
    // The third sync fails: without a bound there would be none before a checkpoint.
    fail(&replica, Operation::Sync, 2, FaultKind::Io);
    assert!(matches!(replica.write(), Err(WriteError::Stopped(_))));
    replica.disk.crash();
    replica.reopen();
    replica.checkpoint().unwrap();
    replica.check();
}

#[test]
fn a_failed_write_stops_the_shard_until_it_is_opened_again() {
    let mut replica = with_records();
    replica.checkpoint().unwrap();
    replica.apply(vec![append(1, batch(2, 100, 0, None))]);
    fail(&replica, Operation::Write, 0, FaultKind::Io);
    assert!(matches!(replica.write(), Err(WriteError::Stopped(_))));
    assert!(matches!(replica.write(), Err(WriteError::Stopped(_))));
    assert!(matches!(
        replica.shard.begin_checkpoint(Default::default()).run(),
        Err(CheckpointError::Unwritten { .. })
    ));
    replica.check();
    replica.reopen();
    replica.checkpoint().unwrap();
    replica.check();
}

#[test]
fn a_failed_sync_of_segments_stops_the_shard() {
    let mut replica = with_records();
    replica.write().unwrap();
    fail(&replica, Operation::Sync, 0, FaultKind::Io);
    let task = replica.shard.begin_checkpoint(Default::default());
    assert!(matches!(task.run(), Err(CheckpointError::Stopped(_))));
    // The page cache calls everything clean now: a second sync would succeed and mean nothing.
    assert!(matches!(task.run(), Err(CheckpointError::Stopped(_))));
    replica.disk.crash();
    replica.reopen();
    replica.checkpoint().unwrap();
    replica.disk.crash();
    replica.reopen();
    replica.check();
}

#[test]
fn a_checkpoint_that_failed_is_made_again() {
    for operation in [Operation::Write, Operation::Sync, Operation::Name] {
        for after in 0..6 {
            let mut replica = with_records();
            replica.checkpoint().unwrap();
            // Only the state changes: no segment file is in the way.
            replica.apply(vec![super::support::trim(1, 3)]);
            fail(&replica, operation, after, FaultKind::NoSpace);
            let failed = replica.checkpoint();
            replica.disk.heal();
            let done = replica.checkpoint().unwrap();
            assert_eq!(done.applied_index, 22, "{operation:?} {after} {failed:?}");
            replica.disk.crash();
            replica.reopen();
            replica.check();
        }
    }
}

fn damaged(replica: &Replica, file: &str) -> ShardError {
    let files = |dir| names(&replica.disk, dir);
    let before = (files("checkpoint"), files("1"), files("2"));
    replica.disk.kill_process();
    let error = open(&replica.disk).unwrap_err();
    assert_eq!((files("checkpoint"), files("1"), files("2")), before, "{file}: nothing may be deleted");
    error
}

#[test]
fn every_flipped_bit_of_a_checkpoint_stops_the_shard() {
    let mut replica = with_records();
    let mut traffic = Traffic::new(9);
    replica.checkpoint().unwrap();
    replica.apply(vec![append(1, batch(2, 100, 0, Some((7, 0, 0))))]);
    replica.checkpoint().unwrap();
    // A file that is not named: a start would remove it, but only after reading all that is.
    let dir = shard_dir().join("checkpoint");
    replica.disk.open(&dir.join("00000000000000000077.state"), weir_log::disk::OpenMode::Create).unwrap();
    let files = names(&replica.disk, "checkpoint");
    assert!(files.len() > 2, "{files:?}");
    for file in files {
        let path = dir.join(&file);
        let len = replica.disk.open(&path, weir_log::disk::OpenMode::Read).unwrap().len().unwrap();
        for byte in 0..len {
            // A state file's first bytes only say what it is to somebody who looks.
            if file.ends_with(".state") && (byte < 8 || len == 0) {
                continue;
            }
            let bit = traffic.below(8) as u8;
            replica.disk.flip_bit(&path, byte, bit);
            let error = damaged(&replica, &file);
            assert!(matches!(error, ShardError::Checkpoint { .. }), "{file} byte {byte}: {error:?}");
            replica.disk.flip_bit(&path, byte, bit);
        }
    }
    replica.reopen();
    replica.check();
}

#[test]
fn a_missing_part_of_a_checkpoint_stops_the_shard() {
    let mut replica = with_records();
    replica.checkpoint().unwrap();
    for file in names(&replica.disk, "checkpoint") {
        let replica = {
            let mut replica = with_records();
            replica.checkpoint().unwrap();
            replica
        };
        replica.disk.remove_file(&shard_dir().join("checkpoint").join(&file)).unwrap();
        let error = damaged(&replica, &file);
        match file.as_str() {
            "manifest" => assert!(matches!(error, ShardError::MissingManifest { .. }), "{error:?}"),
            _ => assert!(matches!(error, ShardError::Checkpoint { .. }), "{error:?}"),
        }
    }
}

#[test]
fn a_missing_or_short_segment_file_stops_the_shard() {
    let mut replica = with_records();
    replica.checkpoint().unwrap();
    let path = shard_dir().join("2/00000000000000000000.log");
    let file = replica.disk.open(&path, weir_log::disk::OpenMode::Write).unwrap();
    let len = file.len().unwrap();
    file.set_len(len - 1).unwrap();
    assert!(matches!(damaged(&replica, "short"), ShardError::Partition { .. }));
    replica.disk.remove_file(&path).unwrap();
    assert!(matches!(damaged(&replica, "missing"), ShardError::Partition { .. }));
}

#[test]
fn a_damaged_segment_is_reported_where_it_is_read() {
    let mut replica = with_records();
    replica.checkpoint().unwrap();
    let path = shard_dir().join("2/00000000000000000000.log");
    // The magic of the first batch.
    assert!(replica.disk.flip_bit(&path, 16, 3));
    replica.reopen();
    let read = replica.partition(2).read(0, 1, false);
    assert!(matches!(read, Err(ReadError::Corrupt { offset: 0, .. })), "{read:?}");
    replica.partition(1).read(0, 1, false).unwrap();
}

#[test]
fn a_checkpoint_of_another_shard_is_refused() {
    let mut replica = with_records();
    replica.checkpoint().unwrap();
    replica.disk.kill_process();
    let other = weir_shard::Shard::open(
        replica.disk.shared(),
        shard_dir(),
        weir_model::ShardId(4),
        weir_shard::ShardOptions::default(),
    );
    assert!(matches!(other, Err(ShardError::Checkpoint { .. })));
}
