//! What this node's sessions have of queues that nobody serves to them at the moment: kept when a leader is gone or cannot
//! be reached, and brought to whoever is next.
//!
//! A record that a session has is leased by the memory of the queue's leader alone, and what the session settles is on its
//! way for a while. So that neither is lost with a leader, each node remembers both for its own sessions: the actor of a
//! queue, and the end of a link to another node's, leave them here when they end, and so does a session that settles
//! something meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use weir_dispatch::{OwnerId, Place};
use weir_model::TopicId;
use weir_model::subscription::Disposition;

use super::handle::{Ask, Replies};
use super::registry::is_elsewhere;

/// What sessions have of one queue. It is no more than what they were given.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Records that are with somebody.
    pub leases: BTreeMap<OwnerId, BTreeSet<Place>>,
    /// What was settled, and may not have reached a leader, in the order in which it was.
    pub unsure: Vec<Unsure>,
    /// Owners that are gone, and whether their deliveries failed by that.
    pub closed: Vec<(OwnerId, bool)>,
}

/// Something that was settled, and may not be.
#[derive(Debug)]
pub(crate) struct Unsure {
    pub owner: OwnerId,
    pub places: Vec<Place>,
    pub disposition: Disposition,
    /// Whoever waits until it is durable.
    pub replies: Replies,
}

impl Holding {
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.unsure.is_empty() && self.closed.is_empty()
    }

    /// An owner has got records.
    pub(crate) fn lease(&mut self, owner: OwnerId, places: impl IntoIterator<Item = Place>) {
        let mut places = places.into_iter().peekable();
        if places.peek().is_some() {
            self.leases.entry(owner).or_default().extend(places);
        }
    }

    /// Records are with their owner no more.
    pub(crate) fn end_leases(&mut self, owner: OwnerId, places: &[Place]) {
        if let Some(has) = self.leases.get_mut(&owner) {
            for place in places {
                has.remove(place);
            }
            if has.is_empty() {
                self.leases.remove(&owner);
            }
        }
    }

    /// Notes what nobody was there to be asked for. What only a leader could have answered is given back.
    pub(crate) fn keep(&mut self, ask: Ask) -> Result<(), Ask> {
        match ask {
            // The node whose sessions these are notes it itself.
            Ask::Settle(owner, ..) | Ask::SettleAgain(owner, ..) | Ask::CloseOwner(owner, _)
                if is_elsewhere(owner) =>
            {
                return Err(ask);
            }
            Ask::Settle(owner, places, disposition, replies)
            | Ask::SettleAgain(owner, places, disposition, replies) => {
                self.end_leases(owner, &places);
                self.unsure.push(Unsure { owner, places, disposition, replies });
            }
            Ask::CloseOwner(owner, failed) => {
                self.leases.remove(&owner);
                self.closed.push((owner, failed));
            }
            Ask::Adopt(owner, places) => self.lease(owner, places),
            other => return Err(other),
        }
        Ok(())
    }

    /// The same as asks, in the order in which a leader has to be told.
    pub(crate) fn into_asks(self) -> impl Iterator<Item = Ask> {
        let adopt =
            |(owner, places): (OwnerId, BTreeSet<Place>)| Ask::Adopt(owner, places.into_iter().collect());
        let settle = |unsure: Unsure| {
            Ask::SettleAgain(unsure.owner, unsure.places, unsure.disposition, unsure.replies)
        };
        let close = |(owner, failed)| Ask::CloseOwner(owner, failed);
        let leases = self.leases.into_iter().map(adopt);
        leases.chain(self.unsure.into_iter().map(settle)).chain(self.closed.into_iter().map(close))
    }
}

/// All of this node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queues: Mutex<BTreeMap<TopicId, Holding>>,
    grown: Notify,
}

impl Holdings {
    /// What sessions have of a queue, for somebody who sees to it that its leader hears of that.
    pub(crate) fn take(&self, topic: TopicId) -> Holding {
        self.0.queues.lock().remove(&topic).unwrap_or_default()
    }

    /// Whether sessions have anything of a queue.
    pub(crate) fn has(&self, topic: TopicId) -> bool {
        self.0.queues.lock().contains_key(&topic)
    }

    /// Queues of which something is here.
    pub(crate) fn topics(&self) -> Vec<TopicId> {
        self.0.queues.lock().keys().copied().collect()
    }

    /// Returns when something was left here.
    pub(crate) async fn grown(&self) {
        self.0.grown.notified().await;
    }

    /// Whoever served a queue ends: what its sessions have is left here. Nobody can ask him any more when this returns, and
    /// what he was still asked is noted.
    pub(super) fn leave(&self, topic: TopicId, mut left: Holding, asks: &mut mpsc::Receiver<Ask>) {
        let mut queues = self.0.queues.lock();
        asks.close();
        while let Ok(ask) = asks.try_recv() {
            // Whoever waits for the answer hears that the queue is gone.
            let _ = left.keep(ask);
        }
        if left.is_empty() {
            return;
        }
        let Holding { leases, unsure, closed } = left;
        let before = queues.entry(topic).or_default();
        leases.into_iter().for_each(|(owner, places)| before.lease(owner, places));
        before.unsure.extend(unsure);
        before.closed.extend(closed);
        drop(queues);
        self.0.grown.notify_one();
    }

    fn keep(&self, topic: TopicId, ask: Ask) -> Result<(), Ask> {
        let mut queues = self.0.queues.lock();
        let kept = queues.entry(topic).or_default().keep(ask);
        if queues.get(&topic).is_some_and(Holding::is_empty) {
            queues.remove(&topic);
        }
        drop(queues);
        self.0.grown.notify_one();
        kept
    }
}

/// Where a handle to a queue leaves what nobody is there for any more. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lasting {
    topic: TopicId,
    holdings: Holdings,
    /// Nobody had anything of the queue when it ended.
    is_over: Arc<AtomicBool>,
}

impl Lasting {
    pub(crate) fn new(topic: TopicId, holdings: Holdings) -> Lasting {
        Lasting { topic, holdings, is_over: Arc::default() }
    }

    /// Leaves what sessions have, and what is still asked, to whoever is next.
    pub(crate) fn leave(&self, left: Holding, asks: &mut mpsc::Receiver<Ask>) {
        self.holdings.leave(self.topic, left, asks);
    }

    /// Nobody has anything of the queue.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Notes an ask that came too late, if that can be done.
    pub(super) fn keep(&self, ask: Ask) -> Result<(), Ask> {
        if self.is_over.load(Ordering::Acquire) { Err(ask) } else { self.holdings.keep(self.topic, ask) }
    }
}
