//! From the machine's effects to what readers see.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_model::settings::PartitionSettings;
use weir_model::{PartitionId, SubscriptionId};

use super::Shard;
use crate::files::{PartitionFiles, Retirement, Rewriting};
use crate::machine::Effect;
use crate::state::partition::PartitionState;
use crate::view::PartitionView;

impl Shard {
    /// Shows one entry's effects, then tells whoever waits for them, once per partition.
    pub(super) fn publish(&mut self, effects: impl Iterator<Item = Effect>) {
        let mut grown = std::mem::take(&mut self.grown);
        let mut closed: Vec<Arc<PartitionView>> = Vec::new();
        let mut catalog_changed = false;
        let mut topology_changed = false;
        let mut access_changed = false;
        let mut nodes_changed = false;
        let index = self.machine.applied_index();
        for effect in effects {
            match effect {
                Effect::Appended { partition, batch, starts_segment } => {
                    let Some(view) = self.partitions.get(&partition) else { continue };
                    self.shown.unwritten_bytes.fetch_add(batch.len(), Ordering::AcqRel);
                    let shown = view.append(batch, starts_segment, self.machine.entry_time());
                    if shown.unqueued {
                        self.files.queue(Arc::clone(view));
                    }
                    if shown.grown {
                        grown.push(Arc::clone(view));
                    }
                }
                Effect::PartitionOpened(id) => self.open_view(id),
                Effect::PartitionConfigured(id) => {
                    if let (Some(view), Some(state)) = (self.partitions.get(&id), self.machine.partition(id))
                    {
                        view.configure(Arc::clone(&state.settings));
                    }
                }
                Effect::PartitionClosed(id) => {
                    self.shown.partitions.write().remove(&id);
                    if let Some(view) = self.partitions.remove(&id) {
                        view.close();
                        self.files.retire(index, Retirement::Partition(Arc::clone(&view)));
                        closed.push(view);
                    }
                }
                Effect::Trimmed { partition, log_start, segments_dropped: dropped } => {
                    let Some(view) = self.partitions.get(&partition) else { continue };
                    view.trim(log_start);
                    if !dropped.is_empty() {
                        let partition = Arc::clone(view);
                        self.files.retire(index, Retirement::Segments { partition, log_start, dropped });
                    }
                }
                Effect::Rewritten { partition, segments, kept, new } => {
                    let Some(view) = self.partitions.get(&partition) else { continue };
                    view.rewrite(&segments, new);
                    let partition = Arc::clone(view);
                    self.files
                        .retire(index, Retirement::Rewrite(Rewriting { partition, segments, kept, new }));
                }
                Effect::SubscriptionChanged(partition, id) => self.show_subscription(partition, id),
                Effect::TimersChanged(partition) => self.show_timers(partition),
                Effect::CatalogChanged => catalog_changed = true,
                Effect::TopologyChanged => topology_changed = true,
                Effect::AccessChanged => access_changed = true,
                Effect::NodesChanged => nodes_changed = true,
                Effect::GroupChanged(name) => self.show_group(name),
                Effect::LeadChanged { leaderships, .. } => {
                    self.shown.leaderships.store(leaderships, Ordering::Release);
                }
            }
        }
        if catalog_changed {
            *self.shown.catalog.write() = Arc::clone(self.machine.catalog());
        }
        if topology_changed {
            self.show_topology();
        }
        if access_changed {
            *self.shown.accounts.write() = Arc::clone(self.machine.accounts());
        }
        if nodes_changed {
            *self.shown.nodes.write() = Arc::clone(self.machine.nodes());
        }
        grown.drain(..).for_each(|view| view.tell());
        self.grown = grown;
        closed.iter().for_each(|view| view.observers().closed());
    }

    /// The topology first: whoever hears that policies were changed finds them there.
    pub(super) fn show_topology(&self) {
        let topology = self.machine.topology();
        *self.shown.topology.write() = Arc::clone(topology);
        self.shown.policies_changed_at.store(topology.policies_changed_at(), Ordering::Release);
    }

    fn open_view(&mut self, id: PartitionId) {
        // Opened and closed by the same entry: there is nothing to show.
        let Some(state) = self.machine.partition(id) else { return };
        // What the entry went on to do with it is shown by the effects that follow.
        let fresh =
            PartitionState::new(PartitionSettings::clone(&state.settings), state.epoch_base, state.opened_at);
        let files = PartitionFiles::unopened(self.files.partition_dir(id));
        let view = Arc::new(PartitionView::new(id, &fresh, &self.shown, files));
        self.shown.partitions.write().insert(id, Arc::clone(&view));
        self.partitions.insert(id, view);
    }

    fn show_subscription(&self, partition: PartitionId, id: SubscriptionId) {
        let mut subscriptions = self.shown.subscriptions.write();
        match self.machine.subscription(partition, id) {
            Some(state) => subscriptions.insert((partition, id), Arc::clone(state)),
            None => subscriptions.remove(&(partition, id)),
        };
    }

    fn show_timers(&self, partition: PartitionId) {
        let mut shown = self.shown.timers.write();
        match self.machine.timers(partition) {
            Some(timers) => shown.insert(partition, Arc::clone(timers)),
            None => shown.remove(&partition),
        };
    }

    fn show_group(&self, name: String) {
        let mut groups = self.shown.groups.write();
        match self.machine.group(&name) {
            Some(group) => groups.insert(name, Arc::clone(group)),
            None => groups.remove(&name),
        };
    }
}
