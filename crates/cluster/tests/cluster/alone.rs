//! A cluster of one.

use crate::support::{Machine, SHARD, open_partition, put, run, values};

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
