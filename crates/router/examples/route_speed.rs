//! What routing costs on one processor of this machine: messages a second through a topic exchange with ten thousand bindings,
//! and through simpler ones beside it, and what it costs to bind them one by one.
//!
//! `cargo run --release -p weir-router --example route_speed`

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_model::routing::{BindingMeta, Destination, ExchangeMeta};
use weir_router::{Route, Routed, Router};

const BINDINGS: u64 = 10_000;
const MESSAGES: usize = 200_000;
const ROUNDS: usize = 10;
const SITES: u64 = 100;

/// Time that this thread has had a processor: a machine that others use too is measured fairly.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    Duration::from_nanos(
        text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default(),
    )
}

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

/// The best of some rounds: what others do on the machine costs this thread its caches as well.
fn measure(what: &str, router: &Router, exchange: &str, keys: &[Vec<u8>]) {
    let mut route = Route::new();
    let mut copies = 0;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        for number in 0..MESSAGES {
            let key = &keys[number % keys.len()][..];
            router.route(&Routed::new(exchange, &[key]), &mut route).expect("the exchange is there");
            copies += route.queues().len();
        }
        best = best.min((cpu_time() - start).as_secs_f64() / MESSAGES as f64);
    }
    let copies = copies as f64 / (ROUNDS * MESSAGES) as f64;
    println!("{what:36} {:10.0} messages/s, {:5.0} ns each, to {copies:.2} queues", 1.0 / best, 1e9 * best);
}

fn main() {
    let names: Vec<String> = (0..BINDINGS).map(|number| number.to_string()).collect();
    let exchanges = ["topic", "direct", "fanout"].map(exchange);
    let empty = Router::build(names.iter().map(String::as_str), exchanges, []).expect("nothing is missing");

    let start = cpu_time();
    let mut router = empty;
    for device in 0..BINDINGS {
        let bound = binding("topic", device, pattern(device));
        router = router.with_binding(&bound, device).expect("both ends are there");
    }
    let microseconds = 1e6 * (cpu_time() - start).as_secs_f64() / BINDINGS as f64;
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
    let plain: Vec<Vec<u8>> =
        (0..BINDINGS).map(|n| (n * 7_919 % BINDINGS).to_string().into_bytes()).collect();
    measure("topic exchange, 10,000 bindings", &router, "topic", &keys);
    measure("direct exchange, 10,000 bindings", &router, "direct", &plain);
    measure("fanout exchange, 10 bindings", &router, "fanout", &plain);
    measure("default exchange, 10,000 queues", &router, "", &plain);
}
