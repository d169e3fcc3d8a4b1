//! How nodes reach each other: bytes to a node's shard, or to what is built on the shards, and bytes back.
//!
//! What the bytes mean is this crate's business; a transport only carries them. It may lose a call
//! or answer late, but never alters bytes, and never delivers a call to another node or line than
//! the one named.

mod local;
pub(crate) mod tcp;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use tokio::sync::watch;
use weir_model::{NodeId, ShardId};

pub use local::{Intercept, LocalTransport};

/// A future that a transport returns.
pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = Result<Bytes, TransportError>> + Send + 'a>>;

/// Longest request or answer that is ever handed to a transport: one append of 4 MiB of entries, or
/// one that is larger by itself, with room for headers.
pub const RPC_BYTES_MAX: usize = 128 << 20;

/// What a call is for. Calls on one line to one node should arrive in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Line {
    /// The node's replica of a shard. If calls overtake each other, only time is lost.
    Shard(ShardId),
    /// What is built on the shards there, see [`PeerService`].
    Service,
}

/// Carries calls to other nodes. The receiving side hands them to [`Node::handle_call`].
///
/// [`Node::handle_call`]: crate::Node::handle_call
pub trait Transport: Send + Sync {
    /// Carries one call. `request` is chunks to be sent behind each other. It is on its way, behind those before it,
    /// once the future has been polled.
    fn call(&self, to: NodeId, line: Line, request: Vec<Bytes>) -> TransportFuture<'_>;

    /// The other nodes with which there is a live connection; none where nobody watches that.
    fn connected(&self) -> Option<watch::Receiver<BTreeSet<NodeId>>> {
        None
    }
}

/// Answers what other nodes ask of whatever is built on the shards of this one.
pub trait PeerService: Send + Sync {
    /// Takes a call. What must happen in the order in which calls arrive happens before this returns; the future is
    /// what may take time, and runs beside those of other calls. An empty answer says that nothing could be made of it.
    fn take_call(&self, from: NodeId, request: Bytes) -> Pin<Box<dyn Future<Output = Bytes> + Send>>;
}

/// The transport of a node that is alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn call(&self, to: NodeId, _: Line, _: Vec<Bytes>) -> TransportFuture<'_> {
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
