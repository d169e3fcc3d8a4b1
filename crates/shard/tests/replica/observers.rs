//! Whoever waits is told of every append and of the end, and costs nothing until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_shard::{AppendObserver, ObserverGuard};

use super::support::{Replica, append, batch, close, open_partition};

#[derive(Default)]
pub(super) struct Counter {
    calls: AtomicUsize,
    bytes: AtomicUsize,
    closed: AtomicUsize,
}

impl AppendObserver for Counter {
    fn appended(&self, bytes: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counter {
    pub(super) fn seen(&self) -> [usize; 3] {
        [&self.calls, &self.bytes, &self.closed].map(|count| count.load(Ordering::Relaxed))
    }
}

#[test]
fn an_observer_is_told_once_an_entry_and_once_of_the_end() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20), open_partition(2, 1 << 20)]);
    let counter = Arc::new(Counter::default());
    let guard = replica.partition(1).observe(counter.clone());
    let one = batch(1, 10, 0, None);
    replica.apply(vec![append(1, one.clone()), append(2, one.clone()), append(1, one.clone())]);
    assert_eq!(counter.seen(), [1, 2 * one.len(), 0]);
    replica.apply(vec![append(2, one.clone())]);
    assert_eq!(counter.seen(), [1, 2 * one.len(), 0]);
    let partition = replica.partition(1);
    replica.apply(vec![close(1)]);
    assert_eq!(counter.seen(), [1, 2 * one.len(), 1]);
    drop(guard);
    let late = Arc::new(Counter::default());
    drop(partition.observe(late.clone()));
    assert_eq!(late.seen(), [0, 0, 1], "who comes too late is told at once");
}

#[test]
fn a_dropped_guard_takes_its_observer_out() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20)]);
    let counters: Vec<Arc<Counter>> = (0..10_000).map(|_| Arc::default()).collect();
    let partition = replica.partition(1);
    let mut guards: Vec<ObserverGuard> = counters.iter().map(|c| partition.observe(c.clone())).collect();
    guards.truncate(5_000);
    replica.apply(vec![append(1, batch(1, 10, 0, None))]);
    assert!(counters[..5_000].iter().all(|counter| counter.seen()[0] == 1));
    assert!(counters[5_000..].iter().all(|counter| counter.seen()[0] == 0));
    assert!(counters[5_000..].iter().all(|counter| Arc::strong_count(counter) == 1));
}

/// Drops its own guard when it is told.
struct Once {
    guard: parking_lot::Mutex<Option<ObserverGuard>>,
    calls: AtomicUsize,
}

impl AppendObserver for Once {
    fn appended(&self, _: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.guard.lock().take();
    }
}

#[test]
fn an_observer_may_leave_while_it_is_told() {
    let mut replica = Replica::new(1);
    replica.apply(vec![open_partition(1, 1 << 20)]);
    let once = Arc::new(Once { guard: Default::default(), calls: AtomicUsize::new(0) });
    *once.guard.lock() = Some(replica.partition(1).observe(once.clone()));
    for _ in 0..3 {
        replica.apply(vec![append(1, batch(1, 10, 0, None))]);
    }
    assert_eq!(once.calls.load(Ordering::Relaxed), 1);
}
