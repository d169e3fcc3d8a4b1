//! What makes several nodes one cluster: who founds it, where this one listens for the others, and by what certificates
//! they know each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use weir_cluster::{FOUNDERS_MAX, PeerTlsFiles, SEEDS_MAX};
use weir_model::NodeId;

use super::listeners::{Endpoint, Listener, Protocol, is_loopback};
use super::{ConfigError, Settings};

/// Longest name of a zone, in bytes.
const ZONE_BYTES_MAX: usize = 255;

/// A cluster of several nodes, of which this one is to be one, or of this one and whoever joins it.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The founding nodes, this one among them, and where each is reached from here; none where this one founds a cluster by
    /// itself, or joins one.
    pub peers: BTreeMap<NodeId, Endpoint>,
    /// Where nodes are of a cluster that this one joins; none where it does not.
    pub join: Vec<Endpoint>,
    /// Where this one listens for the others.
    pub address: SocketAddr,
    /// Where they are told to reach it; none where that is the address that it listens on.
    pub told: Option<Endpoint>,
    /// By what the nodes know each other.
    pub tls: Option<PeerTlsFiles>,
}

impl ClusterConfig {
    /// Checks what is said of the cluster; `None` if this node is alone and stays so. Takes the listener for other nodes out
    /// of `listeners`, which are clients' from then on. `advertised` is where other nodes are to reach this one.
    pub fn new(
        settings: &Settings,
        listeners: &mut Vec<Listener>,
        advertised: Option<Endpoint>,
    ) -> Result<Option<ClusterConfig>, ConfigError> {
        let (peers, join) = (peers(settings)?, join(settings)?);
        let tls = tls_files(settings)?;
        let Some(address) = take_listener(listeners)? else {
            return match (peers.len() > 1 || !join.is_empty(), tls) {
                (true, _) => Err(ConfigError::refused(
                    "a cluster of several nodes needs an address at which they reach this one; give --listen \
                     cluster=ADDRESS, usually with port 9348",
                )),
                (false, Some(_)) => Err(ConfigError::refused(
                    "certificates between nodes need other nodes; give --listen cluster=ADDRESS, and --peers or --join, \
                     as well",
                )),
                (false, None) => Ok(None),
            };
        };
        if tls.is_none() && !is_loopback(address.ip()) && !settings.switch("insecure") {
            return Err(ConfigError::refused(format!(
                "the listener cluster={address} can be reached by other machines, and whoever reaches it is taken \
                 for a node; give --cluster-tls-certificate, --cluster-tls-key and --cluster-tls-ca, or add \
                 --insecure if only nodes are in that network"
            )));
        }
        let own = peers.get(&NodeId(settings.number("node-id") as u64)).cloned();
        let told = advertised.or(own);
        if told.is_none() && address.ip().is_unspecified() {
            return Err(ConfigError::refused(format!(
                "the other nodes have to be told where cluster={address} is; give --advertise cluster=HOST:PORT, or listen \
                 on one address"
            )));
        }
        Ok(Some(ClusterConfig { peers, join, address, told, tls }))
    }

    /// Refuses clients' listeners of which nodes could not tell the clients of other nodes where they are.
    pub fn check_advertised(
        listeners: &[Listener],
        advertised: &BTreeMap<Protocol, Endpoint>,
    ) -> Result<(), ConfigError> {
        let untold = listeners.iter().find(|listener| {
            let tells = matches!(listener.protocol, Protocol::Kafka | Protocol::KafkaTls);
            tells && listener.address.ip().is_unspecified() && !advertised.contains_key(&listener.protocol)
        });
        match untold {
            None => Ok(()),
            Some(Listener { protocol, address }) => Err(ConfigError::refused(format!(
                "clients of the other nodes have to be told where {protocol}={address} is; give --advertise \
                 {protocol}=HOST:PORT, or listen on one address"
            ))),
        }
    }
}

/// Reads where nodes are of a cluster that is to be joined.
fn join(settings: &Settings) -> Result<Vec<Endpoint>, ConfigError> {
    let mut seeds = Vec::new();
    for text in settings.list("join") {
        let refused = |why: String| ConfigError::refused(format!("join '{text}': {why}"));
        let endpoint = Endpoint::parse(text).map_err(refused)?;
        if endpoint.port == 0 {
            return Err(refused("nobody can connect to port 0; name the real one".into()));
        }
        seeds.push(endpoint);
    }
    if seeds.is_empty() {
        return Ok(seeds);
    }
    if seeds.len() > SEEDS_MAX {
        let many = seeds.len();
        return Err(ConfigError::refused(format!("join names {many} addresses; {SEEDS_MAX} are enough")));
    }
    if settings.list("peers").next().is_some() {
        return Err(ConfigError::refused(
            "peers are the nodes that found a cluster, and join names some of one that is there; keep one of them",
        ));
    }
    if settings.given("node-id").is_none() {
        return Err(ConfigError::refused(
            "join needs to know which node of the cluster this one is to be; give --node-id, with a number of its own",
        ));
    }
    Ok(seeds)
}

/// Reads `ID=HOST:PORT`, once for each node. None are given, or this node is among them.
fn peers(settings: &Settings) -> Result<BTreeMap<NodeId, Endpoint>, ConfigError> {
    let mut peers = BTreeMap::new();
    for text in settings.list("peers") {
        let refused = |why: String| ConfigError::refused(format!("peers '{text}': {why}"));
        let (id, address) = text
            .split_once('=')
            .ok_or_else(|| refused("write it as ID=HOST:PORT, as in 1=10.0.0.1:9348".into()))?;
        let id = id
            .trim()
            .parse::<u64>()
            .ok()
            .filter(|id| (1..i32::MAX as u64).contains(id))
            .ok_or_else(|| refused(format!("'{id}' is not a node's id, from 1 to {}", i32::MAX - 1)))?;
        let endpoint = Endpoint::parse(address).map_err(refused)?;
        if endpoint.port == 0 {
            return Err(refused("nobody can connect to port 0; name the real one".into()));
        }
        if peers.insert(NodeId(id), endpoint).is_some() {
            return Err(refused(format!("node {id} is named already; keep one")));
        }
    }
    if peers.is_empty() {
        return Ok(peers);
    }
    if peers.len() > FOUNDERS_MAX {
        let many = peers.len();
        return Err(ConfigError::refused(format!(
            "peers names {many} nodes; a cluster is founded by at most {FOUNDERS_MAX}"
        )));
    }
    let own = NodeId(settings.number("node-id") as u64);
    if settings.given("node-id").is_none() {
        return Err(ConfigError::refused("peers needs to know which of them this node is; give --node-id"));
    }
    if !peers.contains_key(&own) {
        let ids = listed(peers.keys());
        return Err(ConfigError::refused(format!(
            "node-id is {own}, but peers names {ids}; this node has to be among them"
        )));
    }
    Ok(peers)
}

/// Ids as people list them.
pub fn listed<'a>(ids: impl Iterator<Item = &'a NodeId>) -> String {
    ids.map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

fn take_listener(listeners: &mut Vec<Listener>) -> Result<Option<SocketAddr>, ConfigError> {
    let is_for_nodes = |listener: &Listener| listener.protocol == Protocol::Cluster;
    let own: Vec<SocketAddr> =
        listeners.iter().filter(|listener| is_for_nodes(listener)).map(|listener| listener.address).collect();
    listeners.retain(|listener| !is_for_nodes(listener));
    match own[..] {
        [] => Ok(None),
        [address] => Ok(Some(address)),
        _ => Err(ConfigError::refused("there is more than one listener for cluster; keep one")),
    }
}

fn tls_files(settings: &Settings) -> Result<Option<PeerTlsFiles>, ConfigError> {
    const KEYS: [&str; 3] = ["cluster-tls-certificate", "cluster-tls-key", "cluster-tls-ca"];
    let file = |key: &str| Some(settings.text(key)).filter(|path| !path.is_empty()).map(PathBuf::from);
    let [certificate, key, ca] = KEYS.map(file);
    match (certificate, key, ca) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), Some(ca)) => Ok(Some(PeerTlsFiles { certificate, key, ca })),
        _ => {
            let missing: Vec<String> =
                KEYS.iter().filter(|key| file(key).is_none()).map(|key| format!("--{key}")).collect();
            Err(ConfigError::refused(format!(
                "nodes know each other by a certificate, its key and the CA's certificate; give {} as well",
                missing.join(" and ")
            )))
        }
    }
}

/// Where the node stands, if that was said.
pub fn zone(settings: &Settings) -> Result<Option<String>, ConfigError> {
    match settings.text("zone") {
        "" => Ok(None),
        zone if zone.len() > ZONE_BYTES_MAX => Err(ConfigError::refused(format!(
            "zone has {} bytes; at most {ZONE_BYTES_MAX} are allowed",
            zone.len()
        ))),
        zone => Ok(Some(zone.to_owned())),
    }
}
