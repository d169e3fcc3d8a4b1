//! Requests and answers over the simulated network: what node-to-node transport and the simulation's
//! clients share. A frame is a length, an id, and the payload; answers carry the id of their request
//! and come in any order.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use turmoil::net::{TcpListener, TcpStream};

/// Largest frame, in bytes.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Frames waiting to be written on one connection.
const QUEUE_FRAMES_MAX: usize = 1024;

/// How long a request waits for its answer before its sender is told that nobody knows.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A connection on which requests were sent and nothing was heard for this long is given up: the simulated
/// network does not send again what a cut swallowed, so that a connection that lost bytes stays silent.
const SILENCE: Duration = Duration::from_millis(500);

type Waiting = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Bytes>>>>;

/// Answers requests on every connection that arrives, until the host is stopped.
pub async fn serve<H>(port: u16, handler: H) -> io::Result<()>
where
    H: Fn(Bytes) -> BoxFuture<'static, Bytes> + Send + Sync + 'static,
{
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    let handler = Arc::new(handler);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, handler.clone()));
    }
}

async fn answer<H>(stream: TcpStream, handler: Arc<H>)
where
    H: Fn(Bytes) -> BoxFuture<'static, Bytes> + Send + Sync + 'static,
{
    let (mut read, mut write) = stream.into_split();
    let (answers, mut outgoing) = mpsc::channel::<(u64, Bytes)>(QUEUE_FRAMES_MAX);
    tokio::spawn(async move {
        while let Some((id, payload)) = outgoing.recv().await {
            if write_frame(&mut write, id, &payload).await.is_err() {
                return;
            }
        }
    });
    while let Ok((id, payload)) = read_frame(&mut read).await {
        let (answers, handled) = (answers.clone(), handler(payload));
        tokio::spawn(async move {
            // A closed connection has nobody left to tell.
            let _ = answers.send((id, handled.await)).await;
        });
    }
}

/// A connection to one host that is made when it is first needed and again after it broke.
#[derive(Clone)]
pub struct Peer {
    host: String,
    port: u16,
    connection: Arc<Mutex<Option<Connection>>>,
    next_id: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Connection {
    requests: mpsc::Sender<(u64, Bytes)>,
    waiting: Waiting,
    silent_since: Arc<Mutex<Option<Instant>>>,
}

impl Connection {
    fn is_usable(&self) -> bool {
        let silence = self.silent_since.lock().map_or(Duration::ZERO, |since| since.elapsed());
        !self.requests.is_closed() && silence < SILENCE
    }
}

impl Peer {
    /// A peer that is not connected yet.
    pub fn new(host: &str, port: u16) -> Peer {
        Peer { host: host.into(), port, connection: Arc::default(), next_id: Arc::default() }
    }

    /// Sends a request and waits for its answer. `None` means that nobody knows what became of it.
    pub async fn call(&self, request: Bytes) -> Option<Bytes> {
        tokio::time::timeout(ANSWER_WITHIN, self.call_unbounded(request)).await.ok()?
    }

    async fn call_unbounded(&self, request: Bytes) -> Option<Bytes> {
        let connection = self.connected().await?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        connection.waiting.lock().insert(id, sender);
        let removal = RemoveOnDrop { waiting: connection.waiting.clone(), id };
        connection.silent_since.lock().get_or_insert_with(Instant::now);
        connection.requests.send((id, request)).await.ok()?;
        let answer = answer.await.ok();
        drop(removal);
        answer
    }

    async fn connected(&self) -> Option<Connection> {
        if let Some(connection) = self.connection.lock().as_ref()
            && connection.is_usable()
        {
            return Some(connection.clone());
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.ok()?;
        let (mut read, mut write) = stream.into_split();
        let (requests, mut outgoing) = mpsc::channel::<(u64, Bytes)>(QUEUE_FRAMES_MAX);
        let waiting: Waiting = Arc::default();
        let silent_since: Arc<Mutex<Option<Instant>>> = Arc::default();
        let connection =
            Connection { requests, waiting: waiting.clone(), silent_since: silent_since.clone() };
        let slot = self.connection.clone();
        *slot.lock() = Some(connection.clone());
        let reader = tokio::spawn(async move {
            while let Ok((id, payload)) = read_frame(&mut read).await {
                silent_since.lock().take();
                if let Some(sender) = waiting.lock().remove(&id) {
                    let _ = sender.send(payload);
                }
            }
            // Everyone who still waits learns that the connection is gone.
            waiting.lock().clear();
            let mut slot = slot.lock();
            if slot.as_ref().is_some_and(|connection| Arc::ptr_eq(&connection.waiting, &waiting)) {
                slot.take();
            }
        });
        tokio::spawn(async move {
            while let Some((id, payload)) = outgoing.recv().await {
                if write_frame(&mut write, id, &payload).await.is_err() {
                    break;
                }
            }
            reader.abort();
        });
        Some(connection)
    }
}

struct RemoveOnDrop {
    waiting: Waiting,
    id: u64,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}

async fn write_frame(write: &mut (impl AsyncWriteExt + Unpin), id: u64, payload: &[u8]) -> io::Result<()> {
    let mut frame = BytesMut::with_capacity(12 + payload.len());
    frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(payload);
    write.write_all(&frame).await
}

async fn read_frame(read: &mut (impl AsyncReadExt + Unpin)) -> io::Result<(u64, Bytes)> {
    let length = read.read_u32().await? as usize;
    let id = read.read_u64().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
    }
    let mut payload = BytesMut::zeroed(length);
    read.read_exact(&mut payload).await?;
    Ok((id, payload.freeze()))
}
