//! Queues over a real node on a simulated disk: what is handed out, what comes back, what survives.

use std::time::Duration;

use crate::support::topology::value;
use crate::support::{EPOCH, World, read_what_is_there};
use weir_broker::queues::{
    ConsumerId, GetError, Limits, OwnerId, QueueDeliveries, QueueDelivery, QueueOptions, QueueRef,
    SubscribeError,
};
use weir_broker::{AdminError, PublishError};
use weir_dispatch::NewConsumer;
use weir_model::batch::BatchBuilder;
use weir_model::subscription::Disposition;

const ACCEPT: Disposition = Disposition::Accept;
const RELEASE: Disposition = Disposition::Release { failed: false };

fn consumer(owner: OwnerId, credit: u32) -> NewConsumer {
    NewConsumer { owner, credit: Some(credit), priority: 0, exclusive: false, settled: false, gate: None }
}

async fn queue(world: &World, name: &str) -> QueueRef {
    queue_with(world, name, QueueOptions::default()).await
}

async fn queue_with(world: &World, name: &str, options: QueueOptions) -> QueueRef {
    let topic = world.broker().topic(name).expect("the topic exists");
    world.broker().queue(&topic, options).await.expect("the queue is led here")
}

async fn subscribe(queue: &QueueRef, owner: OwnerId, credit: u32) -> (ConsumerId, QueueDeliveries) {
    queue.subscribe(consumer(owner, credit)).await.unwrap().unwrap()
}

/// So many records of a consumer.
async fn take(deliveries: &mut QueueDeliveries, count: usize) -> Vec<QueueDelivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(20), deliveries.next()).await;
        taken.extend(next.expect("records come").expect("the queue is there"));
    }
    assert_eq!(taken.len(), count);
    taken
}

fn texts(deliveries: &[QueueDelivery]) -> Vec<String> {
    let text = |delivery: &QueueDelivery| {
        String::from_utf8(delivery.record.record.value.clone().unwrap_or_default().to_vec()).unwrap()
    };
    deliveries.iter().map(text).collect()
}

fn places(deliveries: &[QueueDelivery]) -> Vec<weir_broker::queues::Place> {
    deliveries.iter().map(|delivery| delivery.place).collect()
}

#[tokio::test(start_paused = true)]
async fn records_are_handed_out_once_and_what_is_settled_never_comes_again() {
    let mut world = World::started(1).await;
    world.create("q", 1).await;
    world.publish_values("q", 0, &["a", "b", "c", "d"]).await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let (_, mut deliveries) = subscribe(&queue, owner, 3).await;
    let first = take(&mut deliveries, 3).await;
    assert_eq!(texts(&first), ["a", "b", "c"]);
    assert!(first.iter().all(|delivery| !delivery.redelivered));
    queue.settle_durably(owner, places(&first[..2]), ACCEPT).await.unwrap();
    assert_eq!(queue.figures().await.unwrap().ready, 1);

    // Another process hands out what was not settled, and says that it may have been seen.
    world.lose_power().await;
    world.start().await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let (_, mut deliveries) = subscribe(&queue, owner, 10).await;
    let again = take(&mut deliveries, 2).await;
    assert_eq!(texts(&again), ["c", "d"]);
    queue.settle_durably(owner, places(&again), ACCEPT).await.unwrap();
    world.restart().await;
    let queue = self::queue(&world, "q").await;
    assert_eq!(queue.get(world.broker().new_owner(), false).await.unwrap(), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_is_handed_out_again_with_its_counts_also_by_the_next_process() {
    let mut world = World::started(2).await;
    world.create("q", 1).await;
    world.publish_values("q", 0, &["a", "b", "c"]).await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let got = queue.get(owner, false).await.unwrap().unwrap();
    queue.settle(owner, vec![got.place], Disposition::Release { failed: true }).await.unwrap();
    let got = queue.get(owner, false).await.unwrap().unwrap();
    assert_eq!((got.place.offset, got.redelivered, got.marks.failures), (0, true, 1));
    queue.settle_durably(owner, vec![got.place], RELEASE).await.unwrap();
    world.restart().await;
    let queue = self::queue(&world, "q").await;
    let (_, mut deliveries) = subscribe(&queue, world.broker().new_owner(), 10).await;
    let again = take(&mut deliveries, 3).await;
    assert_eq!(texts(&again), ["a", "b", "c"]);
    assert_eq!((again[0].marks.failures, again[0].marks.returns), (1, 2));
    assert!(again[0].redelivered && !again[2].redelivered);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn records_that_arrive_wake_whoever_waits_for_them() {
    let mut world = World::started(3).await;
    world.create("q", 1).await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let (one, mut first) = subscribe(&queue, owner, 2).await;
    let (_, mut second) = subscribe(&queue, owner, 2).await;
    world.publish_values("q", 0, &["a", "b", "c", "d", "e"]).await;
    assert_eq!(texts(&take(&mut first, 2).await), ["a", "c"]);
    assert_eq!(texts(&take(&mut second, 2).await), ["b", "d"]);
    queue.add_credit(one, 1).await.unwrap();
    assert_eq!(texts(&take(&mut first, 1).await), ["e"]);
    queue.cancel(one).await.unwrap();
    assert_eq!(queue.figures().await.unwrap().leased, 5, "they stay with their owner");
    queue.close_owner(owner, true).await.unwrap();
    assert_eq!((queue.figures().await.unwrap().ready, second.next().await), (5, None));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_purge_is_durable_when_it_is_answered() {
    let mut world = World::started(4).await;
    world.create("q", 1).await;
    for _ in 0..20 {
        world.publish_values("q", 0, &["x", "y", "z"]).await;
    }
    let queue = self::queue(&world, "q").await;
    let kept = queue.get(world.broker().new_owner(), false).await.unwrap().unwrap();
    assert_eq!((kept.place.offset, queue.purge().await.unwrap()), (0, 59));
    world.lose_power().await;
    world.start().await;
    let queue = self::queue(&world, "q").await;
    assert_eq!(queue.figures().await.unwrap().ready, 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_without_a_bound_gets_no_more_than_its_session_takes() {
    let mut world = World::started(5).await;
    world.create("q", 1).await;
    let values: Vec<String> = (0..3_000).map(|index| index.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    for _ in 0..4 {
        world.publish_values("q", 0, &values).await;
    }
    let queue = self::queue(&world, "q").await;
    let all = NewConsumer { credit: None, settled: true, ..consumer(world.broker().new_owner(), 0) };
    let (_, mut deliveries) = queue.subscribe(all).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = queue.figures().await.unwrap().ready;
    assert!(waiting > 6_000, "{waiting} wait in the queue, not in memory");
    let taken = take(&mut deliveries, 12_000).await;
    assert!(texts(&taken[..3_000]).iter().eq(&values));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn records_expire_by_the_clock_and_the_first_go_where_there_are_too_many() {
    let mut world = World::started(6).await;
    world.create("ttl", 1).await;
    world.create("max", 1).await;
    let options = QueueOptions { ttl_ms: Some(5_000), ..QueueOptions::default() };
    world.publish_values("ttl", 0, &["a", "b"]).await;
    let queue = queue_with(&world, "ttl", options).await;
    assert_eq!(texts(&[queue.get(world.broker().new_owner(), true).await.unwrap().unwrap()]), ["a"]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(queue.get(world.broker().new_owner(), true).await.unwrap(), None);

    let options =
        QueueOptions { limits: Limits { records: Some(2), ..Limits::default() }, ..QueueOptions::default() };
    world.publish_values("max", 0, &["a", "b", "c", "d", "e"]).await;
    let queue = queue_with(&world, "max", options).await;
    assert_eq!(queue.figures().await.unwrap().ready, 2);
    assert_eq!(texts(&[queue.get(world.broker().new_owner(), true).await.unwrap().unwrap()]), ["d"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_from_the_future_holds_up_none_behind_it() {
    let mut world = World::started(8).await;
    world.create("ttl", 1).await;
    // The clock of whoever published them was a day off.
    let mut builder = BatchBuilder::new();
    for text in ["tomorrow", "tomorrow too"] {
        builder.push(EPOCH + 86_400_000, None, Some(text.as_bytes()), &[]);
    }
    world.publish(&world.partition("ttl", 0), builder.build()).await.unwrap();
    world.publish_values("ttl", 0, &["today"]).await;
    let options = QueueOptions { ttl_ms: Some(5_000), ..QueueOptions::default() };
    let queue = queue_with(&world, "ttl", options).await;
    let owner = world.broker().new_owner();
    let first = queue.get(owner, true).await.unwrap().unwrap();
    assert_eq!(value(&first.record.record), "tomorrow");
    // As they were looked at then, they have waited long enough.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(queue.get(owner, true).await.unwrap(), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unused_queue_has_no_actor_and_gets_one_when_it_is_used() {
    let mut world = World::started(7).await;
    world.create("q", 1).await;
    let first = queue(&world, "q").await;
    world.publish_values("q", 0, &["a"]).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(first.is_gone() && first.figures().await.is_err());
    let second = queue(&world, "q").await;
    let (_, mut deliveries) = subscribe(&second, world.broker().new_owner(), 1).await;
    assert_eq!(texts(&take(&mut deliveries, 1).await), ["a"]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!second.is_gone(), "somebody consumes");
    world.stop().await;
}

/// A batch that is whole, says that it is compressed, and is not.
fn batch_that_cannot_be_opened() -> bytes::Bytes {
    const ATTRIBUTES: usize = 22;
    const CRC: std::ops::Range<usize> = 17..21;
    let mut batch = crate::support::values_batch(&["x"]).to_vec();
    batch[ATTRIBUTES] = 1;
    let crc = crc32c::crc32c(&batch[CRC.end..]);
    batch[CRC].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_said_and_hides_nothing_before_it() {
    let mut world = World::started(11).await;
    world.create("q", 1).await;
    world.publish_values("q", 0, &["a", "b"]).await;
    let queue = self::queue(&world, "q").await;
    let (_, mut deliveries) = subscribe(&queue, world.broker().new_owner(), 10).await;
    assert_eq!(texts(&take(&mut deliveries, 2).await), ["a", "b"]);
    let partition = world.partition("q", 0);
    world.publish(&partition, batch_that_cannot_be_opened()).await.unwrap();
    let got = queue.get(world.broker().new_owner(), false).await;
    assert!(matches!(&got, Err(GetError::Unreadable(_))), "{got:?}");
    // It goes on with all else meanwhile, and deletes nothing.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let figures = queue.figures().await.unwrap();
    assert_eq!((figures.ready, figures.leased, figures.consumers), (1, 2, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_apart_does_not_come_into_a_queue() {
    let mut world = World::started(20).await;
    world.queue("q", &[]).await;
    let partition = world.partition("q", 0);
    let refused = world.publish(&partition, batch_that_cannot_be_opened()).await.unwrap_err();
    assert!(matches!(refused, PublishError::Unopenable(_)), "{refused}");
    assert_eq!(world.publish_values("q", 0, &["a"]).await, 0, "nothing of it was appended");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_too_many_partitions_is_no_queue() {
    let mut world = World::started(12).await;
    let topic = world.create("wide", 257).await;
    let refused = world.broker().queue(&topic, QueueOptions::default()).await;
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(matches!(refused, AdminError::Limit { limit: 256, .. }), "{refused}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_consumes_exclusively_is_alone() {
    let mut world = World::started(8).await;
    world.create("q", 1).await;
    let queue = self::queue(&world, "q").await;
    let exclusive = NewConsumer { exclusive: true, ..consumer(world.broker().new_owner(), 1) };
    let (id, _deliveries) = queue.subscribe(exclusive).await.unwrap().unwrap();
    let other = queue.subscribe(consumer(world.broker().new_owner(), 1)).await.unwrap();
    assert_eq!(other.map(|_| ()).unwrap_err(), SubscribeError::Exclusive);
    queue.cancel(id).await.unwrap();
    assert!(queue.subscribe(consumer(world.broker().new_owner(), 1)).await.unwrap().is_ok());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_loses_its_segments_and_what_is_not_keeps_them() {
    let mut world = World::new(9);
    world.options.retention_check_interval_ms = 1_000;
    world.start().await;
    world.create_with("q", 1, &[("segment.bytes", "2000"), ("retention.ms", "0")]).await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let value = "x".repeat(500);
    let mut leased = Vec::new();
    for _ in 0..20 {
        world.publish_values("q", 0, &[&value]).await;
        leased.push(queue.get(owner, false).await.unwrap().unwrap().place);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.partition("q", 0).log_start(), 0, "nothing is settled");
    queue.settle_durably(owner, leased[..10].to_vec(), ACCEPT).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let start = world.partition("q", 0).log_start();
    assert!((5..=10).contains(&start), "{start}");
    queue.settle_durably(owner, leased[10..].to_vec(), ACCEPT).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.partition("q", 0).log_start(), 20);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_nobody_settles_holds_no_other() {
    let mut world = World::new(19);
    world.options.retention_check_interval_ms = 1_000;
    world.start().await;
    world.create_with("q", 1, &[("segment.bytes", "20000"), ("retention.ms", "0")]).await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let mut leased = Vec::new();
    for number in 0..400 {
        let value = format!("{number} {}", "x".repeat(500));
        world.publish_values("q", 0, &[&value]).await;
        leased.push(queue.get(owner, false).await.unwrap().unwrap().place);
    }
    let stuck = [4, 5, 101, 390];
    let settled = leased.iter().enumerate().filter(|(at, _)| !stuck.contains(at)).map(|(_, place)| *place);
    let before = world.stored(&world.partition("q", 0)).bytes();
    queue.settle_durably(owner, settled.collect(), ACCEPT).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let view = world.stored(&world.partition("q", 0));
    assert_eq!(view.log_start(), 0);
    assert!(view.bytes() < 25_000 && before > 200_000, "{} of {before} bytes", view.bytes());
    let sparse = view.segments();
    assert_eq!(sparse.len(), 2, "those that are nearly empty became one: {sparse:?}");

    // The files go with the next checkpoint, and what is left is there.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for restart in [false, true] {
        if restart {
            world.lose_power().await;
            world.start().await;
        }
        let records = read_what_is_there(&world.partition("q", 0)).await;
        assert!(records.len() < 60, "{} records can be read", records.len());
        for record in &records {
            let value = record.value.as_deref().unwrap_or_default();
            assert!(value.starts_with(format!("{} ", record.offset).as_bytes()), "{record:?}");
        }
        assert!(stuck.iter().all(|at| records.iter().any(|record| record.offset == *at as i64)));
    }
    let queue = self::queue(&world, "q").await;
    let mut got = Vec::new();
    while let Some(delivery) = queue.get(world.broker().new_owner(), false).await.unwrap() {
        got.push(delivery.place.offset);
    }
    assert_eq!(got, [4, 5, 101, 390]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_gone_holds_up_nobody() {
    let mut world = World::started(10).await;
    world.create("q", 1).await;
    let queue = self::queue(&world, "q").await;
    let (gone, other) = (world.broker().new_owner(), world.broker().new_owner());
    let (_, deliveries) = subscribe(&queue, gone, 100).await;
    drop(deliveries);
    world.publish_values("q", 0, &["a", "b"]).await;
    queue.close_owner(gone, true).await.unwrap();
    let (_, mut deliveries) = subscribe(&queue, other, 100).await;
    let got = take(&mut deliveries, 2).await;
    assert_eq!(texts(&got), ["a", "b"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_consumes_a_queue_that_is_deleted_is_told() {
    let mut world = World::started(11).await;
    world.create("q", 1).await;
    let queue = self::queue(&world, "q").await;
    let (_, mut deliveries) = subscribe(&queue, world.broker().new_owner(), 1).await;
    let topic = world.broker().topic("q").expect("the topic exists").id();
    world.broker().delete_topic(topic).await.unwrap();
    let told = tokio::time::timeout(Duration::from_millis(100), deliveries.next()).await;
    assert_eq!(told.expect("it is told at once"), None);
    assert!(queue.figures().await.is_err());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deliveries_end_with_their_owner() {
    let mut world = World::started(12).await;
    world.create("q", 1).await;
    let queue = self::queue(&world, "q").await;
    let owner = world.broker().new_owner();
    let (_, mut deliveries) = subscribe(&queue, owner, 1).await;
    queue.close_owner(owner, true).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), deliveries.next()).await;
    assert_eq!(ended.expect("nothing is kept of a consumer that is gone"), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_comes_before_who_asks() {
    let mut world = World::started(13).await;
    world.create("q", 1).await;
    let queue = self::queue(&world, "q").await;
    let (waiting, asking) = (world.broker().new_owner(), world.broker().new_owner());
    let (_, mut deliveries) = subscribe(&queue, waiting, 100).await;
    for number in 0..50 {
        world.publish_values("q", 0, &[&number.to_string()]).await;
        assert_eq!(queue.get(asking, false).await, Ok(None));
        assert_eq!(queue.figures().await.unwrap().ready, 0);
    }
    assert_eq!(take(&mut deliveries, 50).await.len(), 50);
    world.stop().await;
}
