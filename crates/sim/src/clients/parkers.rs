//! Clients that park messages, and take some of them back.

use futures_util::future::join_all;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Caller, Shared, peers};
use crate::asks::{Answer, Ask, ParkFor};
use crate::declared::{ELSEWHERE, LATER};
use crate::net::Peer;
use crate::node::now_ms;
use crate::queues::{Happening, Message};

/// How many there are.
pub const COUNT: u32 = 2;

/// Beyond the publishers' numbers.
const FIRST_ID: u32 = 100;

/// How long something is parked at most, in milliseconds.
const PARKED_MS_MAX: i64 = 2_500;

/// Parked messages that one of them knows by name; the oldest are forgotten.
const KNOWN_MAX: usize = 8;

/// All of them.
pub async fn parkers(seed: u64, shared: Shared) {
    let peers = peers();
    join_all((FIRST_ID..FIRST_ID + COUNT).map(|id| parker(id, seed, peers.clone(), &shared))).await;
}

async fn parker(id: u32, seed: u64, peers: Vec<Peer>, shared: &Shared) {
    let rng = SmallRng::seed_from_u64(seed ^ 0xbadc_0ffe ^ (u64::from(id) << 40));
    let mut caller = Caller::new(shared.clone(), &peers, rng, format!("parker {id}"));
    let mut known: Vec<(Message, String)> = Vec::new();
    let mut number = 0;
    while caller.is_stormy() {
        let (target, queues) = match caller.rng.random_range(0..4) {
            0 => (ParkFor::Exchange, vec![LATER, ELSEWHERE]),
            1 => (ParkFor::Queue(ELSEWHERE), vec![ELSEWHERE]),
            _ => (ParkFor::Queue(LATER), vec![LATER]),
        };
        let parked_ms = caller.rng.random_range(0..PARKED_MS_MAX);
        let mut last = None;
        let answer = caller
            .insist(|attempt, shared| {
                let message = Message { publisher: id, number, attempt };
                let due = now_ms() + parked_ms;
                last = Some(message);
                shared.note(Happening::Parking { message, queues: queues.clone(), due });
                Ask::Park(target, message, due)
            })
            .await;
        let (Some(Answer::Parked(name)), Some(message)) = (answer, last) else { break };
        tracing::info!(%message, name, parked_ms, "parked");
        shared.note(Happening::Parked { message });
        known.push((message, name));
        if known.len() > KNOWN_MAX {
            known.remove(0);
        }
        if caller.rng.random_range(0..5) == 0 {
            let at = caller.rng.random_range(0..known.len());
            let (message, name) = known.remove(at);
            cancel(&mut caller, message, &name).await;
        }
        number += 1;
        caller.pause(20..160).await;
    }
    shared.has_sent();
}

/// Asks for a message back, once: whoever asks again after no answer cannot tell who took it.
async fn cancel(caller: &mut Caller, message: Message, name: &str) {
    caller.shared.note(Happening::Cancelling { message });
    let answer = caller.try_once(&Ask::Cancel(name.to_owned())).await;
    if answer == Some(Answer::Cancelled(true)) {
        tracing::info!(%message, "taken back");
        caller.shared.note(Happening::Cancelled { message });
    }
}
