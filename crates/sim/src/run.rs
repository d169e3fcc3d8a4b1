//! One run: a cluster, its clients and its faults, from the first tick to the verdict.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::clients::{Shared, auditor, host, reader, writer};
use crate::ledger::{Damage, Ledger};
use crate::node::SimNode;
use crate::scenario::{CALM, Fault, NODES, schedule};

/// Writers of a run; half of them number their batches.
const WRITERS: u64 = 8;

/// Readers of a run.
const READERS: u64 = 2;

/// What a run is given.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Everything that is drawn is drawn from this.
    pub seed: u64,
    /// Simulated time in which faults strike.
    pub faults_for: Duration,
}

/// What became of a run.
#[derive(Debug)]
pub struct Report {
    /// Everything that must never be and was; empty in a good run.
    pub damage: Vec<Damage>,
    /// Batches that were acknowledged.
    pub acknowledged: usize,
    /// Batches that were sent.
    pub attempted: usize,
    /// Records that readers saw on the way.
    pub seen: usize,
    /// Faults that struck.
    pub faults: usize,
    /// Simulated time from start to verdict.
    pub simulated: Duration,
}

/// Runs a seed to its end.
pub fn run(options: Options) -> Result<Report, String> {
    let mut sim = turmoil::Builder::new();
    sim.rng_seed(options.seed)
        .enable_random_order()
        .tick_duration(Duration::from_millis(1))
        .simulation_duration(options.faults_for + 3 * CALM)
        .min_message_latency(Duration::from_micros(200))
        .max_message_latency(Duration::from_millis(5))
        .tcp_capacity(4096)
        .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let mut sim = sim.build();

    let nodes: Vec<SimNode> = (0..NODES).map(|index| SimNode::new(index, options.seed)).collect();
    for node in &nodes {
        let node = node.clone();
        sim.host(host(node.index()), move || node.clone().serve());
    }

    let shared = Shared {
        ledger: Arc::new(Mutex::new(Ledger::default())),
        writers: Arc::new(Mutex::new(WRITERS as u32)),
        faults_until: options.faults_for,
    };
    for id in 0..WRITERS {
        let shared = shared.clone();
        sim.client(format!("writer-{id}"), async move {
            writer(id, options.seed, shared).await;
            Ok(())
        });
    }
    for id in 0..READERS {
        let shared = shared.clone();
        sim.client(format!("reader-{id}"), async move {
            reader(options.seed.wrapping_add(id), shared).await;
            Ok(())
        });
    }
    let verdict = Arc::new(Mutex::new(None));
    let (audited, shared_for_audit) = (verdict.clone(), shared.clone());
    sim.client("auditor", async move {
        auditor(shared_for_audit, audited).await;
        Ok(())
    });

    let faults = schedule(options.seed, options.faults_for);
    let mut pending = faults.iter().peekable();
    let mut started_again = BTreeSet::new();
    loop {
        while let Some(scheduled) = pending.next_if(|scheduled| scheduled.at <= sim.elapsed()) {
            tracing::info!(at_ms = sim.elapsed().as_millis() as u64, fault = ?scheduled.fault, "fault");
            inject(&mut sim, &nodes, &scheduled.fault);
        }
        for node in nodes.iter().filter(|node| node.take_fatal()) {
            // The node has ended its process: its journal could not be synced, or it did not start.
            if sim.is_host_running(host(node.index())) {
                sim.crash(host(node.index()));
                node.disk_lost_power();
            }
            if sim.elapsed() >= options.faults_for {
                // Nothing ails the disk any more, so there is no reason left for not starting.
                let why = node.take_start_error().unwrap_or_else(|| "it ended itself".into());
                let what = format!("node {} in the calm phase: {why}", node.index());
                shared.ledger.lock().note(Damage::Unavailable { what });
                if started_again.insert(node.index()) {
                    sim.bounce(host(node.index()));
                }
            }
        }
        if sim.step().map_err(|error| format!("seed {}: {error}", options.seed))? {
            break;
        }
    }

    let damage = verdict
        .lock()
        .take()
        .ok_or_else(|| format!("seed {}: the auditor never came to an end", options.seed))?;
    let ledger = shared.ledger.lock();
    Ok(Report {
        damage,
        acknowledged: ledger.acknowledged_count(),
        attempted: ledger.attempt_count(),
        seen: ledger.seen_count(),
        faults: faults.len(),
        simulated: sim.elapsed(),
    })
}

fn inject(sim: &mut turmoil::Sim<'_>, nodes: &[SimNode], fault: &Fault) {
    match fault {
        Fault::Crash(node) => {
            if sim.is_host_running(host(*node)) {
                sim.crash(host(*node));
                nodes[*node].disk_lost_power();
            }
        }
        Fault::Restart(node) => {
            nodes[*node].disk_mended();
            if !sim.is_host_running(host(*node)) {
                sim.bounce(host(*node));
            }
        }
        Fault::Cut(one, other) => sim.partition(host(*one), host(*other)),
        Fault::CutOneWay(from, to) => sim.partition_oneway(host(*from), host(*to)),
        Fault::Mend(one, other) => {
            sim.repair(host(*one), host(*other));
            sim.set_link_max_message_latency(host(*one), host(*other), Duration::from_millis(5));
        }
        Fault::Slow(one, other, by) => sim.set_link_max_message_latency(host(*one), host(*other), *by),
        Fault::FailSync(node) => nodes[*node].fail_next_sync(),
        Fault::DiskFull(node, full) => nodes[*node].disk_full(*full),
    }
}
