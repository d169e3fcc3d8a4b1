//! One way to one other node: a connection that is made again whenever it breaks.
//!
//! Calls that are made while a connection is first tried, or tried again right after one that lasted, wait for it a
//! moment, in their order. As long as the tries fail, calls fail at once: whoever calls has his own way to try again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use weir_model::NodeId;

use super::Shared;
use super::calls::Calls;
use super::greeting::{ConnectError, Greeted, connect};
use super::handshake::{Hello, Purpose, Reason, Refusal};
use super::told::Told;
use super::wire::FrameReader;
use crate::transport::{Line, TransportError};

/// How long calls wait for a connection that is being made.
const CONNECT_WAIT_MAX: Duration = Duration::from_millis(500);

/// Longest pause after the first try that failed; each pause is between half of its longest and that.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// Longest pause after many.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// After a connection that lasted this long there is no pause.
const LASTED: Duration = Duration::from_secs(1);

/// One way to one other node.
pub(crate) struct Link {
    to: NodeId,
    purpose: Purpose,
    pub(crate) address: String,
    state: Mutex<State>,
}

struct State {
    /// None while tries fail.
    calls: Option<Arc<Calls>>,
    task: Option<AbortHandle>,
    is_closed: bool,
}

impl Link {
    /// Begins to connect.
    pub(crate) fn open(shared: &Arc<Shared>, to: NodeId, purpose: Purpose, address: &str) -> Arc<Link> {
        let link = Arc::new(Link {
            to,
            purpose,
            address: address.to_owned(),
            state: Mutex::new(State { calls: Some(Calls::new(to)), task: None, is_closed: false }),
        });
        let task = tokio::spawn(run(Arc::clone(&link), Arc::clone(shared)));
        link.state.lock().task = Some(task.abort_handle());
        link
    }

    pub(crate) async fn call(&self, line: Line, request: Vec<Bytes>) -> Result<Bytes, TransportError> {
        let calls = self.state.lock().calls.clone();
        match calls {
            Some(calls) => calls.call(line, request).await,
            None => Err(TransportError::Unreachable(self.to)),
        }
    }

    /// Ends the connection and all calls; there will be no other.
    pub(crate) fn close(&self) {
        let task = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.task.take()
        };
        if let Some(task) = task {
            task.abort();
        }
        self.set(None, TransportError::Unreachable(self.to));
    }

    /// What calls go to from here on; those before fail.
    fn set(&self, calls: Option<Arc<Calls>>, why: TransportError) {
        let before = {
            let mut state = self.state.lock();
            let calls = calls.filter(|_| !state.is_closed);
            std::mem::replace(&mut state.calls, calls)
        };
        if let Some(before) = before {
            before.end(why);
        }
    }

    /// What calls go to while there is a connection: those that wait for it already are on it. None if it was closed.
    fn up(&self) -> Option<Arc<Calls>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        Some(Arc::clone(state.calls.get_or_insert_with(|| Calls::new(self.to))))
    }
}

async fn run(link: Arc<Link>, shared: Arc<Shared>) {
    let (to, purpose) = (link.to, link.purpose);
    let mut pauses = Pauses::new(shared.seed ^ to.0.rotate_left(32) ^ purpose as u64);
    let mut told = Told::default();
    loop {
        match reach(&link, &shared).await {
            Ok(greeted) => {
                told.forget(&());
                tracing::debug!(node = %to, ?purpose, "connected to a node");
                let live = (purpose == Purpose::Shards).then(|| shared.liveness.enter(to));
                let began = Instant::now();
                let (reader, writer) = tokio::io::split(greeted.socket);
                let Some(calls) = link.up() else { return };
                let error = calls.carry(FrameReader::new(reader, greeted.buffer), writer).await;
                drop(live);
                tracing::warn!(node = %to, ?purpose, %error, "the connection to a node ended");
                let lasted = began.elapsed() >= LASTED;
                let next = lasted.then(|| Calls::new(to));
                link.set(next, TransportError::Failed { to, why: error.to_string() });
                if lasted {
                    pauses.begin_again();
                    continue;
                }
            }
            Err(error) => {
                link.set(None, TransportError::Unreachable(to));
                let why = error.to_string();
                if let ConnectError::Refused(Refusal { reason: Reason::Replaced, words }) = &error
                    && let Some(node) = shared.node()
                {
                    node.is_of_no_use(words);
                }
                if told.is_new((), &why) {
                    tracing::warn!(node = %to, address = link.address, ?purpose, why, "a node cannot be reached");
                }
            }
        }
        sleep(pauses.next()).await;
    }
}

/// Connects. Calls that wait longer than they should fail on the way.
async fn reach(link: &Link, shared: &Shared) -> Result<Greeted, ConnectError> {
    let to_incarnation = shared.incarnation_of(link.to);
    let hello = Hello { to_incarnation, ..Hello::new(&shared.identity, link.to, link.purpose) };
    let mut connecting = Box::pin(connect(&link.address, shared.tls.as_deref(), &hello));
    match timeout(CONNECT_WAIT_MAX, &mut connecting).await {
        Ok(connected) => connected,
        Err(_) => {
            link.set(None, TransportError::Unreachable(link.to));
            connecting.await
        }
    }
}

/// How long to wait after each try that failed.
pub(crate) struct Pauses {
    longest: Duration,
    random: SmallRng,
}

impl Pauses {
    pub(crate) fn new(seed: u64) -> Pauses {
        Pauses { longest: PAUSE_FIRST, random: SmallRng::seed_from_u64(seed) }
    }

    pub(crate) fn begin_again(&mut self) {
        self.longest = PAUSE_FIRST;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(PAUSE_MAX);
        self.random.random_range(longest / 2..=longest)
    }
}
