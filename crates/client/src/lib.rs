//! The Rust SDK: producers, consumers and groups.
