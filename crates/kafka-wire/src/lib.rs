//! The Kafka wire format: messages of every version that is served, without I/O.
