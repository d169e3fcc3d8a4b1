//! The port on which a node takes connections of others.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_socket::{Listener, Stream};

use super::answers::{CallHandler, answer_calls};
use super::greeting::{Verdict, receive};
use super::handshake::{Hello, Purpose, Reason, judge_incarnation, removed};
use super::tls::PeerTls;
use super::wire::FrameReader;
use super::{Shared, TcpTransport};
use crate::Node;
use crate::identity::{Identity, Phase};
use crate::transport::Line;

/// Connections that are open at a time. Peers take two each; those of whom nothing is known yet are gone after 5 s,
/// and until then others wait.
const CONNECTIONS_MAX: usize = 512;

/// Pause after a connection could not be accepted, for want of descriptors for example.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A port for other nodes, open. Nobody is answered before the cluster is being formed or a node is served: until then
/// connections wait.
#[derive(Debug)]
pub struct TcpListening {
    listener: Listener,
    tls: Option<Arc<PeerTls>>,
}

impl TcpListening {
    /// Opens the port. Port 0 takes a free one; see [`TcpListening::local_addr`].
    pub async fn bind(address: SocketAddr, tls: Option<Arc<PeerTls>>) -> io::Result<TcpListening> {
        let server = tls.as_ref().map(|tls| Arc::clone(&tls.server));
        Ok(TcpListening { listener: Listener::bind(address, server).await?, tls })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub(crate) fn tls(&self) -> Option<&PeerTls> {
        self.tls.as_deref()
    }

    /// Answers other nodes until `stop` resolves, and then ends their connections. From here on the transport has
    /// connections to all its peers, whether the node calls them or not.
    pub async fn serve(
        self,
        node: Arc<Node>,
        transport: Arc<TcpTransport>,
        stop: impl Future<Output = ()> + Send,
    ) {
        // It was told to nobody before, and there is one node to a transport.
        let _ = transport.shared.node.set(Arc::downgrade(&node));
        let following = transport.follow_catalog(Arc::downgrade(&node));
        let handler: CallHandler = Arc::new(move |from, line, request| node.handle_call(from, line, request));
        let serving = self.serve_calls(handler, Arc::clone(&transport), stop);
        tokio::select! {
            () = serving => {}
            () = following => {}
        }
    }

    /// Like [`TcpListening::serve`], for whatever answers calls.
    pub async fn serve_calls(
        self,
        handler: CallHandler,
        transport: Arc<TcpTransport>,
        stop: impl Future<Output = ()> + Send,
    ) {
        transport.keep_connections();
        let shared = &transport.shared;
        let serving = self.accept_all(|stream, peer| {
            serve_connection(stream, peer, Arc::clone(shared), Arc::clone(&handler))
        });
        tokio::select! {
            () = stop => {}
            () = serving => {}
        }
    }

    /// Accepts connections and runs what answers each, for as long as this is polled; dropping it ends them all.
    pub(crate) async fn accept_all<F>(&self, answer: impl Fn(Stream, SocketAddr) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        tracing::error!(%error, "the task of a connection between nodes panicked");
                    }
                }
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(answer(stream, peer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection of another node failed");
                        sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        }
    }
}

async fn serve_connection(mut stream: Stream, peer: SocketAddr, shared: Arc<Shared>, handler: CallHandler) {
    let judging = Arc::clone(&shared);
    let judge = |hello: Hello| async move { judge(&judging, &hello).await };
    let received = receive(&mut stream, peer, judge, &shared.logged).await;
    let Some((hello, buffer)) = received else { return };
    let (from, purpose) = (hello.from, hello.purpose);
    let Some(mut incoming) = shared.register(from, purpose) else { return };
    shared.logged.lock().forget(&(peer.ip(), Some(from)));
    let line_is_right: fn(Line) -> bool = match purpose {
        Purpose::Shards => |line| matches!(line, Line::Shard(_)),
        Purpose::Service => |line| line == Line::Service,
        Purpose::Formation | Purpose::Incarnation | Purpose::Admission => return,
    };
    let live = (purpose == Purpose::Shards).then(|| shared.liveness.enter(from));
    let (reader, writer) = tokio::io::split(stream);
    let reader = FrameReader::new(reader, buffer);
    let answering = pin!(answer_calls(reader, writer, from, line_is_right, &handler));
    tokio::select! {
        error = answering => tracing::debug!(node = %from, ?purpose, %error, "a connection of a node ended"),
        _ = &mut incoming.end => tracing::debug!(node = %from, ?purpose, "a connection of a node was ended"),
    }
    drop(live);
}

/// How a node that serves answers another.
async fn judge(shared: &Shared, hello: &Hello) -> Verdict {
    let own = &shared.identity;
    if shared.is_removed(hello) {
        return Verdict::refuse(removed(hello.from));
    }
    let verdict = Verdict::of(hello, own, shared.is_peer(hello.from));
    if verdict.version.is_err() {
        return verdict;
    }
    let given = match hello.purpose {
        Purpose::Formation => return Verdict { peers: shared.addresses(), ..verdict },
        Purpose::Shards | Purpose::Service => {
            let counts = judge_incarnation(hello, shared.incarnation_of(hello.from));
            return counts.map_or_else(Verdict::refuse, |()| verdict);
        }
        Purpose::Incarnation | Purpose::Admission => match shared.node() {
            None => Err(format!("node {} does not serve yet", own.node)),
            Some(node) if hello.purpose == Purpose::Admission => {
                node.admit(hello.from, &hello.address, hello.token).await
            }
            Some(node) => node.give_incarnation(hello.from, hello.token).await,
        },
    };
    match given {
        Ok(incarnation) => {
            let identity = Identity { node: hello.from, phase: Phase::Formed, incarnation, ..own.clone() };
            Verdict { identity: Some(identity), ..verdict }
        }
        Err(why) if hello.purpose == Purpose::Admission => Verdict::refused(Reason::NotAdmitted, why),
        Err(why) => Verdict::refused(Reason::NoIncarnation, why),
    }
}
