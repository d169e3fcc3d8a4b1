//! The Kafka front: sessions over the broker.
