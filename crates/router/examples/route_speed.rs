//! What routing costs on this machine: messages a second through a topic exchange with ten thousand bindings,
//! and through simpler ones beside it, and what it costs to bind them one by one.
//!
//! `cargo run --release -p weir-router --example route_speed`

#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_model::routing::{BindingMeta, Destination, ExchangeMeta};
use weir_router::{Route, Routed, Router};

const BINDINGS: u64 = 10_000;
const MESSAGES: usize = 1_000_000;
const SITES: u64 = 100;

fn exchange(name: &str) -> Arc<ExchangeMeta> {
    let declared = ExchangeMeta::declared("/".into(), name.into(), name, vec![]);
    Arc::new(declared.expect("a kind of exchange"))
}

fn binding(source: &str, queue: u64, key: String) -> Arc<BindingMeta> {
    let destination = Destination::Queue(queue.to_string());
    Arc::new(BindingMeta::new("/".into(), source.into(), destination, Bytes::from(key), vec![]))
}

/// Every device's own pattern; one in a hundred watches its whole site, one in a thousand everything of
/// one sort.
fn pattern(device: u64) -> String {
    let site = device % SITES;
    match device {
        _ if device % 1_000 == 999 => format!("#.alarm{}", device / 1_000),
        _ if device % 100 == 99 => format!("site{site}.#"),
        _ => format!("site{site}.device{device}.*"),
    }
}

fn key(number: u64) -> String {
    let device = number % BINDINGS;
    format!("site{}.device{device}.alarm{}", device % SITES, number % 20)
}

fn measure(what: &str, router: &Router, exchange: &str, keys: &[Vec<u8>]) {
    let mut route = Route::new();
    let mut copies = 0;
    let start = Instant::now();
    for number in 0..MESSAGES {
        let key = &keys[number % keys.len()][..];
        router.route(&Routed::new(exchange, &[key]), &mut route).expect("the exchange is there");
        copies += route.queues().len();
    }
    let seconds = start.elapsed().as_secs_f64();
    let (rate, each) = (MESSAGES as f64 / seconds, 1e9 * seconds / MESSAGES as f64);
    let copies = copies as f64 / MESSAGES as f64;
    println!("{what:40} {rate:10.0} messages/s, {each:6.0} ns each, to {copies:.2} queues");
}

fn main() {
    let names: Vec<String> = (0..BINDINGS).map(|number| number.to_string()).collect();
    let exchanges = ["topic", "direct", "fanout"].map(exchange);
    let empty = Router::build(names.iter().map(String::as_str), exchanges, []).expect("nothing is missing");

    let start = Instant::now();
    let mut router = empty;
    for device in 0..BINDINGS {
        let bound = binding("topic", device, pattern(device));
        router = router.with_binding(&bound, device).expect("both ends are there");
    }
    let microseconds = 1e6 * start.elapsed().as_secs_f64() / BINDINGS as f64;
    println!("{BINDINGS} topic bindings one by one: {microseconds:.1} us each");
    for device in 0..BINDINGS {
        let bound = binding("direct", device, device.to_string());
        router = router.with_binding(&bound, device).expect("both ends are there");
    }
    for device in 0..10 {
        let bound = binding("fanout", device, String::new());
        router = router.with_binding(&bound, device).expect("both ends are there");
    }

    // Strides that are coprime with the number of devices, so that neighbours are not asked for in turn.
    let keys: Vec<Vec<u8>> = (0..BINDINGS).map(|number| key(number * 7_919).into_bytes()).collect();
    let plain: Vec<Vec<u8>> = (0..BINDINGS).map(|n| (n * 7_919 % BINDINGS).to_string().into_bytes()).collect();
    measure("topic exchange, 10,000 bindings", &router, "topic", &keys);
    measure("direct exchange, 10,000 bindings", &router, "direct", &plain);
    measure("fanout exchange, 10 bindings", &router, "fanout", &plain);
    measure("default exchange, 10,000 queues", &router, "", &plain);
}
