//! A limit that all consumers of a channel share (`basic.qos` with `global`).

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
}
