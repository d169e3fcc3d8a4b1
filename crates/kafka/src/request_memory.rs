//! How much memory the requests of all connections may take together, from their first byte until they
//! are answered (`queued.max.request.bytes`).
//!
//! One connection is bounded by itself, but many that send large requests slowly, or on purpose never
//! finish them, could together hold more than the machine has. Below the limit nobody notices. Above it a
//! connection that has more than a little of a request reads on only when it is its turn: one at a time,
//! in the order in which they came, so that requests still get finished and free their memory. A turn
//! has an end, so that a peer that stops in the middle of a request does not stop the others.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// A connection may always have so much of a request: enough for most, little enough for many.
const FREE_BYTES: usize = 64 << 10;
/// A request whose turn it is must be there within this time.
const TURN: Duration = Duration::from_secs(10);

/// The memory that requests take.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    limit: usize,
    held: AtomicUsize,
    turn: Arc<Semaphore>,
    freed: Notify,
}

impl RequestMemory {
    /// Up to `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<RequestMemory> {
        Arc::new(RequestMemory {
            limit,
            held: AtomicUsize::new(0),
            turn: Arc::new(Semaphore::new(1)),
            freed: Notify::new(),
        })
    }

    fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit
    }

    /// Waits until there is room again, or it is one's turn.
    async fn room(self: Arc<RequestMemory>) -> Option<OwnedSemaphorePermit> {
        let mut freed = std::pin::pin!(self.freed.notified());
        freed.as_mut().enable();
        if !self.is_full() {
            return None;
        }
        tokio::select! {
            turn = self.turn.clone().acquire_owned() => turn.ok(),
            () = freed => None,
        }
    }
}

/// What one connection takes of it.
pub(crate) struct Share {
    memory: Arc<RequestMemory>,
    bytes: usize,
    waiting: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
    turn: Option<(OwnedSemaphorePermit, Pin<Box<Sleep>>)>,
}

impl Share {
    pub(crate) fn new(memory: Arc<RequestMemory>) -> Share {
        Share { memory, bytes: 0, waiting: None, turn: None }
    }

    /// The connection takes so many bytes now.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.memory.held.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            let before = self.memory.held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            let after = before - (self.bytes - bytes);
            if before > self.memory.limit && after <= self.memory.limit {
                self.memory.freed.notify_waiters();
            }
        }
        self.bytes = bytes;
    }

    /// Whether a connection that has `buffered` bytes of a request may read more of it.
    pub(crate) fn poll_may_read(&mut self, context: &mut Context<'_>, buffered: usize) -> Poll<()> {
        if buffered < FREE_BYTES || !self.memory.is_full() {
            self.waiting = None;
            self.turn = None;
            return Poll::Ready(());
        }
        if self.turn.is_some() {
            return Poll::Ready(());
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(self.memory.clone().room()));
        let Poll::Ready(turn) = waiting.as_mut().poll(context) else { return Poll::Pending };
        self.waiting = None;
        self.turn = turn.map(|turn| (turn, Box::pin(tokio::time::sleep(TURN))));
        Poll::Ready(())
    }

    /// Whether the connection had its turn and did not use it. `context` is woken when that comes true.
    pub(crate) fn missed_its_turn(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.turn {
            Some((_, end)) => end.as_mut().poll(context).is_ready(),
            None => false,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
