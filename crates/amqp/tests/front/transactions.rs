//! What is held back until a commit.

use weir_amqp_wire::Method;
use weir_amqp_wire::methods::tx;

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
