//! What is held back until a commit.

use weir_amqp_wire::methods::{queue, tx};
use weir_amqp_wire::{BasicProperties, Method, ShortStr, Table};

use super::support::World;

#[tokio::test(start_paused = true)]
async fn what_was_to_be_settled_keeps_its_tag_when_it_is_rolled_back() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.publish("q", b"m").await;
    client.call(1, tx::Select {}).await;
    let (tag, _) = client.get("q").await.unwrap();
    client.ack(1, tag).await;
    assert!(matches!(client.call(1, tx::Rollback {}).await, Method::TxRollbackOk(_)));
    assert_eq!(client.ready("q").await, 0, "it is still with the client");
    client.ack(1, tag).await;
    assert!(matches!(client.call(1, tx::Commit {}).await, Method::TxCommitOk(_)));
    let mut other = world.client().await;
    assert_eq!(other.ready("q").await, 0);
    assert_eq!(other.get("q").await, None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_holds_only_so_much() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("q").await;
    client.call(1, tx::Select {}).await;
    let large = vec![7; 6 << 20];
    for _ in 0..11 {
        client.publish("q", &large).await;
    }
    let answer = client.method().await;
    assert!(matches!(&answer, Method::ChannelClose(close) if close.reply_code == 406), "{answer:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transactions_messages_go_where_they_went_when_they_were_published() {
    let world = World::started().await;
    let mut client = world.client().await;
    client.declare("before").await;
    client.declare("after").await;
    let bind = |queue| queue::Bind {
        queue: ShortStr::from_static(queue),
        exchange: ShortStr::from_static("amq.fanout"),
        ..queue::Bind::default()
    };
    client.call(1, bind("before")).await;
    client.call(1, tx::Select {}).await;
    client.publish_to("amq.fanout", "", &BasicProperties::default(), b"m").await;
    client.call(1, bind("after")).await;
    assert_eq!(client.ready("before").await, 0, "not before it is committed");
    assert!(matches!(client.call(1, tx::Commit {}).await, Method::TxCommitOk(_)));
    assert_eq!([client.ready("before").await, client.ready("after").await], [1, 0]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transactions_messages_are_checked_when_they_are_published() {
    let world = World::started().await;
    let blind = Some(Table::new().with("BCC", "no list"));
    for properties in [
        BasicProperties { headers: blind, ..BasicProperties::default() },
        BasicProperties { delivery_mode: Some(3), ..BasicProperties::default() },
        BasicProperties { expiration: Some(ShortStr::from_static("soon")), ..BasicProperties::default() },
    ] {
        let mut client = world.client().await;
        client.call(1, tx::Select {}).await;
        client.publish_to("", "q", &properties, b"m").await;
        let answer = client.method().await;
        assert!(matches!(&answer, Method::ChannelClose(close) if close.reply_code == 406), "{answer:?}");
    }
    world.stop().await;
}
