//! What is fuzzed: every parser of bytes from outside, as plain functions.
//!
//! A target is a file in `targets/` with two functions and a line in the table there. `run` takes any bytes and
//! panics if the parser breaks a promise; `seeds` gives inputs made by our own encoders, from which mutation
//! starts. The same targets run in two ways:
//!
//! - `cargo run -p weir-fuzz-targets -- --seconds 10` mutates the seeds on the stable toolchain, without looking
//!   at coverage. It is short, repeatable by its seed, and part of the tests.
//! - The package in `fuzz/` wraps each target for libFuzzer, which follows coverage and runs for as long as one
//!   likes. It needs a nightly toolchain and `cargo-fuzz`; its `Cargo.toml` names the targets once more.
//!
//! Both print the input that broke a promise, and `--reproduce FILE --target NAME` runs one input alone.

mod campaign;
mod mutation;
mod targets;
#[cfg(test)]
mod tests;

pub use campaign::{Campaign, Failure};
pub use mutation::Mutator;
pub use targets::{TARGETS, Target};

/// Runs the target of this name on one input; this is what libFuzzer calls.
pub fn run(name: &str, data: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.run)(data),
        None => panic!("there is no fuzz target named {name}"),
    }
}
