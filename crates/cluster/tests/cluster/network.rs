//! What the scenarios over real connections share: ends that answer, certificates, and a wire that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use weir_cluster::{
    CallHandler, Identity, Line, PeerTls, PeerTlsFiles, TcpListening, TcpTransport, TcpTransportOptions,
    Transport, TransportError,
};
use weir_model::{NodeId, ShardId};

pub const ANYWHERE: &str = "127.0.0.1:0";

pub const LINE: Line = Line::Shard(ShardId(1));

/// Longer than anything in a test takes.
pub const LONG: Duration = Duration::from_secs(30);

/// Runs a scenario over real sockets, by the real clock.
pub fn run<T>(scenario: impl Future<Output = T>) -> T {
    let filter = tracing_subscriber::EnvFilter::from_env("WEIR_LOG");
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(Duration::from_secs(120), scenario).await.expect("it comes to an end")
    })
}

pub fn member(node: u64) -> Identity {
    Identity::formed(NodeId(node), "lake".into(), (1..=3).map(NodeId).collect())
}

pub async fn listen(address: impl AsRef<str>, tls: Option<Arc<PeerTls>>) -> TcpListening {
    let address = address.as_ref().parse().expect("an address");
    TcpListening::bind(address, tls).await.expect("the port opens")
}

pub fn transport(
    identity: Identity,
    peers: &[(u64, String)],
    tls: Option<Arc<PeerTls>>,
) -> Arc<TcpTransport> {
    let peers = peers.iter().map(|(node, address)| (NodeId(*node), address.clone())).collect();
    TcpTransport::new(TcpTransportOptions { identity, peers, told: BTreeMap::new(), tls, seed: 7 })
}

/// Calls that arrived, in their order.
pub type Seen = Arc<Mutex<Vec<(NodeId, Line, Bytes)>>>;

/// What answers calls with what is in them, and notes them.
pub fn echo(seen: &Seen) -> CallHandler {
    let seen = Arc::clone(seen);
    Arc::new(move |from, line, request| {
        seen.lock().push((from, line, request.clone()));
        Box::pin(async move { request })
    })
}

/// A node that sends back what it is called with.
pub struct Echo {
    pub address: String,
    pub transport: Arc<TcpTransport>,
    pub seen: Seen,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Echo {
    pub async fn start(identity: Identity, peers: &[(u64, String)]) -> Echo {
        Echo::start_on(listen(ANYWHERE, None).await, identity, peers, None)
    }

    pub fn start_on(
        listening: TcpListening,
        identity: Identity,
        peers: &[(u64, String)],
        tls: Option<Arc<PeerTls>>,
    ) -> Echo {
        let address = listening.local_addr().to_string();
        let transport = transport(identity, peers, tls);
        let seen = Seen::default();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(listening.serve_calls(echo(&seen), Arc::clone(&transport), async {
            let _ = stopped.await;
        }));
        Echo { address, transport, seen, stop, serving }
    }

    pub async fn stop(self) {
        drop(self.stop);
        self.serving.await.expect("it ends in order");
    }
}

/// Calls until there is an answer.
pub async fn call_until_answered(transport: &TcpTransport, to: u64, request: &'static str) {
    let began = tokio::time::Instant::now();
    loop {
        let answer = transport.call(NodeId(to), LINE, vec![Bytes::from_static(request.as_bytes())]).await;
        match answer {
            Ok(answer) => return assert_eq!(answer, request),
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn call(transport: &TcpTransport, to: u64, request: &'static str) -> Result<Bytes, TransportError> {
    transport.call(NodeId(to), LINE, vec![Bytes::from_static(request.as_bytes())]).await
}

/// Waits until these are the nodes that are connected.
pub async fn wait_for_nodes(transport: &TcpTransport, nodes: &[u64]) {
    let nodes: BTreeSet<NodeId> = nodes.iter().copied().map(NodeId).collect();
    let mut connected = transport.connected();
    let waited = tokio::time::timeout(LONG, connected.wait_for(|now| *now == nodes)).await;
    waited
        .unwrap_or_else(|_| panic!("{nodes:?} are not connected: {:?}", transport.connected().borrow()))
        .expect("a node");
}

/// An authority, and certificates by it.
pub struct Papers {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    pub fn new() -> Papers {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let papers = Papers { dir: TempDir::new().expect("a directory"), authority };
        std::fs::write(papers.path("ca.pem"), papers.authority.pem()).expect("a file");
        papers
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A node's certificate for a name, or an address, trusting the authority of `trusted`.
    pub fn issue(&self, name: &str, subject: &str, trusted: &Papers) -> Arc<PeerTls> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![subject.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        let files = PeerTlsFiles {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            ca: trusted.path("ca.pem"),
        };
        std::fs::write(&files.certificate, certificate.pem()).expect("a file");
        std::fs::write(&files.key, key.serialize_pem()).expect("a file");
        Arc::new(PeerTls::load(files).expect("files that go together"))
    }
}

/// What a wire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Connections stay open, and nothing comes through.
    Hold,
    /// Connections are ended, and so are new ones.
    Cut,
}

/// A wire to an address, which can be cut.
pub struct Wire {
    pub address: String,
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

impl Wire {
    pub async fn to(target: SocketAddr) -> Wire {
        let listener = TcpListener::bind(ANYWHERE).await.expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let mode = watch::Sender::new(Mode::Pass);
        let modes = mode.subscribe();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(pass(stream, target, modes.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Wire { address, mode, task }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(near: TcpStream, target: SocketAddr, mut modes: watch::Receiver<Mode>) {
    let mut cut = modes.clone();
    let passing = async {
        let far = TcpStream::connect(target).await.ok()?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            modes.wait_for(|mode| *mode == Mode::Pass).await.ok()?;
            let (from, to) = tokio::select! {
                ready = near.readable() => { ready.ok()?; (&near, &far) }
                ready = far.readable() => { ready.ok()?; (&far, &near) }
                changed = modes.changed() => { changed.ok()?; continue }
            };
            let read = match from.try_read(&mut buffer) {
                Ok(0) => return None::<()>,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => return None,
            };
            let mut bytes = &buffer[..read];
            while !bytes.is_empty() {
                to.writable().await.ok()?;
                match to.try_write(bytes) {
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return None,
                }
            }
        }
    };
    tokio::select! {
        _ = passing => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

/// Addresses by node, as options want them.
pub fn addresses(peers: &[(u64, String)]) -> BTreeMap<NodeId, String> {
    peers.iter().map(|(node, address)| (NodeId(*node), address.clone())).collect()
}
