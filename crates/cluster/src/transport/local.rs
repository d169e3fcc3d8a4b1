//! Calls between nodes of one process, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use weir_model::NodeId;

use super::{Line, Transport, TransportError, TransportFuture};
use crate::Node;

/// Decides whether a call between two nodes gets through.
pub type Intercept = Arc<dyn Fn(NodeId, NodeId, Line) -> bool + Send + Sync>;

/// Connects nodes of one process. Each node takes its own end by [`LocalTransport::end`].
#[derive(Clone, Default)]
pub struct LocalTransport {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    nodes: BTreeMap<NodeId, Weak<Node>>,
    cut: BTreeSet<(NodeId, NodeId)>,
    intercept: Option<Intercept>,
}

impl LocalTransport {
    /// Nobody is connected yet.
    pub fn new() -> LocalTransport {
        LocalTransport::default()
    }

    /// The end that a node calls through.
    pub fn end(&self, node: NodeId) -> Arc<dyn Transport> {
        Arc::new(LocalEnd { from: node, shared: Arc::clone(&self.shared) })
    }

    /// From here on calls to the node arrive there.
    pub fn connect(&self, node: &Arc<Node>) {
        self.shared.lock().nodes.insert(node.node_id(), Arc::downgrade(node));
    }

    /// Calls to the node fail from here on.
    pub fn disconnect(&self, node: NodeId) {
        self.shared.lock().nodes.remove(&node);
    }

    /// Cuts a node off from all others, or lets it through again.
    pub fn isolate(&self, node: NodeId, others: &[NodeId], cut: bool) {
        let mut shared = self.shared.lock();
        for other in others.iter().filter(|other| **other != node) {
            for pair in [(node, *other), (*other, node)] {
                if cut {
                    shared.cut.insert(pair);
                } else {
                    shared.cut.remove(&pair);
                }
            }
        }
    }

    /// Asks before each call whether it gets through.
    pub fn intercept(&self, intercept: Option<Intercept>) {
        self.shared.lock().intercept = intercept;
    }
}

struct LocalEnd {
    from: NodeId,
    shared: Arc<Mutex<Shared>>,
}

impl Transport for LocalEnd {
    fn call(&self, to: NodeId, line: Line, request: Vec<Bytes>) -> TransportFuture<'_> {
        Box::pin(async move {
            let node = {
                let shared = self.shared.lock();
                let open = !shared.cut.contains(&(self.from, to))
                    && shared.intercept.as_ref().is_none_or(|passes| passes(self.from, to, line));
                if open { shared.nodes.get(&to).and_then(Weak::upgrade) } else { None }
            };
            let Some(node) = node else { return Err(TransportError::Unreachable(to)) };
            Ok(node.handle_call(self.from, line, join(request)).await)
        })
    }
}

/// The chunks in one piece, as they arrive over a real connection.
fn join(chunks: Vec<Bytes>) -> Bytes {
    let mut all = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
    all.freeze()
}
