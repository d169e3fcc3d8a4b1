//! `weir serve`, from the command line to the last connection.
//!
//! * [`data_dir`]: the lock, and whose data it is.
//! * [`logging`]: standard error.
//! * [`clock`]: the wall clock.
//! * [`cluster`]: the other nodes.
//! * [`descriptors`]: how many files and connections may be open.
//! * [`scheduling`]: turns on the processor.
//! * [`fronts`]: the listeners.
//! * [`stop`]: signals, and failures that end everything.

mod clock;
mod cluster;
mod data_dir;
mod descriptors;
mod fronts;
mod logging;
mod scheduling;
mod stop;

use std::sync::Arc;

use weir_broker::Broker;
use weir_cluster::{Drive, NoTransport, Node, NodeOptions, OnFatal, StartError, Transport};
use weir_log::disk::RealDisk;
use weir_log::journal::JournalError;
use weir_model::node::CLUSTER_LISTENER;

pub use data_dir::{abandon_others, read_identity};

use crate::args::ConfigFlags;
use crate::config::{Config, Settings};
use crate::config_verbs;
use crate::exit::Failure;
use clock::SystemClock;
use cluster::{Formed, with_patience};
use data_dir::DataDir;
use descriptors::Descriptors;
use fronts::Fronts;
use stop::StopSignals;

/// Serves until it is told to stop.
pub fn run(flags: &ConfigFlags) -> Result<(), Failure> {
    let settings = config_verbs::load(flags)?;
    let config = Config::new(&settings)?;
    logging::start(&config.log)?;
    let data_dir = DataDir::open(&config)?;
    scheduling::ask_for_short_turns();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the runtime does not start: {error}")))?;
    runtime.block_on(serve(&config, &settings, &data_dir))
}

async fn serve(config: &Config, settings: &Settings, data_dir: &DataDir) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let clock = Arc::new(SystemClock);
    let starting = async {
        let formed = match &config.cluster {
            Some(cluster) => Some(Formed::form(cluster, data_dir, config.shards).await?),
            None => None,
        };
        let transport: Arc<dyn Transport> = match &formed {
            Some(formed) => formed.transport.clone(),
            None => Arc::new(NoTransport),
        };
        let shards = formed.as_ref().map_or(data_dir.identity.shards, |formed| formed.shards);
        // Besides the data shards there are the one that holds the catalog and the temporary one.
        let descriptors = Descriptors::claim(shards as usize + 2);
        let options = node_options(config, data_dir, &descriptors, formed.as_ref())?;
        let broker_options = broker_options(config, data_dir, formed.as_ref());
        let node = Node::start(options, RealDisk::shared(), transport, clock.clone(), Drive::Threads)
            .await
            .map_err(|error| cannot_start(&error, data_dir))?;
        let answering = formed.map(|formed| formed.answer(node.clone()));
        let connected = broker_options.connected.clone();
        let broker = with_patience(Broker::start(node.clone(), clock, broker_options), connected)
            .await
            .map_err(|error| Failure::Failed(format!("the broker does not start: {error}")))?;
        if let Err(error) = data_dir.note_start() {
            // On a full disk, for example. The next start notes it.
            tracing::warn!(%error, "it is not noted that the node has started");
        }
        let fronts = Fronts::open(config, settings, &descriptors, &broker).await?;
        Ok::<_, Failure>((node, answering, broker, fronts))
    };
    let (node, answering, broker, fronts) = tokio::select! {
        started = starting => started?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before it had started");
            return Ok(());
        }
    };
    fronts.announce(answering.as_ref().map(|answering| answering.address))?;
    let stopping = fronts.serve();
    let signal = signals.next().await;
    tracing::info!(signal, "stopping: finishing what is under way");
    let drained = async {
        // While clients are still answered: they hear from here who leads from now on.
        broker.give_leaderships_away(GIVING_AWAY_MAX).await;
        stopping.stop().await;
        broker.shutdown().await;
        node.shutdown().await;
        if let Some(answering) = answering {
            answering.stop().await;
        }
    };
    tokio::select! {
        () = drained => tracing::info!("stopped"),
        () = tokio::time::sleep(config.drain_timeout + STORAGE_GRACE) => {
            tracing::warn!("not everything was finished in time; what was acknowledged is on the disk");
        }
        signal = signals.next() => tracing::warn!(signal, "stopping at once"),
    }
    Ok(())
}

/// How long other nodes have to take over what this one leads when it stops. Those that do not are elected later.
const GIVING_AWAY_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Beyond the time that connections have, the storage may take this long for its last checkpoint. Without
/// one the next start only reads more.
const STORAGE_GRACE: std::time::Duration = std::time::Duration::from_secs(10);

fn node_options(
    config: &Config,
    data_dir: &DataDir,
    descriptors: &Descriptors,
    formed: Option<&Formed>,
) -> Result<NodeOptions, Failure> {
    let identity = &data_dir.identity;
    let storage = &config.storage;
    let mut options = NodeOptions::new(identity.node(), &data_dir.path, OnFatal::new(stop::at_once));
    options.data_shards = identity.shards;
    if let Some(formed) = formed {
        options.voters = formed.founders.iter().copied().collect();
        options.incarnation = formed.incarnation;
        options.data_shards = formed.shards;
        options.can_be_joined = true;
        options.abandons_others = identity.abandons_others;
        options.on_removed = OnFatal::new(stop::for_good);
    }
    options.journal.identity = identity.journal()?;
    options.journal.must_exist = identity.has_started;
    options.journal.file_bytes = storage.journal_file_bytes;
    options.journal.group_bytes_max =
        options.journal.group_bytes_max.min((storage.journal_file_bytes / 2) as usize);
    options.journal.journal_bytes_max = storage.journal_bytes;
    options.journal.accept_loss_from = storage.accept_loss_from;
    options.checkpoint_bytes = storage.checkpoint_bytes;
    options.shard.open_files_max = descriptors.open_files_max;
    options.shard.dirty_files_max = descriptors.dirty_files_max;
    options.admission_bytes_max = storage.admission_bytes as usize;
    options.disk_reserve_bytes = storage.disk_reserve_bytes;
    options.seed = random_u64();
    Ok(options)
}

fn broker_options(
    config: &Config,
    data_dir: &DataDir,
    formed: Option<&Formed>,
) -> weir_broker::BrokerOptions {
    let mut options = config.broker.clone();
    options.cluster_id = match formed {
        Some(formed) => formed.cluster_id.clone(),
        None => data_dir.identity.cluster_id.clone(),
    };
    if let Some(formed) = formed {
        options.advertised.insert(CLUSTER_LISTENER.to_owned(), formed.told.clone());
    }
    options.connected = formed.map(Formed::connected);
    options.seed = random_seed();
    options
}

/// What an operator can do about storage that does not open.
fn cannot_start(error: &StartError, data_dir: &DataDir) -> Failure {
    let directory = data_dir.path.display();
    match error {
        StartError::Options(why) => Failure::Usage(why.clone()),
        StartError::Disk(error) => Failure::Io(format!("the data directory {directory}: {error}")),
        StartError::Journal(JournalError::Disk(error)) => {
            Failure::Io(format!("the data directory {directory}: {error}"))
        }
        StartError::Journal(error @ JournalError::Corrupt { lost, .. }) => {
            let from = lost.iter().map(|range| range.from).min().unwrap_or_default();
            Failure::Corrupt(format!(
                "{error}; restore the directory from a copy, or accept the loss with --journal-accept-loss-from {from}"
            ))
        }
        StartError::Journal(error @ JournalError::Gone(_)) => Failure::Corrupt(format!(
            "{error}, although this node has run with it; nothing was changed: put it back, or accept the loss of what came \
             after the checkpoints with --journal-accept-loss-from 0; where there are other nodes, empty all of the directory \
             instead, and it is filled anew"
        )),
        StartError::MissingVote { .. } => {
            Failure::Corrupt(format!("{error} with --journal-accept-loss-from 0; nothing was deleted"))
        }
        StartError::Journal(error @ JournalError::Options(_)) => Failure::Usage(error.to_string()),
        StartError::Journal(error @ JournalError::NewerFormat { .. }) => {
            Failure::Usage(format!("{error}; use a newer version of weir"))
        }
        error => Failure::Corrupt(format!(
            "the data directory {directory}: {error}; nothing was deleted: restore the directory from a copy"
        )),
    }
}

/// A number that nobody else draws, from the system's source of randomness: half of a random UUID, of which
/// four bits are fixed.
fn random_u64() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *uuid::Uuid::new_v4().as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn random_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for part in seed.chunks_exact_mut(8) {
        part.copy_from_slice(&random_u64().to_le_bytes());
    }
    seed
}
