//! The deterministic state machine. Everything in it is a pure function of the entries applied, in
//! their order: it reads no clock, no configuration, no file, and iterates over nothing unordered.
//!
//! A command that cannot be carried out is *refused*, which is an outcome like any other and the same
//! on every replica. An entry that this binary does not understand, or whose digest shows that this
//! replica differs from the leader's, is an error: the replica stops before it does harm.

mod accounts;
mod codec;
mod digest;
mod groups;
mod meta;
mod nodes;
mod partitions;
mod policies;
mod relays;
mod subscriptions;
#[cfg(test)]
mod tests;
mod timers;
mod topology;
mod unique;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_model::batch::StoredBatch;
use weir_model::command::{Command, Outcome};
use weir_model::entry::Entry;
use weir_model::{NodeId, Offset, PartitionId, SegmentId, SubscriptionId, TimestampMs};

use crate::limits::{DIGESTS_MAX, MACHINE_VERSION_MAX};
use crate::state::accounts::Accounts;
use crate::state::catalog::Catalog;
use crate::state::chunk::{Buckets, Chunk};
use crate::state::closed::ClosedPartitions;
use crate::state::group::GroupState;
use crate::state::nodes::Nodes;
use crate::state::partition::{PartitionState, Rewrite, SegmentInfo};
use crate::state::subscription::Subscription;
use crate::state::timers::Timers;
use crate::state::topology::Topology;
use crate::state::window::Window;

pub(crate) use codec::{ChunkId, ChunkKind};
pub(crate) use subscriptions::SubscriptionKey;
pub(crate) use unique::WindowKey;

/// Partitions of one chunk of state: a change of one makes the next checkpoint write these.
const PARTITIONS_PER_CHUNK: u64 = 64;

type PartitionChunk = Chunk<BTreeMap<PartitionId, Arc<PartitionState>>>;
type SubscriptionChunk = Chunk<BTreeMap<SubscriptionKey, Arc<Subscription>>>;
type WindowChunk = Chunk<BTreeMap<WindowKey, Arc<Window>>>;
type TimerChunk = Chunk<BTreeMap<PartitionId, Arc<Timers>>>;

/// A shard's state. Cloning it clones pointers to its chunks.
#[derive(Clone, Debug)]
pub struct Machine {
    applied_index: u64,
    applied_term: u64,
    root: Chunk<Root>,
    catalog: Arc<Catalog>,
    topology: Arc<Topology>,
    accounts: Arc<Accounts>,
    nodes: Arc<Nodes>,
    partitions: BTreeMap<u64, PartitionChunk>,
    partition_count: usize,
    /// In chunks as their partitions are.
    subscriptions: BTreeMap<u64, SubscriptionChunk>,
    /// Likewise; of partitions that have deadlines.
    timers: BTreeMap<u64, TimerChunk>,
    /// Likewise; of partitions that know keys.
    windows: BTreeMap<u64, WindowChunk>,
    closed: Chunk<ClosedPartitions>,
    groups: Buckets<String, Arc<GroupState>>,
}

/// The small things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// Selects behaviour; at least 1.
    pub version: u32,
    pub entry_time: TimestampMs,
    pub leaderships: u64,
    pub leader: Option<NodeId>,
    /// The next partition id to be handed out.
    pub next_partition: u64,
    /// The next producer id to be handed out.
    pub next_producer: i64,
    /// Index and digest of the latest `TakeDigest` commands.
    pub digests: VecDeque<(u64, u64)>,
    /// Of nodes that bring commands to whoever leads: where their lines stand.
    pub relays: BTreeMap<NodeId, RelayLine>,
}

/// Where a node's line of commands stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayLine {
    /// Which of the node's lines.
    pub token: u64,
    /// What was carried out last; 0 before the first.
    pub last: u64,
}

/// What the replica around the machine must do about a command, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The partition exists from here on.
    PartitionOpened(PartitionId),
    /// Its settings changed.
    PartitionConfigured(PartitionId),
    /// The partition is gone.
    PartitionClosed(PartitionId),
    /// A batch got its place at the end of its partition.
    Appended {
        /// Which partition.
        partition: PartitionId,
        /// The batch with its place.
        batch: StoredBatch,
        /// Whether it is the first of a new segment.
        starts_segment: bool,
    },
    /// Records below `log_start` are gone.
    Trimmed {
        /// Which partition.
        partition: PartitionId,
        /// The first offset that remains.
        log_start: Offset,
        /// Segments that are wholly below, lowest first.
        segments_dropped: Vec<SegmentId>,
    },
    /// Segments are to be written anew as one.
    Rewritten {
        /// Which partition.
        partition: PartitionId,
        /// Which, rising.
        segments: Vec<SegmentId>,
        /// The batches that stay, as runs of offsets.
        kept: Vec<(Offset, Offset)>,
        /// What they become; none if nothing stays.
        new: Option<SegmentInfo>,
    },
    /// An individual subscription appeared, changed or vanished.
    SubscriptionChanged(PartitionId, SubscriptionId),
    /// Deadlines of a partition's records changed.
    TimersChanged(PartitionId),
    /// Exchanges or bindings changed, or what they may lead to.
    TopologyChanged,
    /// Users, namespaces or permissions changed.
    AccessChanged,
    /// Nodes, or what they say of themselves, changed.
    NodesChanged,
    /// Topics changed.
    CatalogChanged,
    /// A group changed, appeared or vanished.
    GroupChanged(String),
    /// Another leadership began.
    LeadChanged {
        /// Who leads.
        node: NodeId,
        /// How many leaderships there have been, this one included.
        leaderships: u64,
    },
}

/// Why an entry could not be applied. The replica must stop: its state is not that of the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// An entry came twice or out of order.
    #[error("entry {index} cannot be applied after entry {applied}")]
    OutOfOrder {
        /// The entry.
        index: u64,
        /// What was applied last.
        applied: u64,
    },
    /// The machine was switched to a version that this binary does not have.
    #[error(
        "entry {index} needs state machine version {version}; this binary has up to {supported}: upgrade it"
    )]
    Version {
        /// The entry.
        index: u64,
        /// What it needs.
        version: u32,
        /// What there is.
        supported: u32,
    },
    /// This replica's state differs from the leader's.
    #[error(
        "the state at entry {index} digests to {ours:016x} here and to {theirs:016x} on the leader: this replica \
         has diverged and must be rebuilt"
    )]
    Diverged {
        /// The entry of the digest.
        index: u64,
        /// This replica's digest.
        ours: u64,
        /// The leader's.
        theirs: u64,
    },
    /// An earlier entry could not be applied.
    #[error("the state machine stopped at an earlier entry that it could not apply")]
    Stopped,
}

impl Default for Machine {
    fn default() -> Self {
        Machine::new()
    }
}

impl Machine {
    /// The state before the first entry.
    pub fn new() -> Machine {
        Machine {
            applied_index: 0,
            applied_term: 0,
            root: Chunk::new(Root { version: 1, ..Root::default() }, 0),
            catalog: Arc::default(),
            topology: Arc::default(),
            accounts: Arc::default(),
            nodes: Arc::default(),
            partitions: BTreeMap::new(),
            partition_count: 0,
            subscriptions: BTreeMap::new(),
            timers: BTreeMap::new(),
            windows: BTreeMap::new(),
            closed: Chunk::new(ClosedPartitions::default(), 0),
            groups: Buckets::default(),
        }
    }

    /// Applies one entry: one outcome for each of its commands, and what is to be done about them.
    /// After an error the state is that of no entry; the machine must not be used any more.
    pub fn apply(
        &mut self,
        index: u64,
        term: u64,
        entry: &Entry,
        effects: &mut Vec<Effect>,
    ) -> Result<Vec<Outcome>, ApplyError> {
        if index <= self.applied_index {
            return Err(ApplyError::OutOfOrder { index, applied: self.applied_index });
        }
        let now = entry.time.max(self.entry_time());
        self.root.change(index).entry_time = now;
        let context = Context { index, now };
        let mut outcomes = Vec::with_capacity(entry.commands.len());
        for command in &entry.commands {
            outcomes.push(self.run(context, command, effects)?);
        }
        self.set_applied(index, term);
        Ok(outcomes)
    }

    /// Notes that the log has gone on by entries that do not concern the state.
    pub fn set_applied(&mut self, index: u64, term: u64) {
        self.applied_index = self.applied_index.max(index);
        self.applied_term = self.applied_term.max(term);
    }

    /// Index of the last applied entry.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Term of the last applied entry.
    pub fn applied_term(&self) -> u64 {
        self.applied_term
    }

    /// Time of the last applied entry.
    pub fn entry_time(&self) -> TimestampMs {
        self.root.get().entry_time
    }

    /// Which version's behaviour the machine has.
    pub fn version(&self) -> u32 {
        self.root.get().version
    }

    /// How many leaderships there have been.
    pub fn leaderships(&self) -> u64 {
        self.root.get().leaderships
    }

    /// All topics.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// A group.
    pub fn group(&self, name: &str) -> Option<&Arc<GroupState>> {
        self.groups.get(name)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = (&String, &Arc<GroupState>)> {
        self.groups.iter()
    }

    pub(crate) fn root(&self) -> &Root {
        self.root.get()
    }

    fn run(
        &mut self,
        context: Context,
        command: &Command,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApplyError> {
        Ok(match command {
            Command::Lead { node } => self.lead(context, *node, effects),
            Command::SetMachineVersion { version } => self.set_version(context, *version)?,
            Command::TakeDigest => self.take_digest(context),
            Command::CompareDigest { index, digest } => self.compare_digest(*index, *digest)?,
            Command::OpenRelay { node, token } => self.open_relay(context, *node, *token),
            Command::Relayed { node, token, sequence, commands } => {
                self.relayed(context, (*node, *token, *sequence), commands, effects)?
            }

            Command::CreateTopic { name, topic_id, placement, config } => {
                self.create_topic(context, name, *topic_id, placement, config, effects)
            }
            Command::DeleteTopic { topic_id } => self.delete_topic(context, *topic_id, effects),
            Command::ForgetTopic { topic_id } => self.forget_topic(context, *topic_id, effects),
            Command::ConfigureTopic { topic_id, config } => {
                self.configure_topic(context, *topic_id, config, effects)
            }
            Command::AddPartitions { topic_id, expected, placement } => {
                self.add_partitions(context, *topic_id, *expected, placement, effects)
            }
            Command::CreateQueue { name, topic_id, placement, config, queue } => {
                self.create_queue(context, name, *topic_id, placement, config, queue, effects)
            }
            Command::AddLanes { topic_id, expected, placement, lanes } => {
                self.add_lanes(context, *topic_id, *expected, placement, lanes, effects)
            }
            Command::DeclareExchange { exchange } => self.declare_exchange(context, exchange, effects),
            Command::DeleteExchange { namespace, name, if_unused } => {
                self.delete_exchange(context, namespace, name, *if_unused, effects)
            }
            Command::Bind { binding } => self.bind(context, binding, effects),
            Command::Unbind { binding } => self.unbind(context, binding, effects),
            Command::ChangeAccess { change } => self.change_access(context, change, effects),
            Command::PutPolicy { policy } => self.put_policy(context, policy, effects),
            Command::DeletePolicy { key } => self.delete_policy(context, key, effects),
            Command::RegisterNode { node } => self.register_node(context, node, effects),
            Command::SetDraining { node, draining } => self.set_draining(context, *node, *draining, effects),
            Command::NewIncarnation { node, token } => self.new_incarnation(context, *node, *token, effects),
            Command::AdmitNode { node, token } => self.admit_node(context, node, *token, effects),
            Command::SetLeaving { node, leaving } => self.set_leaving(context, *node, *leaving, effects),
            Command::ForgetNode { node } => self.forget_node(context, *node, effects),
            Command::AllocateProducerIds { count } => self.allocate_producer_ids(context, *count),

            Command::OpenPartition { partition, settings, epoch_base } => {
                self.open_partition(context, *partition, settings, *epoch_base, effects)
            }
            Command::ConfigurePartition { partition, settings } => {
                self.configure_partition(context, *partition, settings, effects)
            }
            Command::ClosePartition { partition } => self.close_partition(context, *partition, effects),
            Command::Append { partition, batch } => self.append(context, *partition, batch, effects),
            Command::AppendToAll { partitions, batch } => {
                self.append_to_all(context, partitions, batch, effects)
            }
            Command::Trim { partition, log_start } => self.trim(context, *partition, *log_start, effects),
            Command::RewriteSegments { partition, segments, kept, bytes, max_timestamp } => {
                let (bytes, max_timestamp) = (*bytes, *max_timestamp);
                let rewrite = Rewrite { segments, kept, bytes, max_timestamp };
                self.rewrite_segments(context, *partition, &rewrite, effects)
            }

            Command::AppendTimed { partition, deadlines, batch } => {
                self.append_timed(context, *partition, deadlines, batch, effects)
            }
            Command::RemoveTimers { partition, rows } => {
                self.remove_timers(context, *partition, rows, effects)
            }
            Command::Together { commands } => self.together(context, commands, effects)?,
            Command::AppendUnique { partition, keys, batch } => {
                self.append_unique(context, *partition, keys, batch, effects)
            }
            Command::MoveRecords { partition, subscription, records, deadlines, appends } => {
                let key = (*partition, *subscription);
                self.move_records(context, key, records, deadlines, appends, effects)?
            }

            Command::OpenSubscription { partition, subscription, start } => {
                self.open_subscription(context, (*partition, *subscription), *start, effects)
            }
            Command::CloseSubscription { partition, subscription } => {
                self.close_subscription(context, (*partition, *subscription), effects)
            }
            Command::Settle { partition, subscription, handed_out, settlements } => {
                self.settle(context, (*partition, *subscription), *handed_out, settlements, effects)
            }

            Command::StoreGroup { group, membership } => {
                self.store_group(context, group, membership, effects)
            }
            Command::CommitOffsets { group, offsets } => {
                self.commit_offsets(context, group, offsets, effects)
            }
            Command::DeleteOffsets { group, partitions } => {
                self.delete_offsets(context, group, partitions, effects)
            }
            Command::DeleteGroup { group } => self.delete_group(context, group, effects),
            Command::DropTopicOffsets { topic_id } => self.drop_topic_offsets(context, *topic_id, effects),
        })
    }

    fn lead(&mut self, context: Context, node: NodeId, effects: &mut Vec<Effect>) -> Outcome {
        let root = self.root.change(context.index);
        root.leaderships += 1;
        root.leader = Some(node);
        effects.push(Effect::LeadChanged { node, leaderships: root.leaderships });
        Outcome::Done
    }

    fn set_version(&mut self, context: Context, version: u32) -> Result<Outcome, ApplyError> {
        if version > MACHINE_VERSION_MAX {
            let supported = MACHINE_VERSION_MAX;
            return Err(ApplyError::Version { index: context.index, version, supported });
        }
        // A repeat, or one that a later version overtook, changes nothing: the version never falls.
        if version > self.version() {
            self.root.change(context.index).version = version;
        }
        Ok(Outcome::Done)
    }

    fn take_digest(&mut self, context: Context) -> Outcome {
        let digest = self.digest();
        let digests = &mut self.root.change(context.index).digests;
        if digests.len() >= DIGESTS_MAX {
            digests.pop_front();
        }
        digests.push_back((context.index, digest));
        Outcome::Digest { index: context.index, digest }
    }

    fn compare_digest(&self, index: u64, theirs: u64) -> Result<Outcome, ApplyError> {
        let ours = self.root.get().digests.iter().rev().find(|(at, _)| *at == index);
        match ours {
            Some(&(_, ours)) if ours != theirs => Err(ApplyError::Diverged { index, ours, theirs }),
            // One that is not remembered any more cannot be compared.
            _ => Ok(Outcome::Done),
        }
    }
}

/// The entry that a command stands in.
#[derive(Clone, Copy, Debug)]
struct Context {
    index: u64,
    now: TimestampMs,
}
