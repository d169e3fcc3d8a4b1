//! What can be set on a node, with defaults that suit a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_log::journal::JournalOptions;
use weir_model::{Incarnation, NodeId};
use weir_shard::ShardOptions;

use crate::errors::StartError;
use crate::identity::DATA_SHARDS_MAX;
use crate::raft::member::NODE_NUMBER_MAX;

/// How a node behaves.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// This node.
    pub node: NodeId,
    /// How often this node has begun with nothing, as the cluster has told it. Other than the first, it does not vote
    /// before the others have taken it in, whatever `voters` says.
    pub incarnation: Incarnation,
    /// Where `journal/` and `shards/` are.
    pub data_dir: PathBuf,
    /// Shards besides the meta shard.
    pub data_shards: u32,
    /// Who votes in every shard, when the data directory is empty. What the shards themselves have
    /// agreed on counts from then on.
    pub voters: Vec<NodeId>,
    /// Whether others can join, so that a node that votes alone does not stay alone for ever.
    pub can_be_joined: bool,
    /// Makes this node the only voter of every shard, whoever voted before: what only others have is lost. Only for a node
    /// that an operator has made the first of another cluster, because too many of its own are lost for ever.
    pub abandons_others: bool,
    /// The journal's.
    pub journal: JournalOptions,
    /// Every shard's.
    pub shard: ShardOptions,
    /// Heartbeats and elections.
    pub timing: RaftTiming,
    /// A shard's checkpoint begins when its oldest entry that none covers lies this many bytes back in the
    /// journal.
    pub checkpoint_bytes: u64,
    /// Bytes of a shard between acceptance and segment write.
    pub admission_bytes_max: usize,
    /// Disk space that records never take, so that deleting, settling and checkpoints go on.
    pub disk_reserve_bytes: u64,
    /// How often the free space is asked for.
    pub disk_poll: Duration,
    /// Bytes of applied entries that a shard keeps in memory for followers that are a little behind.
    pub log_cache_bytes: usize,
    /// Entries of a shard that were proposed and are not committed yet.
    pub proposals_in_flight_max: usize,
    /// Bytes that wait for the journal before those who bring more have to wait.
    pub journal_queue_bytes_max: usize,
    /// The journal is sealed, and the pointers that nobody waits for are written down, when nothing
    /// was appended for this long.
    pub journal_idle: Duration,
    /// How often the replicas of a shard compare their states.
    pub digest_interval: Duration,
    /// How often every segment file is read again to see whether it is still what was written.
    pub scrub_interval: Duration,
    /// Bytes that snapshots to other nodes take in a second, all of them together, so that a leader's own work does not
    /// suffer; without a limit if none is set.
    pub snapshot_bytes_per_second: Option<u64>,
    /// What the random part of election timeouts is drawn from. The binary draws it.
    pub seed: u64,
    /// Called once, with the reason, when the process must not go on.
    pub on_fatal: OnFatal,
    /// Called with the reason when this node is of no use to its cluster any more: it was removed, or its data was replaced.
    pub on_removed: OnFatal,
}

impl NodeOptions {
    /// The defaults of a cluster of one.
    pub fn new(node: NodeId, data_dir: impl Into<PathBuf>, on_fatal: OnFatal) -> NodeOptions {
        NodeOptions {
            node,
            incarnation: Incarnation::FIRST,
            data_dir: data_dir.into(),
            data_shards: 8,
            voters: vec![node],
            can_be_joined: false,
            abandons_others: false,
            journal: JournalOptions::default(),
            shard: ShardOptions::default(),
            timing: RaftTiming::default(),
            checkpoint_bytes: 128 << 20,
            admission_bytes_max: 64 << 20,
            disk_reserve_bytes: 512 << 20,
            disk_poll: Duration::from_millis(500),
            log_cache_bytes: 8 << 20,
            proposals_in_flight_max: 256,
            journal_queue_bytes_max: 256 << 20,
            journal_idle: Duration::from_millis(50),
            digest_interval: Duration::from_secs(600),
            scrub_interval: Duration::from_secs(24 * 3600),
            snapshot_bytes_per_second: None,
            seed: 0,
            on_removed: on_fatal.clone(),
            on_fatal,
        }
    }

    /// Whether there are other nodes, or may be one day.
    pub(crate) fn has_others(&self) -> bool {
        self.can_be_joined || self.voters != [self.node]
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let wrong = |why: &str| Err(StartError::Options(why.to_owned()));
        if self.data_shards == 0 || self.data_shards > DATA_SHARDS_MAX {
            return Err(StartError::Options(format!(
                "a node has from 1 to {DATA_SHARDS_MAX} data shards, not {}",
                self.data_shards
            )));
        }
        if self.voters.is_empty() {
            return wrong("a cluster needs at least one voter");
        }
        if let Some(node) = self.voters.iter().chain([&self.node]).find(|node| node.0 > NODE_NUMBER_MAX) {
            return Err(StartError::Options(format!(
                "nodes have numbers up to {NODE_NUMBER_MAX}, and {node} is above that"
            )));
        }
        if !self.has_others() && self.incarnation != Incarnation::FIRST {
            return wrong("a node that is alone has nobody to get its data back from");
        }
        if self.admission_bytes_max < 1 << 20 || self.admission_bytes_max > 1 << 30 {
            return wrong("admission takes from 1 MiB to 1 GiB for a shard");
        }
        if self.proposals_in_flight_max == 0 {
            return wrong("at least one proposal must be allowed on its way");
        }
        if self.snapshot_bytes_per_second == Some(0) {
            return wrong("at no bytes per second no snapshot ever arrives; leave the limit out");
        }
        if self.timing.heartbeat.is_zero() || self.timing.election_min <= self.timing.heartbeat {
            return wrong("the shortest election timeout must be longer than the heartbeat interval");
        }
        if self.timing.election_max <= self.timing.election_min {
            return wrong("the longest election timeout must be longer than the shortest");
        }
        Ok(())
    }
}

/// Heartbeats and elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTiming {
    /// A leader is heard of at least this often.
    pub heartbeat: Duration,
    /// A follower that has not heard of a leader for a time between this ...
    pub election_min: Duration,
    /// ... and this wants to lead.
    pub election_max: Duration,
}

impl Default for RaftTiming {
    fn default() -> Self {
        RaftTiming {
            heartbeat: Duration::from_millis(150),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(1000),
        }
    }
}

/// What to do when the process must not go on: say the reason and exit, or note it in a test.
#[derive(Clone)]
pub struct OnFatal(Arc<dyn Fn(&str) + Send + Sync>);

impl OnFatal {
    /// Calls `act` with the reason.
    pub fn new(act: impl Fn(&str) + Send + Sync + 'static) -> OnFatal {
        OnFatal(Arc::new(act))
    }

    pub(crate) fn call(&self, reason: &str) {
        (self.0)(reason);
    }
}

impl fmt::Debug for OnFatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFatal")
    }
}

/// Where blocking work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// On threads of its own.
    Threads,
    /// In tasks of the runtime, so that everything happens in one thread in an order that a seed
    /// decides. Every sync takes this long by the runtime's clock.
    Tasks {
        /// How long a sync seems to take.
        sync_latency: Duration,
    },
}
