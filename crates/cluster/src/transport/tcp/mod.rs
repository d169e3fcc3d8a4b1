//! Calls between nodes over TCP, or TLS over it.
//!
//! A node connects to each of its peers twice: once for the lines of shards, and once for the service, so that a large
//! append holds up nothing else. Calls go only in the direction in which a connection was made; what a peer asks of this
//! node comes over connections that it makes. Either begins with a handshake, by which both know that they are of one
//! cluster and who is who ([`handshake`]), and goes on with frames ([`frame`]).
//!
//! * [`TcpTransport`] has one [`link::Link`] per peer and purpose, which connects again whenever the connection breaks.
//! * [`TcpListening`] takes the connections of others. It is opened before there is a node, because a cluster that
//!   is being formed is agreed on over the same port ([`form`](crate::form)).
//!
//! A peer that says nothing for [`wire::SILENCE_MAX`] is given up, whether its machine is gone, its process stands still,
//! or the network between drops everything.

mod answers;
pub(crate) mod anything;
mod calls;
pub(crate) mod frame;
pub(crate) mod greeting;
pub(crate) mod handshake;
pub(crate) mod link;
mod listening;
mod liveness;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod told;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use weir_model::{Incarnation, NodeId};

pub use answers::CallHandler;
pub use listening::TcpListening;
pub use tls::{PeerTls, PeerTlsFiles};

use crate::Node;
use crate::identity::Identity;
use crate::transport::{Line, Transport, TransportError, TransportFuture};
use handshake::Purpose;
use link::Link;
use liveness::Liveness;

/// What a [`TcpTransport`] needs to know.
#[derive(Clone, Debug)]
pub struct TcpTransportOptions {
    /// Who this node is, of a cluster that has been formed. Others refuse it otherwise.
    pub identity: Identity,
    /// Where the other nodes are, as `host:port`; names are looked up at every connect. The node itself may be among
    /// them, and is not connected to.
    pub peers: BTreeMap<NodeId, String>,
    /// Without it, whoever reaches the ports can say that he is a node.
    pub tls: Option<Arc<PeerTls>>,
    /// What the random part of pauses between tries is drawn from.
    pub seed: u64,
}

/// Calls to other nodes over TCP. Dropping it ends its connections.
pub struct TcpTransport {
    shared: Arc<Shared>,
}

/// What a transport, its links and its listener share.
pub(crate) struct Shared {
    identity: Identity,
    tls: Option<Arc<PeerTls>>,
    seed: u64,
    liveness: Arc<Liveness>,
    told: greeting::ToldPeers,
    peers: Mutex<Peers>,
    /// Who is served, once that is so.
    node: OnceLock<Weak<Node>>,
}

#[derive(Default)]
struct Peers {
    addresses: BTreeMap<NodeId, String>,
    links: BTreeMap<(NodeId, Purpose), Arc<Link>>,
    /// Connections of others; dropping the sender ends one.
    incoming: BTreeMap<(NodeId, Purpose), (u64, oneshot::Sender<()>)>,
    incoming_last: u64,
    /// Whether connections are kept even if nobody calls.
    are_kept: bool,
}

impl TcpTransport {
    /// Connects to nobody yet: to a peer with the first call to it, and to all once the listener serves.
    pub fn new(options: TcpTransportOptions) -> Arc<TcpTransport> {
        let TcpTransportOptions { identity, peers, tls, seed } = options;
        let shared = Shared {
            identity,
            tls,
            seed,
            liveness: Liveness::new(),
            told: Mutex::default(),
            peers: Mutex::default(),
            node: OnceLock::new(),
        };
        let transport = TcpTransport { shared: Arc::new(shared) };
        transport.set_peers(peers);
        Arc::new(transport)
    }

    /// From here on these are the peers. Connections with those that are gone, and to those whose address is another,
    /// end, and so do the calls on them.
    pub fn set_peers(&self, mut peers: BTreeMap<NodeId, String>) {
        peers.remove(&self.shared.identity.node);
        let closed: Vec<Arc<Link>> = {
            let mut state = self.shared.peers.lock();
            state.addresses = peers;
            let Peers { addresses, links, incoming, .. } = &mut *state;
            incoming.retain(|(node, _), _| addresses.contains_key(node));
            links
                .extract_if(.., |(node, _), link| addresses.get(node) != Some(&link.address))
                .map(|(_, link)| link)
                .collect()
        };
        closed.iter().for_each(|link| link.close());
        let are_kept = self.shared.peers.lock().are_kept;
        if are_kept {
            self.keep_connections();
        }
    }

    /// The other nodes with which there is a live connection for the lines of shards, be it one that they made or one
    /// that this node made. A node that stands still or is cut off is gone from it after 3 s at most.
    pub fn connected(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.shared.liveness.subscribe()
    }

    /// From here on there are connections to all peers, whether somebody calls them or not.
    pub(crate) fn keep_connections(&self) {
        let nodes: Vec<NodeId> = {
            let mut state = self.shared.peers.lock();
            state.are_kept = true;
            state.addresses.keys().copied().collect()
        };
        for node in nodes {
            drop(self.link(node, Purpose::Shards));
        }
    }

    fn link(&self, to: NodeId, purpose: Purpose) -> Option<Arc<Link>> {
        let mut state = self.shared.peers.lock();
        let Peers { addresses, links, .. } = &mut *state;
        let address = addresses.get(&to)?;
        let link =
            links.entry((to, purpose)).or_insert_with(|| Link::open(&self.shared, to, purpose, address));
        Some(Arc::clone(link))
    }
}

impl Transport for TcpTransport {
    fn call(&self, to: NodeId, line: Line, request: Vec<Bytes>) -> TransportFuture<'_> {
        let purpose = match line {
            Line::Shard(_) => Purpose::Shards,
            Line::Service => Purpose::Service,
        };
        Box::pin(async move {
            match self.link(to, purpose) {
                Some(link) => link.call(line, request).await,
                None => Err(TransportError::Unreachable(to)),
            }
        })
    }

    fn connected(&self) -> Option<watch::Receiver<BTreeSet<NodeId>>> {
        Some(TcpTransport::connected(self))
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.shared.peers.lock().links);
        links.values().for_each(|link| link.close());
    }
}

impl Shared {
    fn is_peer(&self, node: NodeId) -> bool {
        self.peers.lock().addresses.contains_key(&node)
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }

    /// Which incarnation of a node counts, as far as is known here.
    fn incarnation_of(&self, node: NodeId) -> Incarnation {
        self.node().map_or(Incarnation::FIRST, |own| own.incarnation_of(node))
    }

    /// Notes a connection that another node made. One that it made before for the same has been given up by it, and ends.
    fn register(self: &Arc<Shared>, from: NodeId, purpose: Purpose) -> Option<Incoming> {
        let (ended, end) = oneshot::channel();
        let mut peers = self.peers.lock();
        if !peers.addresses.contains_key(&from) {
            return None;
        }
        peers.incoming_last += 1;
        let serial = peers.incoming_last;
        let key = (from, purpose);
        peers.incoming.insert(key, (serial, ended));
        Some(Incoming { shared: Arc::clone(self), key, serial, end })
    }
}

/// A connection that another node made.
struct Incoming {
    shared: Arc<Shared>,
    key: (NodeId, Purpose),
    serial: u64,
    /// Resolves when it is to end.
    end: oneshot::Receiver<()>,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut peers = self.shared.peers.lock();
        if peers.incoming.get(&self.key).is_some_and(|(serial, _)| *serial == self.serial) {
            peers.incoming.remove(&self.key);
        }
    }
}
