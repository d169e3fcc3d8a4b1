//! Our types in the consensus library's terms.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::impls::EmptyNode;
use openraft::raft::responder::Responder;
use openraft::vote::RaftLeaderId;
use openraft::{OptionalSend, RaftTypeConfig};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_model::command::Outcome;
use weir_model::entry::Entry;

use crate::errors::ProposeError;

/// The consensus library, spoken in our types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Config;

impl RaftTypeConfig for Config {
    type D = Proposal;
    type R = Vec<Outcome>;
    type NodeId = u64;
    type Node = EmptyNode;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Proposal, u64, EmptyNode>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = Runtime;
    type Responder<T: OptionalSend + 'static> = Reply<T>;
    type Batch<T: OptionalSend + 'static> = openraft::impls::InlineBatch<T>;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) use super::runtime::Runtime;

pub(crate) type LogId = openraft::alias::LogIdOf<Config>;
pub(crate) type Vote = openraft::alias::VoteOf<Config>;
pub(crate) type RaftEntry = openraft::alias::EntryOf<Config>;
pub(crate) type Membership = openraft::Membership<u64, EmptyNode>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Config>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<Config>;
pub(crate) type RaftHandle = openraft::Raft<Config, super::machine::StateMachine>;
pub(crate) type WriteResult = openraft::raft::ClientWriteResult<Config>;

/// The log id of that place. Raft runs with one leader a term, so a term and an index are enough.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

/// The term in a log id.
pub(crate) fn term_of(log_id: &LogId) -> u64 {
    **log_id.committed_leader_id()
}

/// What an entry of the Raft log carries: an entry of ours, encoded once and decoded once. Clones
/// share both, and both share the memory of the batches.
#[derive(Clone)]
pub(crate) struct Proposal {
    shared: Arc<Shared>,
}

/// Hears that an entry stands in the journal's line.
pub(crate) type QueuedReply = oneshot::Sender<Result<(), ProposeError>>;

struct Shared {
    entry: Entry,
    chunks: Vec<Bytes>,
    bytes: usize,
    /// Who waits to hear that the entry stands in the journal's line. Only ever on the leader.
    queued: Mutex<Vec<QueuedReply>>,
}

impl Proposal {
    /// An entry to be proposed.
    pub(crate) fn new(entry: Entry, queued: Vec<QueuedReply>) -> Proposal {
        let chunks = entry.encode();
        Proposal::from_parts(entry, chunks, queued)
    }

    /// An entry that was read, with the bytes that it was read from.
    pub(crate) fn read(entry: Entry, encoded: Bytes) -> Proposal {
        Proposal::from_parts(entry, vec![encoded], Vec::new())
    }

    fn from_parts(entry: Entry, chunks: Vec<Bytes>, queued: Vec<QueuedReply>) -> Proposal {
        let bytes = chunks.iter().map(Bytes::len).sum();
        Proposal { shared: Arc::new(Shared { entry, chunks, bytes, queued: Mutex::new(queued) }) }
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.shared.entry
    }

    pub(crate) fn chunks(&self) -> &[Bytes] {
        &self.shared.chunks
    }

    /// Bytes of the encoded entry.
    pub(crate) fn len(&self) -> usize {
        self.shared.bytes
    }

    /// The entry stands in the journal's line, or never will.
    pub(crate) fn tell_queued(&self, result: &Result<(), ProposeError>) {
        for waiter in std::mem::take(&mut *self.shared.queued.lock()) {
            let _ = waiter.send(result.clone());
        }
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} commands, {} bytes)", self.entry().commands.len(), self.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Hands the result of a proposal to a function, in the task that applied it.
pub(crate) struct Reply<T> {
    deliver: Box<dyn FnOnce(T) + Send>,
}

impl<T> Reply<T> {
    pub(crate) fn new(deliver: impl FnOnce(T) + Send + 'static) -> Reply<T> {
        Reply { deliver: Box::new(deliver) }
    }
}

impl<T: OptionalSend + 'static> Responder<Config, T> for Reply<T> {
    fn on_complete(self, result: T) {
        (self.deliver)(result);
    }
}
