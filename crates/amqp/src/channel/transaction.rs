//! What a channel has published and settled since its last commit.

use std::collections::BTreeMap;

use weir_model::subscription::Disposition;
use weir_router::Route;

use super::{Addressed, Delivered};
use crate::held::{Held, HeldFull, HeldShare};

/// Bytes of messages that a transaction may hold: they are in memory until it is committed.
const TRANSACTION_BYTES_MAX: usize = 64 << 20;

/// What a message takes beside its body, about.
const MESSAGE_OVERHEAD_BYTES: usize = 1 << 10;

/// What a queue that gets a message takes in it, about.
const QUEUE_OVERHEAD_BYTES: usize = 32;

/// Deliveries by their tags, and what becomes of them.
type Settlement = (Vec<(u64, Delivered)>, Disposition);

/// Messages and settlements that wait for a commit.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// Each with the queues that were there for it when it was published.
    messages: Vec<(Addressed, Route)>,
    /// Their bytes, of those that the connection may hold.
    held: HeldShare,
    settlements: Vec<Settlement>,
    /// Whether a message of the commit under way could not be published.
    pub failed: bool,
}

/// A transaction holds as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransactionFull {
    /// By itself.
    #[error("a transaction holds at most {max} bytes of messages", max = TRANSACTION_BYTES_MAX)]
    Alone,
    /// Together with the others of its connection.
    #[error(transparent)]
    Together(#[from] HeldFull),
}

impl Transaction {
    pub(crate) fn new(held: &Held) -> Transaction {
        Transaction { messages: Vec::new(), held: held.share(), settlements: Vec::new(), failed: false }
    }

    pub(crate) fn publish(&mut self, message: Addressed, route: Route) -> Result<(), TransactionFull> {
        let queues = route.queues().len() * QUEUE_OVERHEAD_BYTES;
        let bytes = self.held.bytes() + message.body.len() + queues + MESSAGE_OVERHEAD_BYTES;
        if bytes > TRANSACTION_BYTES_MAX {
            return Err(TransactionFull::Alone);
        }
        self.held.set(bytes)?;
        self.messages.push((message, route));
        Ok(())
    }

    pub(crate) fn settle(&mut self, settled: Vec<(u64, Delivered)>, disposition: Disposition) {
        self.settlements.push((settled, disposition));
    }

    /// How many messages and how many settlements wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.messages.len(), self.settlements.iter().map(|(settled, _)| settled.len()).sum())
    }

    /// Takes out what is to be committed.
    pub(crate) fn take(&mut self) -> (Vec<(Addressed, Route)>, Vec<Settlement>) {
        // Giving back is never refused.
        let _ = self.held.set(0);
        self.failed = false;
        (std::mem::take(&mut self.messages), std::mem::take(&mut self.settlements))
    }

    /// Forgets the messages, and gives back by their tags the deliveries that are unsettled again.
    pub(crate) fn roll_back(&mut self) -> BTreeMap<u64, Delivered> {
        let (_, settlements) = self.take();
        settlements.into_iter().flat_map(|(settled, _)| settled).collect()
    }
}
