//! `kill -9` of the broker under lapin's clients: nothing that was confirmed is lost, and who recovers by itself goes on.

use std::process::Command;
use std::time::Duration;

use lapin::options::*;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, ExchangeKind,
};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_stream::StreamExt;
use weir_suite_lapin::*;

/// Held by a check, so that no other one kills the broker meanwhile.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Kills the broker with `kill -9`; it is ready again on the same data when this returns.
async fn crash() {
    let command = std::env::var("SUITE_CRASH").expect("SUITE_CRASH kills the broker");
    let killed = tokio::task::spawn_blocking(move || Command::new("sh").arg("-c").arg(command).output());
    let output = killed.await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn what_was_confirmed_is_there_after_kill_9() {
    let _alone = ALONE.lock().await;
    let connection = connect().await;
    let mut events = Box::pin(connection.events_listener());
    let channel = confirming(&connection).await;
    let transient = own_queue(&channel, []).await;
    let mut queues = Vec::new();
    for kind in ["classic", "quorum"] {
        queues.push(durable_queue(&channel, kind, [("x-queue-type", text(kind))]).await);
    }
    let mut confirms = Vec::new();
    for number in 0..200 {
        let body = number.to_string();
        for queue in &queues {
            let properties =
                BasicProperties::default().with_delivery_mode(2).with_message_id(body.as_str().into());
            let options = BasicPublishOptions::default();
            let published =
                channel.basic_publish("".into(), queue.as_str().into(), options, body.as_bytes(), properties);
            confirms.push(ok(published).await);
        }
    }
    for confirm in confirms {
        assert_eq!(ok(confirm).await, Confirmation::Ack(None));
    }
    // Ten of each are taken, and nothing is heard of them.
    for queue in &queues {
        for _ in 0..10 {
            get(&channel, queue).await.unwrap();
        }
    }
    crash().await;
    assert!(error_event(&mut events).await.is_io_error());
    becomes("a lost connection", || connection.status().errored()).await;
    let connection = connect().await;
    for queue in &queues {
        let channel = weir_suite_lapin::channel(&connection).await;
        let mut consumer = consume(&channel, queue).await;
        for number in 0..200 {
            let delivery = next(&mut consumer).await;
            assert_eq!(delivery.data, number.to_string().as_bytes());
            assert_eq!(delivery.properties.message_id(), &Some(number.to_string().into()));
            ok(delivery.ack(BasicAckOptions::default())).await;
        }
        nothing_comes(&mut consumer).await;
        ok(channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default())).await;
    }
    // An exclusive queue was its connection's.
    let channel = weir_suite_lapin::channel(&connection).await;
    let passive = QueueDeclareOptions::default().passive();
    let error = refused(channel.queue_declare(transient.into(), passive, none())).await;
    assert_eq!(error.kind(), &AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND));
}

/// A connection that finds its way back by itself, and looks for it often.
async fn connect_recovering() -> Connection {
    let properties = ConnectionProperties::default().configure_backoff(|backoff| {
        let (least, most) = (Duration::from_millis(20), Duration::from_millis(200));
        backoff.with_min_delay(least).with_max_delay(most).with_max_times(200)
    });
    connect_with("%2f", properties.enable_auto_recover()).await
}

/// Publishes numbers one after the other, each until it is confirmed, and tells which were.
async fn publish_for_ever(channel: Channel, queue: String, confirmed: UnboundedSender<usize>) {
    for number in 0.. {
        loop {
            let body = number.to_string();
            let published = async {
                let options = BasicPublishOptions { mandatory: true, ..Default::default() };
                let properties = BasicProperties::default().with_delivery_mode(2);
                channel
                    .basic_publish("".into(), queue.as_str().into(), options, body.as_bytes(), properties)
                    .await?
                    .await
            };
            match published.await {
                Ok(confirmation) => {
                    assert_eq!(confirmation, Confirmation::Ack(None));
                    break;
                }
                Err(error) => {
                    ok(channel.wait_for_recovery(error)).await;
                    // To lapin a channel has recovered as soon as it is open, and asks for confirms only then: what is
                    // published in between would be confirmed by nobody.
                    ok(channel.confirm_select(ConfirmSelectOptions::default())).await;
                }
            }
        }
        if confirmed.send(number).is_err() {
            return;
        }
    }
}

/// Takes and acknowledges what comes, and tells what it was.
async fn consume_for_ever(channel: Channel, mut consumer: Consumer, came: UnboundedSender<usize>) {
    while let Some(delivery) = consumer.next().await {
        let error = match delivery {
            Ok(delivery) => {
                if came.send(String::from_utf8_lossy(&delivery.data).parse().unwrap()).is_err() {
                    return;
                }
                // Not by the delivery's own `ack`: one that meets the end of its connection can leave lapin 4.12.3 waiting
                // for news of a socket that is gone, and it never connects again.
                match channel.basic_ack(delivery.delivery_tag, BasicAckOptions::default()).await {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        ok(channel.wait_for_recovery(error)).await;
    }
    panic!("the consumer ended");
}

/// Receives until this number has come, and returns what is greater than everything before it.
async fn until(receiver: &mut UnboundedReceiver<usize>, number: usize) -> Vec<usize> {
    let mut new = Vec::new();
    let coming = async {
        while new.last().is_none_or(|last| *last < number) {
            let came = receiver.recv().await.expect("it goes on");
            if new.last().is_none_or(|last| *last < came) {
                new.push(came);
            }
        }
    };
    within("so many messages", coming).await;
    new
}

#[tokio::test]
async fn clients_that_recover_go_on_by_themselves_after_kill_9() {
    let _alone = ALONE.lock().await;
    let publishing = connect_recovering().await;
    let consuming = connect_recovering().await;
    let (publisher, reader) = (confirming(&publishing).await, channel(&consuming).await);
    let queue = durable_queue(&publisher, "kept", []).await;
    ok(reader.basic_qos(7, BasicQosOptions::default())).await;
    let consumer = consume(&reader, &queue).await;
    let ((confirmed, mut were_confirmed), (came, mut have_come)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let publishes = tokio::spawn(publish_for_ever(publisher, queue.clone(), confirmed));
    let consumes = tokio::spawn(consume_for_ever(reader, consumer, came));
    until(&mut were_confirmed, 100).await;
    crash().await;
    let mut before = 0;
    while let Ok(number) = were_confirmed.try_recv() {
        before = number;
    }
    let last = *until(&mut were_confirmed, before + 100).await.last().unwrap();
    // In order, and none is missing: what comes again does so because its acknowledgement was lost.
    assert_eq!(until(&mut have_come, last).await, (0..=last).collect::<Vec<_>>());
    publishes.abort();
    consumes.abort();
    let deleting = channel(&consuming).await;
    ok(deleting.queue_delete(queue.into(), QueueDeleteOptions::default())).await;
}

#[tokio::test]
async fn what_does_not_outlive_the_broker_is_declared_again_by_lapin() {
    let _alone = ALONE.lock().await;
    let connection = connect_recovering().await;
    let listening = channel(&connection).await;
    let (exchange, queue) = (fresh("news"), fresh("listener"));
    let options = ExchangeDeclareOptions::default();
    ok(listening.exchange_declare(exchange.as_str().into(), ExchangeKind::Topic, options, none())).await;
    ok(listening.queue_declare(queue.as_str().into(), QueueDeclareOptions::exclusive(), none())).await;
    let (key, options) = ("weather.#", QueueBindOptions::default());
    ok(listening.queue_bind(queue.as_str().into(), exchange.as_str().into(), key.into(), options, none()))
        .await;
    let mut consumer = consume_with(&listening, &queue, "listener", BasicConsumeOptions::default(), []).await;
    crash().await;
    let stranger = connect().await;
    let declared = async {
        loop {
            let channel = confirming(&stranger).await;
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = BasicProperties::default();
            let published = channel.basic_publish(
                exchange.as_str().into(),
                "weather.today".into(),
                options,
                b"rain",
                properties,
            );
            if let Ok(Confirmation::Ack(None)) = ok(published).await.await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("a way to the queue", declared).await;
    let delivery = next(&mut consumer).await;
    assert_eq!((delivery.data.as_slice(), delivery.redelivered), (b"rain".as_slice(), false));
    ok(delivery.ack(BasicAckOptions::default())).await;
}
