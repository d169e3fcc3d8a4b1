//! Every bound of a router.

pub use weir_model::routing::ROUTING_KEY_BYTES_MAX;

/// Bindings that lead from one exchange. Each takes some hundred bytes on every node; a topic exchange
/// that a device farm subscribes to has about one per device.
pub const BINDINGS_PER_EXCHANGE_MAX: usize = 1_000_000;

/// How many bindings a message follows from exchange to exchange, one after the other. Each exchange is
/// visited once, so this bounds no loop, but the time that one message may take.
pub const EXCHANGE_HOPS_MAX: usize = 128;

/// Largest weight of a binding of a consistent-hash exchange. RabbitMQ had none for long and made a list
/// of as many elements (CVE-2026-67219); here a weight costs nothing, but the sum of all must stay below
/// what the hash can tell apart.
pub const HASH_WEIGHT_MAX: u32 = 1_000;
