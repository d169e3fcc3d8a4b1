//! Which other nodes there are live connections with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use weir_model::NodeId;

/// Counts connections, and tells when a node gets its first or loses its last.
pub(crate) struct Liveness {
    counts: Mutex<BTreeMap<NodeId, usize>>,
    nodes: watch::Sender<BTreeSet<NodeId>>,
}

impl Liveness {
    pub(crate) fn new() -> Arc<Liveness> {
        Arc::new(Liveness { counts: Mutex::default(), nodes: watch::Sender::default() })
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.nodes.subscribe()
    }

    /// There is a connection with the node, until what this returns is dropped.
    pub(crate) fn enter(self: &Arc<Liveness>, node: NodeId) -> Live {
        let mut counts = self.counts.lock();
        *counts.entry(node).or_default() += 1;
        self.nodes.send_if_modified(|nodes| nodes.insert(node));
        Live { liveness: Arc::clone(self), node }
    }
}

/// One connection.
pub(crate) struct Live {
    liveness: Arc<Liveness>,
    node: NodeId,
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut counts = self.liveness.counts.lock();
        let Some(count) = counts.get_mut(&self.node) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.node);
            self.liveness.nodes.send_if_modified(|nodes| nodes.remove(&self.node));
        }
    }
}
