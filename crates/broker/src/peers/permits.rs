//! A bound that consumers of several queues share is kept where their session is, and cannot be asked from here for each
//! record. As long as it is not limited nobody asks. Once it is, whoever would hand out a record to its consumer says so;
//! the session's node takes room from the bound and sends permits for as many records; and what is not used soon goes
//! back, because another queue may need it. So no more is ever handed out than the bound allows, and no room is kept
//! by a queue that does not need it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_dispatch::Gate;

/// The bound as it is known here.
#[derive(Debug)]
pub(super) struct Permits {
    state: Mutex<State>,
    /// Of whoever tells the session's node.
    wanted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    limited: bool,
    permits: u32,
    /// Somebody would have handed out a record, and the other node has not answered.
    is_wanted: bool,
    is_told: bool,
    /// Of what was handed out and is not on its way: runs of records, each with whether they took permits.
    runs: VecDeque<(bool, u64)>,
    /// Permits when it was looked at last.
    seen: u32,
}

impl State {
    fn note(&mut self, permitted: bool) {
        match self.runs.back_mut() {
            Some((last, count)) if *last == permitted => *count += 1,
            _ => self.runs.push_back((permitted, 1)),
        }
    }
}

impl Gate for Permits {
    fn take(&self) -> bool {
        let mut state = self.state.lock();
        match (state.limited, state.permits) {
            (false, _) => state.note(false),
            (true, 1..) => {
                state.permits -= 1;
                state.note(true);
            }
            (true, 0) => {
                if !state.is_wanted {
                    (state.is_wanted, state.is_told) = (true, false);
                    self.wanted.notify_one();
                }
                return false;
            }
        }
        true
    }
}

impl Permits {
    pub(super) fn new(limited: bool, wanted: Arc<Notify>) -> Permits {
        Permits { state: Mutex::new(State { limited, ..State::default() }), wanted }
    }

    /// Whether the other node is to be told that a permit is wanted. It is asked once.
    pub(super) fn tell_wanted(&self) -> bool {
        let mut state = self.state.lock();
        state.is_wanted && !std::mem::replace(&mut state.is_told, true)
    }

    /// The other node has sent permits.
    pub(super) fn add(&self, count: u32) {
        let mut state = self.state.lock();
        state.permits = state.permits.saturating_add(count);
        // It is looked at in a while whether they are used.
        (state.is_wanted, state.seen) = (false, 0);
    }

    /// Whether the bound is limited from here on. The permits that are none any more.
    pub(super) fn limit(&self, limited: bool) -> u32 {
        let mut state = self.state.lock();
        (state.limited, state.is_wanted) = (limited, false);
        if limited { 0 } else { std::mem::take(&mut state.permits) }
    }

    /// Looks at the permits. Those that nobody has used since the last look are none any more.
    pub(super) fn unused(&self) -> u32 {
        let mut state = self.state.lock();
        let before = state.seen;
        state.seen = state.permits;
        if before == state.permits { std::mem::take(&mut state.permits) } else { 0 }
    }

    /// Whether there are any.
    pub(super) fn has_any(&self) -> bool {
        self.state.lock().permits > 0
    }

    /// Whether the next record on its way took a permit.
    pub(super) fn was_permitted(&self) -> bool {
        let mut state = self.state.lock();
        let Some((permitted, count)) = state.runs.front_mut() else { return false };
        let permitted = *permitted;
        *count -= 1;
        if *count == 0 {
            state.runs.pop_front();
        }
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_limited_goes_by_permits_and_what_is_unused_goes_back() {
        let permits = Permits::new(false, Arc::default());
        assert!(permits.take() && permits.take() && !permits.tell_wanted());
        permits.limit(true);
        assert!(!permits.take() && permits.tell_wanted());
        assert!(!permits.take() && !permits.tell_wanted(), "it is asked once");
        permits.add(2);
        assert!(permits.take());
        assert_eq!([false, false, true], [(); 3].map(|()| permits.was_permitted()));
        assert_eq!((permits.unused(), permits.has_any()), (0, true), "it may still be used");
        assert_eq!((permits.unused(), permits.has_any()), (1, false));
        assert!(!permits.take() && permits.tell_wanted());
        permits.add(3);
        assert_eq!(permits.limit(false), 3);
        assert!(permits.take() && !permits.was_permitted());
    }
}
