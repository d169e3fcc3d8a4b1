//! Everything that touches the consensus library. Nothing of it leaves this crate.
//!
//! * [`types`]: our types in its terms.
//! * [`abandoning`]: going on by force where a majority is lost.
//! * [`member`]: nodes and their incarnations as its ids.
//! * [`codec`]: votes, log ids, memberships and entries as bytes.
//! * [`log`]: the Raft log of one shard over the shared journal.
//! * [`machine`]: the shard as its state machine.
//! * [`rpc`], [`network`]: its messages over our transport.
//! * [`snapshot`]: giving a replica that is too far behind a copy of the shard.
//! * [`runtime`], [`watch`]: tokio as its runtime.

pub(crate) mod abandoning;
pub(crate) mod codec;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod network;
pub(crate) mod rpc;
pub(crate) mod runtime;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod watch;
