//! A limit that all consumers of a channel share (`basic.qos` with `global`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_dispatch::Gate;

/// Messages that may be unsettled, over all consumers.
#[derive(Debug, Default)]
pub(crate) struct SharedPrefetch {
    /// 0 for no limit.
    limit: AtomicU32,
    unsettled: AtomicU32,
}

impl SharedPrefetch {
    pub(crate) fn set_limit(&self, limit: u16) {
        self.limit.store(limit.into(), Ordering::Release);
    }

    /// Gives back what was taken, when it is settled.
    pub(crate) fn settled(&self, count: u32) {
        let _ = self.unsettled.fetch_update(Ordering::AcqRel, Ordering::Acquire, |unsettled| {
            Some(unsettled.saturating_sub(count))
        });
    }

    /// The limit; 0 for none.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    /// Whether there is a limit: then whoever waits must be told when something is settled.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Acquire) > 0
    }
}

impl Gate for SharedPrefetch {
    fn take(&self) -> bool {
        // Queues of several actors may ask at once.
        let taken = self.unsettled.fetch_update(Ordering::AcqRel, Ordering::Acquire, |unsettled| {
            let limit = self.limit.load(Ordering::Acquire);
            (limit == 0 || unsettled < limit).then(|| unsettled.saturating_add(1))
        });
        taken.is_ok()
    }

    fn is_limited(&self) -> bool {
        SharedPrefetch::is_limited(self)
    }

    fn count(&self, records: u32) {
        let _ = self.unsettled.fetch_update(Ordering::AcqRel, Ordering::Acquire, |unsettled| {
            Some(unsettled.saturating_add(records))
        });
    }

    fn give_back(&self, records: u32) {
        self.settled(records);
    }
}

/// The same limit for whoever takes messages that nobody settles: such a consumer waits as long as the limit is used up, and
/// uses up nothing of it.
#[derive(Debug)]
pub(crate) struct Unshared(pub Arc<SharedPrefetch>);

impl Gate for Unshared {
    fn take(&self) -> bool {
        let limit = self.0.limit();
        limit == 0 || self.0.unsettled.load(Ordering::Acquire) < limit
    }

    fn is_limited(&self) -> bool {
        self.0.is_limited()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_allowed_and_what_is_settled_is_free_again() {
        let prefetch = SharedPrefetch::default();
        assert!((0..100).all(|_| prefetch.take()) && !prefetch.is_limited());
        prefetch.settled(100);
        prefetch.set_limit(2);
        assert_eq!([prefetch.take(), prefetch.take(), prefetch.take()], [true, true, false]);
        prefetch.settled(1);
        assert_eq!([prefetch.take(), prefetch.take()], [true, false]);
        prefetch.settled(1_000);
        assert!(prefetch.take());
    }

    #[test]
    fn what_nobody_settles_waits_for_the_limit_and_takes_nothing_of_it() {
        let prefetch = Arc::new(SharedPrefetch::default());
        let unshared = Unshared(prefetch.clone());
        assert!(unshared.take());
        prefetch.set_limit(1);
        assert!(unshared.take() && unshared.take() && prefetch.take());
        assert!(!unshared.take());
        prefetch.settled(1);
        assert!(unshared.take());
    }
}
