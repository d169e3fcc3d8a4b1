//! A cluster of one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_cluster::{NoTransport, Node};
use weir_log::disk::{Disk, OpenMode};
use weir_log::journal::Position;
use weir_model::command::{Command, Outcome};
use weir_model::settings::PartitionSettings;

use crate::support::{Machine, PARTITION, SHARD, append, open_partition, put, run, values};

#[test]
fn what_was_appended_is_there_after_an_orderly_restart() {
    run(async {
        let machine = Machine::alone(1);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        for round in 0..100 {
            assert_eq!(put(shard, &format!("value {round}")).await, Ok(round));
        }
        node.shutdown().await;

        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        assert_eq!(values(shard).len(), 100);
        assert_eq!(put(shard, "after").await, Ok(100));
        node.shutdown().await;
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
    });
}

#[test]
fn what_was_acknowledged_survives_a_power_loss() {
    run(async {
        let machine = Machine::alone(2);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        for round in 0..100 {
            assert_eq!(put(shard, &format!("value {round}")).await, Ok(round));
        }
        machine.disk.crash();
        node.abandon().await;

        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        let expected: Vec<String> = (0..100).map(|round| format!("value {round}")).collect();
        assert_eq!(values(shard), expected);
        node.shutdown().await;
    });
}

#[test]
fn a_journal_that_is_gone_is_not_taken_for_a_new_one() {
    run(async {
        let machine = Machine::alone(3);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        put(shard, "in the checkpoint").await.expect("an append");
        node.shutdown().await;
        let node = machine.start().await;
        put(node.shard(SHARD).expect("the shard"), "in the journal only").await.expect("an append");
        machine.disk.crash();
        node.abandon().await;

        let dir = Path::new("/data/journal");
        for file in machine.disk.list(dir).expect("the journal") {
            machine.disk.remove_file(&dir.join(file.name)).expect("a file is removed");
        }
        let Err(refused) = machine.try_start(Arc::new(NoTransport)).await else { panic!("it started") };
        assert!(refused.contains("the journal in /data/journal is gone"), "{refused}");

        assert_eq!(machine.disk.list(dir).expect("the journal"), [], "nothing was begun in its place");

        let accepting = machine.clone().tuned(|o| o.journal.accept_loss_from = Some(Position(0)));
        let node = accepting.start().await;
        assert_eq!(values(node.shard(SHARD).expect("the shard")), ["in the checkpoint"]);
        node.shutdown().await;
        machine.start().await.shutdown().await;
    });
}

/// When the journal no longer has what a checkpoint covers, and the checkpoint is gone, everything is: a shard
/// that began anew would give out offsets for the second time.
#[test]
fn a_shard_that_is_gone_is_not_taken_for_a_new_one() {
    run(async {
        let machine = Machine::alone(5).tuned(|options| options.checkpoint_bytes = 16 << 10);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        for number in 0..400 {
            put(shard, &format!("{number:01000}")).await.expect("an append");
        }
        node.shutdown().await;
        let first = Path::new("/data/journal/00000000000000000001.journal");
        assert!(machine.disk.open(first, OpenMode::Read).is_err(), "the journal was released");

        let dir = Path::new("/data/shards").join(SHARD.to_string());
        for directory in [dir.join("checkpoint"), dir.join(PARTITION.to_string())] {
            for file in machine.disk.list(&directory).expect("a directory") {
                machine.disk.remove_file(&directory.join(file.name)).expect("a file is removed");
            }
            machine.disk.remove_dir(&directory).expect("the directory is removed");
        }
        let Err(refused) = machine.try_start(Arc::new(NoTransport)).await else { panic!("it started") };
        assert!(refused.contains("the journal lacks entries"), "{refused}");
    });
}

/// What lies behind a loss cannot keep its offsets, so a loss that is accepted ends the log there.
#[test]
fn an_accepted_loss_leaves_what_was_before_it() {
    for checkpointed in [false, true] {
        run(async {
            let machine = Machine::alone(4);
            let node = machine.start().await;
            let shard = node.shard(SHARD).expect("the shard");
            open_partition(shard).await;
            put(shard, "0").await.expect("an append");
            let node = if checkpointed {
                node.shutdown().await;
                machine.start().await
            } else {
                node
            };
            let shard = node.shard(SHARD).expect("the shard");
            for number in 1..30 {
                put(shard, &number.to_string()).await.expect("an append");
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            machine.disk.crash();
            node.abandon().await;

            let path = Path::new("/data/journal/00000000000000000001.journal");
            let damaged = machine.disk.open(path, OpenMode::Read).expect("the journal");
            let mut bytes = vec![0; damaged.len().expect("its length") as usize];
            damaged.read_at(&mut bytes, 0).expect("its bytes");
            let at = bytes.windows(3).position(|at| at == [4, b'1', b'7']).expect("the record 17");
            assert!(machine.disk.flip_bit(path, at as u64, 0));
            let Err(refused) = machine.try_start(Arc::new(NoTransport)).await else { panic!("it started") };
            assert!(refused.contains("corrupt"), "{refused}");

            let accepting = machine.clone().tuned(|o| o.journal.accept_loss_from = Some(Position(0)));
            let node = accepting.start().await;
            let shard = node.shard(SHARD).expect("the shard");
            let mut expected: Vec<String> = (0..17).map(|number| number.to_string()).collect();
            assert_eq!(values(shard), expected);
            assert_eq!(put(shard, "after").await, Ok(17));
            expected.push("after".to_owned());
            machine.disk.crash();
            node.abandon().await;
            for _ in 0..2 {
                let node = machine.start().await;
                assert_eq!(values(node.shard(SHARD).expect("the shard")), expected);
                node.shutdown().await;
            }
        });
    }
}

/// Appends until the power goes, at any operation of the disk, several times over; what was
/// acknowledged is there once, at its offset, and the start succeeds every time.
fn crash_loop(seed: u64) {
    run(async {
        let machine = Machine::alone(seed).tuned(|options| options.checkpoint_bytes = 16 << 10);
        // Offsets by what was appended there; only what was acknowledged.
        let mut ledger: BTreeMap<String, i64> = BTreeMap::new();
        let mut opened = false;
        let mut draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for life in 0..12 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            machine.disk.crash_at(machine.disk.operations() + 20 + (draw >> 33) % 400);
            if let Ok(node) = machine.try_start(Arc::new(NoTransport)).await {
                let scenario = live(&node, life, &mut ledger, &mut opened);
                let _ = tokio::time::timeout(Duration::from_secs(20), scenario).await;
                machine.disk.crash();
                node.abandon().await;
            } else {
                assert!(machine.disk.is_down(), "seed {seed}: it does not start on a disk that works");
            }
            machine.disk.restart();
        }
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        assert!(ledger.len() > 20, "seed {seed}: hardly anything was acknowledged: {}", ledger.len());
        if opened {
            let values = values(shard);
            for (value, offset) in &ledger {
                let at = values.get(*offset as usize);
                assert_eq!(at, Some(value), "seed {seed}: at offset {offset}");
                let copies = values.iter().filter(|other| *other == value).count();
                assert_eq!(copies, 1, "seed {seed}: copies of {value}");
            }
        }
        node.shutdown().await;
    });
}

async fn live(node: &Node, life: u32, ledger: &mut BTreeMap<String, i64>, opened: &mut bool) {
    if node.ready().await.is_err() {
        return;
    }
    let shard = node.shard(SHARD).expect("the shard");
    let open = Command::OpenPartition {
        partition: PARTITION,
        settings: PartitionSettings { segment_bytes: 4096, ..PartitionSettings::default() },
        epoch_base: 0,
    };
    if shard.propose(open).await.is_err() {
        return;
    }
    *opened = true;
    for round in 0..400 {
        let pending: Vec<_> = (0..4)
            .filter_map(|lane| {
                let value = format!("life {life} round {round} lane {lane} {}", "x".repeat(100));
                shard.submit(append(&value)).ok().map(|pending| (value, pending))
            })
            .collect();
        for (value, pending) in pending {
            match pending.await {
                Ok(Outcome::Appended(appended)) => drop(ledger.insert(value, appended.base_offset)),
                Ok(other) => panic!("an append came to {other:?}"),
                Err(_) => return,
            }
        }
    }
}

#[test]
fn every_acknowledged_append_survives_crashes_at_any_operation() {
    for seed in 0..12 {
        crash_loop(seed);
    }
}
