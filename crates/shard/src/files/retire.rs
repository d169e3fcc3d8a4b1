//! Segments that were trimmed away and partitions that were closed: their files are unlinked when a
//! durable checkpoint does not name them any more. Until then a restart may need them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_log::partition::{PartitionError, PartitionLog, remove_partition};
use weir_model::{Offset, PartitionId, SegmentId};

use super::ShardFiles;
use super::rewrite::{RewriteError, Rewriting};
use crate::view::PartitionView;

/// Something whose files are to go.
#[derive(Debug)]
pub(crate) enum Retirement {
    /// Segments wholly below the log start.
    Segments { partition: Arc<PartitionView>, log_start: Offset, dropped: Vec<SegmentId> },
    /// Segments that become one of a later generation, or none.
    Rewrite(Rewriting),
    /// All of a partition.
    Partition(Arc<PartitionView>),
}

/// What was let go, by the index of the entry that did.
pub(super) type Retired = VecDeque<(u64, Retirement)>;

/// What may be unlinked after the next checkpoint.
#[derive(Debug, Default)]
pub(super) struct Retiring {
    /// Partitions with files that no checkpoint names.
    tidied: BTreeMap<PartitionId, Arc<PartitionView>>,
    closed: Vec<Arc<PartitionView>>,
}

impl ShardFiles {
    /// The entry at `index` let something go.
    pub(crate) fn retire(&self, index: u64, retirement: Retirement) {
        let mut retired = self.retired.lock();
        retired.push_back((index, retirement));
        self.holds_retired.store(true, Ordering::Release);
    }

    /// The partition's directory may hold files from before the last start.
    pub(crate) fn tidy_later(&self, partition: &Arc<PartitionView>) {
        self.retiring.lock().tidied.insert(partition.id(), Arc::clone(partition));
    }

    /// Hides what was let go by entries up to `index` from readers that come now, and writes anew what they said. To be
    /// called when all of these entries are written, and before the checkpoint at `index` is durable; by one at a time.
    /// After an error the rest is still to be done.
    pub(crate) fn hide_retired(&self, index: u64) -> Result<(), RewriteError> {
        let next = || self.retired.lock().pop_front_if(|(at, _)| *at <= index);
        while let Some((at, retirement)) = next() {
            match retirement {
                Retirement::Segments { partition, log_start, dropped } => {
                    partition.files().with_log(|log| hide(log, log_start, &dropped));
                    self.tidy_later(&partition);
                }
                Retirement::Rewrite(rewriting) => {
                    if let Err(error) = self.rewrite(&rewriting) {
                        self.retired.lock().push_front((at, Retirement::Rewrite(rewriting)));
                        return Err(error);
                    }
                    self.tidy_later(&rewriting.partition);
                }
                Retirement::Partition(partition) => self.retiring.lock().closed.push(partition),
            }
        }
        Ok(())
    }

    /// Unlinks what [`ShardFiles::hide_retired`] hid, now that the checkpoint that followed is durable.
    /// What is still being read, or cannot be unlinked, is tried again after the next one.
    pub(crate) fn unlink_retired(&self) {
        if self.holds().are_held() {
            return;
        }
        let mut retiring = self.retiring.lock();
        retiring.tidied.retain(|_, partition| {
            let left = partition.files().with_log(unlink);
            !matches!(left, None | Some(Ok(0)))
        });
        retiring.closed.retain(|partition| self.remove(partition).is_err());
        let retired = self.retired.lock();
        self.holds_retired.store(!retired.is_empty(), Ordering::Release);
    }

    /// A later state was put in the place of the one that all this was to be done for: `gone` are partitions that it
    /// does not have, `kept` those whose files may have been replaced.
    pub(crate) fn supersede(&self, gone: &[Arc<PartitionView>], kept: &[Arc<PartitionView>]) {
        self.waiting.lock().clear();
        let retired = std::mem::take(&mut *self.retired.lock());
        let closed = retired.into_iter().filter_map(|(_, retirement)| match retirement {
            Retirement::Partition(partition) => Some(partition),
            Retirement::Segments { .. } | Retirement::Rewrite(_) => None,
        });
        let mut retiring = self.retiring.lock();
        retiring.closed.extend(closed.chain(gone.iter().cloned()));
        let gone = |id: &PartitionId| gone.iter().any(|partition| partition.id() == *id);
        retiring.tidied.retain(|id, _| !gone(id));
        retiring.tidied.extend(kept.iter().map(|partition| (partition.id(), Arc::clone(partition))));
    }

    fn remove(&self, partition: &PartitionView) -> Result<(), PartitionError> {
        if let Some(mut log) = partition.files().take_log() {
            // Lets go of its open files. Whoever still reads goes on.
            log.roll();
            log.retire_below(log.end());
            let _ = unlink(&mut log);
        }
        remove_partition(&self.handles, partition.files().dir())?;
        Ok(())
    }
}

fn hide(log: &mut PartitionLog, log_start: Offset, dropped: &[SegmentId]) {
    // The machine has let go of the segment that was appended to: the next append begins another.
    let open = log.reader().segments().last().filter(|last| !last.closed).map(|last| last.base);
    if open.is_some_and(|base| dropped.iter().any(|id| id.base == base)) {
        log.roll();
    }
    log.retire_below(log_start);
}

fn unlink(log: &mut PartitionLog) -> Result<usize, PartitionError> {
    let (_, ticket) = log.manifest()?;
    log.unlink_retired(ticket)
}
