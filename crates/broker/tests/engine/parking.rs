//! Parked records over a real node on a simulated disk: when they arrive, where, in which order, and how often.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::World;
use crate::support::topology::{NAMESPACE, header, record, text, value};
use bytes::Bytes;
use tokio::time::Instant;
use weir_broker::parking::{DUE_HEADER, Due, ParkedBatch, ParkedName, Target};
use weir_model::batch::Record;
use weir_model::command::{Command, Outcome};
use weir_model::settings::PartitionSettings;
use weir_model::{ShardId, TimestampMs};

/// What is late by no more than this is not late.
const LATE_MS: i64 = 50;

fn to_exchange(name: &str, key: &'static str) -> Due {
    let keys = vec![Bytes::from_static(key.as_bytes())];
    let target = Target::Exchange { name: name.into(), keys, properties: None };
    Due { namespace: NAMESPACE.into(), target, expires_after_ms: None }
}

fn to_queue(name: &str) -> Due {
    Due { namespace: NAMESPACE.into(), target: Target::Queue(name.into()), expires_after_ms: None }
}

impl World {
    fn now(&self) -> TimestampMs {
        self.broker().now_ms()
    }

    /// Parks one record, and returns its name.
    async fn park(&self, due: &Due, record: Record, at: TimestampMs) -> ParkedName {
        let lot = self.broker().lot_for(due).await.expect("there is a lot");
        let mut batch = ParkedBatch::new();
        batch.push(record, due, at);
        self.broker().park(&lot, batch).await.unwrap().await.unwrap().name(0, at)
    }

    async fn delayed(&self, kind: &str) {
        self.exchange("later", "x-delayed-message", &[("x-delayed-type", text(kind))]).await;
    }
}

fn values(records: &[Record]) -> Vec<String> {
    records.iter().map(value).collect()
}

#[tokio::test(start_paused = true)]
async fn records_arrive_at_their_time_in_the_order_of_their_deadlines() {
    let mut world = World::started(1).await;
    world.queue("q", &[]).await;
    world.delayed("direct").await;
    world.bind("later", "q", "k").await;
    let due = to_exchange("later", "k");
    let now = world.now();
    for (text, after) in
        [("c", 3_000), ("a", 1_000), ("b1", 2_000), ("b2", 2_000), ("at once", 0), ("past", -5_000)]
    {
        world.park(&due, record(text, &[header("own", "x")]), now + after).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.drained("q").await, ["at once", "past"]);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(world.drained("q").await, [""; 0]);
    tokio::time::sleep(Duration::from_millis(5_000)).await;
    let arrived = world.drain("q").await;
    assert_eq!(values(&arrived), ["a", "b1", "b2", "c"]);
    for (record, after) in arrived.iter().zip([1_000, 2_000, 2_000, 3_000]) {
        assert!((0..=LATE_MS).contains(&(record.timestamp - now - after)), "{record:?}");
        assert!(record.headers.contains(&header("own", "x")));
        assert!(record.headers.iter().all(|header| header.key != DUE_HEADER));
    }
    assert_eq!(world.broker().parked(), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_survives_and_arrives_on_time_after_a_restart_or_at_once() {
    let mut world = World::started(2).await;
    world.queue("q", &[]).await;
    let now = world.now();
    for (text, after) in [("late", 60_000), ("soon", 5_000), ("missed", 1_000)] {
        world.park(&to_queue("q"), record(text, &[]), now + after).await;
    }
    world.lose_power().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.start().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.drained("q").await, ["missed"]);
    world.restart().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    let arrived = world.drain("q").await;
    assert_eq!(values(&arrived), ["soon", "late"]);
    assert!(arrived[0].timestamp - now - 5_000 <= LATE_MS && arrived[1].timestamp - now - 60_000 <= LATE_MS);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn they_are_routed_as_things_are_when_they_arrive() {
    let mut world = World::started(3).await;
    world.queue("before", &[]).await;
    world.queue("behind", &[]).await;
    world.delayed("topic").await;
    world.bind("later", "before", "a.*").await;
    let at = world.now() + 1_000;
    world.park(&to_exchange("later", "a.b"), record("x", &[]), at).await;
    world.park(&to_exchange("nowhere", "a.b"), record("lost", &[]), at).await;
    world.park(&to_queue("deleted"), record("lost", &[]), at).await;
    world.bind("later", "behind", "*.b").await;
    let info = world.broker().find_queue(NAMESPACE, "before").unwrap().unwrap();
    world.broker().delete_queue(&info).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.drained("behind").await, ["x"]);
    assert_eq!(world.broker().parked(), 0, "what leads nowhere is let go");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_may_be_taken_back_until_it_arrives() {
    let mut world = World::started(4).await;
    world.queue("q", &[]).await;
    let at = world.now() + 1_000;
    let first = world.park(&to_queue("q"), record("first", &[]), at).await;
    let second = world.park(&to_queue("q"), record("second", &[]), at).await;
    let name: ParkedName = first.to_string().parse().unwrap();
    assert!(world.broker().cancel_parked(name).await.unwrap());
    assert!(!world.broker().cancel_parked(name).await.unwrap());
    world.restart().await;
    assert!(!world.broker().cancel_parked(name).await.unwrap());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.drained("q").await, ["second"]);
    assert!(!world.broker().cancel_parked(second).await.unwrap());
    assert!(!world.broker().cancel_parked("999-0-0".parse().unwrap()).await.unwrap());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_back_does_not_arrive_wherever_it_goes() {
    let mut world = World::started(9).await;
    // In several shards, so that it arrives there before it is settled where it was parked.
    world.exchange("both", "fanout", &[]).await;
    for queue in ["a", "b"] {
        world.queue(queue, &[]).await;
        world.bind("both", queue, "").await;
    }
    let start = world.now();
    let mut parked = Vec::new();
    for number in 0..60 {
        let at = start + 1_000 + number;
        let name = world.park(&to_exchange("both", ""), record(&number.to_string(), &[]), at).await;
        parked.push((number.to_string(), name));
    }
    // Each is asked back just when its time comes.
    let mut kept = Vec::new();
    for (at, (text, name)) in parked.into_iter().enumerate() {
        let until = Duration::from_millis((start + 1_000 + at as i64 - world.now()).max(0) as u64);
        tokio::time::sleep(until + Duration::from_micros(200 * (at as u64 % 10))).await;
        if !world.broker().cancel_parked(name).await.unwrap() {
            kept.push(text);
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.drained("a").await, kept);
    assert_eq!(world.drained("b").await, kept);
    assert_eq!(world.broker().parked(), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_day_may_be_set_forward_and_back() {
    let mut world = World::started(5).await;
    world.queue("q", &[]).await;
    let start = world.now();
    world.park(&to_queue("q"), record("in an hour", &[]), start + 3_600_000).await;
    world.park(&to_queue("q"), record("in two", &[]), start + 7_200_000).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.clock.set(3_600_000);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.drained("q").await, ["in an hour"]);
    // It is as if the hour had not passed: what is parked now has its time from now on.
    world.clock.set(-3_600_000);
    world.park(&to_queue("q"), record("in a second", &[]), world.now() + 1_000).await;
    tokio::time::sleep(Duration::from_millis(1_020)).await;
    assert_eq!(world.drained("q").await, ["in a second"]);
    world.clock.set(7_200_000);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.drained("q").await, ["in two"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_arrive_once_each_and_on_time() {
    const PARKED: i64 = 20_000;
    let mut world = World::started(6).await;
    world.delayed("direct").await;
    for queue in ["a", "b", "c", "d"] {
        world.queue(queue, &[]).await;
        world.bind("later", queue, "all").await;
    }
    for (queue, key) in [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")] {
        world.bind("later", queue, key).await;
    }
    let now = world.now();
    // Deadlines in no order, over ten seconds.
    let after = |number: i64| 2_000 + number.wrapping_mul(7_919) % 10_000;
    for (key, offset) in [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("all", 4)] {
        let due = to_exchange("later", key);
        let lot = world.broker().lot_for(&due).await.unwrap();
        let mut batch = ParkedBatch::new();
        for number in (0..PARKED).filter(|number| number % 5 == offset) {
            batch.push(record(&number.to_string(), &[]), &due, now + after(number));
            if batch.is_full() || number + 5 >= PARKED {
                world.broker().park(&lot, std::mem::take(&mut batch)).await.unwrap().await.unwrap();
            }
        }
    }
    assert_eq!(world.broker().parked(), PARKED as u64);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let mut lateness = Vec::new();
    for (queue, offset) in [("a", 0), ("b", 1), ("c", 2), ("d", 3)] {
        let arrived = world.drain(queue).await;
        let mut numbers: Vec<i64> = arrived.iter().map(|record| value(record).parse().unwrap()).collect();
        lateness.extend(
            arrived.iter().zip(&numbers).map(|(record, number)| record.timestamp - now - after(*number)),
        );
        for key in [offset, 4] {
            let deadlines = numbers.iter().filter(|number| *number % 5 == key).map(|number| after(*number));
            assert!(deadlines.is_sorted(), "{queue} {key}");
        }
        numbers.sort_unstable();
        let expected: Vec<i64> = (0..PARKED).filter(|number| [offset, 4].contains(&(number % 5))).collect();
        assert!(numbers == expected, "{queue} has {} records", numbers.len());
    }
    lateness.sort_unstable();
    assert!(lateness[0] >= 0 && lateness[lateness.len() * 99 / 100] <= LATE_MS, "{:?}", lateness.last());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn power_may_be_lost_at_any_moment_and_each_record_arrives_once_in_each_queue() {
    let mut world = World::started(7).await;
    world.exchange("later", "x-delayed-message", &[("x-delayed-type", text("fanout"))]).await;
    // In several shards.
    for queue in ["a", "b", "c", "d"] {
        world.queue(queue, &[]).await;
        world.bind("later", queue, "").await;
    }
    let now = world.now();
    for number in 0..300i64 {
        world.park(&to_exchange("later", ""), record(&number.to_string(), &[]), now + 10 * number).await;
    }
    let mut crashes = 0;
    while world.broker().parked() > 0 {
        tokio::time::sleep(Duration::from_micros(173_300 + 1_370 * crashes)).await;
        world.lose_power().await;
        world.start().await;
        crashes += 1;
        assert!(crashes < 200, "{} are parked", world.broker().parked());
    }
    assert!(crashes > 5, "{crashes}");
    for queue in ["a", "b", "c", "d"] {
        let mut numbers: BTreeMap<i64, usize> = BTreeMap::new();
        for value in world.drained(queue).await {
            *numbers.entry(value.parse().unwrap()).or_default() += 1;
        }
        assert!(numbers.values().all(|count| *count == 1), "{queue}: {numbers:?}");
        assert_eq!(numbers.len(), 300, "{queue}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_client_sees_the_topic_of_the_lots() {
    let mut world = World::started(8).await;
    world.queue("q", &[]).await;
    world.park(&to_queue("q"), record("x", &[]), world.now() + 1_000).await;
    let names: Vec<String> = world.broker().topics().iter().map(|topic| topic.name().to_owned()).collect();
    assert_eq!(names, ["q"]);
    let all = world.broker().topics_with_hidden();
    let hidden = all.iter().find(|topic| topic.name() != "q").expect("there is one more");
    assert_eq!(hidden.partition_count(), 3, "one in each shard");
    assert!(
        world.broker().topic(hidden.name()).is_none() && world.broker().topic_by_id(hidden.id()).is_none()
    );
    let nothing = world.broker().destinations("", ["weir.parking"], None, 0).unwrap();
    assert!(nothing.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_waits_long_does_not_hold_the_space_of_others() {
    let mut world = World::new(9);
    world.options.retention_check_interval_ms = 1_000;
    world.data_shards = 1;
    world.start().await;
    world.queue("q", &[]).await;
    // Somebody has used it, so that what is in it stays.
    world.open("q").await;
    let far = world.now() + 365 * 24 * 3_600_000;
    let due = to_queue("q");
    world.park(&due, record("in a year", &[]), far).await;
    let lot = world.broker().lot_for(&due).await.unwrap();
    let settings = PartitionSettings { segment_bytes: 4_000, ..PartitionSettings::clone(lot.settings()) };
    let configure = Command::ConfigurePartition { partition: lot.id(), settings };
    let shard = world.node().shard(ShardId(1)).expect("the shard is here").clone();
    assert_eq!(shard.propose(configure).await.unwrap(), Outcome::Done);
    for number in 0..40 {
        world.park(&due, record(&"x".repeat(1_000), &[]), world.now() + 100 + number).await;
    }
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((lot.log_start(), world.broker().parked()), (0, 1));
    while world.stored(&lot).bytes() > 8_000 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(30), "its segment still holds the others");
    }
    assert_eq!(world.drained("q").await.len(), 40);
    world.clock.set(365 * 24 * 3_600_000);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.drained("q").await, ["in a year"]);
    world.stop().await;
}
