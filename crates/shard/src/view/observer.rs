//! Whoever waits for records: registered in a slab per partition, so that a fetch that waits costs
//! nothing until its partition grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use slab::Slab;

/// Told about appends to a partition. Called by the thread that applies, outside of all locks: it
/// must not block.
pub trait AppendObserver: Send + Sync {
    /// The partition has grown by this many bytes.
    fn appended(&self, bytes: usize);

    /// The partition is gone.
    fn closed(&self) {
        self.appended(0);
    }
}

/// The observers of one partition.
#[derive(Default)]
pub(crate) struct Observers {
    count: AtomicUsize,
    slab: Mutex<Slab<Arc<dyn AppendObserver>>>,
}

/// Takes its observer out when dropped.
#[must_use = "the observer is taken out when this is dropped"]
pub struct ObserverGuard {
    observers: Arc<Observers>,
    key: usize,
}

impl std::fmt::Debug for ObserverGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObserverGuard").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for ObserverGuard {
    fn drop(&mut self) {
        let mut slab = self.observers.slab.lock();
        slab.try_remove(self.key);
        self.observers.count.store(slab.len(), Ordering::Release);
    }
}

impl Observers {
    pub(crate) fn add(self: &Arc<Observers>, observer: Arc<dyn AppendObserver>) -> ObserverGuard {
        let mut slab = self.slab.lock();
        let key = slab.insert(observer);
        self.count.store(slab.len(), Ordering::Release);
        ObserverGuard { observers: Arc::clone(self), key }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn appended(&self, bytes: usize) {
        self.each(|observer| observer.appended(bytes));
    }

    pub(crate) fn closed(&self) {
        self.each(|observer| observer.closed());
    }

    fn each(&self, tell: impl Fn(&dyn AppendObserver)) {
        if self.len() == 0 {
            return;
        }
        // Observers may drop their guards while they are told, which takes the lock.
        let told: Vec<Arc<dyn AppendObserver>> =
            self.slab.lock().iter().map(|(_, observer)| Arc::clone(observer)).collect();
        told.iter().for_each(|observer| tell(observer.as_ref()));
    }
}
