//! From what a dispatcher has changed to commands of the shards, and back to those who wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use weir_cluster::{ProposeError, ShardHandle};
use weir_dispatch::{LaneChanges, LaneNumber, Place};
use weir_model::SubscriptionId;
use weir_model::command::{Command, Outcome};
use weir_model::subscription::Disposition;

use super::actor::Actor;
use super::handle::Replies;
use super::holdings::{Holding, Unsure};
use super::registry::{NOBODY, is_elsewhere};

/// Settlements in one command: some 70 KiB.
const SETTLEMENTS_PER_COMMAND: usize = 4_096;

/// Commands of one queue on their way. More changes are gathered meanwhile, and go together.
const COMMANDS_ON_THEIR_WAY: usize = 4;

/// Records of which a queue's next leader is told that they were settled. A purge of more may have to be done again.
const UNSURE_MAX: u64 = 100_000;

/// How long to wait before changes that the shard could not take now are proposed again.
const RETRY: Duration = Duration::from_millis(20);

/// Somebody who waits until something is durable, in one lane or in several.
pub(super) struct Told {
    reply: Reply,
    /// Set when it will not be, as far as this leader knows.
    failed: AtomicBool,
}

/// What somebody waits for.
pub(super) enum Reply {
    Settled(Replies),
    Purged(oneshot::Sender<u64>, u64),
}

impl Told {
    /// It is durable in one lane; with the last of them whoever waits is told.
    fn tell(this: Arc<Told>) {
        let Some(Told { reply, failed }) = Arc::into_inner(this) else { return };
        if failed.into_inner() {
            return;
        }
        // Whoever asked may have gone.
        match reply {
            Reply::Settled(replies) => replies.into_iter().for_each(|reply| {
                let _ = reply.send(());
            }),
            Reply::Purged(reply, count) => drop(reply.send(count)),
        }
    }

    fn fail(this: Arc<Told>) {
        this.failed.store(true, Ordering::Release);
    }

    /// Who waits until something is settled, once nobody else can tell them.
    fn into_replies(this: Arc<Told>) -> Replies {
        match Arc::into_inner(this) {
            Some(Told { reply: Reply::Settled(replies), failed }) if !failed.load(Ordering::Acquire) => {
                replies
            }
            _ => Replies::new(),
        }
    }
}

/// Changes on their way, and whom to tell when they are durable.
pub(super) type OnItsWay = (LaneChanges, Vec<Arc<Told>>);

/// A command's fate: of which lane, which one, and what came of it.
pub(super) type Settled = (LaneNumber, u64, Result<Outcome, ProposeError>);

impl Actor {
    /// Tells somebody when all that has just been settled is durable.
    pub(super) fn tell_when_durable(&mut self, reply: Reply) {
        self.gather_changes();
        let told = Arc::new(Told { reply, failed: AtomicBool::new(false) });
        for lane in self.lanes.values_mut() {
            if !lane.waiting.is_empty() {
                lane.told_then.push(Arc::clone(&told));
            } else if let Some(mut last) = lane.on_their_way.last_entry() {
                last.get_mut().1.push(Arc::clone(&told));
            }
        }
        // If nothing is on its way, it is told at once.
        Told::tell(told);
    }

    pub(super) fn gather_changes(&mut self) {
        for (number, changes) in self.dispatcher.take_changes() {
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            match lane.waiting.last_mut() {
                Some(last) if last.settlements.len() < SETTLEMENTS_PER_COMMAND => {
                    last.handed_out = last.handed_out.max(changes.handed_out);
                    last.settlements.extend(changes.settlements);
                }
                _ => lane.waiting.push(changes),
            }
        }
    }

    /// Puts what has changed in the shards' lines, as far as there is room.
    pub(super) fn propose_changes(&mut self) {
        self.gather_changes();
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.retry_at = None;
        for (number, lane) in &mut self.lanes {
            while lane.on_their_way.len() < COMMANDS_ON_THEIR_WAY && !lane.waiting.is_empty() {
                let changes = next_command(&mut lane.waiting);
                // What they wait for may lie in several commands; the last of these to be durable tells them.
                let told = match lane.waiting.is_empty() {
                    true => std::mem::take(&mut lane.told_then),
                    false => lane.told_then.clone(),
                };
                let command = Command::Settle {
                    partition: lane.partition.id(),
                    subscription: SubscriptionId::QUEUE,
                    handed_out: changes.handed_out,
                    settlements: changes.settlements.clone(),
                };
                let handle: &ShardHandle = lane.partition.handle();
                match handle.submit(command) {
                    Ok(pending) => {
                        let (number, command) = (*number, self.next_command);
                        self.next_command += 1;
                        lane.on_their_way.insert(command, (changes, told));
                        self.settling.push(Box::pin(async move { (number, command, pending.await) }));
                    }
                    Err(error) => {
                        lane.waiting.insert(0, changes);
                        lane.told_then.splice(0..0, told);
                        tracing::debug!(%error, "settlements wait");
                        self.retry_at = Some(Instant::now() + RETRY);
                        break;
                    }
                }
            }
        }
    }

    pub(super) fn settled(&mut self, (number, command, outcome): Settled) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some((changes, told)) = lane.on_their_way.remove(&command) else { return };
        match outcome {
            Ok(Outcome::Done) => told.into_iter().for_each(Told::tell),
            // The partition is gone, and all that was in it.
            Ok(_) => told.into_iter().for_each(Told::fail),
            // Settling twice does no harm, and what was given back is noted once more at worst. A leader that hears of no
            // majority for a while takes nothing, and may lead on in the same leadership: if it does not, the actor ends.
            Err(ProposeError::Overloaded | ProposeError::Timeout | ProposeError::NotLeader { .. }) => {
                lane.waiting.insert(0, changes);
                lane.told_then.splice(0..0, told);
                self.retry_at = Some(Instant::now() + RETRY);
            }
            Err(error) => {
                tracing::debug!(%error, "nobody knows what became of settlements; whoever is next is told again");
                lane.on_their_way.insert(command, (changes, told));
                // What the dispatcher takes for settled may not be.
                self.is_out_of_step = true;
            }
        }
    }

    /// What sessions of this node have, and what was settled and may not be, when the actor ends.
    pub(super) fn holding(&mut self) -> Holding {
        self.gather_changes();
        let mut holding = Holding::default();
        for (owner, place) in self.dispatcher.leases().filter(|(owner, _)| !is_elsewhere(*owner)) {
            holding.lease(owner, [place]);
        }
        let (mut places, mut told) = (0, Vec::new());
        for (number, lane) in &mut self.lanes {
            let on_their_way = std::mem::take(&mut lane.on_their_way).into_values();
            let mut changes: Vec<LaneChanges> = Vec::new();
            for (change, waiting) in on_their_way {
                changes.push(change);
                told.extend(waiting);
            }
            changes.append(&mut lane.waiting);
            told.append(&mut lane.told_then);
            for settlement in changes.into_iter().flat_map(|changes| changes.settlements) {
                // What comes back does so by waiting.
                if matches!(settlement.disposition, Disposition::Release { .. }) {
                    continue;
                }
                places += (settlement.to - settlement.from + 1).cast_unsigned();
                if places > UNSURE_MAX {
                    tracing::warn!(
                        "more was settled than a queue's next leader is told of; the rest comes again"
                    );
                    break;
                }
                let offsets = settlement.from..=settlement.to;
                holding.unsure.push(Unsure {
                    owner: NOBODY,
                    places: offsets.map(|offset| Place { lane: *number, offset }).collect(),
                    disposition: settlement.disposition,
                    replies: Replies::new(),
                });
            }
        }
        // Those who waited in several lanes are known by the last of these.
        let replies: Replies = told.into_iter().flat_map(Told::into_replies).collect();
        if places > UNSURE_MAX {
            return holding;
        }
        if !replies.is_empty() {
            let (owner, places, disposition) = (NOBODY, Vec::new(), Disposition::Accept);
            holding.unsure.push(Unsure { owner, places, disposition, replies });
        }
        holding
    }
}

/// Changes for one command, out of those that wait.
fn next_command(waiting: &mut Vec<LaneChanges>) -> LaneChanges {
    let mut next = LaneChanges::default();
    while let Some(first) = waiting.first_mut() {
        next.handed_out = next.handed_out.max(first.handed_out);
        let room = SETTLEMENTS_PER_COMMAND - next.settlements.len();
        if first.settlements.len() > room {
            next.settlements.extend(first.settlements.drain(..room));
            break;
        }
        next.settlements.append(&mut first.settlements);
        waiting.remove(0);
    }
    next
}
