//! A watched value for the consensus library, which sends several for every entry and has hardly anybody
//! who waits for them: sending costs a lock and a look at a counter when nobody does.
//!
//! tokio's own wakes eight lists of waiters, whether there are any or not; that was a twentieth of the
//! processor time of a produce request of 16 KiB.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use openraft_rt::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft_rt::{OptionalSend, OptionalSync};
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// The channel, as the library names it.
pub(crate) struct QuietWatch;

struct Shared<T> {
    value: RwLock<T>,
    /// Changed under the value's lock.
    version: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    waiting: AtomicUsize,
    changed: Notify,
}

impl<T> Shared<T> {
    /// To be called when what is waited for has happened.
    ///
    /// Whoever waits counts itself before it looks at the version; whoever sends changes the version before
    /// it looks at the count. Both in one order for all, so that one of them sees the other.
    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_waiters();
        }
    }
}

/// The sending side.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// The receiving side, with the version that it has seen.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl Watch for QuietWatch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = RwLockReadGuard<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Shared {
            value: RwLock::new(init),
            version: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
        });
        (Sender(Arc::clone(&shared)), Receiver { shared, seen: 0 })
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::SeqCst);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.wake();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::SeqCst);
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<QuietWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::SeqCst) == 0 {
            return Err(SendError(value));
        }
        let mut held = self.0.value.write();
        let before = std::mem::replace(&mut *held, value);
        self.0.version.fetch_add(1, Ordering::SeqCst);
        drop(held);
        drop(before);
        self.0.wake();
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let mut held = self.0.value.write();
        let modified = modify(&mut held);
        if modified {
            self.0.version.fetch_add(1, Ordering::SeqCst);
        }
        drop(held);
        if modified {
            self.0.wake();
        }
        modified
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read()
    }

    fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::SeqCst);
        Receiver { seen: self.0.version.load(Ordering::SeqCst), shared: Arc::clone(&self.0) }
    }
}

/// Somebody who waits, for as long as this lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<QuietWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let Receiver { shared, seen } = self;
        let mut counted = None;
        loop {
            // Hears of whatever is sent from here on, whether it is polled in between or not.
            let changed = shared.changed.notified();
            // Read in this order, so that a value sent just before the last sender went is not missed.
            let over = shared.senders.load(Ordering::SeqCst) == 0;
            let version = shared.version.load(Ordering::SeqCst);
            if version != *seen {
                *seen = version;
                return Ok(());
            }
            if over {
                return Err(RecvError(()));
            }
            if counted.is_none() {
                // Counted now, and looks once more before it waits.
                counted = Some(Waiting::new(&shared.waiting));
                continue;
            }
            changed.await;
        }
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.value.read();
        self.seen = self.shared.version.load(Ordering::SeqCst);
        value
    }
}
