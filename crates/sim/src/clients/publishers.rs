//! Publishers of queues: each sends a few messages at a time, and the next ones when these are acknowledged. What nobody
//! answered is sent again as another message.

use futures_util::future::join_all;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Caller, Shared, peers};
use crate::asks::{Answer, Ask, Posting};
use crate::declared::{DYING, Keys, PLACES, QueueNumber, TURNS, UNIQUE, WAITING, WORK, rules};
use crate::net::Peer;
use crate::queues::{Happening, Message};

/// Where each publisher sends to.
const TARGETS: [QueueNumber; 7] = [WORK, WORK, TURNS, PLACES, DYING, UNIQUE, WAITING];

/// Messages sent together at most.
const MESSAGES_MAX: u32 = 4;

/// Bytes of padding of one message at most.
const PADDING_MAX: u32 = 1_000;

/// Business keys of one publisher: few, so that they come again soon.
const KEYS: u32 = 12;

/// How many there are.
pub const COUNT: u32 = TARGETS.len() as u32;

/// All publishers of a run.
pub async fn publishers(seed: u64, shared: Shared) {
    let peers = peers();
    let all = (1u32..).zip(TARGETS).map(|(id, queue)| publisher(id, queue, seed, peers.clone(), &shared));
    join_all(all).await;
}

/// Declares everything, as the first client would.
pub async fn declarer(seed: u64, shared: Shared) {
    let rng = SmallRng::seed_from_u64(seed ^ 0xdec1_a4e5);
    let mut caller = Caller::new(shared.clone(), &peers(), rng, "the declarer".into());
    caller.insist(|_, _| Ask::Declare).await;
    shared.has_sent();
}

async fn publisher(id: u32, queue: QueueNumber, seed: u64, peers: Vec<Peer>, shared: &Shared) {
    let rng = SmallRng::seed_from_u64(seed ^ 0x9e37 ^ (u64::from(id) << 40));
    let who = format!("publisher {id} of '{}'", rules(queue).name);
    let mut caller = Caller::new(shared.clone(), &peers, rng, who);
    let mut number = 0;
    while caller.is_stormy() {
        let count = caller.rng.random_range(1..=MESSAGES_MAX);
        let padding = caller.rng.random_range(0..PADDING_MAX);
        let keys: Vec<Option<u32>> = (0..count)
            .map(|_| match rules(queue).keys {
                Keys::Ignored => None,
                // Some have none.
                _ => Some(caller.rng.random_range(0..=KEYS)).filter(|key| *key < KEYS),
            })
            .collect();
        let mut sent: Vec<Message> = Vec::new();
        let answer = caller
            .insist(|attempt, shared| {
                let posting = |(at, key): (u32, &Option<u32>)| Posting {
                    message: Message { publisher: id, number: number + at, attempt },
                    key: *key,
                };
                let postings: Vec<Posting> = (0u32..).zip(&keys).map(posting).collect();
                sent = postings.iter().map(|posting| posting.message).collect();
                for Posting { message, key } in &postings {
                    shared.note(Happening::Publishing { message: *message, queue, key: *key });
                }
                Ask::Publish(queue, postings, padding)
            })
            .await;
        let Some(Answer::Done) = answer else { break };
        tracing::info!(publisher = id, number, count, queue = rules(queue).name, "published");
        sent.into_iter().for_each(|message| shared.note(Happening::Published { message }));
        number += count;
        caller.pause(20..120).await;
    }
    shared.has_sent();
}
