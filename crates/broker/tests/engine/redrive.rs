//! Dead records: looking at them, and taking them back.

use std::collections::BTreeMap;

use crate::support::World;
use crate::support::topology::{NAMESPACE, header, record, text, value};
use weir_broker::queues::{Deaths, Redrive, RedriveError};
use weir_model::subscription::Disposition;

const REJECT: Disposition = Disposition::Reject { reason: weir_model::subscription::DeadReason::Rejected };

/// Queues in several shards whose dead go to one.
async fn with_dead(seed: u64, count: usize) -> World {
    let world = World::started(seed).await;
    world.queue("dead", &[]).await;
    for queue in ["a", "b", "c", "d"] {
        world
            .queue(
                queue,
                &[("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dead"))],
            )
            .await;
    }
    for number in 0..count {
        for queue in ["a", "b", "c", "d"] {
            let headers = [header("amqp.exchange", "orders"), header("amqp.routing-key", "k")];
            world.send(queue, &[record(&format!("{queue}{number}"), &headers)]).await;
            let queue = world.open(queue).await;
            let owner = world.broker().new_owner();
            let got = queue.get(owner, false).await.unwrap().unwrap();
            queue.settle_durably(owner, vec![got.place], REJECT).await.unwrap();
        }
    }
    while world.broker().queue_contents(&info(&world, "dead")).records < 4 * count as u64 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    world
}

fn info(world: &World, name: &str) -> weir_broker::topology::QueueInfo {
    world.broker().find_queue(NAMESPACE, name).unwrap().unwrap()
}

fn expected(queue: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{queue}{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn dead_records_go_back_to_where_they_died_in_their_order() {
    let mut world = with_dead(1, 5).await;
    let first = Redrive { count: 8, to: None };
    let redriven = world.broker().redrive(NAMESPACE, "dead", first).await.unwrap();
    assert_eq!((redriven.moved.values().sum::<u64>(), redriven.finished), (8, false));
    world.lose_power().await;
    world.start().await;
    let rest = Redrive { count: 100, to: None };
    let redriven = world.broker().redrive(NAMESPACE, "dead", rest).await.unwrap();
    assert_eq!((redriven.moved.values().sum::<u64>(), redriven.kept, redriven.finished), (12, 0, true));
    assert_eq!(world.broker().queue_contents(&info(&world, "dead")).records, 0);
    for queue in ["a", "b", "c", "d"] {
        let records = world.drain(queue).await;
        let values: Vec<String> = records.iter().map(value).collect();
        assert_eq!(values, expected(queue, 0..5));
        for record in records {
            assert_eq!(Deaths::of(&record), None, "it may die again");
            let address = [header("amqp.exchange", "orders"), header("amqp.routing-key", "k")];
            assert_eq!(record.headers, address);
        }
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_say_where_it_died_stays_and_may_be_sent_anywhere() {
    let mut world = with_dead(2, 2).await;
    world.send("dead", &[record("from nowhere", &[])]).await;
    let gone = info(&world, "b");
    world.broker().delete_queue(&gone).await.unwrap();
    let all = Redrive { count: 100, to: None };
    let redriven = world.broker().redrive(NAMESPACE, "dead", all).await.unwrap();
    let moved: BTreeMap<String, u64> = [("a".into(), 2), ("c".into(), 2), ("d".into(), 2)].into();
    assert_eq!((redriven.moved, redriven.kept, redriven.finished), (moved, 3, true));
    // It gives back what it passed over.
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    let elsewhere = Redrive { count: 100, to: Some("a".into()) };
    let redriven = world.broker().redrive(NAMESPACE, "dead", elsewhere).await.unwrap();
    assert_eq!((redriven.moved, redriven.kept), ([("a".into(), 3)].into(), 0));
    assert_eq!(world.drained("a").await, ["a0", "a1", "b0", "b1", "from nowhere"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused() {
    let mut world = with_dead(3, 1).await;
    let redrive = async |name: &str, to: Option<&str>| {
        let what = Redrive { count: 1, to: to.map(str::to_owned) };
        world.broker().redrive(NAMESPACE, name, what).await.map(|_| ()).unwrap_err()
    };
    assert!(matches!(redrive("dead", Some("dead")).await, RedriveError::ToItself(_)));
    assert!(matches!(redrive("dead", Some("nothing")).await, RedriveError::Topology(_)));
    assert!(matches!(redrive("nothing", None).await, RedriveError::Topology(_)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn looking_takes_nothing_out() {
    let mut world = with_dead(4, 3).await;
    let dead = info(&world, "dead");
    for _ in 0..2 {
        let browsed = world.broker().browse(&dead, 5).await.unwrap();
        let values: Vec<String> = browsed.iter().map(|browsed| value(&browsed.record)).collect();
        assert_eq!(values, ["a0", "b0", "c0", "d0", "a1"]);
        let deaths = Deaths::of(&browsed[1].record).unwrap();
        assert_eq!((deaths.all[0].queue.as_str(), browsed[1].marks.returns), ("b", 0));
    }
    let queue = world.open("dead").await;
    let owner = world.broker().new_owner();
    let first = queue.get(owner, false).await.unwrap().unwrap();
    let second = queue.get(owner, false).await.unwrap().unwrap();
    queue.settle(owner, vec![first.place], Disposition::Release { failed: true }).await.unwrap();
    queue.settle_durably(owner, vec![second.place], Disposition::Accept).await.unwrap();
    let browsed = world.broker().browse(&dead, 2).await.unwrap();
    let seen: Vec<_> = browsed.iter().map(|one| (value(&one.record), one.marks.failures)).collect();
    assert_eq!(seen, [("a0".to_owned(), 1), ("c0".to_owned(), 0)]);
    assert_eq!(world.broker().browse(&dead, 100).await.unwrap().len(), 11);
    world.stop().await;
}
