//! Bringing the partitions into agreement with the catalog: after a start, after a change of the meta
//! shard's leader, and when something was left half done. The catalog is right; every step may be
//! repeated.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use weir_model::ShardId;
use weir_model::command::{Command, Outcome, PartitionMeta, Refusal};
use weir_model::settings::PartitionSettings;

use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable, refused};

/// How long to wait before another attempt.
const RETRY: Duration = Duration::from_millis(500);

/// Commands on their way at the same time.
const IN_FLIGHT: usize = 256;

impl Broker {
    /// Reconciles whenever this node begins to lead the meta shard, until it succeeds.
    pub(crate) async fn reconcile_always(self: Arc<Broker>) {
        let Ok(meta) = self.meta() else { return };
        let mut leadership = meta.on_leadership();
        loop {
            let current = *leadership.borrow_and_update();
            if current.is_leader && current.ready {
                self.reconcile_until_done(current.term).await;
            } else if !current.is_leader && current.leader.is_some() {
                // The leader sees to it.
                self.reconciled.store(true, Ordering::Release);
            }
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() { return },
                () = self.unfinished.notified() => {}
                () = self.stopped() => return,
            }
        }
    }

    async fn reconcile_until_done(&self, term: u64) {
        while !self.is_stopping() {
            match self.reconcile().await {
                Ok(changes) => {
                    self.reconciled.store(true, Ordering::Release);
                    if changes > 0 {
                        tracing::info!(changes, "brought the partitions into agreement with the catalog");
                    }
                    return;
                }
                Err(error) => tracing::warn!(%error, "the partitions do not agree with the catalog yet"),
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = self.stopped() => return,
            }
            let still = self.meta().is_ok_and(|meta| {
                let now = meta.leadership();
                now.is_leader && now.term == term
            });
            if !still {
                return;
            }
        }
    }

    /// Waits until the partitions agree with the catalog for the first time.
    pub(crate) async fn until_reconciled(&self) -> Result<(), Unavailable> {
        while !self.reconciled.load(Ordering::Acquire) {
            if self.is_stopping() {
                return Err(Unavailable::ShuttingDown);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// One attempt. How many changes it took.
    async fn reconcile(&self) -> Result<usize, AdminError> {
        // What is open is listed before the catalog is looked at: a partition is opened only after
        // the catalog has it, so one that is open and not in the catalog is a deleted topic's.
        let mut open: Vec<(ShardId, Vec<weir_model::PartitionId>)> = Vec::new();
        for shard in self.shards_of_partitions() {
            let handle = self.shard(shard)?;
            if handle.leadership().is_leader {
                let partitions = handle.view().partitions();
                open.push((shard, partitions.iter().map(|partition| partition.id()).collect()));
            }
        }
        let catalog = self.current_meta().await?.view().catalog();
        self.count_loads();
        let mut work: Vec<(ShardId, Command)> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        for topic in catalog.topics() {
            let settings = self.settings_of(&topic);
            for partition in &topic.partitions {
                known.insert(partition.id);
                if self.is_elsewhere(partition.shard) {
                    continue;
                }
                if let Some(command) = self.correction(partition, &settings)? {
                    work.push((partition.shard, command));
                }
            }
        }
        let deleting = catalog.deleting();
        known.extend(deleting.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.id)));
        for (shard, partitions) in open {
            let orphans = partitions.into_iter().filter(|id| !known.contains(id));
            work.extend(orphans.map(|partition| (shard, Command::ClosePartition { partition })));
        }
        let changes = work.len() + deleting.len();
        let mut outcomes = stream::iter(work)
            .map(|(shard, command)| self.propose_to(shard, command))
            .buffer_unordered(IN_FLIGHT);
        while let Some(outcome) = outcomes.next().await {
            match outcome? {
                Outcome::Done => {}
                // The topic was deleted meanwhile.
                Outcome::Refused(Refusal::UnknownPartition(_)) => {}
                other => return Err(refused(other)),
            }
        }
        for topic in deleting {
            self.finish_deletion(&topic).await?;
        }
        self.count_loads();
        Ok(changes)
    }

    /// What must be done to a partition; nothing if it is as it should be.
    fn correction(
        &self,
        partition: &PartitionMeta,
        settings: &PartitionSettings,
    ) -> Result<Option<Command>, Unavailable> {
        let view = self.shard(partition.shard)?.view().partition(partition.id);
        Ok(match view {
            None => Some(Command::OpenPartition {
                partition: partition.id,
                settings: settings.clone(),
                epoch_base: 0,
            }),
            Some(view) if *view.settings() != *settings => {
                Some(Command::ConfigurePartition { partition: partition.id, settings: settings.clone() })
            }
            Some(_) => None,
        })
    }
}
