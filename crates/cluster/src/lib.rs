//! Raft groups over the shared journal, placement, and node-to-node transport.
