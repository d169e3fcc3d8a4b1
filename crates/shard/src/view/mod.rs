//! The read side of a shard: what everybody but the apply worker sees. Snapshots behind `Arc`, and
//! locks that are held for a look, never for a file operation.

mod doubts;
mod observer;
mod partition;
mod read;
mod tail;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use weir_model::{Offset, PartitionId, SubscriptionId, TimestampMs};

use crate::machine::SubscriptionKey;
use crate::state::accounts::Accounts;
use crate::state::catalog::Catalog;
use crate::state::group::GroupState;
use crate::state::nodes::Nodes;
use crate::state::subscription::Subscription;
use crate::state::timers::Timers;
use crate::state::topology::Topology;

pub(crate) use doubts::Doubts;
pub use observer::{AppendObserver, ObserverGuard};
pub use partition::PartitionView;
pub use read::{BatchPosition, ReadError, ReadOut};

/// What a shard shows. Cheap to clone; all clones show the same, and always what is applied by now.
#[derive(Clone, Debug)]
pub struct ShardView {
    shown: Arc<Shown>,
}

/// What the apply worker shows to the others.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub partitions: RwLock<BTreeMap<PartitionId, Arc<PartitionView>>>,
    pub catalog: RwLock<Arc<Catalog>>,
    pub topology: RwLock<Arc<Topology>>,
    /// See [`ShardView::policies_changed_at`].
    pub policies_changed_at: AtomicU64,
    pub accounts: RwLock<Arc<Accounts>>,
    pub nodes: RwLock<Arc<Nodes>>,
    pub groups: RwLock<BTreeMap<String, Arc<GroupState>>>,
    pub timers: RwLock<BTreeMap<PartitionId, Arc<Timers>>>,
    pub subscriptions: RwLock<BTreeMap<SubscriptionKey, Arc<Subscription>>>,
    pub applied_index: AtomicU64,
    pub entry_time: AtomicI64,
    /// How many leaderships there have been; all partitions' epochs follow from it.
    pub leaderships: Arc<AtomicU64>,
    /// Where files were found to be damaged.
    pub doubts: Arc<Doubts>,
    /// Bytes in all tails.
    pub unwritten_bytes: AtomicUsize,
    /// Whether there are files that the next checkpoint will let go of.
    pub holds_retired: Arc<AtomicBool>,
}

impl ShardView {
    pub(crate) fn new(shown: Arc<Shown>) -> ShardView {
        ShardView { shown }
    }

    /// A partition of this shard. A view that is kept stays good until the partition is closed.
    pub fn partition(&self, id: PartitionId) -> Option<Arc<PartitionView>> {
        self.shown.partitions.read().get(&id).cloned()
    }

    /// All partitions of this shard by id.
    pub fn partitions(&self) -> Vec<Arc<PartitionView>> {
        self.shown.partitions.read().values().cloned().collect()
    }

    /// Where reads have found, since this was called last, that a segment file is not what was written: partitions, and
    /// offsets from which they could not be read.
    pub fn take_doubts(&self) -> Vec<(PartitionId, Offset)> {
        self.shown.doubts.take()
    }

    /// All topics, if this is the meta shard.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.shown.catalog.read())
    }

    /// An individual subscription of a partition, as it is now.
    pub fn subscription(&self, partition: PartitionId, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.shown.subscriptions.read().get(&(partition, id)).cloned()
    }

    /// All individual subscriptions of a partition, as they are now.
    pub fn subscriptions(&self, partition: PartitionId) -> Vec<(SubscriptionId, Arc<Subscription>)> {
        let all = (partition, SubscriptionId(0))..=(partition, SubscriptionId(u64::MAX));
        let shown = self.shown.subscriptions.read();
        shown.range(all).map(|((_, id), state)| (*id, Arc::clone(state))).collect()
    }

    /// The deadlines of a partition's records, as they are now; none if there are none.
    pub fn timers(&self, partition: PartitionId) -> Option<Arc<Timers>> {
        self.shown.timers.read().get(&partition).cloned()
    }

    /// All exchanges and bindings, if this is the meta shard.
    pub fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.shown.topology.read())
    }

    /// At which entry a policy was changed last; the topology that is given out from then on has it. Without a lock, for
    /// whoever looks often.
    pub fn policies_changed_at(&self) -> u64 {
        self.shown.policies_changed_at.load(Ordering::Acquire)
    }

    /// All users, namespaces and permissions, if this is the meta shard. The same value is given out until one of them
    /// changes.
    pub fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&self.shown.accounts.read())
    }

    /// All nodes that are registered, if this is the meta shard. The same value is given out until one of them changes.
    pub fn nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.shown.nodes.read())
    }

    /// A group, as it is now.
    pub fn group(&self, name: &str) -> Option<Arc<GroupState>> {
        self.shown.groups.read().get(name).cloned()
    }

    /// The names of all groups of this shard, sorted.
    pub fn groups(&self) -> Vec<String> {
        self.shown.groups.read().keys().cloned().collect()
    }

    /// Index of the last entry whose effects are shown.
    pub fn applied_index(&self) -> u64 {
        self.shown.applied_index.load(Ordering::Acquire)
    }

    /// Time of that entry.
    pub fn entry_time(&self) -> TimestampMs {
        self.shown.entry_time.load(Ordering::Acquire)
    }

    /// How many leaderships the shard has had.
    pub fn leaderships(&self) -> u64 {
        self.shown.leaderships.load(Ordering::Acquire)
    }

    /// Bytes that are applied but not in segment files yet: what admission must bound.
    pub fn unwritten_bytes(&self) -> usize {
        self.shown.unwritten_bytes.load(Ordering::Acquire)
    }

    /// Whether files of what was trimmed or closed are waiting for a checkpoint that does not name them.
    pub fn holds_retired(&self) -> bool {
        self.shown.holds_retired.load(Ordering::Acquire)
    }
}
