//! Consumers of queues. Each has a session at the leader of its queue, and a way of its own to settle what it gets; in
//! the calm phase all of them accept everything.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::{Caller, Shared, peers};
use crate::asks::{Answer, Ask};
use crate::declared::{
    DEAD, DYING, ELSEWHERE, LATER, PLACES, QueueNumber, TURNS, UNIQUE, WAITING, WORK, rules,
};
use crate::queues::{Happening, SessionId, Settling};

/// Which queue each consumer takes from, and how many records it takes before it settles some.
const CONSUMERS: [(QueueNumber, u32); 10] = [
    (WORK, 8),
    (WORK, 5),
    (TURNS, 6),
    (PLACES, 6),
    (DYING, 6),
    (DEAD, 8),
    (UNIQUE, 6),
    (WAITING, 6),
    (LATER, 8),
    (ELSEWHERE, 8),
];

/// How long a consumer may keep one record while others pass it, in milliseconds.
const KEPT_MS: std::ops::Range<u64> = 2_000..7_000;

/// All consumers of a run.
pub async fn consumers(seed: u64, shared: Shared) {
    let peers = peers();
    let all = (1u64..).zip(CONSUMERS).map(|(id, (queue, credit))| {
        let rng = SmallRng::seed_from_u64(seed ^ 0xc0_5c3e ^ (id << 40));
        let who = format!("consumer {id} of '{}'", rules(queue).name);
        consumer(Caller::new(shared.clone(), &peers, rng, who), queue, credit)
    });
    join_all(all).await;
}

/// What a consumer has.
struct Held {
    session: SessionId,
    queue: QueueNumber,
    credit: usize,
    /// In the order in which it came.
    records: Vec<i64>,
    /// One that it does not settle until then.
    kept: Option<(i64, Instant)>,
}

async fn consumer(mut caller: Caller, queue: QueueNumber, credit: u32) {
    while !caller.shared.is_over() {
        let session = caller.shared.history.lock().new_id();
        if caller.try_once(&Ask::Consume(queue, session, credit)).await != Some(Answer::Done) {
            caller.pause(5..150).await;
            continue;
        }
        let held = Held { session, queue, credit: credit as usize, records: Vec::new(), kept: None };
        work(&mut caller, held).await;
    }
}

/// Takes and settles records until nothing is known of the session any more, or it is ended. A session whose request was
/// not answered is left alone: what it has comes back when its leader hears nothing of it.
async fn work(caller: &mut Caller, mut held: Held) {
    let lasts = Instant::now() + Duration::from_millis(caller.rng.random_range(1_000..12_000));
    while !caller.shared.is_over() {
        caller.pause(1..30).await;
        let Some(Answer::Deliveries(deliveries)) = caller.try_once(&Ask::Next(held.session)).await else {
            return;
        };
        let is_quiet = deliveries.is_empty();
        held.records.extend(deliveries.iter().map(|delivered| delivered.offset));
        let is_full = held.records.len() >= held.credit;
        if held.records.is_empty() || !(is_quiet || is_full || caller.rng.random_range(0..3) == 0) {
            continue;
        }
        if Instant::now() > lasts && caller.is_stormy() {
            match caller.rng.random_range(0..3) {
                // It goes without a word.
                0 => return,
                1 => {
                    caller.try_once(&Ask::Close(held.session)).await;
                    return;
                }
                _ => {}
            }
        }
        let said = held.decide(caller, is_full);
        if said.releases.is_empty() && said.rejects.is_empty() && said.accepts.is_empty() {
            continue;
        }
        let id = said.id;
        caller.shared.note(Happening::Settling(said.clone()));
        if caller.try_once(&Ask::Settle(said)).await != Some(Answer::Done) {
            return;
        }
        tracing::info!(id, session = held.session, queue = rules(held.queue).name, "settled");
        caller.shared.note(Happening::Settled { id });
    }
}

impl Held {
    /// What becomes of what it has; all of it is settled but what it keeps.
    fn decide(&mut self, caller: &mut Caller, full: bool) -> Settling {
        let rng = &mut caller.rng;
        let stormy = caller.start.elapsed() < caller.shared.faults_until;
        let id = caller.shared.history.lock().new_id();
        let mut said = Settling { id, session: self.session, queue: self.queue, full, ..Settling::default() };
        if !stormy {
            self.kept = None;
        }
        let mut records: VecDeque<i64> = std::mem::take(&mut self.records).into();
        if let Some((kept, until)) = self.kept {
            if until > Instant::now() {
                records.retain(|offset| *offset != kept);
                self.records.push(kept);
            } else {
                self.kept = None;
            }
        } else if self.queue == WORK
            && stormy
            && rng.random_range(0..6) == 0
            && let Some(kept) = records.pop_front()
        {
            let ms = rng.random_range(KEPT_MS);
            self.kept = Some((kept, Instant::now() + Duration::from_millis(ms)));
            self.records.push(kept);
        }
        // Something that it keeps does not come back with the others.
        said.full &= self.kept.is_none();
        let (release, reject) = match self.queue {
            _ if !stormy => (0, 0),
            TURNS | PLACES => (30, 3),
            DYING => (40, 10),
            WORK => (15, 3),
            _ => (10, 0),
        };
        said.failed = rng.random_range(0..2) == 0;
        for offset in records {
            match rng.random_range(0..100) {
                dice if dice < release => said.releases.push(offset),
                dice if dice < release + reject => said.rejects.push(offset),
                _ => said.accepts.push(offset),
            }
        }
        said.releases.shuffle(rng);
        said
    }
}
