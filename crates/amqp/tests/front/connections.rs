//! How connections begin, live and end.

use std::time::Duration;

use weir_amqp_wire::methods::{channel, confirm, connection, queue};
use weir_amqp_wire::{Method, ProtocolHeader, ShortStr};

use super::support::{World, consume, durable};

#[tokio::test(start_paused = true)]
async fn whoever_is_told_that_its_connection_is_closed_has_left_nothing_behind() {
    let world = World::started().await;
    let exclusive = || queue::Declare { exclusive: true, ..durable("mine") };
    for _ in 0..3 {
        let mut client = world.client().await;
        let answer = client.call(1, exclusive()).await;
        assert!(matches!(answer, Method::QueueDeclareOk(_)), "{answer:?}");
        client.declare("everybody's").await;
        client.publish("everybody's", b"unsettled").await;
        assert!(client.get("everybody's").await.is_some());
        client.publish("everybody's", b"on its way").await;
        let answer = client.call(0, connection::Close::default()).await;
        assert!(matches!(answer, Method::ConnectionCloseOk(_)), "{answer:?}");
        let mut next = world.client().await;
        assert_eq!(next.ready("everybody's").await, 2);
        next.call(1, queue::Purge { queue: ShortStr::from_static("everybody's"), ..Default::default() })
            .await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_stream_follows_the_last_word() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.call(0, connection::Close::default()).await;
    let began = tokio::time::Instant::now();
    assert!(client.next().await.is_none());
    let mut stranger = world.stranger();
    stranger.raw(b"HTTP/1.1").await;
    stranger.expect_raw(&ProtocolHeader::SUPPORTED).await;
    assert!(stranger.next().await.is_none());
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits for it: {:?}", began.elapsed());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_may_be_closed_from_both_sides_at_once() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.put(1, queue::Declare { passive: true, ..durable("nowhere") });
    client.put(1, channel::Close::default());
    client.flush().await;
    assert!(matches!(client.method().await, Method::ChannelClose(_)));
    client.send(1, channel::CloseOk {}).await;
    assert!(matches!(client.method().await, Method::ChannelCloseOk(_)));
    client.open(1).await;
    client.declare("q").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_not_taken_for_silent() {
    let world = World::started().await;
    let mut client = world.client_with(1).await;
    client.declare("q").await;
    let large = vec![7; 1 << 20];
    for _ in 0..8 {
        client.publish("q", &large).await;
    }
    assert_eq!(client.ready("q").await, 8);
    client.send(1, consume("q", "slow")).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        client.heartbeat().await;
    }
    assert!(matches!(client.method().await, Method::BasicConsumeOk(_)));
    for number in 1..=8 {
        assert_eq!(client.delivery().await.1, number);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_breaks_the_protocol_is_told_by_which_method() {
    let world = World::started().await;
    let refused = |raw: &'static [u8], code, ids| {
        let world = &world;
        async move {
            let mut client = world.client().await;
            client.raw(raw).await;
            match client.method().await {
                Method::ConnectionClose(close) => {
                    assert_eq!(
                        (close.reply_code, (close.class_id, close.method_id)),
                        (code, ids),
                        "{raw:x?}"
                    );
                }
                other => panic!("{raw:x?}: {other:?}"),
            }
        }
    };
    // On channel 2, which is not open: channel.close, and a body.
    refused(b"\x01\0\x02\0\0\0\x0b\0\x14\0\x28\0\0\0\0\0\0\0\xce", 504, (20, 40)).await;
    refused(b"\x03\0\x02\0\0\0\x01x\xce", 505, (0, 0)).await;
    // On channel 0: basic.qos.
    refused(b"\x01\0\0\0\0\0\x0b\0\x3c\0\x0a\0\0\0\0\0\0\0\xce", 504, (60, 10)).await;
    // On channel 1: channel.close_ok and basic.cancel_ok that nobody asked for, a queue.declare that is cut off.
    refused(b"\x01\0\x01\0\0\0\x04\0\x14\0\x29\xce", 503, (20, 41)).await;
    refused(b"\x01\0\x01\0\0\0\x06\0\x3c\0\x1f\x01t\xce", 503, (60, 31)).await;
    refused(b"\x01\0\x01\0\0\0\x05\0\x32\0\x0a\0\xce", 501, (50, 10)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn channels_are_counted_and_their_numbers_are_not() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.open(60_000).await;
    client.open(2_048).await;
    for number in 2..=2_045 {
        client.open(number).await;
    }
    let answer = client.call(2_046, channel::Open::default()).await;
    assert!(matches!(&answer, Method::ConnectionClose(close) if close.reply_code == 530), "{answer:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_front_that_stops_tells_first_what_became_of_messages() {
    const MESSAGES: u64 = 20;
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("durable").await;
    client.call(1, confirm::Select::default()).await;
    for _ in 0..MESSAGES {
        client.publish("durable", b"a message").await;
    }
    // The front reads what has come; no time goes by, so that none of it can be on the disk.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let stopping = world.stop_serving();
    let mut safe = 0;
    loop {
        match client.method().await {
            Method::BasicAck(ack) => {
                assert!(ack.delivery_tag > safe, "{ack:?} after {safe}");
                safe = ack.delivery_tag;
            }
            Method::ConnectionClose(close) => {
                assert_eq!(close.reply_code, 320, "{close:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(safe, MESSAGES, "all that was taken is told of");
    client.send(0, connection::CloseOk {}).await;
    stopping.stop().await;
}
