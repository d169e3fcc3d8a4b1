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
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use weir_model::node::CLUSTER_LISTENER;
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

/// How often it is looked whether the catalog names other nodes, or other addresses.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// What a [`TcpTransport`] needs to know.
#[derive(Clone, Debug)]
pub struct TcpTransportOptions {
    /// Who this node is, of a cluster that has been formed. Others refuse it otherwise.
    pub identity: Identity,
    /// Where the other nodes are, as `host:port`; names are looked up at every connect. The node itself may be among
    /// them, and is not connected to.
    pub peers: BTreeMap<NodeId, String>,
    /// Where others were said to be. What they say of themselves counts more.
    pub told: BTreeMap<NodeId, String>,
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
    logged: greeting::ToldPeers,
    /// Where the operator says that peers are, and where others were said to be.
    given: BTreeMap<NodeId, String>,
    told: BTreeMap<NodeId, String>,
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
        let TcpTransportOptions { identity, peers: given, told, tls, seed } = options;
        let peers = all_peers(&told, BTreeMap::new(), &given);
        let shared = Shared {
            identity,
            tls,
            seed,
            liveness: Liveness::new(),
            logged: Mutex::default(),
            given,
            told,
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

    /// Keeps the peers those that the catalog has, for as long as the node is there.
    pub(crate) async fn follow_catalog(&self, node: Weak<Node>) {
        let mut known = self.shared.peers.lock().addresses.clone();
        loop {
            let Some(node) = node.upgrade() else { return std::future::pending().await };
            let nodes = node.registry();
            drop(node);
            let registered = nodes.iter().filter_map(|node| {
                let address = node.meta.advertised.get(CLUSTER_LISTENER)?;
                Some((node.meta.id, address.to_string()))
            });
            let mut peers = all_peers(&self.shared.told, registered.collect(), &self.shared.given);
            peers.retain(|node, _| *node != self.shared.identity.node && !nodes.is_removed(*node));
            if peers != known {
                self.set_peers(peers.clone());
                known = peers;
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
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

/// Of several places where a node may be, what it says itself counts more than what others once said of it, and what the
/// operator says most.
fn all_peers(
    told: &BTreeMap<NodeId, String>,
    registered: BTreeMap<NodeId, String>,
    given: &BTreeMap<NodeId, String>,
) -> BTreeMap<NodeId, String> {
    let mut peers = told.clone();
    peers.extend(registered);
    peers.extend(given.clone());
    peers
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
    /// Where nodes are, for one that asks: this one as well, if the others are told.
    fn addresses(&self) -> BTreeMap<NodeId, String> {
        let mut addresses = self.peers.lock().addresses.clone();
        let own = self.identity.node;
        let said = self.node().and_then(|node| {
            Some(node.registry().node(own)?.meta.advertised.get(CLUSTER_LISTENER)?.to_string())
        });
        if let Some(said) = said.or_else(|| self.given.get(&own).cloned()) {
            addresses.insert(own, said);
        }
        addresses
    }

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

    /// Whether one says hello that was of this cluster and is no more.
    fn is_removed(&self, hello: &handshake::Hello) -> bool {
        let is_ours = hello.purpose.goes_on() && hello.cluster == self.identity.cluster;
        is_ours
            && self.node().is_some_and(|node| {
                let nodes = node.registry();
                nodes.is_removed(hello.from) && hello.incarnation < nodes.incarnation(hello.from)
            })
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
