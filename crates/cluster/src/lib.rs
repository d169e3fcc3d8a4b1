//! Raft groups over the shared journal, placement, and node-to-node transport.
//!
//! A [`Node`] is one process's replicas: one per shard, all over one journal. Whoever wants something
//! of a shard holds a [`ShardHandle`]. A single node is a cluster of one: the same code, without a
//! special path.
//!
//! No type of the consensus library leaves this crate, and nothing here reads a clock (the runtime's
//! and the [`Clock`] that is handed in excepted), draws random numbers that do not come from
//! [`NodeOptions::seed`], or, under [`Drive::Tasks`], starts a thread.

mod admission;
mod blocking;
mod checkpoint;
mod clock;
mod errors;
mod formation;
mod gathering;
mod handle;
mod identity;
mod joining;
mod journal;
mod leadership;
mod membership;
mod mending;
mod node;
mod options;
mod proposer;
mod raft;
mod relay;
mod replica;
mod segments;
mod takeover;
mod temporary;
mod transport;
mod vigilance;

pub use admission::Admission;
pub use clock::Clock;
pub use errors::{ProposeError, StartError};
pub use formation::{FormationError, Founding, form};
pub use handle::{PendingOutcome, PendingQueued, ShardHandle};
pub use identity::{CLUSTER_ID_BYTES_MAX, DATA_SHARDS_MAX, FOUNDERS_MAX, Identity, IdentityStore, Phase};
pub use joining::{Joined, Joining, SEEDS_MAX, join};
pub use leadership::Leadership;
pub use node::Node;
pub use options::{Drive, NodeOptions, OnFatal, RaftTiming};
pub use transport::tcp::{
    CallHandler, PeerTls, PeerTlsFiles, TcpListening, TcpTransport, TcpTransportOptions,
};
pub use transport::{
    Intercept, Line, LocalTransport, NoTransport, PeerService, RPC_BYTES_MAX, Transport, TransportError,
    TransportFuture,
};

/// Reads bytes as messages between nodes, whatever they are; for fuzzing.
#[doc(hidden)]
pub fn decode_rpc_anything(bytes: bytes::Bytes) {
    raft::rpc::decode_anything(bytes);
}

/// Valid messages between nodes, for fuzzing.
#[doc(hidden)]
pub fn rpc_seeds() -> Vec<Vec<u8>> {
    raft::rpc::seeds()
}

/// Reads bytes as frames of another node, whatever they are; for fuzzing.
#[doc(hidden)]
pub fn read_peer_frames_anything(bytes: &[u8]) {
    transport::tcp::anything::read_frames(bytes);
}

/// Reads bytes as a handshake of another node, whatever they are; for fuzzing.
#[doc(hidden)]
pub fn read_peer_handshake_anything(bytes: &[u8]) {
    transport::tcp::anything::read_handshake(bytes);
}

/// Valid frames between nodes, for fuzzing.
#[doc(hidden)]
pub fn peer_frame_seeds() -> Vec<Vec<u8>> {
    transport::tcp::anything::frame_seeds()
}

/// Valid handshakes between nodes, for fuzzing.
#[doc(hidden)]
pub fn peer_handshake_seeds() -> Vec<Vec<u8>> {
    transport::tcp::anything::handshake_seeds()
}
