//! Queues that take no message twice.

use std::time::Duration;

use crate::support::World;
use crate::support::topology::{NAMESPACE, header, record};
use weir_broker::parking::{Due, ParkedBatch, Target};
use weir_broker::topology::DEDUPLICATION_HEADER;
use weir_model::batch::Record;
use weir_model::queue::QueueMeta;
use weir_model::routing::ArgumentValue;
use weir_model::subscription::Disposition;

fn keyed(value: &str, key: &str) -> Record {
    record(value, &[header(DEDUPLICATION_HEADER, key)])
}

const UNIQUE: (&str, ArgumentValue) = ("x-message-deduplication", ArgumentValue::Bool(true));

#[tokio::test(start_paused = true)]
async fn a_message_is_not_taken_again_while_it_is_in_the_queue() {
    let mut world = World::started(1).await;
    world.queue("q", &[UNIQUE]).await;
    world.send("q", &[keyed("one", "a"), keyed("again", "a"), keyed("two", "b"), record("none", &[])]).await;
    world.send("q", &[keyed("again", "b"), record("none", &[])]).await;
    let queue = world.open("q").await;
    let owner = world.broker().new_owner();
    let first = queue.get(owner, false).await.unwrap().unwrap();
    world.send("q", &[keyed("again", "a")]).await;
    queue.settle_durably(owner, vec![first.place], Disposition::Accept).await.unwrap();
    world.lose_power().await;
    world.start().await;
    world.send("q", &[keyed("once more", "a"), keyed("again", "b")]).await;
    assert_eq!(world.drained("q").await, ["two", "none", "none", "once more"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_a_time_a_message_is_not_taken_again_until_that_has_passed() {
    let mut world = World::started(2).await;
    world.queue("q", &[UNIQUE, ("x-cache-ttl", ArgumentValue::Integer(10_000))]).await;
    world.send("q", &[keyed("one", "a")]).await;
    assert_eq!(world.drained("q").await, ["one"]);
    world.restart().await;
    world.send("q", &[keyed("again", "a")]).await;
    assert_eq!(world.drained("q").await, [""; 0]);
    tokio::time::sleep(Duration::from_secs(11)).await;
    world.send("q", &[keyed("two", "a")]).await;
    assert_eq!(world.drained("q").await, ["two"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_oldest_keys_go_when_there_are_too_many() {
    let mut world = World::started(3).await;
    let size = ("x-cache-size", ArgumentValue::Integer(2));
    world.queue("q", &[UNIQUE, size, ("x-cache-ttl", ArgumentValue::Integer(1_000_000))]).await;
    world
        .send("q", &[keyed("1", "a"), keyed("2", "b"), keyed("3", "c"), keyed("4", "a"), keyed("5", "c")])
        .await;
    assert_eq!(world.drained("q").await, ["1", "2", "3", "4"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_parked_is_told_from_what_is_there_when_it_arrives() {
    let mut world = World::started(4).await;
    world.queue("q", &[UNIQUE]).await;
    world.send("q", &[keyed("one", "a")]).await;
    let due = Due { namespace: NAMESPACE.into(), target: Target::Queue("q".into()), expires_after_ms: None };
    let lot = world.broker().lot_for(&due).await.unwrap();
    let mut batch = ParkedBatch::new();
    for (value, key) in [("again", "a"), ("two", "b"), ("again", "b")] {
        batch.push(keyed(value, key), &due, world.broker().now_ms() + 1_000);
    }
    world.broker().park(&lot, batch).await.unwrap().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((world.drained("q").await, world.broker().parked()), (vec!["one".into(), "two".into()], 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_together_is_refused() {
    let mut world = World::started(5).await;
    let declared = async |argument: (&str, ArgumentValue)| {
        let arguments = crate::support::topology::arguments(&[UNIQUE, argument]);
        let meta = QueueMeta { durable: true, arguments, ..QueueMeta::default() };
        world.broker().create_queue(NAMESPACE, "q", meta).await.map(|_| ()).unwrap_err().to_string()
    };
    let integer = ArgumentValue::Integer;
    assert!(declared(("x-max-priority", integer(3))).await.contains("neither x-max-priority"));
    assert!(declared(("x-cache-size", integer(0))).await.contains("'x-cache-size'"));
    assert!(declared(("x-cache-size", integer(2_000_000))).await.contains("value_too_large"));
    assert!(declared(("x-cache-ttl", integer(-1))).await.contains("'x-cache-ttl'"));
    world.stop().await;
}
