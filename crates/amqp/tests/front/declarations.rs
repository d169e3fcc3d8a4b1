//! What may be declared, deleted and bound, and with which code it is refused.

use weir_amqp_wire::methods::{exchange, queue};
use weir_amqp_wire::{Method, ShortStr, Table};

use super::support::{World, durable};

#[tokio::test(start_paused = true)]
async fn an_exclusive_queue_is_declared_again_as_exclusive_or_not_at_all() {
    let world = World::started().await;
    let mut client = world.client().await;
    let exclusive = || queue::Declare { exclusive: true, ..durable("mine") };
    for declare in [exclusive(), exclusive(), queue::Declare { durable: false, ..exclusive() }] {
        let answer = client.call(1, declare).await;
        assert!(matches!(answer, Method::QueueDeclareOk(_)), "{answer:?}");
    }
    assert_eq!(client.refused(1, queue::Declare { exclusive: false, ..exclusive() }).await, 405);
    client.declare("everybody's").await;
    let other = queue::Declare { exclusive: true, auto_delete: true, ..durable("everybody's") };
    assert_eq!(client.refused(1, other).await, 405);
    let other = queue::Declare { auto_delete: true, ..durable("everybody's") };
    assert_eq!(client.refused(1, other).await, 406);
    // A queue of another connection is not unbound either.
    let mut stranger = world.client().await;
    let unbind = queue::Unbind {
        queue: ShortStr::from_static("mine"),
        exchange: ShortStr::from_static("amq.direct"),
        ..queue::Unbind::default()
    };
    assert_eq!(stranger.refused(1, unbind).await, 405);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn names_lose_their_line_ends_and_the_default_exchange_is_nobodys() {
    let world = World::started().await;
    let mut client = world.client().await;
    let answer = client.call(1, durable("a\r\nname")).await;
    assert!(matches!(&answer, Method::QueueDeclareOk(ok) if ok.queue == "aname"), "{answer:?}");
    let nameless = queue::Declare { passive: true, ..durable("") };
    assert_eq!(client.refused(1, nameless).await, 404);
    for passive in [true, false] {
        let declare = exchange::Declare {
            exchange_type: ShortStr::from_static("direct"),
            durable: true,
            passive,
            ..exchange::Declare::default()
        };
        assert_eq!(client.refused(1, declare).await, 403);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_queue_is_deleted_without_conditions() {
    let world = World::started().await;
    for (if_unused, if_empty) in [(true, false), (false, true)] {
        let mut client = world.client().await;
        let arguments = Table::new().with("x-queue-type", "quorum");
        client.call(1, queue::Declare { arguments, ..durable("q") }).await;
        let delete = queue::Delete { queue: ShortStr::from_static("q"), if_unused, if_empty, no_wait: false };
        let answer = client.call(1, delete).await;
        assert!(matches!(&answer, Method::ConnectionClose(close) if close.reply_code == 540), "{answer:?}");
    }
    world.stop().await;
}
