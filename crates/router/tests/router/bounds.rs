//! What is refused, and that every loop ends.

use weir_model::routing::Destination;
use weir_router::limits::{EXCHANGE_HOPS_MAX, HASH_WEIGHT_MAX, ROUTING_KEY_BYTES_MAX};
use weir_router::{InvalidBinding, NoSuchExchange, Route, Routed, Router, RouterError};

use super::{binding, exchange, queue, routed};

/// Exchanges `0`, `1`, ... each bound to the next, and a queue `end` bound to the last.
fn chain(length: usize) -> Router {
    let name = |number: usize| number.to_string();
    let exchanges = (0..length).map(|number| exchange(&name(number), "fanout", vec![]));
    let links = (1..length).map(|number| (name(number - 1), Destination::Exchange(name(number))));
    let bindings = links.chain([(name(length - 1), queue("end"))]);
    Router::build(["end"], exchanges, bindings.map(|(from, to)| (binding(&from, to, "", vec![]), 0)))
        .expect("all of it is there")
}

#[test]
fn a_message_goes_so_many_hops_and_says_when_it_would_go_further() {
    let mut route = Route::new();
    for (length, arrives) in [(EXCHANGE_HOPS_MAX + 1, true), (EXCHANGE_HOPS_MAX + 2, false)] {
        chain(length).route(&Routed::new("0", &[b""]), &mut route).unwrap();
        assert_eq!((!route.is_empty(), route.is_cut_short()), (arrives, !arrives));
    }
    // The next message does not remember it.
    chain(1).route(&Routed::new("0", &[b""]), &mut route).unwrap();
    assert!(!route.is_cut_short());
}

#[test]
fn everything_bound_to_everything_ends_and_gives_each_queue_once() {
    let names: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    let exchanges = names.iter().map(|name| exchange(name, "fanout", vec![]));
    let ends = || names.iter().flat_map(|name| [queue(name), Destination::Exchange(name.clone())]);
    let bindings = names.iter().flat_map(|from| ends().map(move |to| (binding(from, to, "", vec![]), 0)));
    let router = Router::build(names.iter().map(String::as_str), exchanges, bindings).unwrap();
    assert_eq!(routed(&router, "7", "").len(), names.len());
}

#[test]
fn keys_and_weights_have_bounds() {
    let exchanges = [exchange("d", "direct", vec![]), exchange("ring", "x-consistent-hash", vec![])];
    let router = Router::build(["q"], exchanges, []).unwrap();
    let bind =
        |source: &str, key: &str| router.with_binding(&binding(source, queue("q"), key, vec![]), 0).err();
    assert_eq!(bind("d", &"k".repeat(ROUTING_KEY_BYTES_MAX)), None);
    assert_eq!(
        bind("d", &"k".repeat(ROUTING_KEY_BYTES_MAX + 1)),
        Some(RouterError::LongKey(ROUTING_KEY_BYTES_MAX + 1))
    );
    assert_eq!(bind("ring", &HASH_WEIGHT_MAX.to_string()), None);
    for key in ["", "0", "-1", "1.5", "many", &(HASH_WEIGHT_MAX + 1).to_string()] {
        let why = InvalidBinding::Weight(key.into());
        assert_eq!(bind("ring", key), Some(RouterError::InvalidBinding { exchange: "ring".into(), why }));
    }
}

#[test]
fn what_is_not_there_is_told() {
    let router = Router::build(["q"], [exchange("d", "direct", vec![])], []).unwrap();
    let bind = |source: &str, to| router.with_binding(&binding(source, to, "k", vec![]), 0).err();
    let to_exchange = |name: &str| Destination::Exchange(name.into());
    assert_eq!(bind("x", queue("q")), Some(RouterError::NoSuchExchange("x".into())));
    assert_eq!(bind("d", queue("x")), Some(RouterError::NoSuchQueue("x".into())));
    assert_eq!(bind("d", to_exchange("x")), Some(RouterError::NoSuchExchange("x".into())));
    assert_eq!(bind("", queue("q")), Some(RouterError::DefaultExchange));
    assert_eq!(bind("d", to_exchange("")), Some(RouterError::DefaultExchange));
    assert_eq!(
        router.with_exchange(exchange("", "direct", vec![])).err(),
        Some(RouterError::DefaultExchange)
    );
    let other = router.with_exchange(exchange("d", "topic", vec![]));
    assert_eq!(
        other.err().map(|error| error.to_string()).as_deref(),
        Some("the exchange 'd' is direct already and cannot become topic")
    );
    let published = router.route(&Routed::new("x", &[b"k"]), &mut Route::new());
    assert_eq!(published, Err(NoSuchExchange));
    assert!(router.exchange("d").is_some() && router.exchange("").is_none());
}

#[test]
fn keys_need_not_be_text() {
    let router = Router::build(["q"], [exchange("d", "direct", vec![])], []).unwrap();
    let mut route = Route::new();
    for keys in [&[b"\xff\xfe".as_slice()][..], &[]] {
        for exchange in ["", "d"] {
            router.route(&Routed::new(exchange, keys), &mut route).unwrap();
            assert!(route.is_empty());
        }
    }
}
