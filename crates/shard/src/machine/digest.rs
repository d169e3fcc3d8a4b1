//! A number that two replicas agree on exactly if their states agree: a fold over the encoded form
//! of every chunk. Chunks keep theirs until they change, so that taking one costs what has changed
//! since the last.

use std::sync::Arc;

use super::Machine;
use super::codec::{self, ChunkId, ChunkKind};

/// Folds bytes into 64 bits. Not cryptographic: it guards against mistakes and broken memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold(u64);

impl Fold {
    pub(crate) fn new() -> Fold {
        Fold(0x243f_6a88_85a3_08d3)
    }

    pub(crate) fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(23);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.word(u64::from_le_bytes(word));
        }
    }

    pub(crate) fn finish(self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

fn digest_of(bytes: &[u8]) -> u64 {
    let mut fold = Fold::new();
    fold.bytes(bytes);
    fold.finish()
}

impl Machine {
    /// The digest of the whole state as it is now.
    pub fn digest(&mut self) -> u64 {
        let mut fold = Fold::new();
        let mut chunk = |id: ChunkId, digest: u64| {
            fold.word(id.kind as u64);
            fold.word(id.key);
            fold.word(digest);
        };
        let root = self.root.digest(|root| digest_of(&codec::encode_root(root)));
        chunk(ChunkId { kind: ChunkKind::Root, key: 0 }, root);
        for (key, topics) in Arc::make_mut(&mut self.catalog).chunks_mut() {
            let digest = topics.digest(|topics| digest_of(&codec::encode_topics(topics)));
            chunk(ChunkId { kind: ChunkKind::Topics, key }, digest);
        }
        for (key, partitions) in &mut self.partitions {
            let digest = partitions.digest(|partitions| digest_of(&codec::encode_partitions(partitions)));
            chunk(ChunkId { kind: ChunkKind::Partitions, key: *key }, digest);
        }
        let closed = self.closed.digest(|closed| digest_of(&codec::encode_closed(closed)));
        chunk(ChunkId { kind: ChunkKind::Closed, key: 0 }, closed);
        for (key, groups) in self.groups.chunks_mut() {
            let digest = groups.digest(|groups| digest_of(&codec::encode_groups(groups)));
            chunk(ChunkId { kind: ChunkKind::Groups, key }, digest);
        }
        for (key, subscriptions) in &mut self.subscriptions {
            let digest = subscriptions.digest(|all| digest_of(&codec::encode_subscriptions(all)));
            chunk(ChunkId { kind: ChunkKind::Subscriptions, key: *key }, digest);
        }
        for (key, timers) in &mut self.timers {
            let digest = timers.digest(|all| digest_of(&codec::encode_timers(all)));
            chunk(ChunkId { kind: ChunkKind::Timers, key: *key }, digest);
        }
        for (key, windows) in &mut self.windows {
            let digest = windows.digest(|all| digest_of(&codec::encode_windows(all)));
            chunk(ChunkId { kind: ChunkKind::Windows, key: *key }, digest);
        }
        for (key, queues) in Arc::make_mut(&mut self.catalog).queue_chunks_mut() {
            let digest = queues.digest(|all| digest_of(&codec::encode_queues(all)));
            chunk(ChunkId { kind: ChunkKind::Queues, key }, digest);
        }
        let topology = Arc::make_mut(&mut self.topology);
        for (key, exchanges) in topology.exchange_chunks_mut() {
            let digest = exchanges.digest(|all| digest_of(&codec::encode_exchanges(all)));
            chunk(ChunkId { kind: ChunkKind::Exchanges, key }, digest);
        }
        for (key, bindings) in topology.binding_chunks_mut() {
            let digest = bindings.digest(|all| digest_of(&codec::encode_bindings(all)));
            chunk(ChunkId { kind: ChunkKind::Bindings, key }, digest);
        }
        if let Some(policies) = topology.policy_chunk_mut() {
            let digest = policies.digest(|all| digest_of(&codec::encode_policies(all)));
            chunk(ChunkId { kind: ChunkKind::Policies, key: 0 }, digest);
        }
        if self.nodes.chunk().is_some()
            && let Some(nodes) = Arc::make_mut(&mut self.nodes).chunk_mut()
        {
            let digest = nodes.digest(|all| digest_of(&codec::encode_nodes(all)));
            chunk(ChunkId { kind: ChunkKind::Nodes, key: 0 }, digest);
        }
        if self.nodes.incarnation_chunk().is_some()
            && let Some(given) = Arc::make_mut(&mut self.nodes).incarnation_chunk_mut()
        {
            let digest = given.digest(|all| digest_of(&codec::encode_incarnations(all)));
            chunk(ChunkId { kind: ChunkKind::Incarnations, key: 0 }, digest);
        }
        if self.accounts.mark().is_some() {
            let accounts = Arc::make_mut(&mut self.accounts);
            if let Some(mark) = accounts.mark_mut() {
                let digest = mark.digest(|_| digest_of(&codec::encode_access()));
                chunk(ChunkId { kind: ChunkKind::Access, key: 0 }, digest);
            }
            for (key, namespaces) in accounts.namespace_chunks_mut() {
                let digest = namespaces.digest(|all| digest_of(&codec::encode_namespaces(all)));
                chunk(ChunkId { kind: ChunkKind::Namespaces, key }, digest);
            }
            for (key, users) in accounts.account_chunks_mut() {
                let digest = users.digest(|all| digest_of(&codec::encode_accounts(all)));
                chunk(ChunkId { kind: ChunkKind::Accounts, key }, digest);
            }
        }
        fold.finish()
    }
}
