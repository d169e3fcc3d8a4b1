//! The clients of a run, and the auditor who looks at everything in the end.

mod auditor;
mod clerk;
mod consumers;
mod parkers;
mod publishers;
mod steward;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep, timeout_at};

use crate::asks::{Answer, Ask};
use crate::ledger::{Damage, Ledger};
use crate::net::Peer;
use crate::node::{CLIENT_PORT, host, now_ms};
use crate::queues::{Happening, History};
use crate::scenario::{CALM, NODES};

pub use auditor::auditor;
pub use clerk::{Roll, clerk};
pub use consumers::consumers;
pub use parkers::parkers;
pub use publishers::{declarer, publishers};
pub use steward::steward;
pub use streams::{reader, writer};

/// Clients of queues and users that count in [`Shared::senders`].
pub const SENDERS_OF_QUEUES: u32 = publishers::COUNT + parkers::COUNT + 2;

/// What the clients of a run share.
#[derive(Clone)]
pub struct Shared {
    /// Notes of what was sent to streams, acknowledged and seen.
    pub ledger: Arc<Mutex<Ledger>>,
    /// What happened to queues.
    pub history: Arc<Mutex<History>>,
    /// What the clerk knows of users.
    pub roll: Arc<Mutex<Roll>>,
    /// Clients that have not finished sending.
    pub senders: Arc<AtomicU32>,
    /// Everything is settled: consumers may go.
    pub is_over: Arc<AtomicBool>,
    /// Simulated time from the start until faults end.
    pub faults_until: Duration,
}

impl Shared {
    /// Writes down what happens to queues.
    fn note(&self, what: Happening) {
        self.history.lock().note(now_ms(), what);
    }

    /// Something could not be done although nothing stood against it.
    fn unavailable(&self, what: String) {
        self.ledger.lock().note(Damage::Unavailable { what });
    }

    /// A client has nothing more to send.
    fn has_sent(&self) {
        self.senders.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// Ways to all nodes, not connected yet.
fn peers() -> Vec<Peer> {
    (0..NODES).map(|node| Peer::new(&host(node), CLIENT_PORT)).collect()
}

async fn ask(peer: &Peer, ask: &Ask) -> Option<Answer> {
    peer.call(ask.encode()).await.and_then(Answer::decode)
}

/// A client that asks one node after another until one does what it is asked.
struct Caller {
    shared: Shared,
    peers: Vec<Peer>,
    rng: SmallRng,
    node: usize,
    start: Instant,
    who: String,
}

impl Caller {
    fn new(shared: Shared, peers: &[Peer], mut rng: SmallRng, who: String) -> Caller {
        let node = rng.random_range(0..NODES);
        Caller { shared, peers: peers.to_vec(), rng, node, start: Instant::now(), who }
    }

    /// Whether faults may still strike.
    fn is_stormy(&self) -> bool {
        self.start.elapsed() < self.shared.faults_until
    }

    /// Asks once; none if nobody knows what came of it, or another node must be asked, which is the next one then.
    async fn try_once(&mut self, request: &Ask) -> Option<Answer> {
        match ask(&self.peers[self.node], request).await {
            Some(answer) if answer != Answer::Retry => Some(answer),
            _ => {
                self.node = self.rng.random_range(0..NODES);
                None
            }
        }
    }

    /// Asks until there is an answer. None, and a note, if there is none within the calm phase, or it is a refusal.
    /// `before` is called before each attempt.
    async fn insist(&mut self, mut before: impl FnMut(u32, &Shared) -> Ask) -> Option<Answer> {
        let deadline = self.start + self.shared.faults_until + CALM;
        for attempt in 0.. {
            let request = before(attempt, &self.shared);
            match timeout_at(deadline, self.try_once(&request)).await {
                Ok(Some(Answer::Refused(why))) => {
                    self.shared.unavailable(format!("{}: {request:?} is refused for ever: {why}", self.who));
                    return None;
                }
                Ok(Some(answer)) => return Some(answer),
                Ok(None) => self.pause(5..150).await,
                Err(_) => break,
            }
        }
        self.shared.unavailable(format!("{}: no answer within the calm phase", self.who));
        None
    }

    /// Waits for a random number of milliseconds.
    async fn pause(&mut self, ms: std::ops::Range<u64>) {
        let ms = self.rng.random_range(ms);
        sleep(Duration::from_millis(ms)).await;
    }
}
