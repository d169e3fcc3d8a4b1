//! What happens at the bounds: a disk that fails, a disk that is full, too much on its way, and a
//! journal that must be used over and over while one shard has nothing to do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_cluster::{NoTransport, ProposeError};
use weir_log::disk::{Disk, Fault, FaultKind, Operation};
use weir_model::ShardId;
use weir_model::command::{Command, Outcome};

use crate::support::{Machine, PARTITION, SHARD, append, open_partition, put, run, values};

fn large(i: usize) -> Command {
    append(&format!("{i} {}", "x".repeat(10_000)))
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_the_process_is_told_to_end() {
    for after in 0..6 {
        run(async {
            let machine = Machine::alone(100 + after);
            let node = machine.start().await;
            let shard = node.shard(SHARD).expect("the shard");
            open_partition(shard).await;
            let mut acknowledged = Vec::new();
            // Some syncs are not the journal's, or of a file that holds nothing yet.
            for after in after..after + 20 {
                machine.disk.fail(Fault { operation: Operation::Sync, after, kind: FaultKind::Io });
            }
            let mut refused = false;
            for round in 0..50 {
                let value = format!("value {round}");
                match put(shard, &value).await {
                    Ok(_) if refused => panic!("acknowledged after the failure"),
                    Ok(_) => acknowledged.push(value),
                    Err(_) => refused = true,
                }
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            assert!(refused, "the failing sync was never met");
            let fatal = machine.fatal.lock().clone();
            let told = fatal.iter().any(|why| why.contains("the journal failed") && why.contains("sync"));
            assert!(told, "{fatal:?}");

            machine.disk.heal();
            machine.disk.kill_process();
            node.abandon().await;
            let node = machine.start().await;
            let values = values(node.shard(SHARD).expect("the shard"));
            assert_eq!(values[..acknowledged.len()], acknowledged[..]);
            node.shutdown().await;
        });
    }
}

#[test]
fn a_shard_admits_a_bounded_number_of_bytes_and_then_makes_producers_wait() {
    run(async {
        let machine = Machine::alone(200).tuned(|options| options.admission_bytes_max = 1 << 20);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;

        let mut pending = Vec::new();
        let refused = loop {
            match shard.submit(large(pending.len())) {
                Ok(outcome) => pending.push(outcome),
                Err(error) => break error,
            }
            assert!(pending.len() < 200, "more is admitted than is set");
        };
        assert_eq!(refused, ProposeError::Overloaded);
        assert!(pending.len() > 90, "less is admitted than is set: {}", pending.len());
        // Small commands have a place of their own.
        let trim = shard.submit(Command::Trim { partition: PARTITION, log_start: 0 }).expect("has room");

        // Who waits is let in as the batches are written, and not a byte earlier.
        let waiting = tokio::spawn({
            let shard = shard.clone();
            async move { shard.admit(500_000).await.map(drop) }
        });
        for outcome in pending {
            assert!(matches!(outcome.await, Ok(Outcome::Appended(_))));
        }
        assert_eq!(trim.await, Ok(Outcome::Done));
        waiting.await.expect("no panic").expect("is admitted");
        node.shutdown().await;
    });
}

#[test]
fn what_is_unwritten_stays_within_what_is_admitted() {
    run(async {
        let machine = Machine::alone(201).tuned(|options| options.admission_bytes_max = 1 << 20);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;
        let producers: Vec<_> = (0..300)
            .map(|i| {
                let shard = shard.clone();
                tokio::spawn(async move {
                    let outcome = shard.propose(large(i)).await;
                    (outcome, shard.view().unwritten_bytes())
                })
            })
            .collect();
        for producer in producers {
            let (outcome, unwritten) = producer.await.expect("no panic");
            assert!(matches!(outcome, Ok(Outcome::Appended(_))), "{outcome:?}");
            assert!(unwritten <= 1 << 20, "{unwritten} bytes are unwritten");
        }
        assert_eq!(values(&shard).len(), 300);
        node.shutdown().await;
    });
}

#[test]
fn a_full_disk_refuses_records_and_nothing_else_and_clears_by_itself() {
    run(async {
        let machine = Machine::alone(300).tuned(|options| options.disk_reserve_bytes = 4 << 20);
        machine.disk.set_capacity(Some(12 << 20));
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;
        let mut appended = 0;
        let refused = loop {
            match shard.propose(large(appended)).await {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
            assert!(appended < 2000, "the disk is never full");
        };
        assert!(matches!(refused, ProposeError::DiskFull { .. }), "{refused:?}");
        assert!(appended > 20, "only {appended} were taken");
        assert!(matches!(shard.admit(1000).await, Err(ProposeError::DiskFull { .. })));
        let trim = Command::Trim { partition: PARTITION, log_start: appended as i64 / 2 };
        assert_eq!(shard.propose(trim).await, Ok(Outcome::Done));

        machine.disk.set_capacity(Some(64 << 20));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(matches!(shard.propose(large(0)).await, Ok(Outcome::Appended(_))));
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
        node.shutdown().await;
    });
}

#[test]
fn a_disk_that_others_have_filled_is_waited_for_by_segment_writes() {
    run(async {
        let machine = Machine::alone(350);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        put(shard, "first").await.expect("an append");
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Nobody has asked yet how much space is left.
        machine.disk.set_capacity(Some(1 << 40));
        let used = (1 << 40) - machine.disk.available_space(Path::new("/data")).expect("the space");
        machine.disk.set_capacity(Some(used));
        let large = "x".repeat(10_000);
        put(shard, &large).await.expect("an append");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(values(shard).len(), 2, "what waits can be read");
        assert!(shard.view().unwritten_bytes() > 10_000);
        machine.disk.set_capacity(None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shard.view().unwritten_bytes(), 0);
        node.shutdown().await;
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
        let node = machine.start().await;
        assert_eq!(values(node.shard(SHARD).expect("the shard")), ["first", large.as_str()]);
        node.shutdown().await;
    });
}

#[test]
fn where_the_journal_finds_no_place_for_its_next_file_records_are_refused_and_do_not_wait() {
    run(async {
        let machine = Machine::alone(360);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard").clone();
        open_partition(&shard).await;
        machine.disk.set_capacity(Some(1 << 40));
        let used = (1 << 40) - machine.disk.available_space(Path::new("/data")).expect("the space");
        // Others fill it between two looks at how much is left.
        machine.disk.set_capacity(Some(used));
        let mut pending = Vec::new();
        let refused = loop {
            let admitted = tokio::time::timeout(Duration::from_secs(5), shard.admit(11_000));
            match admitted.await.expect("is let in or refused, and does not wait") {
                Ok(admission) => {
                    let number = pending.len();
                    pending.push(shard.submit_admitted(admission, large(number)).expect("is taken"));
                }
                Err(error) => break error,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(pending.len() < 2000, "the disk is never full");
        };
        assert!(matches!(refused, ProposeError::DiskFull { .. }), "{refused:?}");
        assert!(matches!(shard.submit(large(0)), Err(ProposeError::DiskFull { .. })));

        machine.disk.set_capacity(None);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let count = pending.len();
        for outcome in pending {
            assert!(matches!(outcome.await, Ok(Outcome::Appended(_))));
        }
        assert!(matches!(shard.propose(large(count)).await, Ok(Outcome::Appended(_))));
        assert_eq!(values(&shard).len(), count + 1);
        assert_eq!(*machine.fatal.lock(), Vec::<String>::new());
        node.shutdown().await;
    });
}

#[test]
fn the_journal_is_used_over_and_over_while_one_shard_is_idle() {
    run(async {
        let machine = Machine::alone(400).tuned(|options| options.log_cache_bytes = 64 << 10);
        let node = machine.start().await;
        let busy = node.shard(SHARD).expect("the shard").clone();
        let idle = node.shard(ShardId(2)).expect("the other shard").clone();
        open_partition(&busy).await;
        open_partition(&idle).await;
        assert_eq!(put(&idle, "long ago").await, Ok(0));
        let rounds = 40;
        for round in 0..rounds {
            let mut pending = Vec::new();
            for i in 0..40 {
                let admission = busy.admit(11_000).await.expect("is admitted");
                let outcome = busy.submit_admitted(admission, large(round * 40 + i));
                pending.push(outcome.expect("is taken"));
            }
            for outcome in pending {
                assert!(matches!(outcome.await, Ok(Outcome::Appended(_))));
            }
        }
        // 16 MB went through a journal of 4 MiB, which what was let in before it was full may exceed.
        let files = machine.disk.shared().list(Path::new("/data/journal")).expect("the journal's directory");
        let bytes: u64 = files.iter().map(|file| file.len).sum();
        assert!(bytes <= (4 << 20) + (1 << 20) + (512 << 10), "the journal takes {bytes} bytes");
        machine.disk.crash();
        node.abandon().await;

        let node = machine.start().await;
        let busy = node.shard(SHARD).expect("the shard");
        let idle = node.shard(ShardId(2)).expect("the other shard");
        assert_eq!(values(busy).len(), rounds * 40);
        assert_eq!(values(idle), ["long ago"]);
        assert_eq!(put(idle, "now").await, Ok(1));
        node.shutdown().await;
    });
}

#[test]
fn an_orderly_stop_leaves_nothing_to_apply_again() {
    run(async {
        let machine = Machine::alone(500);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        for round in 0..50 {
            put(shard, &format!("value {round}")).await.expect("is appended");
        }
        let applied = shard.view().applied_index();
        node.shutdown().await;
        assert!(matches!(shard.propose(large(0)).await, Err(ProposeError::ShuttingDown)));

        // What a replica has at once, before it has heard of anything, is its checkpoint.
        let node = machine.try_start(Arc::new(NoTransport)).await.expect("the node starts");
        assert!(node.shard(SHARD).expect("the shard").view().applied_index() >= applied);
        node.shutdown().await;
    });
}

#[test]
fn a_command_that_is_too_large_is_refused() {
    run(async {
        let machine = Machine::alone(600);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        let too_large = append(&"x".repeat(100_000));
        assert!(matches!(shard.propose(too_large.clone()).await, Err(ProposeError::TooLarge { .. })));
        assert!(matches!(shard.submit(too_large), Err(ProposeError::TooLarge { .. })));
        assert_eq!(put(shard, "fits").await, Ok(0));
        node.shutdown().await;
    });
}

#[test]
fn asynchronous_durability_answers_earlier_and_keeps_the_order() {
    run(async {
        let machine = Machine::alone(700);
        let node = machine.start().await;
        let shard = node.shard(SHARD).expect("the shard");
        open_partition(shard).await;
        let began = tokio::time::Instant::now();
        let queued: Vec<_> =
            (0..10).map(|i| shard.submit_async(append(&format!("async {i}"))).expect("has room")).collect();
        for queued in queued {
            queued.await.expect("is queued");
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "it is answered before a sync has passed");
        assert_eq!(put(shard, "sync").await, Ok(10));
        let expected: Vec<String> =
            (0..10).map(|i| format!("async {i}")).chain(["sync".to_owned()]).collect();
        assert_eq!(values(shard), expected);
        node.shutdown().await;
    });
}
