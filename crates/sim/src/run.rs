//! One run: a cluster, its clients and its faults, from the first tick to the verdict.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::clients::{
    SENDERS_OF_QUEUES, Shared, auditor, clerk, consumers, declarer, parkers, publishers, reader, steward,
    writer,
};
use crate::ledger::{Damage, Ledger};
use crate::node::{SimNode, host};
use crate::queues::{Figures, History, QueueDamage};
use crate::scenario::{CALM, Fault, NODES, schedule};
use crate::watch::Watch;
use crate::wrong::Wrong;

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
    /// What is to be done wrong, in a run that is to fail.
    pub wrong: Option<Wrong>,
}

/// What became of a run.
#[derive(Debug)]
pub struct Report {
    /// Everything that must never be with streams and was; empty in a good run.
    pub damage: Vec<Damage>,
    /// The same of queues and users.
    pub queue_damage: Vec<QueueDamage>,
    /// What happened to queues.
    pub queues: Figures,
    /// How often logs of queues were seen to be trimmed further, and written anew.
    pub trims_and_rewrites: (usize, usize),
    /// Changes of users that were acknowledged.
    pub user_changes: u64,
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

    let history: Arc<Mutex<History>> = Arc::default();
    let nodes: Vec<SimNode> =
        (0..NODES).map(|index| SimNode::new(index, options.seed, history.clone(), options.wrong)).collect();
    for node in &nodes {
        let node = node.clone();
        sim.host(host(node.index()), move || node.clone().serve());
    }

    let shared = Shared {
        ledger: Arc::new(Mutex::new(Ledger::default())),
        history,
        roll: Arc::default(),
        senders: Arc::new(AtomicU32::new(WRITERS as u32 + SENDERS_OF_QUEUES)),
        is_over: Arc::default(),
        faults_until: options.faults_for,
    };
    // Clients share a few hosts: each further one costs as much as what it does.
    let (writing, reading) = (shared.clone(), shared.clone());
    sim.client("writers", async move {
        join_all((0..WRITERS).map(|id| writer(id, options.seed, writing.clone()))).await;
        Ok(())
    });
    sim.client("readers", async move {
        join_all((0..READERS).map(|id| reader(options.seed.wrapping_add(id), reading.clone()))).await;
        Ok(())
    });
    let (seed, queues) = (options.seed, || shared.clone());
    let (declaring, publishing, parking, writing_users) = (queues(), queues(), queues(), queues());
    sim.client("publishers", async move {
        futures_util::join!(
            declarer(seed, declaring),
            publishers(seed, publishing),
            parkers(seed, parking),
            clerk(seed, writing_users)
        );
        Ok(())
    });
    let (consuming, moving) = (queues(), queues());
    sim.client("consumers", async move {
        futures_util::join!(consumers(seed, consuming), steward(seed, moving));
        Ok(())
    });
    let verdict = Arc::new(Mutex::new(None));
    let (audited, audited_nodes, shared_for_audit) = (verdict.clone(), nodes.clone(), shared.clone());
    sim.client("auditor", async move {
        auditor(audited_nodes, shared_for_audit, audited).await;
        Ok(())
    });

    let faults = schedule(options.seed, options.faults_for);
    let mut pending = faults.iter().peekable();
    let mut started_again = BTreeSet::new();
    let mut watch = Watch::default();
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
        watch.look(sim.elapsed(), &nodes);
        if sim.step().map_err(|error| format!("seed {}: {error}", options.seed))? {
            break;
        }
    }

    let mut found = verdict
        .lock()
        .take()
        .ok_or_else(|| format!("seed {}: the auditor never came to an end", options.seed))?;
    found.queues.extend(watch.found().iter().cloned());
    let ledger = shared.ledger.lock();
    let (queues, user_changes) = (shared.history.lock().figures(), shared.roll.lock().changes);
    Ok(Report {
        damage: found.streams,
        queue_damage: found.queues,
        queues,
        trims_and_rewrites: watch.trims_and_rewrites(),
        user_changes,
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
