//! The other nodes: agreeing with them on what cluster this is before anything is started, and answering them until
//! everything has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use weir_cluster::{
    FormationError, Founding, Identity, Joined, Joining, Node, PeerTls, TcpListening, TcpTransport,
    TcpTransportOptions, form, join,
};
use weir_model::node::HostPort;
use weir_model::{Incarnation, NodeId};

use super::data_dir::DataDir;
use crate::config::cluster::listed;
use crate::config::{ClusterConfig, Endpoint};
use crate::exit::Failure;

/// How often it is said what a node that has not started yet waits for.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// A node among others whose port is open, and who have agreed on what cluster it is.
pub struct Formed {
    /// The cluster.
    pub cluster_id: String,
    /// Who votes.
    pub founders: BTreeSet<NodeId>,
    /// How often this node has begun with nothing.
    pub incarnation: Incarnation,
    /// How many data shards it has.
    pub shards: u32,
    /// Where the others reach this one.
    pub address: SocketAddr,
    /// Where they are told that it is.
    pub told: HostPort,
    /// How this one reaches them.
    pub transport: Arc<TcpTransport>,
    listening: TcpListening,
    tls: Option<Arc<PeerTls>>,
}

/// A node that answers the others.
pub struct Answering {
    /// Where.
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Formed {
    /// Opens the port for other nodes and waits until all that found the cluster have agreed, or until the cluster has taken
    /// this node in; where that was so before, it waits for nobody.
    pub async fn form(
        cluster: &ClusterConfig,
        data_dir: &DataDir,
        asked_shards: Option<u32>,
    ) -> Result<Formed, Failure> {
        let tls = cluster.tls.clone().map(PeerTls::load).transpose();
        let tls = tls.map_err(|error| Failure::Usage(error.to_string()))?.map(Arc::new);
        let listening = TcpListening::bind(cluster.address, tls.clone()).await.map_err(|error| {
            Failure::Usage(format!(
                "cannot listen on cluster={}: {error}; choose another address with --listen",
                cluster.address
            ))
        })?;
        let node = data_dir.identity.node();
        let address = listening.local_addr();
        let told = cluster.told.as_ref().map_or_else(
            || HostPort { host: address.ip().to_string(), port: address.port() },
            |told| HostPort { host: told.host.clone(), port: told.port },
        );
        let peers: BTreeMap<NodeId, String> =
            cluster.peers.iter().map(|(node, endpoint)| (*node, endpoint.to_string())).collect();
        let founds = cluster.join.is_empty() && !data_dir.identity.has_joined();
        let (identity, others_told) = match founds {
            true => (found(&peers, data_dir, &listening).await?, BTreeMap::new()),
            false => {
                let seeds: Vec<String> = cluster.join.iter().map(Endpoint::to_string).collect();
                let joining = Joining {
                    store: data_dir,
                    node,
                    seeds: &seeds,
                    address: &told.to_string(),
                    listening: &listening,
                    seed: super::random_u64(),
                    token: super::random_u64(),
                };
                let Joined { identity, told } = join(joining).await.map_err(cannot_form)?;
                (identity, told)
            }
        };
        if let Some(asked) = asked_shards.filter(|asked| *asked != identity.shards) {
            let has = identity.shards;
            return Err(Failure::Usage(format!(
                "the cluster has {has} data shards, not {asked}; remove shards from the configuration"
            )));
        }
        tracing::info!(
            cluster_id = identity.cluster,
            nodes = listed(identity.founders.iter()),
            "the nodes have agreed on what cluster this is"
        );
        let (cluster_id, founders) = (identity.cluster.clone(), identity.founders.clone());
        let (incarnation, shards) = (identity.incarnation, identity.shards);
        let tls_of_calls = tls.clone();
        let options = TcpTransportOptions {
            identity,
            peers,
            told: others_told,
            tls: tls_of_calls,
            seed: super::random_u64(),
        };
        let transport = TcpTransport::new(options);
        Ok(Formed { cluster_id, founders, incarnation, shards, address, told, transport, listening, tls })
    }

    /// The nodes that this one is connected with.
    pub fn connected(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.transport.connected()
    }

    /// Begins to answer the others.
    pub fn answer(self, node: Arc<Node>) -> Answering {
        let Formed { address, transport, listening, tls, .. } = self;
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            // It ends as well when nobody is left who could send.
            let _ = stopped.await;
        };
        let mut tasks = vec![tokio::spawn(listening.serve(node, transport, until))];
        if let Some(tls) = tls {
            tasks.push(tokio::spawn(reload_always(tls)));
        }
        Answering { address, stop, tasks }
    }
}

impl Answering {
    /// Answers nobody any more. To be called when the node has ended: its last entries need the others.
    pub async fn stop(self) {
        // It fails only if the task has ended by itself.
        let _ = self.stop.send(());
        let mut tasks = self.tasks.into_iter();
        if let Some(serving) = tasks.next() {
            let _ = serving.await;
        }
        tasks.for_each(|task| task.abort());
    }
}

async fn found(
    peers: &BTreeMap<NodeId, String>,
    data_dir: &DataDir,
    listening: &TcpListening,
) -> Result<Identity, Failure> {
    if !peers.is_empty() && peers.len().is_multiple_of(2) {
        let nodes = peers.len();
        tracing::info!(nodes, "an even number of nodes withstands the loss of no more than one less would");
    }
    let founding = Founding {
        store: data_dir,
        node: data_dir.identity.node(),
        peers,
        listening,
        shards: data_dir.identity.shards,
        seed: super::random_u64(),
        token: super::random_u64(),
    };
    form(founding, || uuid::Uuid::new_v4().to_string()).await.map_err(cannot_form)
}

/// Waits for what needs a majority of the nodes, and says from time to time that it does.
pub async fn with_patience<T>(
    starting: impl Future<Output = T>,
    connected: Option<watch::Receiver<BTreeSet<NodeId>>>,
) -> T {
    let Some(connected) = connected else { return starting.await };
    tokio::pin!(starting);
    loop {
        tokio::select! {
            started = &mut starting => return started,
            () = tokio::time::sleep(SAID_EVERY) => {
                let connected = listed(connected.borrow().iter());
                tracing::info!(
                    connected,
                    "waiting until a majority of the nodes has agreed on who leads, and this one has what they have"
                );
            }
        }
    }
}

/// Every sentence is meant for the operator.
fn cannot_form(error: FormationError) -> Failure {
    match error {
        FormationError::Store(why) => Failure::Io(why),
        error => Failure::Usage(error.to_string()),
    }
}

/// Reads the certificates between nodes again whenever the process is sent SIGHUP.
async fn reload_always(tls: Arc<PeerTls>) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    while hangups.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("the certificates between nodes were read again"),
            Err(error) => tracing::error!(%error, "the certificates between nodes stay as they were"),
        }
    }
}
