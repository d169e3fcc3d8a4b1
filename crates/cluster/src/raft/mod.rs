//! Everything that touches the consensus library. Nothing of it leaves this crate.
//!
//! * [`types`]: our types in its terms.
//! * [`codec`]: votes, log ids, memberships and entries as bytes.
//! * [`log`]: the Raft log of one shard over the shared journal.
//! * [`machine`]: the shard as its state machine.
//! * [`rpc`], [`network`]: its messages over our transport.
//! * [`runtime`], [`watch`]: tokio as its runtime.

pub(crate) mod codec;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod rpc;
pub(crate) mod runtime;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod watch;
