//! What consumers get, and what they share.

use std::time::Duration;

use weir_amqp_wire::methods::{basic, queue};
use weir_amqp_wire::{Method, ShortStr, Table};

use super::support::{World, consume};

const LONG: Duration = Duration::from_secs(5);

fn share(count: u16) -> basic::Qos {
    basic::Qos { prefetch_count: count, global: true, ..basic::Qos::default() }
}

#[tokio::test(start_paused = true)]
async fn channels_may_use_the_same_tag() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.open(2).await;
    for channel in [1, 2] {
        let answer = client.consume(channel, "q", "1").await;
        assert!(matches!(answer, Method::BasicConsumeOk(_)), "{answer:?}");
    }
    let answer = client.consume(2, "q", "1").await;
    let Method::ConnectionClose(close) = answer else { panic!("{answer:?}") };
    assert_eq!(close.reply_code, 530);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_told_that_its_queue_is_deleted() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.consume(1, "q", "tag").await;
    let mut other = world.client().await;
    let delete = queue::Delete { queue: ShortStr::from_static("q"), ..queue::Delete::default() };
    assert!(matches!(other.call(1, delete).await, Method::QueueDeleteOk(_)));
    let told = client.method().await;
    assert!(matches!(&told, Method::BasicCancel(cancel) if cancel.consumer_tag == "tag"), "{told:?}");
    // It may be declared again and consumed under the same tag.
    client.declare("q").await;
    client.consume(1, "q", "tag").await;
    client.publish("q", b"anew").await;
    assert_eq!(client.delivery().await.2, "anew");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_does_not_count_in_what_consumers_share() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.declare("other").await;
    client.call(1, share(1)).await;
    client.consume(1, "q", "tag").await;
    client.publish("other", b"asked for").await;
    let (asked_for, _) = client.get("other").await.unwrap();
    for body in [b"a", b"b", b"c"] {
        client.publish("q", body).await;
    }
    let (_, tag, body) = client.delivery().await;
    assert_eq!(body, "a");
    client.ack(1, asked_for).await;
    assert!(client.is_silent(LONG).await, "the one that is allowed is still with the client");
    client.ack(1, tag).await;
    assert_eq!(client.delivery().await.2, "b");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_cancelled_consumer_did_not_get_is_not_missing_to_the_others() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.call(1, share(1)).await;
    client.publish("q", b"m").await;
    assert_eq!(client.ready("q").await, 1);
    for _ in 0..20 {
        client.put(1, basic::Consume { no_wait: true, ..consume("q", "brief") });
        client.put(1, basic::Cancel { consumer_tag: ShortStr::from_static("brief"), no_wait: true });
        client.flush().await;
    }
    let answer = client.consume(1, "q", "tag").await;
    assert!(matches!(answer, Method::BasicConsumeOk(_)), "{answer:?}");
    assert_eq!(client.delivery().await.2, "m");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_priority_is_a_number() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    let with = |arguments: Table| basic::Consume { arguments, ..consume("q", "") };
    assert_eq!(client.refused(1, with(Table::new().with("x-priority", "high"))).await, 406);
    let answer = client.call(1, with(Table::new().with("x-priority", -3))).await;
    assert!(matches!(answer, Method::BasicConsumeOk(_)), "{answer:?}");
    world.stop().await;
}
