//! The Kafka front: sessions over the broker.
//!
//! It turns frames into requests, asks the broker, and turns what the broker says into answers, in the
//! order in which the connection asked. It keeps nothing that must survive: a connection's place in its
//! stream and the fetch sessions, both of which clients rebuild by themselves. The wire format itself is
//! `weir-kafka-wire`'s business, and what a request means for topics, logs and groups is `weir-broker`'s.
//!
//! * [`KafkaFront`]: the listener.
//! * `connection`, `frames`, `pipeline`: bytes, frames, and the order of answers; they know no message.
//! * `session`: one connection's requests, each sent where the table in `apis` says.
//! * `apis`: a handler for every API that is served. What is not in its table is neither served nor
//!   advertised.
//! * `sasl`: who the client is; `permission`: what it may do.
//! * `fetch_sessions`: what consumers need not repeat in every fetch.
//! * `request_memory`, `budget`: how much memory requests, and answers that slow readers take, may have.
//! * `errors`: the broker's errors in Kafka's codes.

mod apis;
mod budget;
mod connection;
mod errors;
mod fetch_sessions;
mod frames;
mod front;
mod metrics;
mod permission;
mod pipeline;
mod request_memory;
mod sasl;
mod session;
mod socket;

pub use front::{KafkaFront, KafkaFrontOptions};
