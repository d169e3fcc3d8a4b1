//! The Kafka front: sessions over the broker.
mod connection;
mod frames;
mod pipeline;
