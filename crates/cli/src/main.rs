//! The weir binary: serve, and every verb an operator needs.

fn main() {}
