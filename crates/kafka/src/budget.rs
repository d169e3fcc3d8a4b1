//! How much memory answers to fetches may take together while their readers take them.
//!
//! A reader decides how fast its answer leaves, so that many slow ones could hold far more than the
//! machine has. As the budget fills, answers become smaller, down to a floor that keeps everybody going;
//! nobody is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An answer may always have this many bytes.
const FLOOR_BYTES: usize = 64 << 10;

/// The bytes that are held now, of those that may be.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    held: AtomicUsize,
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, held: AtomicUsize::new(0) })
    }

    /// Holds up to `wanted` bytes: all of them, or half of what is left.
    pub(crate) fn hold(self: &Arc<Budget>, wanted: usize) -> Held {
        let left = self.limit.saturating_sub(self.held.load(Ordering::Relaxed));
        let bytes = wanted.min((left / 2).max(FLOOR_BYTES));
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { budget: self.clone(), bytes }
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds so many bytes from here on.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{Budget, FLOOR_BYTES};

    #[test]
    fn answers_become_smaller_as_the_budget_fills_and_never_vanish() {
        let budget = Budget::new(100 << 20);
        let first = budget.hold(30 << 20);
        assert_eq!(first.bytes(), 30 << 20);
        let second = budget.hold(90 << 20);
        assert_eq!(second.bytes(), 35 << 20);
        let others: Vec<_> = (0..20).map(|_| budget.hold(50 << 20)).collect();
        assert_eq!(others.last().unwrap().bytes(), FLOOR_BYTES);
        drop((first, second, others));
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_an_answer_does_not_need_goes_back() {
        let budget = Budget::new(100 << 20);
        let mut held = budget.hold(40 << 20);
        held.resize(1 << 20);
        assert_eq!(budget.hold(45 << 20).bytes(), 45 << 20);
        held.resize(60 << 20);
        drop(held);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
