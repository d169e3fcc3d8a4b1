//! What may be declared, deleted and bound, and with which code it is refused.

use weir_amqp_wire::methods::{basic, exchange, queue};
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
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_strangers_binding_is_refused_for_has_an_order() {
    let world = World::started().await;
    let mut owner = world.client().await;
    owner.call(1, queue::Declare { exclusive: true, ..durable("mine") }).await;
    let bind = |name, exchange, x_match: &'static str| queue::Bind {
        queue: ShortStr::from_static(name),
        exchange: ShortStr::from_static(exchange),
        arguments: Table::new().with("x-match", x_match),
        ..queue::Bind::default()
    };
    let mut stranger = world.client().await;
    for (name, exchange, x_match, code) in [
        ("nowhere", "", "most", 403),
        ("nowhere", "nowhere", "most", 404),
        ("mine", "nowhere", "most", 404),
        ("nowhere", "amq.headers", "most", 404),
        ("mine", "amq.headers", "most", 406),
        ("mine", "amq.headers", "any", 405),
    ] {
        assert_eq!(stranger.refused(1, bind(name, exchange, x_match)).await, code, "{name} {exchange}");
    }
    let unbind = || queue::Unbind {
        queue: ShortStr::from_static("mine"),
        exchange: ShortStr::from_static("amq.headers"),
        arguments: Table::new().with("x-match", "any"),
        ..queue::Unbind::default()
    };
    // What is not bound is as good as unbound.
    assert!(matches!(stranger.call(1, unbind()).await, Method::QueueUnbindOk(_)));
    owner.call(1, bind("mine", "amq.headers", "any")).await;
    assert_eq!(stranger.refused(1, unbind()).await, 405);
    assert!(matches!(owner.call(1, unbind()).await, Method::QueueUnbindOk(_)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_there_is_compared_before_its_declaration_is_judged() {
    let world = World::started().await;
    let mut client = world.client().await;
    let quorum = || queue::Declare { arguments: Table::new().with("x-queue-type", "quorum"), ..durable("q") };
    client.call(1, quorum()).await;
    for (declare, code) in [
        (queue::Declare { exclusive: true, ..quorum() }, 405),
        (queue::Declare { durable: false, ..quorum() }, 406),
        (queue::Declare { arguments: Table::new().with("x-max-age", "1h"), ..durable("new") }, 406),
        (queue::Declare { arguments: Table::new().with("x-dead-letter-exchange", 1), ..durable("new") }, 406),
        (durable("amq.gen-mine"), 403),
    ] {
        assert_eq!(client.refused(1, declare.clone()).await, code, "{declare:?}");
    }
    // What a kind does not know means nothing.
    let own = queue::Declare { arguments: Table::new().with("x-own", 1), ..durable("new") };
    assert!(matches!(client.call(1, own).await, Method::QueueDeclareOk(_)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn names_lose_their_line_ends_and_the_default_exchange_is_nobodys() {
    let world = World::started().await;
    let mut client = world.client().await;
    let answer = client.call(1, durable("a\r\nname")).await;
    assert!(matches!(&answer, Method::QueueDeclareOk(ok) if ok.queue == "aname"), "{answer:?}");
    // Whoever only uses a queue must name it as it is.
    let get = basic::Get { queue: ShortStr::from_static("a\nname"), ..basic::Get::default() };
    assert_eq!(client.refused(1, get).await, 404);
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
