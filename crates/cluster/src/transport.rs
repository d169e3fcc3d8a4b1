//! How nodes reach each other: bytes to a node's shard, bytes back.
//!
//! What the bytes mean is this crate's business; a transport only carries them. It may lose a call
//! or answer late, but never alters bytes, and never delivers a call to another node or shard than
//! the one named.

mod local;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use weir_model::{NodeId, ShardId};

pub use local::{Intercept, LocalTransport};

/// A future that a transport returns.
pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = Result<Bytes, TransportError>> + Send + 'a>>;

/// Longest request or answer that is ever handed to a transport: one append of 4 MiB of entries, or
/// one that is larger by itself, with room for headers.
pub const RPC_BYTES_MAX: usize = 128 << 20;

/// Carries calls to other nodes. The receiving side hands them to [`Node::handle_rpc`].
///
/// [`Node::handle_rpc`]: crate::Node::handle_rpc
pub trait Transport: Send + Sync {
    /// Carries one call. `request` is chunks to be sent behind each other. Calls of one shard to
    /// one node should arrive in the order in which they were made; if they do not, only time is lost.
    fn call(&self, to: NodeId, shard: ShardId, request: Vec<Bytes>) -> TransportFuture<'_>;
}

/// The transport of a node that is alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn call(&self, to: NodeId, _: ShardId, _: Vec<Bytes>) -> TransportFuture<'_> {
        Box::pin(async move { Err(TransportError::Unreachable(to)) })
    }
}

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No connection: not worth another try right away.
    #[error("node {0} cannot be reached")]
    Unreachable(NodeId),
    /// The call may or may not have arrived.
    #[error("the call to node {to} failed: {why}")]
    Failed {
        /// The node.
        to: NodeId,
        /// What happened.
        why: String,
    },
}
