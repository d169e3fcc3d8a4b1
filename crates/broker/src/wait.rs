//! Waiting for records on many partitions at once, at no cost while nothing arrives: each append
//! adds its size to one counter per waiter and wakes it only when its minimum is reached.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;
use weir_shard::{AppendObserver, ObserverGuard};

use crate::read::PartitionRef;

/// Waits for appends to a set of partitions. Usage, which loses no wake-up:
///
/// ```text
/// let wait = FetchWait::on(&partitions);
/// loop {
///     let mark = wait.mark();
///     … read everything …
///     if enough || !wait.beyond(mark, min_bytes - have, deadline).await { answer }
/// }
/// ```
pub struct FetchWait {
    arrivals: Arc<Arrivals>,
    _observing: Vec<ObserverGuard>,
}

impl fmt::Debug for FetchWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchWait").field("arrivals", &self.arrivals).finish_non_exhaustive()
    }
}

/// Shared with the partitions that are observed.
#[derive(Debug)]
struct Arrivals {
    /// Bytes appended since the wait began, over all partitions.
    bytes: AtomicU64,
    /// Wake the waiter when `bytes` reaches this.
    wanted: AtomicU64,
    notify: Notify,
}

/// A point in the count of what arrived; see [`FetchWait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalMark(u64);

/// What a closed partition counts as: more than any minimum.
const CLOSED_BYTES: u64 = 1 << 40;

impl AppendObserver for Arrivals {
    fn appended(&self, bytes: usize) {
        self.add(bytes as u64);
    }

    fn closed(&self) {
        self.add(CLOSED_BYTES);
    }
}

impl Arrivals {
    fn add(&self, bytes: u64) {
        let now = self.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if now >= self.wanted.load(Ordering::SeqCst) {
            self.notify.notify_one();
        }
    }
}

impl FetchWait {
    /// Begins to count what is appended to these partitions.
    pub fn on<'a>(partitions: impl IntoIterator<Item = &'a PartitionRef>) -> FetchWait {
        let arrivals = Arc::new(Arrivals {
            bytes: AtomicU64::new(0),
            // Nobody waits yet.
            wanted: AtomicU64::new(u64::MAX),
            notify: Notify::new(),
        });
        let observing = partitions.into_iter().map(|partition| partition.view().observe(arrivals.clone()));
        FetchWait { _observing: observing.collect(), arrivals }
    }

    /// How much has arrived so far.
    pub fn mark(&self) -> ArrivalMark {
        ArrivalMark(self.arrivals.bytes.load(Ordering::SeqCst))
    }

    /// Waits until `bytes` more than at `mark` have arrived, or a partition was closed, or the
    /// deadline has passed. Whether there is anything new to read.
    pub async fn beyond(&self, mark: ArrivalMark, bytes: usize, deadline: Instant) -> bool {
        let wanted = mark.0.saturating_add(bytes.max(1) as u64);
        // Before the count is looked at, so that whoever adds to it after that sees this.
        self.arrivals.wanted.store(wanted, Ordering::SeqCst);
        loop {
            if self.arrivals.bytes.load(Ordering::SeqCst) >= wanted {
                return true;
            }
            if tokio::time::timeout_at(deadline, self.arrivals.notify.notified()).await.is_err() {
                return self.arrivals.bytes.load(Ordering::SeqCst) > mark.0;
            }
        }
    }
}
