//! Exchanges that hash: shares are as weights say, and in a consistent hash little moves when bindings come
//! and go.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_model::routing::ArgumentValue;
use weir_router::{Route, Routed, Router};

use super::{Carried, binding, exchange, queue, routed};

const MESSAGES: usize = 6_000;

/// Queues with their weights, bound in this order.
fn bound(shares: &[(&str, &str)]) -> Router {
    let bindings = shares.iter().map(|(name, weight)| binding("ring", queue(name), weight, vec![]));
    let ring = [exchange("ring", "x-consistent-hash", vec![])];
    Router::build(shares.iter().map(|(name, _)| *name), ring, bindings.zip(1..)).expect("all of it is there")
}

/// The queue of every message.
fn placed(router: &Router) -> Vec<String> {
    (0..MESSAGES)
        .map(|number| {
            let queues = routed(router, "ring", &format!("order {number}"));
            assert_eq!(queues.len(), 1);
            queues.into_iter().next().unwrap_or_default()
        })
        .collect()
}

#[test]
fn queues_get_as_much_as_their_weights_say() {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for queue in placed(&bound(&[("one", "1"), ("two", "2"), ("three", "3")])) {
        *counts.entry(queue).or_default() += 1.0;
    }
    for (queue, share) in [("one", 1_000.0), ("two", 2_000.0), ("three", 3_000.0)] {
        assert!((counts[queue] - share).abs() < 5.0 * f64::sqrt(share), "{counts:?}");
    }
}

#[test]
fn other_sources_of_hashes_spread_as_evenly() {
    let queues = ["one", "two", "three"];
    let header = |name: &str, value: &str| vec![(name.to_owned(), ArgumentValue::text(value))];
    let exchanges = [
        exchange("time", "x-consistent-hash", header("hash-property", "timestamp")),
        exchange("number", "x-consistent-hash", header("hash-header", "number")),
        exchange("modulus", "x-modulus-hash", vec![]),
    ];
    let names = ["time", "number", "modulus"];
    let bindings =
        names.iter().flat_map(|name| queues.iter().map(|to| binding(name, queue(to), "1", vec![])));
    let router = Router::build(queues, exchanges, bindings.zip(1..)).expect("all of it is there");
    let mut route = Route::new();
    for name in names {
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for number in 0..MESSAGES as u64 {
            let headers = vec![(Bytes::from_static(b"number"), ArgumentValue::Integer(number as i64))];
            let carried = Carried { headers, timestamp: Some(number), ..Carried::default() };
            let key = number.to_string();
            let keys = [key.as_bytes()];
            let message = Routed { properties: &carried, ..Routed::new(name, &keys) };
            router.route(&message, &mut route).expect("it is there");
            *counts.entry(super::queues(&route).into_iter().collect()).or_default() += 1.0;
        }
        for queue in queues {
            assert!((counts[queue] - 2_000.0).abs() < 5.0 * f64::sqrt(2_000.0), "{name}: {counts:?}");
        }
    }
}

#[test]
fn a_queue_that_comes_or_goes_at_the_end_moves_only_its_own_messages() {
    // At the end in the order of binding, whatever the names.
    let before = placed(&bound(&[("m", "1"), ("z", "1"), ("k", "1")]));
    let with_one_more = bound(&[("m", "1"), ("z", "1"), ("k", "1"), ("a", "2")]);
    for (before, after) in before.iter().zip(placed(&with_one_more)) {
        assert!(after == "a" || after == *before);
    }
    let without_it = with_one_more.without_queue("a").router;
    assert_eq!(before, placed(&without_it));
}

#[test]
fn the_order_of_binding_counts_and_not_the_order_of_building() {
    let shares = [("z", "1"), ("m", "2"), ("a", "1")];
    let in_order = placed(&bound(&shares));
    let mut backwards = Router::new().with_exchange(exchange("ring", "x-consistent-hash", vec![])).unwrap();
    let numbered: Vec<_> = shares.into_iter().zip(1..).collect();
    for ((name, weight), serial) in numbered.into_iter().rev() {
        let bound = binding("ring", queue(name), weight, vec![]);
        backwards = backwards.with_queue(name).with_binding(&bound, serial).unwrap();
    }
    assert_eq!(in_order, placed(&backwards));
}
