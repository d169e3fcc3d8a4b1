//! The Kafka front: sessions over the broker.
mod connection;
mod fetch_sessions;
mod frames;
mod pipeline;
