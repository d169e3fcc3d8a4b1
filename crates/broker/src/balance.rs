//! Leaders are spread: every shard has one voter that is to lead it, and a node that leads one gives it to whom it is
//! for. A node that is drained, or stops, gives away all it can.
//!
//! A transfer costs a shard some milliseconds in which it takes nothing, and one that comes to nothing an election. So
//! there is one at a time, only to a node that is connected and has nearly all entries, and not soon again to one that
//! did not take it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use weir_cluster::ShardHandle;
use weir_model::{NodeId, ShardId};

use crate::broker::Broker;

/// How often a node looks at what it leads.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A leadership stays where it is for so long, so that shards do not wander while nodes start.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// A transfer that took longer has come to nothing: an election is over by then.
const TRANSFER_MAX: Duration = Duration::from_secs(3);

/// A node that did not take a shard is not offered it again for so long.
const OFFERED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// A node that lacks more entries than this is not offered a shard: it would have to fetch them first, and nobody could
/// write meanwhile.
const ENTRIES_BEHIND_MAX: u64 = 1_000;

/// How often a node that stops looks whether it leads anything.
const LEAVING_STEP: Duration = Duration::from_millis(100);

/// What a node remembers of the shards that it leads.
#[derive(Debug, Default)]
struct Memory {
    /// In which term it was seen to lead a shard, and since when.
    since: BTreeMap<ShardId, (u64, Instant)>,
    /// When a node was offered a shard and did not take it.
    refused: BTreeMap<(ShardId, NodeId), Instant>,
}

/// The voter that is to lead a shard: they take turns by the shards' numbers, and where one may not lead, the next that
/// may does.
fn preferred(shard: ShardId, voters: &[NodeId], may_lead: impl Fn(NodeId) -> bool) -> Option<NodeId> {
    let mut voters = voters.to_vec();
    voters.sort_unstable();
    voters.dedup();
    let first = shard.0 as usize % voters.len().max(1);
    voters.rotate_left(first);
    voters.into_iter().find(|voter| may_lead(*voter))
}

impl Broker {
    /// Gives away what others are to lead, again and again. Without anybody who knows which nodes are connected, it
    /// does nothing.
    pub(crate) async fn spread_leaders_always(self: Arc<Broker>) {
        if self.connected.is_none() || !self.options.spread_leaders {
            return;
        }
        let mut memory = Memory::default();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.stopped() => return,
            }
            if !self.is_leaving() {
                self.spread_leaders(&mut memory).await;
            }
        }
    }

    /// One look at every shard.
    async fn spread_leaders(&self, memory: &mut Memory) {
        let now = Instant::now();
        memory.refused.retain(|_, at| now.duration_since(*at) < OFFERED_AGAIN_AFTER);
        let here = self.node.node_id();
        for shard in self.replicated_shards() {
            let (id, leadership) = (shard.id(), shard.leadership());
            if !leadership.ready {
                memory.since.remove(&id);
                continue;
            }
            let (term, since) = *memory.since.entry(id).or_insert((leadership.term, now));
            if term != leadership.term {
                memory.since.insert(id, (leadership.term, now));
                continue;
            }
            let stays = self.may_lead(here);
            if stays && now.duration_since(since) < SETTLED_AFTER {
                continue;
            }
            let takes = |node| !memory.refused.contains_key(&(id, node)) && can_take(shard, node);
            // Who it is for is waited for, unless this node must not keep it meanwhile.
            let to = preferred(id, &shard.voters(), |node| self.may_lead(node) && (stays || takes(node)));
            let Some(to) = to.filter(|to| *to != here && takes(*to)) else { continue };
            if self.is_leaving() || self.is_stopping() {
                return;
            }
            if transfer(shard, to).await {
                tracing::info!(shard = %id, %to, "another node is to lead a shard, and does");
            } else {
                tracing::warn!(shard = %id, %to, "a node did not take a shard that it is to lead");
                memory.refused.insert((id, to), Instant::now());
            }
        }
    }

    /// Gives everything away that this node leads, because it is about to stop. Returns when it leads nothing that
    /// somebody else could, or after `within`. From here on it takes nothing back.
    pub async fn give_leaderships_away(&self, within: Duration) {
        self.leaving.store(true, Ordering::Release);
        let leaving = async {
            loop {
                let offers: Vec<_> = self
                    .replicated_shards()
                    .filter_map(|shard| Some((shard, self.successor(shard)?)))
                    .collect();
                if offers.is_empty() {
                    return;
                }
                join_all(offers.into_iter().map(|(shard, to)| transfer(shard, to))).await;
                tokio::time::sleep(LEAVING_STEP).await;
            }
        };
        if tokio::time::timeout(within, leaving).await.is_err() {
            tracing::warn!("not every shard was taken over in time; the others elect who leads it");
        }
    }

    /// Who gets a shard that this node leads and is to lead no more.
    fn successor(&self, shard: &ShardHandle) -> Option<NodeId> {
        if !shard.leadership().is_leader || self.connected.is_none() {
            return None;
        }
        let here = self.node.node_id();
        let there = |node| node != here && self.is_live(node) && can_take(shard, node);
        let voters = shard.voters();
        // Better a node that is drained than none.
        preferred(shard.id(), &voters, |node| there(node) && self.may_lead(node))
            .or_else(|| preferred(shard.id(), &voters, there))
    }

    /// Whether a node is there and nobody wants it to lead nothing.
    fn may_lead(&self, node: NodeId) -> bool {
        let is_wanted =
            |meta: &ShardHandle| meta.view().nodes().node(node).is_none_or(|node| node.may_lead());
        self.meta().is_ok_and(is_wanted) && self.is_live(node)
    }

    /// Whether this node is about to stop.
    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }
}

/// Whether a follower has nearly everything.
fn can_take(shard: &ShardHandle, node: NodeId) -> bool {
    shard.entries_behind(node).is_some_and(|entries| entries <= ENTRIES_BEHIND_MAX)
}

/// Gives a shard to a node, and waits until somebody else leads it. Whether it is that node.
async fn transfer(shard: &ShardHandle, to: NodeId) -> bool {
    let mut leadership = shard.on_leadership();
    let before = leadership.borrow_and_update().leader;
    if let Err(error) = shard.transfer_leadership(to).await {
        tracing::debug!(shard = %shard.id(), %to, %error, "a shard cannot be given away");
        return false;
    }
    let other = leadership.wait_for(|now| now.leader.is_some() && now.leader != before);
    match tokio::time::timeout(TRANSFER_MAX, other).await {
        Ok(Ok(now)) => now.leader == Some(to),
        Ok(Err(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn leaders(shards: u32, voters: &[u64], may_lead: &[u64]) -> Vec<Option<u64>> {
        let one = |shard| {
            preferred(ShardId(shard), &nodes(voters), |node| may_lead.contains(&node.0)).map(|node| node.0)
        };
        (0..shards).map(one).collect()
    }

    #[test]
    fn voters_take_turns_whatever_order_they_are_listed_in() {
        let spread = [1, 2, 3, 1, 2, 3].map(Some).to_vec();
        assert_eq!(leaders(6, &[1, 2, 3], &[1, 2, 3]), spread);
        assert_eq!(leaders(6, &[3, 1, 2], &[1, 2, 3]), spread);
    }

    #[test]
    fn only_the_shards_of_a_node_that_may_not_lead_go_to_others() {
        assert_eq!(leaders(6, &[1, 2, 3], &[1, 3]), [1, 3, 3, 1, 3, 3].map(Some).to_vec());
        assert_eq!(leaders(2, &[1, 2, 3], &[]), [None, None]);
        assert_eq!(leaders(1, &[], &[1]), [None]);
    }
}
