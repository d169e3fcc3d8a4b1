//! The steward moves leaderships: now and then while faults strike, and in the calm phase all to one node, so that what
//! goes from one shard to another is led by one node. Nodes do not pass commands on to each other yet.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;

use super::{Caller, Shared, peers};
use crate::asks::Ask;
use crate::scenario::NODES;

/// Moves leaderships until everything is settled.
pub async fn steward(seed: u64, shared: Shared) {
    let rng = SmallRng::seed_from_u64(seed ^ 0x57e3_a4d0);
    let mut caller = Caller::new(shared.clone(), &peers(), rng, "the steward".into());
    while caller.is_stormy() {
        caller.pause(1_000..5_000).await;
        caller.node = caller.rng.random_range(0..NODES);
        let to = caller.rng.random_range(0..NODES) as u64;
        caller.try_once(&Ask::HandOver(to)).await;
    }
    let to = caller.rng.random_range(0..NODES);
    while !shared.is_over() {
        for node in (0..NODES).filter(|node| *node != to) {
            caller.node = node;
            caller.try_once(&Ask::HandOver(to as u64)).await;
        }
        sleep(Duration::from_secs(2)).await;
    }
}
