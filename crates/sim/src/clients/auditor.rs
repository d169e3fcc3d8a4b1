//! The auditor waits until everything is sent and settled, has the replicas compare their states, and holds what there is
//! against what clients were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::streams::read_all;
use super::{Shared, ask, peers};
use crate::asks::{Answer, Ask};
use crate::ledger::{Contents, Damage, Partition};
use crate::net::Peer;
use crate::node::{SimNode, Survey};
use crate::queues::{QueueDamage, check};
use crate::scenario::{CALM, SHARDS};

/// How often it is looked whether all is settled.
const LOOK: Duration = Duration::from_millis(200);

/// What an auditor finds.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Of streams.
    pub streams: Vec<Damage>,
    /// Of queues and users.
    pub queues: Vec<QueueDamage>,
}

/// Looks at everything in the end.
pub async fn auditor(nodes: Vec<SimNode>, shared: Shared, verdict: Arc<Mutex<Option<Verdict>>>) {
    let start = Instant::now();
    let deadline = start + shared.faults_until + 2 * CALM;
    while shared.senders.load(Ordering::SeqCst) > 0 {
        sleep(Duration::from_millis(100)).await;
    }
    let peers = peers();
    let mut queues: Vec<QueueDamage> = until_drained(&nodes, deadline).await.into_iter().collect();
    shared.is_over.store(true, Ordering::SeqCst);
    queues.extend(compare(&nodes, &peers, deadline).await);
    queues.extend(final_differences(&nodes, &shared));
    queues.extend(check(shared.history.lock().events()));
    let streams = until_alike(&peers, deadline, &shared).await;
    *verdict.lock() = Some(Verdict { streams, queues });
}

/// Waits until streams are as long on every node, and judges them.
async fn until_alike(peers: &[Peer], deadline: Instant, shared: &Shared) -> Vec<Damage> {
    loop {
        let mut replicas = Vec::new();
        for peer in peers {
            replicas.push(read_all(peer, deadline, shared).await);
        }
        let lengths =
            |replica: &BTreeMap<Partition, Contents>| replica.values().map(Vec::len).collect::<Vec<_>>();
        let settled = replicas.iter().all(|replica| lengths(replica) == lengths(&replicas[0]));
        if settled || Instant::now() >= deadline {
            return shared.ledger.lock().check(&replicas);
        }
        sleep(LOOK).await;
    }
}

/// Waits until everything is settled and released, everywhere.
async fn until_drained(nodes: &[SimNode], deadline: Instant) -> Option<QueueDamage> {
    loop {
        let what = undrained(nodes)?;
        if Instant::now() >= deadline {
            return Some(QueueDamage::NotDrained { what });
        }
        sleep(LOOK).await;
    }
}

/// What is not settled or not alike yet; none if nothing is left.
fn undrained(nodes: &[SimNode]) -> Option<String> {
    let mut surveys = Vec::new();
    for node in nodes {
        match node.survey() {
            Some(survey) => surveys.push(survey),
            None => return Some(format!("node {} does not run", node.index())),
        }
    }
    for (index, survey) in surveys.iter().enumerate() {
        let waits = survey.partitions.iter().find(|(_, there)| there.unsettled > 0 || there.timers > 0);
        if let Some((name, there)) = waits {
            return Some(format!("{name} on node {index}: {there:?}"));
        }
        if let Some(first) = surveys.first()
            && survey.partitions != first.partitions
        {
            return Some(format!("node {index} has other queues than node 0"));
        }
    }
    None
}

/// Has all shards compared, and waits until every replica has done so or stopped.
async fn compare(nodes: &[SimNode], peers: &[Peer], deadline: Instant) -> Vec<QueueDamage> {
    let mut damage: Vec<QueueDamage> = Vec::new();
    let mut left: BTreeSet<u32> = (0..=SHARDS).collect();
    while !left.is_empty() && damage.is_empty() {
        for peer in peers {
            if let Some(Answer::Compared(shards)) = ask(peer, &Ask::Compare).await {
                left.retain(|shard| !shards.contains(shard));
            }
        }
        damage.extend(stopped(nodes));
        if Instant::now() >= deadline && damage.is_empty() {
            damage.push(QueueDamage::NotAlike { what: format!("shards {left:?} were not compared") });
        }
    }
    let surveys = || nodes.iter().filter_map(SimNode::survey);
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    for (shard, applied) in surveys().flat_map(|survey| survey.applied) {
        let known = newest.entry(shard).or_default();
        *known = (*known).max(applied);
    }
    let is_behind =
        |survey: Survey| newest.iter().any(|(shard, index)| survey.applied.get(shard) < Some(index));
    while damage.is_empty() && surveys().any(is_behind) {
        sleep(LOOK).await;
        damage.extend(stopped(nodes));
        if Instant::now() >= deadline {
            damage.push(QueueDamage::NotAlike { what: "a replica did not apply what others have".into() });
        }
    }
    damage
}

fn stopped(nodes: &[SimNode]) -> Vec<QueueDamage> {
    let of = |node: &SimNode| {
        let index = node.index();
        let stopped = node.survey().map(|survey| survey.stopped).unwrap_or_default();
        stopped.into_values().map(move |why| QueueDamage::Stopped { node: index, why })
    };
    nodes.iter().flat_map(of).collect()
}

/// In what replicas differ from each other and from what clients were told.
fn final_differences(nodes: &[SimNode], shared: &Shared) -> Vec<QueueDamage> {
    let surveys: Vec<Survey> = nodes.iter().filter_map(SimNode::survey).collect();
    let mut damage = Vec::new();
    for (index, survey) in surveys.iter().enumerate() {
        let differ = shared.roll.lock().differences(&survey.users);
        damage.extend(differ.into_iter().map(|what| QueueDamage::UsersDiffer { what }));
        for (name, there) in &survey.partitions {
            let other = surveys.first().and_then(|first| first.partitions.get(name));
            if other != Some(there) {
                let what = format!("{name}: {there:?} on node {index}, {other:?} on node 0");
                damage.push(QueueDamage::NotAlike { what });
            }
        }
        if surveys.first().is_some_and(|first| first.users != survey.users) {
            damage.push(QueueDamage::NotAlike { what: format!("users of node {index} and of node 0") });
        }
    }
    damage
}
