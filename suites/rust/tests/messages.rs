//! lapin publishing and consuming: what goes in comes out, as often as promised, and exactly as it was.

use lapin::message::BasicReturnMessage;
use lapin::options::*;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, DecimalValue};
use lapin::{BasicProperties, Confirmation, ConnectionProperties, ErrorKind};
use weir_suite_lapin::*;

#[tokio::test]
async fn everything_confirmed_is_consumed_once_and_in_order() {
    let connection = connect().await;
    let publishing = confirming(&connection).await;
    let queue = durable_queue(&publishing, "orders", []).await;
    let mut confirms = Vec::new();
    for number in 0..500 {
        let body = number.to_string();
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        confirms.push(
            ok(publishing.basic_publish(
                "".into(),
                queue.as_str().into(),
                options,
                body.as_bytes(),
                properties,
            ))
            .await,
        );
    }
    for confirm in confirms {
        assert_eq!(ok(confirm).await, Confirmation::Ack(None));
    }
    let consuming = channel(&connection).await;
    ok(consuming.basic_qos(20, BasicQosOptions::default())).await;
    let mut consumer = consume(&consuming, &queue).await;
    for number in 0..500 {
        let delivery = next(&mut consumer).await;
        assert_eq!((delivery.data.as_slice(), delivery.redelivered), (number.to_string().as_bytes(), false));
        // Every tenth one is acknowledged, and the nine before with it.
        if number % 10 == 9 {
            assert!(ok(delivery.ack(BasicAckOptions { multiple: true })).await);
        }
    }
    ok(consuming.close(200, "OK".into())).await;
    assert!(get(&publishing, &queue).await.is_none());
    assert_eq!(ok(publishing.queue_delete(queue.as_str().into(), QueueDeleteOptions::default())).await, 0);
}

#[tokio::test]
async fn properties_and_tables_come_back_exactly() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let queue = own_queue(&channel, []).await;
    let deeper = table([
        ("list", list([list([]), AMQPValue::FieldTable(table([])), text("")])),
        ("none", AMQPValue::Void),
    ]);
    let headers = table([
        ("bool", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-1)),
        ("u8", AMQPValue::ShortShortUInt(255)),
        ("i16", AMQPValue::ShortInt(-2)),
        ("u16", AMQPValue::ShortUInt(65_535)),
        ("i32", AMQPValue::LongInt(i32::MIN)),
        ("u32", AMQPValue::LongUInt(u32::MAX)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("f32", AMQPValue::Float(1.5)),
        ("f64", AMQPValue::Double(-0.1)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 })),
        ("text", text("grün")),
        ("bytes", AMQPValue::ByteArray(vec![0, 255, 206].into())),
        ("time", AMQPValue::Timestamp(1_700_000_000)),
        ("list", list([AMQPValue::LongInt(1), text("two"), AMQPValue::Double(3.0)])),
        ("table", AMQPValue::FieldTable(deeper)),
        ("none", AMQPValue::Void),
        ("", text("a name without a letter")),
    ]);
    let sent = BasicProperties::default()
        .with_content_type("text/plain".into())
        .with_content_encoding("utf-8".into())
        .with_headers(headers)
        .with_delivery_mode(2)
        .with_priority(3)
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_expiration("60000".into())
        .with_message_id("m".into())
        .with_timestamp(1_700_000_001)
        .with_type("t".into())
        .with_user_id("guest".into())
        .with_app_id("a".into())
        .with_cluster_id("l".into());
    publish(&channel, "", &queue, "body", sent.clone()).await;
    let got = take(&channel, &queue).await;
    assert_eq!(got.properties, sent);
    assert_eq!(
        (got.data.as_slice(), got.exchange.as_str(), got.routing_key.as_str()),
        (b"body".as_slice(), "", queue.as_str())
    );
    // None at all are not the same as empty ones.
    for sent in [
        BasicProperties::default(),
        BasicProperties::default().with_headers(table([])).with_app_id("".into()),
    ] {
        publish(&channel, "", &queue, "", sent.clone()).await;
        assert_eq!(take(&channel, &queue).await.properties, sent);
    }
}

#[tokio::test]
async fn bodies_of_every_length_come_whole() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let queue = own_queue(&channel, []).await;
    // What lapin puts into one frame; on either side of it are other numbers of frames.
    let frame = connection.configuration().frame_max() as usize - 8;
    let lengths = [0, 1, frame - 1, frame, frame + 1, 2 * frame, 2 * frame + 1, 5 << 20, 16 << 20];
    let body = |length: usize| (0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    let mut consumer = consume(&channel, &queue).await;
    for length in lengths {
        send(&channel, &queue, body(length)).await;
        let delivery = next(&mut consumer).await;
        assert!(delivery.data == body(length), "{} bytes came of {length}", delivery.data.len());
        ok(delivery.ack(BasicAckOptions::default())).await;
    }
    // More is refused, and ends no more than the channel.
    let (too_much, options) = (body((16 << 20) + 1), BasicPublishOptions::default());
    let confirm = channel.basic_publish(
        "".into(),
        queue.as_str().into(),
        options,
        &too_much,
        BasicProperties::default(),
    );
    let error = refused(async { confirm.await?.await }).await;
    assert_eq!(error.kind(), &AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED));
    assert!(connection.status().connected());
}

#[tokio::test]
async fn bodies_of_a_client_with_small_frames_come_whole() {
    let connection = connect_with("%2f?frame_max=8192", ConnectionProperties::default()).await;
    assert_eq!(connection.configuration().frame_max(), 8192);
    let channel = confirming(&connection).await;
    let queue = own_queue(&channel, []).await;
    let body: Vec<u8> = (0..100_000).map(|at| (at % 253) as u8).collect();
    send(&channel, &queue, &body).await;
    assert!(take(&channel, &queue).await.data == body);
}

#[tokio::test]
async fn what_cannot_be_routed_comes_back_with_its_confirm() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let queue = own_queue(&channel, []).await;
    let check = |returned: &BasicReturnMessage, body: &str| {
        assert_eq!((returned.reply_code, returned.reply_text.as_str()), (312, "NO_ROUTE"));
        assert_eq!(
            returned.error().map(|error| error.kind().clone()),
            Some(AMQPErrorKind::Soft(AMQPSoftError::NOROUTE))
        );
        assert_eq!((returned.exchange.as_str(), returned.routing_key.as_str()), ("amq.direct", "nowhere"));
        assert_eq!(
            (returned.data.as_slice(), returned.properties.message_id().clone()),
            (body.as_bytes(), Some(body.into()))
        );
    };
    for number in 0..20 {
        let body = number.to_string();
        let properties = BasicProperties::default().with_message_id(body.as_str().into());
        match publish(&channel, "amq.direct", "nowhere", &body, properties).await {
            Confirmation::Ack(Some(returned)) => check(&returned, &body),
            other => panic!("{other:?}"),
        }
        send(&channel, &queue, &body).await;
    }
    // Whoever does not ask for it back is told that all is well.
    let options = BasicPublishOptions::default();
    let confirm = ok(channel.basic_publish(
        "amq.direct".into(),
        "nowhere".into(),
        options,
        b"",
        BasicProperties::default(),
    ))
    .await;
    assert_eq!(ok(confirm).await, Confirmation::Ack(None));
    // Without confirms they are collected.
    let channel = weir_suite_lapin::channel(&connection).await;
    for body in ["a", "b"] {
        let properties = BasicProperties::default().with_message_id(body.into());
        assert_eq!(
            publish(&channel, "amq.direct", "nowhere", body, properties).await,
            Confirmation::NotRequested
        );
    }
    assert!(get(&channel, &queue).await.is_some());
    let returned = ok(channel.wait_for_confirms()).await;
    assert_eq!(returned.len(), 2);
    check(&returned[0], "a");
    check(&returned[1], "b");
}

#[tokio::test]
async fn what_a_full_queue_does_not_take_is_nacked() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let queue = own_queue(
        &channel,
        [("x-max-length", AMQPValue::LongInt(2)), ("x-overflow", text("reject-publish"))],
    )
    .await;
    send(&channel, &queue, "1").await;
    send(&channel, &queue, "2").await;
    assert_eq!(
        publish(&channel, "", &queue, "3", BasicProperties::default()).await,
        Confirmation::Nack(None)
    );
    assert_eq!(take(&channel, &queue).await.data, b"1");
    send(&channel, &queue, "4").await;
    assert_eq!(drain(&channel, &queue).await, ["2", "4"]);
}

#[tokio::test]
async fn given_back_it_comes_again_marked() {
    let connection = connect().await;
    let channel = channel(&connection).await;
    let queue = own_queue(&channel, []).await;
    for body in ["one", "two", "three"] {
        send(&channel, &queue, body).await;
    }
    let first = get(&channel, &queue).await.unwrap();
    assert_eq!(
        (first.data.as_slice(), first.redelivered, first.message_count),
        (b"one".as_slice(), false, 2)
    );
    ok(first.nack(BasicNackOptions { requeue: true, multiple: false })).await;
    let again = get(&channel, &queue).await.unwrap();
    assert_eq!((again.data.as_slice(), again.redelivered, again.message_count), (b"one".as_slice(), true, 2));
    ok(again.reject(BasicRejectOptions { requeue: false })).await;
    // What lapin has in its hands is used once.
    assert!(!ok(again.ack(BasicAckOptions::default())).await);
    let mut consumer = consume(&channel, &queue).await;
    for body in ["two", "three"] {
        let delivery = next(&mut consumer).await;
        assert_eq!((delivery.data.as_slice(), delivery.redelivered), (body.as_bytes(), false));
    }
    ok(channel.basic_recover(BasicRecoverOptions { requeue: true })).await;
    for body in ["two", "three"] {
        let delivery = next(&mut consumer).await;
        assert_eq!((delivery.data.as_slice(), delivery.redelivered), (body.as_bytes(), true));
        ok(delivery.ack(BasicAckOptions::default())).await;
    }
    nothing_comes(&mut consumer).await;
}

#[tokio::test]
async fn what_a_transaction_holds_goes_out_when_it_is_committed() {
    let connection = connect().await;
    let reading = channel(&connection).await;
    let queue = own_queue(&reading, []).await;
    let writing = channel(&connection).await;
    ok(writing.tx_select()).await;
    send(&writing, &queue, "kept").await;
    assert!(get(&reading, &queue).await.is_none());
    ok(writing.tx_commit()).await;
    send(&writing, &queue, "dropped").await;
    ok(writing.tx_rollback()).await;
    // An acknowledgement is held as well.
    let held = get(&writing, &queue).await.unwrap();
    assert_eq!(held.data, b"kept");
    ok(held.ack(BasicAckOptions::default())).await;
    ok(writing.tx_rollback()).await;
    ok(writing.basic_recover(BasicRecoverOptions { requeue: true })).await;
    let held = get(&writing, &queue).await.unwrap();
    assert!(held.redelivered);
    ok(held.ack(BasicAckOptions::default())).await;
    ok(writing.tx_commit()).await;
    ok(writing.close(200, "OK".into())).await;
    assert!(get(&reading, &queue).await.is_none());
    // Confirms and transactions exclude each other.
    let both = confirming(&connection).await;
    assert_eq!(refused(both.tx_select()).await.get_id(), 406);
}

#[tokio::test]
async fn replies_come_without_a_queue() {
    let connection = connect().await;
    let serving = channel(&connection).await;
    let asked = own_queue(&serving, []).await;
    let mut questions = consume(&serving, &asked).await;
    let asking = channel(&connection).await;
    let no_ack = BasicConsumeOptions { no_ack: true, ..Default::default() };
    let mut answers = consume_with(&asking, "amq.rabbitmq.reply-to", "", no_ack, []).await;
    let question = BasicProperties::default()
        .with_reply_to("amq.rabbitmq.reply-to".into())
        .with_correlation_id("7".into());
    publish(&asking, "", &asked, "hello", question).await;
    let came = next(&mut questions).await;
    let reply_to = came.properties.reply_to().clone().unwrap();
    assert!(reply_to.as_str().starts_with("amq.rabbitmq.reply-to."), "{reply_to}");
    let answer =
        BasicProperties::default().with_correlation_id(came.properties.correlation_id().clone().unwrap());
    publish(&serving, "", reply_to.as_str(), came.data.to_ascii_uppercase(), answer).await;
    let answer = next(&mut answers).await;
    assert_eq!(
        (answer.data.as_slice(), answer.properties.correlation_id().clone()),
        (b"HELLO".as_slice(), Some("7".into()))
    );
    // Who is not consuming replies cannot ask for one.
    let other = confirming(&connection).await;
    let question = BasicProperties::default().with_reply_to("amq.rabbitmq.reply-to".into());
    let confirm = ok(other.basic_publish(
        "".into(),
        asked.as_str().into(),
        BasicPublishOptions::default(),
        b"",
        question,
    ))
    .await;
    assert_eq!(refused(confirm).await.kind(), &AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED));
}

#[tokio::test]
async fn a_publish_that_fails_fails_its_confirm() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let options = BasicPublishOptions::default();
    let confirm =
        ok(channel.basic_publish(fresh("none").into(), "".into(), options, b"", BasicProperties::default()))
            .await;
    let error = refused(confirm).await;
    assert_eq!(error.kind(), &AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND));
    let after = channel.basic_get("any".into(), BasicGetOptions::default()).await.unwrap_err();
    assert!(
        matches!(after.kind(), ErrorKind::InvalidChannelState(..) | ErrorKind::ProtocolError(_)),
        "{after:?}"
    );
    assert!(connection.status().connected());
}
