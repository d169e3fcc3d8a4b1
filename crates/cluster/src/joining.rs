//! How a node becomes one of a cluster that is there already.
//!
//! A node with an empty directory asks whoever is at the addresses that it was given. A majority of the cluster notes it in the
//! catalog with where it is reached, and gives it an incarnation, as one that lost its data gets its next
//! ([`form`](crate::form)): so nobody takes it for a node of the same number that was there before, and it does not vote until
//! whoever leads a shard has filled its replica and a majority has agreed. It keeps what it was told before it starts.
//!
//! A node that is a member already, however it became one, only asks where the others are. What it finds in its own catalog
//! counts more; but a node that was stopped before it had one needs to be told again.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use weir_model::{Incarnation, NodeId};

use crate::formation::{FormationError, WAITING_LOG};
use crate::identity::{Identity, IdentityStore, Phase};
use crate::raft::member::NODE_NUMBER_MAX;
use crate::transport::tcp::TcpListening;
use crate::transport::tcp::greeting::connect;
use crate::transport::tcp::handshake::{ADDRESS_BYTES_MAX, Hello, Purpose, WHOEVER_IS_THERE};
use crate::transport::tcp::link::Pauses;

/// Most addresses that a node is given to join by.
pub const SEEDS_MAX: usize = 64;

/// What a cluster is joined by.
pub struct Joining<'a> {
    /// Where this node's identity is kept.
    pub store: &'a dyn IdentityStore,
    /// This node.
    pub node: NodeId,
    /// Where nodes of the cluster are, as `host:port`.
    pub seeds: &'a [String],
    /// Where they are to reach this one, as `host:port`.
    pub address: &'a str,
    /// The node's port. Its TLS is what others are asked with, too.
    pub listening: &'a TcpListening,
    /// What the random part of pauses between tries is drawn from.
    pub seed: u64,
    /// What tells this process from all others of the node, as that of [`Founding`](crate::Founding); not 0.
    pub token: u64,
}

/// Who a node is that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// As it is kept.
    pub identity: Identity,
    /// Where others are, as those said that were asked.
    pub told: BTreeMap<NodeId, String>,
}

/// Joins a cluster and returns who this node is, once a majority has taken it in; at once where that was so before. It asks for
/// as long as that takes, and logs why it has to; it can be dropped, and begun again, at any time.
pub async fn join(joining: Joining<'_>) -> Result<Joined, FormationError> {
    let identity = match stored(&joining)? {
        Some(identity) => identity,
        None => {
            let identity = be_admitted(&joining).await;
            joining.store.save(&identity).map_err(FormationError::Store)?;
            let (cluster, incarnation) = (&identity.cluster, identity.incarnation);
            tracing::info!(cluster, %incarnation, "this node has joined a cluster");
            identity
        }
    };
    let told = ask_where_others_are(&joining, &identity).await;
    Ok(Joined { identity, told })
}

/// Who this node is already, if it is anybody.
fn stored(joining: &Joining<'_>) -> Result<Option<Identity>, FormationError> {
    let node = joining.node;
    if node.0 > NODE_NUMBER_MAX {
        let why = format!("nodes have numbers up to {NODE_NUMBER_MAX}, and {node} is above that");
        return Err(FormationError::Options(why));
    }
    if joining.seeds.len() > SEEDS_MAX || joining.address.len() > ADDRESS_BYTES_MAX {
        let why = format!(
            "--join names at most {SEEDS_MAX} addresses, and an address has at most {ADDRESS_BYTES_MAX} bytes"
        );
        return Err(FormationError::Options(why));
    }
    match joining.store.load().map_err(FormationError::Store)? {
        None => Ok(None),
        Some(stored) if stored.node != node => Err(FormationError::OtherNode { node, stored: stored.node }),
        Some(stored) if stored.phase != Phase::Formed => Err(FormationError::Options(format!(
            "node {node} was about to found a cluster with others; start it with --peers until that is done, or empty its \
             data directory"
        ))),
        Some(stored) => Ok(Some(stored)),
    }
}

async fn be_admitted(joining: &Joining<'_>) -> Identity {
    let mut pauses = Pauses::new(joining.seed ^ joining.node.0);
    let mut logged: Option<Instant> = None;
    loop {
        let mut refused = Vec::new();
        // One after the other: they all ask the same majority.
        for seed in joining.seeds {
            match ask_for_admission(joining, seed).await {
                Ok(identity) => return identity,
                Err(why) => refused.push(format!("{seed}: {why}")),
            }
        }
        if logged.is_none_or(|logged| logged.elapsed() >= WAITING_LOG) {
            logged = Some(Instant::now());
            let why = refused.join("; ");
            tracing::warn!(node = %joining.node, "this node is not taken into the cluster yet: {why}");
        }
        sleep(pauses.next()).await;
    }
}

async fn ask_for_admission(joining: &Joining<'_>, seed: &str) -> Result<Identity, String> {
    let nobody = Identity::empty(joining.node, BTreeSet::new());
    let hello = Hello {
        token: joining.token,
        address: joining.address.to_owned(),
        ..Hello::new(&nobody, WHOEVER_IS_THERE, Purpose::Admission)
    };
    let greeted = connect(seed, joining.listening.tls(), &hello).await.map_err(|error| error.to_string())?;
    let given = greeted.identity.ok_or("it did not say who this node is")?;
    let is_right = given.node == joining.node
        && given.phase == Phase::Formed
        && given.incarnation != Incarnation::FIRST
        && given.shards > 0;
    is_right.then_some(given).ok_or_else(|| "its answer is not one to what was asked".to_owned())
}

/// What those say that can be asked right now.
async fn ask_where_others_are(joining: &Joining<'_>, own: &Identity) -> BTreeMap<NodeId, String> {
    let asking = joining.seeds.iter().map(|seed| async move {
        let hello = Hello::new(own, WHOEVER_IS_THERE, Purpose::Formation);
        let greeted = connect(seed, joining.listening.tls(), &hello).await.ok()?;
        let there = greeted.identity.filter(|there| there.cluster == own.cluster)?;
        Some((there.node, seed.clone(), greeted.peers))
    });
    let mut told = BTreeMap::new();
    for (node, seed, peers) in join_all(asking).await.into_iter().flatten() {
        told.extend(peers);
        told.insert(node, seed);
    }
    told.remove(&own.node);
    told
}
