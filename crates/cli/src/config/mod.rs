//! Configuration: flags over environment over file over defaults, every key from one table.
//!
//! * [`keys`]: the table.
//! * [`sources`]: what flags, environment and file say, as text.
//! * [`settings`]: the effective value of every key and where it came from.
//! * [`listeners`]: protocols and addresses.
//! * [`cluster`]: what makes several nodes one cluster.
//! * [`error`]: why a configuration is refused, in one sentence.
//!
//! This file turns the effective settings into the typed [`Config`] that `weir serve` acts on.

pub mod cluster;
pub mod error;
pub mod keys;
pub mod listeners;
pub mod settings;
pub mod sources;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use weir_broker::{BROKER_SETTINGS, BrokerOptions, HostPort};
use weir_log::journal::Position;
use weir_model::NodeId;
use weir_model::settings::TOPIC_SETTINGS;
use weir_socket::TlsFiles;

pub use cluster::ClusterConfig;
pub use error::ConfigError;
pub use listeners::{Endpoint, Listener, Protocol};
pub use settings::{Setting, Settings, Source, Value};

/// Everything that `weir serve` needs to know, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the node keeps its data.
    pub data_dir: PathBuf,
    /// What to listen on for clients.
    pub listeners: Vec<Listener>,
    /// The other nodes, unless this one is alone.
    pub cluster: Option<ClusterConfig>,
    /// Whether listeners that other machines can reach are meant although nobody has to authenticate.
    pub insecure: bool,
    /// Certificates of listeners over TLS.
    pub tls: Option<TlsFiles>,
    /// What clients of a protocol are told of this node, where it differs from their connection.
    pub advertised: BTreeMap<Protocol, Endpoint>,
    /// This node's id, if it was given.
    pub node_id: Option<NodeId>,
    /// Number of data shards, if it was given.
    pub shards: Option<u32>,
    /// The log on standard error.
    pub log: LogOptions,
    /// How long requests under way may take to finish at a stop.
    pub drain_timeout: Duration,
    /// The broker, but for the cluster's id and the seed, which the data directory and the machine give.
    pub broker: BrokerOptions,
    /// Connections.
    pub connections: ConnectionOptions,
    /// The engine.
    pub storage: StorageOptions,
}

/// The log on standard error.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Whether lines are JSON objects.
    pub json: bool,
    /// What is logged, in `tracing`'s filter language.
    pub filter: String,
}

/// What bounds connections.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// A connection without a request for this long is closed.
    pub max_idle: Duration,
    /// Largest request, in bytes.
    pub request_bytes_max: u32,
    /// Connections of a listener at once.
    pub connections_max: usize,
    /// How long an AMQP delivery may wait for its acknowledgement; none for ever.
    pub consumer_timeout: Option<Duration>,
    /// Largest answer to a fetch, in bytes.
    pub fetch_bytes_max: u32,
    /// Fetch sessions at once.
    pub fetch_sessions_max: usize,
}

/// What bounds the engine's files and memory, in bytes.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Size of a journal file.
    pub journal_file_bytes: u64,
    /// Most that all journal files take.
    pub journal_bytes: u64,
    /// The operator accepts the loss of durable records from here on.
    pub accept_loss_from: Option<Position>,
    /// Journal bytes of a shard between two checkpoints.
    pub checkpoint_bytes: u64,
    /// What a shard accepts before it is in segment files.
    pub admission_bytes: u64,
    /// Records are refused while less than this is free.
    pub disk_reserve_bytes: u64,
}

impl Config {
    /// Checks the effective settings and gives them types. Host names of listeners are looked up here.
    pub fn new(settings: &Settings) -> Result<Config, ConfigError> {
        let mut listeners = settings.list("listen").map(Listener::parse).collect::<Result<Vec<_>, _>>()?;
        let mut advertised = listeners::parse_advertised(settings.list("advertise"), &listeners)?;
        let told_to_nodes = advertised.remove(&Protocol::Cluster);
        let cluster = ClusterConfig::new(settings, &mut listeners, told_to_nodes)?;
        if listeners.is_empty() {
            return Err(ConfigError::refused(
                "no listener is given; name at least one, as in --listen kafka=127.0.0.1:9092",
            ));
        }
        let tls = tls_files(settings)?;
        if let Some(listener) = listeners.iter().find(|listener| listener.protocol.is_tls())
            && tls.is_none()
        {
            return Err(ConfigError::refused(format!(
                "the listener {}={} needs a certificate; give --tls-certificate and --tls-key",
                listener.protocol, listener.address
            )));
        }
        if cluster.is_some() {
            ClusterConfig::check_advertised(&listeners, &advertised)?;
        }
        Ok(Config {
            data_dir: data_dir(settings)?,
            listeners,
            cluster,
            insecure: settings.switch("insecure"),
            tls,
            node_id: settings.given("node-id").map(|_| NodeId(settings.number("node-id") as u64)),
            shards: settings.given("shards").map(|_| settings.number("shards") as u32),
            log: LogOptions {
                json: settings.text("log-format") == "json",
                filter: log_filter(settings.text("log-level"))?,
            },
            drain_timeout: Duration::from_millis(settings.number("drain-timeout-ms") as u64),
            broker: broker_options(settings, &advertised)?,
            advertised,
            connections: ConnectionOptions {
                max_idle: Duration::from_millis(settings.number("connections.max.idle.ms") as u64),
                request_bytes_max: settings.number("socket.request.max.bytes") as u32,
                connections_max: settings.number("max.connections") as usize,
                consumer_timeout: Some(settings.number("amqp.consumer.timeout.ms") as u64)
                    .filter(|ms| *ms > 0)
                    .map(Duration::from_millis),
                fetch_bytes_max: settings.number("fetch.max.bytes") as u32,
                fetch_sessions_max: settings.number("max.incremental.fetch.session.cache.slots") as usize,
            },
            storage: StorageOptions {
                journal_file_bytes: settings.number("journal-file-bytes") as u64,
                journal_bytes: settings.number("journal-bytes") as u64,
                accept_loss_from: accept_loss_from(settings)?,
                checkpoint_bytes: settings.number("checkpoint-bytes") as u64,
                admission_bytes: settings.number("admission-bytes") as u64,
                disk_reserve_bytes: settings.number("disk-reserve-bytes") as u64,
            },
        })
    }
}

fn tls_files(settings: &Settings) -> Result<Option<TlsFiles>, ConfigError> {
    let file = |key: &str| Some(settings.text(key)).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (file("tls-certificate"), file("tls-key"), file("tls-client-ca")) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), client_ca) => Ok(Some(TlsFiles { certificate, key, client_ca })),
        (None, _, _) => Err(ConfigError::refused("TLS needs a certificate; give --tls-certificate")),
        (_, None, _) => Err(ConfigError::refused("TLS needs the certificate's key; give --tls-key")),
    }
}

/// A word that is no level would be taken for a module's name, and then nothing would be logged.
fn log_filter(filter: &str) -> Result<String, ConfigError> {
    const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
    for directive in filter.split(',') {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level).trim();
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(ConfigError::refused(format!(
                "log-level '{filter}': '{level}' is not a level; use {}, or by module as in info,weir_kafka=debug",
                LEVELS.join(", ")
            )));
        }
    }
    match tracing_subscriber::EnvFilter::try_new(filter) {
        Ok(_) => Ok(filter.to_owned()),
        Err(error) => Err(ConfigError::refused(format!("log-level '{filter}': {error}"))),
    }
}

fn accept_loss_from(settings: &Settings) -> Result<Option<Position>, ConfigError> {
    match settings.text("journal-accept-loss-from") {
        "" => Ok(None),
        text => text.parse().map(|position| Some(Position(position))).map_err(|_| {
            ConfigError::refused(format!(
                "journal-accept-loss-from: '{text}' is not a position; take the one that the refused start names"
            ))
        }),
    }
}

fn data_dir(settings: &Settings) -> Result<PathBuf, ConfigError> {
    match settings.text("data-dir") {
        "" => Err(ConfigError::refused("data-dir is empty; name a directory")),
        dir => Ok(PathBuf::from(dir)),
    }
}

/// The broker checks its own settings once more, and against each other.
fn broker_options(
    settings: &Settings,
    advertised: &BTreeMap<Protocol, Endpoint>,
) -> Result<BrokerOptions, ConfigError> {
    let mut options = BrokerOptions::new("", [0; 32]);
    for setting in settings.iter().filter(|setting| is_broker_setting(setting.key.name)) {
        options
            .set(setting.key.name, &setting.value.to_string())
            .map_err(|error| ConfigError::value(setting.key.name, &setting.source, &error.why))?;
    }
    options.check().map_err(|error| ConfigError::refused(error.to_string()))?;
    options.zone = cluster::zone(settings)?;
    options.access.loopback_users = settings.list("loopback-users").map(str::to_owned).collect();
    options.advertised = advertised
        .iter()
        .map(|(protocol, endpoint)| {
            let host_port = HostPort { host: endpoint.host.clone(), port: endpoint.port };
            (protocol.name().to_owned(), host_port)
        })
        .collect();
    Ok(options)
}

/// Whether the broker acts on the key, rather than this binary or the engine.
pub fn is_broker_setting(name: &str) -> bool {
    BROKER_SETTINGS.iter().any(|setting| setting.name == name)
        || TOPIC_SETTINGS.iter().any(|setting| setting.broker_name == name)
}
