//! Connections and channels of lapin: what is agreed on, what is refused, in lapin's own types, and what is left then.

use std::time::Duration;

use lapin::options::*;
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind, ExchangeKind,
};
use tokio_stream::StreamExt;
use weir_suite_lapin::*;

/// lapin answers the close by itself; the channel is of no use then, and the connection is as before.
async fn check(kind: AMQPSoftError, error: AMQPError, closed: &Channel, connection: &Connection) {
    assert_eq!(error.kind(), &AMQPErrorKind::Soft(kind));
    becomes("a closed channel", || !closed.status().connected()).await;
    assert!(connection.status().connected());
}

#[tokio::test]
async fn errors_close_their_channel_by_code_and_the_connection_stays() {
    let connection = connect().await;
    let declaring = channel(&connection).await;
    let queue = durable_queue(&declaring, "declared", []).await;
    let stranger = connect().await;
    let strangers = channel(&stranger).await;
    let exclusive = own_queue(&strangers, []).await;
    let passive = QueueDeclareOptions::default().passive();
    let on = channel(&connection).await;
    let error = refused(on.queue_declare(fresh("none").into(), passive, none())).await;
    check(AMQPSoftError::NOTFOUND, error, &on, &connection).await;
    let on = channel(&connection).await;
    let options = QueueBindOptions::default();
    let error =
        refused(on.queue_bind(queue.as_str().into(), fresh("none").into(), "".into(), options, none())).await;
    check(AMQPSoftError::NOTFOUND, error, &on, &connection).await;
    let on = channel(&connection).await;
    let error =
        refused(on.queue_declare(queue.as_str().into(), QueueDeclareOptions::default(), none())).await;
    check(AMQPSoftError::PRECONDITIONFAILED, error, &on, &connection).await;
    let on = channel(&connection).await;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let error = refused(on.exchange_declare("amq.direct".into(), ExchangeKind::Topic, durable, none())).await;
    check(AMQPSoftError::PRECONDITIONFAILED, error, &on, &connection).await;
    let on = channel(&connection).await;
    let error = refused(on.queue_declare("amq.mine".into(), QueueDeclareOptions::durable(), none())).await;
    check(AMQPSoftError::ACCESSREFUSED, error, &on, &connection).await;
    let on = channel(&connection).await;
    let error = refused(on.queue_purge(exclusive.as_str().into(), QueuePurgeOptions::default())).await;
    check(AMQPSoftError::RESOURCELOCKED, error, &on, &connection).await;
    ok(declaring.queue_delete(queue.into(), QueueDeleteOptions::default())).await;
}

#[tokio::test]
async fn an_unknown_delivery_tag_ends_the_channel_and_its_consumers_are_told() {
    let connection = connect().await;
    let mut events = Box::pin(connection.events_listener());
    let channel = channel(&connection).await;
    let queue = own_queue(&channel, []).await;
    let mut consumer = consume(&channel, &queue).await;
    ok(channel.basic_ack(17, BasicAckOptions::default())).await;
    let told = refused(async { consumer.next().await.expect("it is told") }).await;
    assert_eq!(told.kind(), &AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED));
    assert!(within("the end of a consumer", consumer.next()).await.is_none());
    assert!(error_event(&mut events).await.is_amqp_soft_error());
    // What the consumer had is nobody's; the queue is the connection's still.
    own_queue(&weir_suite_lapin::channel(&connection).await, []).await;
}

#[tokio::test]
async fn an_error_of_the_connection_ends_it_with_its_code() {
    let connection = connect().await;
    let mut events = Box::pin(connection.events_listener());
    let channel = confirming(&connection).await;
    let immediate = BasicPublishOptions { immediate: true, ..Default::default() };
    let confirm =
        ok(channel.basic_publish("".into(), "any".into(), immediate, b"", BasicProperties::default())).await;
    let error = refused(confirm).await;
    assert_eq!(error.kind(), &AMQPErrorKind::Hard(AMQPHardError::NOTIMPLEMENTED));
    assert!(error_event(&mut events).await.is_amqp_hard_error());
    becomes("a connection in error", || connection.status().errored()).await;
    assert!(connection.create_channel().await.is_err());
}

#[tokio::test]
async fn who_is_not_let_in_is_told_why() {
    for (user, vhost, expected) in [
        ("guest:wrong", "%2f", AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)),
        ("guest:guest", "nowhere", AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)),
    ] {
        let address = uri(user, vhost);
        let error = refused(Connection::connect(&address, ConnectionProperties::default())).await;
        assert_eq!(error.kind(), &expected, "{user} {vhost}");
    }
}

#[tokio::test]
async fn what_was_agreed_on_is_kept() {
    let connection = connect_with("%2f?heartbeat=2&channel_max=2", ConnectionProperties::default()).await;
    assert_eq!((connection.configuration().heartbeat(), connection.configuration().channel_max()), (2, 2));
    let (first, _second) = (channel(&connection).await, channel(&connection).await);
    assert!(matches!(
        connection.create_channel().await.map(drop).unwrap_err().kind(),
        ErrorKind::ChannelsLimitReached
    ));
    // A client that has nothing to say beats; were it taken for a dead one, it would hear in this time.
    tokio::time::sleep(Duration::from_secs(6)).await;
    own_queue(&first, []).await;
    ok(connection.close(200, "OK".into())).await;
    // In error, to lapin, if it reads the end of the stream together with the broker's last word.
    becomes("the connection's end", || !connection.status().connected()).await;
}

#[tokio::test]
async fn many_channels_of_one_connection_do_not_get_in_each_others_way() {
    let connection = connect().await;
    let mut working = Vec::new();
    for number in 0..50u8 {
        let channel = confirming(&connection).await;
        working.push(tokio::spawn(async move {
            let queue = own_queue(&channel, []).await;
            let mut consumer = consume(&channel, &queue).await;
            for round in 0..10 {
                send(&channel, &queue, [number, round]).await;
                let delivery = next(&mut consumer).await;
                assert_eq!(delivery.data, [number, round]);
                ok(delivery.ack(BasicAckOptions::default())).await;
            }
        }));
    }
    for work in working {
        work.await.unwrap();
    }
}

#[tokio::test]
async fn what_is_not_waited_for_is_done() {
    let connection = connect().await;
    let channel = confirming(&connection).await;
    let (exchange, queue) = (fresh("direct"), fresh("queue"));
    let nowait = true;
    let options = ExchangeDeclareOptions { nowait, ..Default::default() };
    ok(channel.exchange_declare(exchange.as_str().into(), ExchangeKind::Direct, options, none())).await;
    let options = QueueDeclareOptions { nowait, ..QueueDeclareOptions::durable() };
    ok(channel.queue_declare(queue.as_str().into(), options, none())).await;
    let options = QueueBindOptions { nowait };
    ok(channel.queue_bind(queue.as_str().into(), exchange.as_str().into(), "k".into(), options, none()))
        .await;
    let options = BasicConsumeOptions { nowait, no_ack: true, ..Default::default() };
    let mut consumer = consume_with(&channel, &queue, "mine", options, []).await;
    assert_eq!(
        publish(&channel, &exchange, "k", "one", BasicProperties::default()).await,
        Confirmation::Ack(None)
    );
    assert_eq!(next(&mut consumer).await.data, b"one");
    ok(channel.basic_cancel("mine".into(), BasicCancelOptions { nowait })).await;
    assert_eq!(
        publish(&channel, &exchange, "k", "two", BasicProperties::default()).await,
        Confirmation::Ack(None)
    );
    assert_eq!(drain(&channel, &queue).await, ["two"]);
    let options = QueueDeleteOptions { nowait, ..Default::default() };
    ok(channel.queue_delete(queue.as_str().into(), options)).await;
    let options = ExchangeDeleteOptions { nowait, ..Default::default() };
    ok(channel.exchange_delete(exchange.as_str().into(), options)).await;
    let passive = QueueDeclareOptions::default().passive();
    assert_eq!(refused(channel.queue_declare(queue.into(), passive, none())).await.get_id(), 404);
    let channel = weir_suite_lapin::channel(&connection).await;
    let passive = ExchangeDeclareOptions { passive: true, ..Default::default() };
    let error =
        refused(channel.exchange_declare(exchange.into(), ExchangeKind::Direct, passive, none())).await;
    assert_eq!(error.get_id(), 404);
}

#[tokio::test]
async fn what_hardly_anybody_asks_for_is_answered() {
    let connection = connect_with("%2f?auth_mechanism=amqplain", ConnectionProperties::default()).await;
    let channel = channel(&connection).await;
    ok(channel.access_request("/data".into(), AccessRequestOptions::default())).await;
    assert!(ok(channel.channel_flow(ChannelFlowOptions { active: true })).await);
    ok(connection.update_secret("guest".into(), "as a matter of routine".into())).await;
    let queue = own_queue(&channel, []).await;
    send(&channel, &queue, "again").await;
    let mut consumer = consume(&channel, &queue).await;
    assert!(!next(&mut consumer).await.redelivered);
    ok(channel.basic_recover_async(BasicRecoverAsyncOptions { requeue: true })).await;
    assert!(next(&mut consumer).await.redelivered);
}
