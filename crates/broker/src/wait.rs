//! Waiting for records on many partitions at once, at no cost while nothing arrives: each append
//! adds its size to one counter per waiter and wakes it only when its minimum is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

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
#[derive(Debug)]
pub struct FetchWait {
    arrivals: Arc<Arrivals>,
}

/// Shared with the partitions that are observed.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Bytes appended since the wait began, over all partitions.
    bytes: AtomicU64,
    /// Wake the waiter when `bytes` reaches this.
    wanted: AtomicU64,
    notify: Notify,
}

/// A point in the count of what arrived; see [`FetchWait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalMark(u64);

impl Arrivals {
    /// Something happened that a waiter must look at, whatever its size: a partition was closed.
    pub(crate) fn interrupt(&self) {
        self.bytes.fetch_add(1 << 40, Ordering::SeqCst);
        self.notify.notify_one();
    }

    pub(crate) fn arrived(&self, bytes: usize) {
        let now = self.bytes.fetch_add(bytes as u64, Ordering::SeqCst) + bytes as u64;
        if now >= self.wanted.load(Ordering::SeqCst) {
            self.notify.notify_one();
        }
    }
}

impl FetchWait {
    /// How much has arrived so far.
    pub fn mark(&self) -> ArrivalMark {
        ArrivalMark(self.arrivals.bytes.load(Ordering::SeqCst))
    }

    /// Waits until `bytes` more than at `mark` have arrived, or a partition was closed, or the
    /// deadline has passed. Whether it is worth reading again: false at the deadline.
    pub async fn beyond(&self, mark: ArrivalMark, bytes: usize, deadline: Instant) -> bool {
        let wanted = mark.0.saturating_add(bytes.max(1) as u64);
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

impl FetchWait {
    pub(crate) fn empty() -> FetchWait {
        FetchWait { arrivals: Arc::default() }
    }
}
