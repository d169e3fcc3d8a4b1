//! Configuration: flags over environment over file over defaults, every key from one table.
//!
//! * [`keys`]: the table.
//! * [`sources`]: what flags, environment and file say, as text.
//! * [`settings`]: the effective value of every key and where it came from.
//! * [`listeners`]: protocols and addresses.
//! * [`error`]: why a configuration is refused, in one sentence.
//!
//! This file turns the effective settings into the typed [`Config`] that `weir serve` acts on.

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

use weir_model::NodeId;
use weir_model::settings::PartitionSettings;

pub use error::ConfigError;
pub use listeners::{Endpoint, Listener, Protocol};
pub use settings::{Setting, Settings, Source, Value};

/// Everything that `weir serve` needs to know, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the node keeps its data.
    pub data_dir: PathBuf,
    /// What to listen on.
    pub listeners: Vec<Listener>,
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
    /// Whether asking for an unknown topic creates it.
    pub auto_create_topics: bool,
    /// Partitions of a topic that is created without saying how many.
    pub num_partitions: u32,
    /// Settings of a topic that overrides none.
    pub topic_defaults: PartitionSettings,
    /// Groups.
    pub groups: GroupOptions,
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

/// What bounds groups and their positions.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Shortest session timeout, in milliseconds.
    pub min_session_timeout_ms: i32,
    /// Longest session timeout, in milliseconds.
    pub max_session_timeout_ms: i32,
    /// Pause before a new group's first rebalance, in milliseconds.
    pub initial_rebalance_delay_ms: i32,
    /// Committed offsets of an empty group are kept this long, in milliseconds.
    pub offsets_retention_ms: i64,
}

/// What bounds connections.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// A connection without a request for this long is closed.
    pub max_idle: Duration,
    /// Largest request, in bytes.
    pub request_bytes_max: u32,
}

/// What bounds the engine's files and memory, in bytes.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Size of a journal file.
    pub journal_file_bytes: u64,
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
        refuse_what_is_not_served(settings)?;
        let listeners = settings.list("listen").map(Listener::parse).collect::<Result<Vec<_>, _>>()?;
        if listeners.is_empty() {
            return Err(ConfigError::refused(
                "no listener is given; name at least one, as in --listen kafka=127.0.0.1:9092",
            ));
        }
        if !settings.switch("insecure") {
            listeners.iter().try_for_each(Listener::refuse_beyond_loopback)?;
        }
        let advertised = listeners::parse_advertised(settings.list("advertise"), &listeners)?;
        let groups = GroupOptions {
            min_session_timeout_ms: settings.number("group.min.session.timeout.ms") as i32,
            max_session_timeout_ms: settings.number("group.max.session.timeout.ms") as i32,
            initial_rebalance_delay_ms: settings.number("group.initial.rebalance.delay.ms") as i32,
            offsets_retention_ms: settings.number("offsets.retention.minutes") * 60_000,
        };
        if groups.min_session_timeout_ms > groups.max_session_timeout_ms {
            return Err(ConfigError::refused(
                "group.min.session.timeout.ms is larger than group.max.session.timeout.ms; lower the one or raise the other",
            ));
        }
        Ok(Config {
            data_dir: data_dir(settings)?,
            listeners,
            advertised,
            node_id: settings.given("node-id").map(|_| NodeId(settings.number("node-id") as u64)),
            shards: settings.given("shards").map(|_| settings.number("shards") as u32),
            log: LogOptions {
                json: settings.text("log-format") == "json",
                filter: log_filter(settings.text("log-level"))?,
            },
            drain_timeout: Duration::from_millis(settings.number("drain-timeout-ms") as u64),
            auto_create_topics: settings.switch("auto.create.topics.enable"),
            num_partitions: settings.number("num.partitions") as u32,
            topic_defaults: topic_defaults(settings)?,
            groups,
            connections: ConnectionOptions {
                max_idle: Duration::from_millis(settings.number("connections.max.idle.ms") as u64),
                request_bytes_max: settings.number("socket.request.max.bytes") as u32,
            },
            storage: StorageOptions {
                journal_file_bytes: settings.number("journal-file-bytes") as u64,
                checkpoint_bytes: settings.number("checkpoint-bytes") as u64,
                admission_bytes: settings.number("admission-bytes") as u64,
                disk_reserve_bytes: settings.number("disk-reserve-bytes") as u64,
            },
        })
    }
}

fn refuse_what_is_not_served(settings: &Settings) -> Result<(), ConfigError> {
    for key in ["peers", "join"] {
        if let Some(source) = settings.given(key) {
            return Err(ConfigError::refused(format!(
                "{key} ({source}) is not served by this version, which runs as a single node; remove it"
            )));
        }
    }
    Ok(())
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

fn data_dir(settings: &Settings) -> Result<PathBuf, ConfigError> {
    match settings.text("data-dir") {
        "" => Err(ConfigError::refused("data-dir is empty; name a directory")),
        dir => Ok(PathBuf::from(dir)),
    }
}

/// The settings of topics are checked by the model's own rules, under their names on topics.
fn topic_defaults(settings: &Settings) -> Result<PartitionSettings, ConfigError> {
    let mut overrides = BTreeMap::new();
    for info in weir_model::settings::TOPIC_SETTINGS {
        if keys::find(info.broker_name).is_some() {
            overrides.insert(info.name.to_owned(), settings.display(info.broker_name));
        }
    }
    // A single node: every acknowledged record is on one replica.
    PartitionSettings::default()
        .with_overrides(&overrides, 1)
        .map_err(|error| ConfigError::refused(error.to_string()))
}
