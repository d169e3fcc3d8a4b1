//! What is on its way to a peer. A task of its own writes it, so that a connection goes on reading while its peer is
//! slow to take what it is sent; a peer that publishes and consumes at once would otherwise wait for itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use weir_broker::sessions::SessionCounters;

/// Bytes that wait for a peer. Beyond them nothing is delivered, and nothing read, until it has taken some.
const UNSENT_BYTES_MAX: usize = 4 << 20;

/// Chunks given to one vectored write.
const WRITE_SLICES: usize = 64;

#[derive(Debug)]
struct Shared {
    unsent: AtomicUsize,
    /// Bytes that the peer has taken so far.
    taken: AtomicU64,
    gone: AtomicBool,
    /// There is room again, or the peer is gone.
    changed: Notify,
    counters: Arc<SessionCounters>,
}

/// The near end. The far end is a task.
#[derive(Debug)]
pub(crate) struct Outbox {
    sender: mpsc::UnboundedSender<Vec<Bytes>>,
    shared: Arc<Shared>,
}

/// Both ends; the far one is to be spawned, and ends when the near one is dropped and everything is written.
pub(crate) fn outbox<W: AsyncWrite + Unpin>(
    write: W,
    counters: Arc<SessionCounters>,
) -> (Outbox, impl Future<Output = ()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        unsent: AtomicUsize::new(0),
        taken: AtomicU64::new(0),
        gone: AtomicBool::new(false),
        changed: Notify::new(),
        counters,
    });
    let writing = write_all(write, receiver, Arc::clone(&shared));
    (Outbox { sender, shared }, writing)
}

impl Outbox {
    pub(crate) fn send(&self, chunks: Vec<Bytes>) {
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        if bytes > 0 {
            self.shared.unsent.fetch_add(bytes, Ordering::AcqRel);
            // If the task has ended, `is_gone` says so.
            let _ = self.sender.send(chunks);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.shared.unsent.load(Ordering::Acquire) > UNSENT_BYTES_MAX
    }

    /// Whether the peer has taken everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.unsent.load(Ordering::Acquire) == 0
    }

    /// Bytes that the peer has taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Acquire)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    /// Waits until there may be room, or the peer is gone.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

async fn write_all<W: AsyncWrite + Unpin>(
    mut write: W,
    mut receiver: mpsc::UnboundedReceiver<Vec<Bytes>>,
    shared: Arc<Shared>,
) {
    let mut chunks: Vec<Bytes> = Vec::new();
    while let Some(more) = receiver.recv().await {
        chunks.extend(more);
        while let Ok(more) = receiver.try_recv() {
            chunks.extend(more);
        }
        if write_chunks(&mut write, &mut chunks, &shared).await.is_err() {
            shared.gone.store(true, Ordering::Release);
            shared.changed.notify_one();
            return;
        }
    }
    let _ = write.shutdown().await;
}

async fn write_chunks<W: AsyncWrite + Unpin>(
    write: &mut W,
    chunks: &mut Vec<Bytes>,
    shared: &Shared,
) -> io::Result<()> {
    let mut first = 0;
    while first < chunks.len() {
        let slices: Vec<io::IoSlice<'_>> =
            chunks[first..].iter().take(WRITE_SLICES).map(|chunk| io::IoSlice::new(chunk)).collect();
        let written = write.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut left = written;
        while left > 0 {
            let chunk = &mut chunks[first];
            let taken = left.min(chunk.len());
            chunk.advance(taken);
            left -= taken;
            if chunk.is_empty() {
                first += 1;
            }
        }
        shared.counters.sent(written);
        shared.taken.fetch_add(written as u64, Ordering::AcqRel);
        let before = shared.unsent.fetch_sub(written, Ordering::AcqRel);
        if before > UNSENT_BYTES_MAX && before - written <= UNSENT_BYTES_MAX {
            shared.changed.notify_one();
        }
    }
    chunks.clear();
    write.flush().await
}
