//! The segment writer: drains tails into segment files in large writes, beside `apply`.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_log::disk::DiskError;

use crate::shard::ShardOptions;
use crate::view::{PartitionView, Shown};

/// Partitions whose tail waits to be written, each once.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<VecDeque<Arc<PartitionView>>>,
}

impl WriteQueue {
    pub(crate) fn push(&self, partition: Arc<PartitionView>) {
        self.waiting.lock().push_back(partition);
    }

    pub(crate) fn pop(&self) -> Option<Arc<PartitionView>> {
        self.waiting.lock().pop_front()
    }

    /// Those that wait now.
    pub(crate) fn snapshot(&self) -> Vec<Arc<PartitionView>> {
        self.waiting.lock().iter().cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

/// Writes what waits. One per shard; run it whenever the shard has unwritten bytes.
#[derive(Debug)]
pub struct SegmentWriter {
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) shown: Arc<Shown>,
    pub(crate) options: ShardOptions,
}

/// What one run has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written.
    pub bytes: usize,
    /// Batches written.
    pub batches: usize,
    /// Whether more waits.
    pub more: bool,
}

/// Why segments could not be written. The shard must stop: what the files hold is not certain any
/// more, and what was applied is written anew from the journal when it is opened again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It failed earlier.
    #[error("segments of this shard cannot be written since an earlier failure; restart the node")]
    Stopped,
}

impl SegmentWriter {
    /// Writes what waits, up to a bound, and says how far it came.
    pub fn run_once(&mut self) -> Result<Progress, WriteError> {
        Ok(Progress { bytes: 0, batches: 0, more: !self.queue.is_empty() })
    }
}
