//! Queues, exchanges and consumers as lapin sees them: their arguments, their limits, their ends.

use std::time::Duration;

use lapin::options::*;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, ExchangeKind};
use tokio_stream::StreamExt;
use weir_suite_lapin::*;

async fn exchange(channel: &Channel, words: &str, kind: ExchangeKind, arguments: FieldTable) -> String {
    let name = fresh(words);
    let options = ExchangeDeclareOptions::default();
    ok(channel.exchange_declare(name.as_str().into(), kind, options, arguments)).await;
    name
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str, arguments: FieldTable) {
    let options = QueueBindOptions::default();
    ok(channel.queue_bind(queue.into(), exchange.into(), key.into(), options, arguments)).await;
}

#[tokio::test]
async fn topics_headers_and_exchanges_behind_exchanges() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let lost = exchange(&channel, "lost", ExchangeKind::Fanout, none()).await;
    let topic =
        exchange(&channel, "topic", ExchangeKind::Topic, table([("alternate-exchange", text(&lost))])).await;
    let headers = exchange(&channel, "headers", ExchangeKind::Headers, none()).await;
    let all = exchange(&channel, "all", ExchangeKind::Fanout, none()).await;
    let options = ExchangeBindOptions::default();
    ok(channel.exchange_bind(all.as_str().into(), topic.as_str().into(), "logs.#".into(), options, none()))
        .await;
    let mut queues = Vec::new();
    for _ in 0..4 {
        queues.push(own_queue(&channel, []).await);
    }
    bind(&channel, &queues[0], &topic, "logs.*.error", none()).await;
    bind(
        &channel,
        &queues[1],
        &headers,
        "",
        table([("x-match", text("any")), ("a", AMQPValue::LongInt(1)), ("b", text("two"))]),
    )
    .await;
    bind(&channel, &queues[2], &all, "", none()).await;
    bind(&channel, &queues[3], &lost, "", none()).await;
    let plain = BasicProperties::default;
    publish(&channel, &topic, "logs.shop.error", "one", plain()).await;
    publish(&channel, &topic, "logs.shop.deep.error", "two", plain()).await;
    publish(&channel, &topic, "elsewhere", "three", plain()).await;
    publish(&channel, &headers, "", "four", plain().with_headers(table([("b", text("two"))]))).await;
    publish(&channel, &headers, "", "five", plain().with_headers(table([("a", AMQPValue::LongInt(2))])))
        .await;
    let options = ExchangeUnbindOptions::default();
    ok(channel.exchange_unbind(all.as_str().into(), topic.as_str().into(), "logs.#".into(), options, none()))
        .await;
    ok(channel.queue_unbind(queues[0].as_str().into(), topic.as_str().into(), "logs.*.error".into(), none()))
        .await;
    publish(&channel, &topic, "logs.shop.error", "six", plain()).await;
    let expected: [&[&str]; 4] = [&["one"], &["four"], &["one", "two"], &["three", "six"]];
    for (queue, expected) in queues.iter().zip(expected) {
        assert_eq!(drain(&channel, queue).await, expected);
    }
}

#[tokio::test]
async fn dead_letters_tell_what_they_died_of() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let dead = own_queue(&channel, []).await;
    let limit = ("x-max-length", AMQPValue::LongInt(1));
    let arguments = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead)), limit];
    let queue = durable_queue(&channel, "dying", arguments).await;
    let check = async |reason: &str, body: &str| {
        let message = take(&channel, &dead).await;
        assert_eq!(message.data, body.as_bytes());
        let deaths = deaths(&message.properties);
        assert_eq!(deaths.len(), 1);
        let expected = table([
            ("count", AMQPValue::LongLongInt(1)),
            ("reason", text(reason)),
            ("queue", text(&queue)),
            ("exchange", text("")),
            ("routing-keys", list([text(&queue)])),
        ]);
        for (name, value) in &expected {
            assert_eq!(deaths[0].get(name), Some(value), "{name}");
        }
        assert!(
            deaths[0]["time"].as_timestamp().is_some_and(|seconds| seconds > 1_700_000_000),
            "{deaths:?}"
        );
        assert_eq!(header(&message.properties, "x-first-death-reason"), &text(reason));
        assert_eq!(header(&message.properties, "x-first-death-queue"), &text(&queue));
        assert_eq!(header(&message.properties, "x-first-death-exchange"), &text(""));
        (message.delivery.properties, deaths[0].clone())
    };
    send(&channel, &queue, "first").await;
    send(&channel, &queue, "second").await;
    check("maxlen", "first").await;
    ok(get(&channel, &queue).await.unwrap().reject(BasicRejectOptions { requeue: false })).await;
    check("rejected", "second").await;
    publish(&channel, "", &queue, "third", BasicProperties::default().with_expiration("50".into())).await;
    let (properties, death) = check("expired", "third").await;
    assert_eq!((properties.expiration(), death.get("original-expiration")), (&None, Some(&text("50"))));
    ok(channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default())).await;
}

#[tokio::test]
async fn messages_and_queues_expire() {
    let connection = connect().await;
    let declaring = confirming(&connection).await;
    let arguments = [("x-message-ttl", AMQPValue::LongInt(80)), ("x-expires", AMQPValue::LongInt(400))];
    let queue = durable_queue(&declaring, "short", arguments).await;
    send(&declaring, &queue, "gone").await;
    let passive = QueueDeclareOptions::default().passive();
    let emptied = async {
        while ok(declaring.queue_declare(queue.as_str().into(), passive, none())).await.message_count() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the message's end", emptied).await;
    assert!(get(&declaring, &queue).await.is_none());
    let deleted = async {
        loop {
            // Whoever looks uses it, and it lives on.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let looking = channel(&connection).await;
            looking.queue_declare(queue.as_str().into(), passive, none()).await?;
        }
    };
    assert_eq!(refused::<()>(deleted).await.kind(), &AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND));
}

#[tokio::test]
async fn no_more_than_the_prefetch_count_comes_and_what_is_urgent_first() {
    let connection = connect().await;
    for global in [false, true] {
        let channel = channel(&connection).await;
        ok(channel.basic_qos(3, BasicQosOptions { global })).await;
        let queue = own_queue(&channel, [("x-max-priority", AMQPValue::ShortShortUInt(5))]).await;
        for number in 0..10u8 {
            publish(&channel, "", &queue, [number], BasicProperties::default().with_priority(number % 2 * 5))
                .await;
        }
        let mut consumer = consume(&channel, &queue).await;
        let mut last = None;
        for number in [1, 3, 5] {
            let delivery = next(&mut consumer).await;
            assert_eq!(delivery.data, [number]);
            last = Some(delivery);
        }
        nothing_comes(&mut consumer).await;
        ok(last.unwrap().ack(BasicAckOptions { multiple: true })).await;
        for number in [7, 9, 0] {
            assert_eq!(next(&mut consumer).await.data, [number]);
        }
        nothing_comes(&mut consumer).await;
    }
}

#[tokio::test]
async fn a_quorum_queue_counts_deliveries_and_lets_go_at_its_limit() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let dead = own_queue(&channel, []).await;
    let arguments = [
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongInt(2)),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(&dead)),
    ];
    let queue = durable_queue(&channel, "quorum", arguments).await;
    send(&channel, &queue, "poison").await;
    let mut consumer = consume(&channel, &queue).await;
    for count in 0..3 {
        let delivery = next(&mut consumer).await;
        assert_eq!(delivery.redelivered, count > 0);
        if count > 0 {
            assert_eq!(header(&delivery.properties, "x-delivery-count"), &AMQPValue::LongLongInt(count));
        }
        ok(delivery.reject(BasicRejectOptions { requeue: true })).await;
    }
    let message = take(&channel, &dead).await;
    assert_eq!(deaths(&message.properties)[0]["reason"], text("delivery_limit"));
    nothing_comes(&mut consumer).await;
    ok(channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default())).await;
}

#[tokio::test]
async fn a_stream_is_read_by_offset_as_often_as_one_likes() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let stream = durable_queue(&channel, "stream", [("x-queue-type", text("stream"))]).await;
    for number in 0..10 {
        send(&channel, &stream, number.to_string()).await;
    }
    let first = || text("first");
    for (offset, range) in
        [(first(), 0..10), (AMQPValue::LongLongInt(6), 6..10), (text("last"), 9..10), (first(), 0..10)]
    {
        let reading = weir_suite_lapin::channel(&connection).await;
        ok(reading.basic_qos(4, BasicQosOptions::default())).await;
        let mut consumer = consume_with(
            &reading,
            &stream,
            "",
            BasicConsumeOptions::default(),
            [("x-stream-offset", offset)],
        )
        .await;
        for number in range {
            let delivery = next(&mut consumer).await;
            assert_eq!(delivery.data, number.to_string().as_bytes());
            assert_eq!(header(&delivery.properties, "x-stream-offset"), &AMQPValue::LongLongInt(number));
            ok(delivery.ack(BasicAckOptions::default())).await;
        }
        nothing_comes(&mut consumer).await;
    }
    // Without a prefetch count there is no consuming.
    let reading = weir_suite_lapin::channel(&connection).await;
    let consumed =
        reading.basic_consume(stream.as_str().into(), "".into(), BasicConsumeOptions::default(), none());
    assert_eq!(refused(consumed).await.get_id(), 406);
    ok(channel.queue_delete(stream.as_str().into(), QueueDeleteOptions::default())).await;
}

#[tokio::test]
async fn a_message_waits_for_its_time_in_an_exchange_that_delays() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let kind = ExchangeKind::Custom("x-delayed-message".to_owned());
    let later = exchange(&channel, "later", kind, table([("x-delayed-type", text("direct"))])).await;
    let queue = own_queue(&channel, []).await;
    bind(&channel, &queue, &later, "k", none()).await;
    for (body, milliseconds) in [("second", 1500), ("first", 150)] {
        let properties =
            BasicProperties::default().with_headers(table([("x-delay", AMQPValue::LongInt(milliseconds))]));
        let options = BasicPublishOptions::default();
        let confirm = ok(channel.basic_publish(
            later.as_str().into(),
            "k".into(),
            options,
            body.as_bytes(),
            properties,
        ))
        .await;
        assert!(ok(confirm).await.is_ack());
    }
    let mut consumer = consume(&channel, &queue).await;
    for (body, milliseconds) in [("first", -150), ("second", -1500)] {
        let delivery = next(&mut consumer).await;
        assert_eq!(delivery.data, body.as_bytes());
        assert_eq!(header(&delivery.properties, "x-delay"), &AMQPValue::LongLongInt(milliseconds));
    }
}

#[tokio::test]
async fn a_consumer_is_told_that_its_queue_is_gone() {
    let connection = connect().await;
    let consuming = channel(&connection).await;
    let queue = durable_queue(&consuming, "going", []).await;
    let mut going = consume_with(&consuming, &queue, "mine", BasicConsumeOptions::default(), []).await;
    assert_eq!(going.tag().as_str(), "mine");
    let mut cancelled = consume(&consuming, &queue).await;
    assert!(!cancelled.tag().as_str().is_empty());
    ok(consuming.basic_cancel(cancelled.tag(), BasicCancelOptions::default())).await;
    assert!(within("the end of a consumer", cancelled.next()).await.is_none());
    nothing_comes(&mut going).await;
    ok(channel(&connection).await.queue_delete(queue.into(), QueueDeleteOptions::default())).await;
    assert!(within("the end of a consumer", going.next()).await.is_none());
    // The channel serves on.
    own_queue(&consuming, []).await;
}

#[tokio::test]
async fn a_single_active_consumer_is_followed_by_the_next() {
    let connection = connect().await;
    let declaring = confirming(&connection).await;
    let queue =
        durable_queue(&declaring, "single", [("x-single-active-consumer", AMQPValue::Boolean(true))]).await;
    let (first_channel, second_channel) = (channel(&connection).await, channel(&connection).await);
    let mut first = consume(&first_channel, &queue).await;
    let mut second = consume(&second_channel, &queue).await;
    send(&declaring, &queue, "one").await;
    assert_eq!(next(&mut first).await.data, b"one");
    nothing_comes(&mut second).await;
    ok(first_channel.close(200, "OK".into())).await;
    let delivery = next(&mut second).await;
    assert_eq!((delivery.data.as_slice(), delivery.redelivered), (b"one".as_slice(), true));
    // An exclusive consumer is alone from the beginning.
    let exclusive = BasicConsumeOptions { exclusive: true, ..Default::default() };
    let alone = channel(&connection).await;
    let consumed = alone.basic_consume(queue.as_str().into(), "".into(), exclusive, none());
    let error = refused(consumed).await;
    assert_eq!(error.kind(), &AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED));
    ok(declaring.queue_delete(queue.into(), QueueDeleteOptions::default())).await;
}

#[tokio::test]
async fn counts_of_messages_and_consumers_are_told() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let queue = durable_queue(&channel, "counted", []).await;
    for number in 0..5 {
        send(&channel, &queue, number.to_string()).await;
    }
    let passive = QueueDeclareOptions::default().passive();
    let counts = async || {
        let declared = ok(channel.queue_declare(queue.as_str().into(), passive, none())).await;
        (declared.message_count(), declared.consumer_count())
    };
    assert_eq!(counts().await, (5, 0));
    let other = weir_suite_lapin::channel(&connection).await;
    ok(other.basic_qos(1, BasicQosOptions::default())).await;
    let mut consumer = consume(&other, &queue).await;
    next(&mut consumer).await;
    assert_eq!(counts().await, (4, 1));
    assert_eq!(ok(channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default())).await, 4);
    let deleting = weir_suite_lapin::channel(&connection).await;
    let unused = QueueDeleteOptions { if_unused: true, ..Default::default() };
    assert_eq!(refused(deleting.queue_delete(queue.as_str().into(), unused)).await.get_id(), 406);
    ok(other.close(200, "OK".into())).await;
    let deleting = weir_suite_lapin::channel(&connection).await;
    let empty = QueueDeleteOptions { if_empty: true, ..Default::default() };
    assert_eq!(refused(deleting.queue_delete(queue.as_str().into(), empty)).await.get_id(), 406);
    assert_eq!(ok(channel.queue_delete(queue.as_str().into(), unused)).await, 1);
}
