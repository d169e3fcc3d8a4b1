//! What happens in a run, drawn from its seed alone: which faults strike, when, and for how long.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Number of nodes, all of them voters of every shard.
pub const NODES: usize = 3;

/// Data shards of every node.
pub const SHARDS: u32 = 2;

/// Partitions, spread over the data shards.
pub const PARTITIONS: u64 = 4;

/// How long the calm phase may take until everything has come right, in simulated time.
pub const CALM: Duration = Duration::from_secs(40);

/// Something that goes wrong, or right again.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The process dies; what its disk had not synced may be lost, torn or reordered.
    Crash(usize),
    /// The process starts again on what its disk still has.
    Restart(usize),
    /// Two nodes no longer hear each other.
    Cut(usize, usize),
    /// The first no longer reaches the second, which still reaches the first.
    CutOneWay(usize, usize),
    /// Two nodes hear each other again.
    Mend(usize, usize),
    /// The link between two nodes becomes slow.
    Slow(usize, usize, Duration),
    /// The next sync of this node's disk fails.
    FailSync(usize),
    /// This node's disk is full from now on, or no longer.
    DiskFull(usize, bool),
}

/// A fault and its time since the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    /// When.
    pub at: Duration,
    /// What.
    pub fault: Fault,
}

/// The faults of a seed, in order of time. Each ends before `faults_until`, so that the calm phase
/// begins with everything mended and every node running.
pub fn schedule(seed: u64, faults_until: Duration) -> Vec<Scheduled> {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5eed_fa17);
    let mut faults = Vec::new();
    let mut at = Duration::from_millis(rng.random_range(500..3_000));
    while at + Duration::from_secs(1) < faults_until {
        let most = (faults_until - at).as_millis().min(8_000) as u64;
        let lasts = Duration::from_millis(rng.random_range(100..most.max(200)));
        strike(&mut rng, at, lasts, &mut faults);
        at += Duration::from_millis(rng.random_range(100..4_000));
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    for node in 0..NODES {
        faults.push(Scheduled { at: faults_until, fault: Fault::DiskFull(node, false) });
        for other in 0..node {
            faults.push(Scheduled { at: faults_until, fault: Fault::Mend(other, node) });
        }
        faults.push(Scheduled { at: faults_until, fault: Fault::Restart(node) });
    }
    faults
}

fn strike(rng: &mut SmallRng, at: Duration, lasts: Duration, faults: &mut Vec<Scheduled>) {
    let mut push = |at, fault| faults.push(Scheduled { at, fault });
    let node = rng.random_range(0..NODES);
    let other = (node + rng.random_range(1..NODES)) % NODES;
    match rng.random_range(0..12) {
        0..4 => {
            push(at, Fault::Crash(node));
            push(at + lasts, Fault::Restart(node));
        }
        4 => {
            // The power of the whole room.
            (0..NODES).for_each(|node| push(at, Fault::Crash(node)));
            (0..NODES).for_each(|node| push(at + lasts, Fault::Restart(node)));
        }
        5..7 => {
            push(at, Fault::Cut(node, other));
            push(at + lasts, Fault::Mend(node, other));
        }
        7 => {
            for other in (0..NODES).filter(|other| *other != node) {
                push(at, Fault::Cut(node, other));
                push(at + lasts, Fault::Mend(node, other));
            }
        }
        8 => {
            push(at, Fault::CutOneWay(node, other));
            push(at + lasts, Fault::Mend(node, other));
        }
        9 => {
            push(at, Fault::Slow(node, other, Duration::from_millis(rng.random_range(20..400))));
            push(at + lasts, Fault::Mend(node, other));
        }
        10 => {
            push(at, Fault::FailSync(node));
            push(at + lasts, Fault::Restart(node));
        }
        _ => {
            push(at, Fault::DiskFull(node, true));
            push(at + lasts, Fault::DiskFull(node, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_faults_and_they_end_in_time() {
        let until = Duration::from_secs(30);
        for seed in 0..200 {
            let faults = schedule(seed, until);
            assert_eq!(faults, schedule(seed, until));
            assert!(faults.iter().all(|scheduled| scheduled.at <= until), "seed {seed}");
            assert!(faults.len() > 2 * NODES, "seed {seed} has no faults");
        }
    }
}
