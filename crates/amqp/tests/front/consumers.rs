//! What consumers get, and what they share.

use std::time::Duration;

use weir_amqp_wire::methods::{basic, channel, confirm, queue};
use weir_amqp_wire::{Method, ShortStr, Table};

use super::support::{World, consume, durable};

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
async fn what_is_not_acknowledged_for_half_an_hour_comes_to_others() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.consume(1, "q", "tag").await;
    client.publish("q", b"settled").await;
    let (_, tag, _) = client.delivery().await;
    client.ack(1, tag).await;
    tokio::time::sleep(Duration::from_secs(20 * 60)).await;
    client.publish("q", b"forgotten").await;
    assert_eq!(client.delivery().await.2, "forgotten");
    tokio::time::sleep(Duration::from_secs(29 * 60)).await;
    assert!(client.is_silent(Duration::from_secs(1)).await, "it is not time yet");
    tokio::time::sleep(Duration::from_secs(3 * 60)).await;
    let told = client.method().await;
    let Method::ChannelClose(close) = told else { panic!("{told:?}") };
    assert_eq!((close.reply_code, close.class_id, close.method_id), (406, 0, 0));
    let mut other = world.client().await;
    other.consume(1, "q", "other").await;
    assert_eq!(other.delivery().await.2, "forgotten");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_settle_what_a_quorum_queue_gave_it_is_cancelled_and_loses_it() {
    let world = World::started().await;
    let mut client = world.client().await;
    let with = |name, arguments: Table| queue::Declare { arguments, ..durable(name) };
    let quorum = || Table::new().with("x-queue-type", "quorum");
    client.call(1, with("q", quorum().with("x-consumer-timeout", 60_000))).await;
    client.call(1, with("usual", quorum())).await;
    let patient = basic::Consume {
        arguments: Table::new().with("x-consumer-timeout", 600_000),
        ..consume("q", "patient")
    };
    client.consume(1, "usual", "usual").await;
    client.consume(1, "q", "tag").await;
    client.publish("q", b"a").await;
    client.publish("usual", b"another").await;
    let (_, first, _) = client.delivery().await;
    client.delivery().await;
    client.call(1, patient).await;
    assert!(client.is_silent(Duration::from_secs(59)).await);
    // It is looked at once a minute.
    tokio::time::sleep(Duration::from_secs(62)).await;
    let told = client.method().await;
    assert!(matches!(&told, Method::BasicCancel(cancel) if cancel.consumer_tag == "tag"), "{told:?}");
    let (_, second, body) = client.delivery().await;
    assert_eq!(body, "a");
    // Too late, and no mistake: it has not been settled by that.
    client.ack(1, first).await;
    tokio::time::sleep(Duration::from_secs(598)).await;
    assert!(client.is_silent(Duration::from_secs(1)).await);
    tokio::time::sleep(Duration::from_secs(122)).await;
    let told = client.method().await;
    assert!(matches!(&told, Method::BasicCancel(cancel) if cancel.consumer_tag == "patient"), "{told:?}");
    let (third, body) = client.get("q").await.unwrap();
    assert_eq!(body, "a");
    client.ack(1, third).await;
    client.ack(1, second).await;
    assert!(client.get("q").await.is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_consumers_timeout_is_a_number_above_zero() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    for value in [0, -1] {
        let arguments = Table::new().with("x-consumer-timeout", value);
        assert_eq!(client.refused(1, basic::Consume { arguments, ..consume("q", "") }).await, 406);
    }
    let arguments = Table::new().with("x-consumer-timeout", "long");
    assert_eq!(client.refused(1, basic::Consume { arguments, ..consume("q", "") }).await, 406);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_came_back_rests_longer_each_time_that_it_failed() {
    let world = World::started().await;
    let mut client = world.client().await;
    let arguments = Table::new()
        .with("x-queue-type", "quorum")
        .with("x-delayed-retry-type", "all")
        .with("x-delayed-retry-min", 10_000)
        .with("x-delayed-retry-max", 25_000);
    client.call(1, queue::Declare { arguments, ..durable("q") }).await;
    client.consume(1, "q", "tag").await;
    client.publish("q", b"a").await;
    let (_, mut tag, _) = client.delivery().await;
    for seconds in [10, 20, 25, 25] {
        client.send(1, basic::Reject { delivery_tag: tag, requeue: true }).await;
        assert!(client.is_silent(Duration::from_millis(seconds * 1000 - 500)).await, "{seconds}");
        tag = client.delivery().await.1;
    }
    // Giving back without failing takes the shortest.
    let nack = basic::Nack { delivery_tag: tag, multiple: false, requeue: true };
    client.send(1, nack).await;
    assert!(client.is_silent(Duration::from_secs(24)).await, "it has failed before");
    client.delivery().await;
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

#[tokio::test(start_paused = true)]
async fn who_settles_nothing_waits_while_what_is_shared_is_used_up() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.consume(1, "q", "settles").await;
    client.publish("q", b"a").await;
    let (_, tag, _) = client.delivery().await;
    client.call(1, basic::Consume { no_ack: true, ..consume("q", "settles nothing") }).await;
    client.call(1, share(1)).await;
    client.publish("q", b"b").await;
    assert!(client.is_silent(LONG).await);
    client.ack(1, tag).await;
    assert_eq!(client.delivery().await.2, "b");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_refuses_takes_nothing_beyond_its_limit_though_somebody_waits() {
    let world = World::started().await;
    let mut client = world.client().await;
    let arguments = Table::new().with("x-max-length-bytes", 4).with("x-overflow", "reject-publish");
    client.call(1, queue::Declare { arguments, ..durable("q") }).await;
    client.consume(1, "q", "tag").await;
    client.call(1, confirm::Select { no_wait: false }).await;
    client.publish("q", b"12345").await;
    let answer = client.method().await;
    assert!(matches!(answer, Method::BasicNack(_)), "{answer:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_to_a_full_quorum_queue_goes_to_those_who_wait_first() {
    let world = World::started().await;
    for (kind, bodies) in [("quorum", vec!["a", "b"]), ("classic", vec!["b"])] {
        let mut client = world.client().await;
        let arguments = Table::new().with("x-max-length", 1).with("x-queue-type", kind);
        client.call(1, queue::Declare { arguments, ..durable(kind) }).await;
        client.consume(1, kind, "first").await;
        client.publish(kind, b"a").await;
        client.publish(kind, b"b").await;
        assert_eq!((client.delivery().await.2, client.delivery().await.2), ("a".into(), "b".into()));
        let mut other = world.client().await;
        other.consume(1, kind, "second").await;
        client.call(1, channel::Close::default()).await;
        for body in bodies {
            assert_eq!(other.delivery().await.2, body);
        }
        assert!(other.is_silent(LONG).await);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn consumers_of_a_quorum_queue_share_nothing() {
    let world = World::started().await;
    let mut client = world.client().await;
    let quorum = || queue::Declare { arguments: Table::new().with("x-queue-type", "quorum"), ..durable("q") };
    client.call(1, quorum()).await;
    client.consume(1, "q", "tag").await;
    client.call(1, share(1)).await;
    for body in ["a", "b"] {
        client.publish("q", body.as_bytes()).await;
        assert_eq!(client.delivery().await.2, body);
    }
    let answer = client.consume(1, "q", "another").await;
    assert!(matches!(&answer, Method::ConnectionClose(close) if close.reply_code == 540), "{answer:?}");
    world.stop().await;
}
