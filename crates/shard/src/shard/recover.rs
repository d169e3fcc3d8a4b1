//! From a checkpoint to a replica: the state is shown, and segment files are cut back to what it says.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_log::partition::{PartitionError, remove_partition};
use weir_model::PartitionId;

use super::{Shard, ShardError};
use crate::files::{PartitionFiles, manifest_of};
use crate::view::PartitionView;

impl Shard {
    /// Opens the files of a state that was just loaded, and shows it.
    pub(super) fn recover(&mut self) -> Result<(), ShardError> {
        self.shown.leaderships.store(self.machine.leaderships(), Ordering::Release);
        for (id, state) in self.machine.partitions() {
            let dir = self.files.partition_dir(id);
            let files =
                PartitionFiles::open(self.files.handles(), dir, &manifest_of(state)).map_err(|error| {
                    match error {
                        PartitionError::Disk(error) => ShardError::Disk(error),
                        error => ShardError::Partition { partition: id, why: error.to_string() },
                    }
                })?;
            let view = Arc::new(PartitionView::new(id, state, &self.shown, files));
            self.files.tidy_later(&view);
            self.partitions.insert(id, view);
        }
        self.show_all();
        self.remove_closed()
    }

    /// Shows all of the state, whatever was shown before.
    pub(super) fn show_all(&self) {
        self.shown.leaderships.store(self.machine.leaderships(), Ordering::Release);
        *self.shown.partitions.write() = self.partitions.clone();
        *self.shown.catalog.write() = Arc::clone(self.machine.catalog());
        self.show_topology();
        *self.shown.accounts.write() = Arc::clone(self.machine.accounts());
        *self.shown.nodes.write() = Arc::clone(self.machine.nodes());
        *self.shown.groups.write() =
            self.machine.groups().map(|(name, group)| (name.clone(), Arc::clone(group))).collect();
        *self.shown.subscriptions.write() =
            self.machine.subscriptions().map(|(key, state)| (key, Arc::clone(state))).collect();
        *self.shown.timers.write() =
            self.machine.all_timers().map(|(id, timers)| (id, Arc::clone(timers))).collect();
        self.show_applied();
    }

    /// Removes the files of partitions whose close is part of the checkpoint. Directories that it does
    /// not know are left: the journal may be about to open them again.
    fn remove_closed(&self) -> Result<(), ShardError> {
        for entry in self.files.disk().list(self.files.dir())? {
            let id = entry.name.parse().map(PartitionId);
            if let Ok(id) = id
                && entry.is_dir
                && entry.name == id.to_string()
                && self.machine.is_closed(id)
            {
                remove_partition(self.files.handles(), &self.files.partition_dir(id))?;
            }
        }
        Ok(())
    }
}
