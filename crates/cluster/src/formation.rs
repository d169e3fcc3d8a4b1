//! How nodes that have nothing become a cluster, and how one that lost what it had becomes part of it again.
//!
//! A node may vote only if it remembers every vote that it gave. One that lost its disk does not, and yet looks like one
//! that is new. So a cluster comes to be in three steps, each kept on disk before it is told to anybody:
//!
//! ```text
//! empty    asks every founder who it is.      One that is formed: this node is not new. It goes on as below.
//!    |     All have answered, none is formed: the one with the lowest number makes the cluster's id,
//!    v                                        the others take it over from whoever has it.
//! forming  asks on.                           Somebody has another id, or other founders: it must not go on.
//!    |     All have answered, and each is forming or formed, with this id; or one is formed with it, who has
//!    v     made sure of that.
//! formed   starts to vote. Says so to whoever asks, for ever.
//! ```
//!
//! Why that is enough: suppose a node lost its disk, and comes out of the first step all the same. Every other founder
//! told it, after it had started again, that it was not formed; and whoever still has his disk only goes forward, so that
//! he was not formed either when this node lost its own. As long as no majority has lost its disks, no majority was formed
//! by then, and a vote or an entry counts only with a majority: what this node voted before is as if it had not been. Once
//! a majority has lost its disks, nothing is left that could be kept. And so that nobody is formed by what this node said
//! before, whoever is asked by an empty node forgets that.
//!
//! # Coming back
//!
//! An empty node among founders of whom one is formed may have voted, and must never vote again as whom it was. It can only
//! become another voter:
//!
//! ```text
//! empty    asks each founder that is formed which incarnation it is.
//!    |     A majority of the cluster has agreed to a number that no process of this node had before,
//!    v     and to whom it was given: the token that this process has drawn.
//! formed   in that incarnation, which is on disk before the node starts. It has no vote in any shard until whoever
//!          leads the shard has filled it and a majority has put it in the place of the lost one.
//! ```
//!
//! Why nobody votes twice: a vote is given by a node in an incarnation, and messages name it. Two processes are of one
//! incarnation only if the second has the disk of the first: whoever starts with nothing draws another token, and gets
//! another number. One that dies between being told its number and keeping it has not voted, and the number is used up.
//! Why nothing acknowledged is lost: to the shards, the lost replica is a voter that is down for ever; how another takes
//! its place is told in the module `membership`.
//!
//! What is still refused, or waited for:
//!
//! * So many are empty that the others are no majority: what was acknowledged may be gone, and nobody can tell. It ends
//!   with words to the operator, who finds a disk again, or begins another cluster.
//! * No majority can be reached. It goes on asking.
//! * The node's number is in use: somebody sees a node of that number that has its data. Two directories must not be one
//!   node, and the one that has its data stays. It goes on asking, in case that one goes.
//! * The founders are others, or those that are formed are of two clusters: another cluster is meant.
//! * A node alone has nobody to ask; its directory is begun anew as another cluster.
//! * A directory of an incarnation that was replaced: the others refuse its connections and say why.
//!
//! Nothing has a time limit. Who is waited for is logged, and a node that is started again goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use weir_model::{Incarnation, NodeId};

use crate::identity::{CLUSTER_ID_BYTES_MAX, FOUNDERS_MAX, Identity, IdentityStore, Phase, list_nodes};
use crate::raft::member::NODE_NUMBER_MAX;
use crate::transport::tcp::TcpListening;
use crate::transport::tcp::greeting::{Verdict, connect, receive};
use crate::transport::tcp::handshake::{Hello, Purpose};
use crate::transport::tcp::link::Pauses;

#[cfg(test)]
mod tests;

/// How often it is logged who is waited for.
pub(crate) const WAITING_LOG: Duration = Duration::from_secs(5);

/// What a cluster is formed from.
pub struct Founding<'a> {
    /// Where this node's identity is kept.
    pub store: &'a dyn IdentityStore,
    /// This node.
    pub node: NodeId,
    /// The founders and where they are, as `host:port`: this node as well, whose address is not used, or nobody at all.
    pub peers: &'a BTreeMap<NodeId, String>,
    /// The node's port. Its TLS is what others are asked with, too.
    pub listening: &'a TcpListening,
    /// How many data shards the node is to have. All founders must have as many.
    pub shards: u32,
    /// What the random part of pauses between tries is drawn from.
    pub seed: u64,
    /// What tells this process from all others of the node, those before it above all: drawn anew for each from a source of
    /// randomness that gives nobody the same twice. Should the node have lost its data, its next incarnation is given to
    /// whoever has this.
    pub token: u64,
}

/// Why a node must not start. What it says is meant for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormationError {
    /// The identity could not be read or kept.
    #[error("{0}")]
    Store(String),
    /// The data directory is another node's.
    #[error("the data directory is that of node {stored}, and this node is to be node {node}")]
    OtherNode {
        /// Who this is to be.
        node: NodeId,
        /// Whose the directory is.
        stored: NodeId,
    },
    /// Not all have the same founders.
    #[error("{}", other_founders(.node, .here, .peer, .there))]
    OtherFounders {
        /// This node.
        node: NodeId,
        /// The founders as this node was given them.
        here: BTreeSet<NodeId>,
        /// Who has others; this node itself, if they are those that it was founded with.
        peer: NodeId,
        /// The founders there.
        there: BTreeSet<NodeId>,
    },
    /// A majority has lost its data.
    #[error(
        "node {peer} is a member of cluster {cluster}, but the data directories of nodes {} are empty, and the others are no \
         majority: what was acknowledged may be lost, and nobody can tell. Put back the directory of one of them, or \
         empty all to begin another cluster",
        list_nodes(.empty)
    )]
    MajorityLost {
        /// The cluster.
        cluster: String,
        /// Who is a member of it.
        peer: NodeId,
        /// Who has nothing any more, this node among them.
        empty: BTreeSet<NodeId>,
    },
    /// Founders are of different clusters.
    #[error(
        "node {one} is of cluster {cluster}, and node {other} of cluster {other_cluster}: they cannot form one \
         together. The data directory of one of them is not the one that is meant, or must be emptied if there is \
         nothing in it yet"
    )]
    TwoClusters {
        /// A node.
        one: NodeId,
        /// Its cluster.
        cluster: String,
        /// Another.
        other: NodeId,
        /// Its cluster.
        other_cluster: String,
    },
    /// Not all have as many shards.
    #[error(
        "node {node} has {here} data shards, and node {peer} has {there}: all nodes must have as many. Give --shards the same \
         value everywhere"
    )]
    OtherShards {
        /// This node.
        node: NodeId,
        /// How many it has.
        here: u32,
        /// Who has others.
        peer: NodeId,
        /// How many that one has.
        there: u32,
    },
    /// What was given is out of bounds.
    #[error("{0}")]
    Options(String),
}

fn other_founders(node: &NodeId, here: &BTreeSet<NodeId>, peer: &NodeId, there: &BTreeSet<NodeId>) -> String {
    let mut why = match node == peer {
        true => format!(
            "--peers of node {node} names nodes {}, and its cluster was founded by nodes {}",
            list_nodes(here),
            list_nodes(there)
        ),
        false => format!(
            "--peers of node {node} names nodes {}, and that of node {peer} names nodes {}",
            list_nodes(here),
            list_nodes(there)
        ),
    };
    let difference: Vec<&NodeId> = here.symmetric_difference(there).collect();
    why.push_str(&format!("; they differ in {}, and must be the same", list_nodes(difference)));
    why
}

/// Forms a cluster, or goes on with forming it, and returns who this node is once all founders are known to have agreed;
/// if they have and this node has lost its data, once a majority of them has given it its next incarnation.
/// Returns at once where that was so before, or where the node is the only founder.
///
/// `make_cluster_id` makes an id, from 1 to [`CLUSTER_ID_BYTES_MAX`] bytes, that no other cluster has. As long as this
/// runs, others that ask on the port are answered; it can be dropped, and begun again, at any time.
pub async fn form(
    founding: Founding<'_>,
    make_cluster_id: impl FnOnce() -> String,
) -> Result<Identity, FormationError> {
    let mut identity = begin(&founding)?;
    if identity.phase == Phase::Formed {
        return Ok(identity);
    }
    let told = Arc::new(Mutex::new(Told { identity: identity.clone(), asked_empty: BTreeMap::new() }));
    let answering = answer_others(founding.listening, Arc::clone(&told));
    let forming = async {
        let mut make_cluster_id = Some(make_cluster_id);
        let mut waiting = Waiting::new(founding.seed ^ founding.node.0);
        while identity.phase != Phase::Formed {
            let asked_empty = told.lock().asked_empty.clone();
            let mut answers = ask_all(&founding, &identity).await;
            if let Step::ComeBack { cluster, peers } = decide(&identity, &answers)? {
                match come_back(&founding, &identity, &cluster, &peers).await {
                    Ok(returned) => {
                        founding.store.save(&returned).map_err(FormationError::Store)?;
                        let incarnation = returned.incarnation;
                        tracing::warn!(cluster, %incarnation, "this node had lost its data; it is to be filled anew");
                        return Ok(returned);
                    }
                    Err(refused) => waiting.pause_without_data(&identity, &refused).await,
                }
                continue;
            }
            let next = {
                // Whoever asks meanwhile is answered with what is kept then.
                let mut told = told.lock();
                told.forget_what_changed(&asked_empty, &mut answers);
                let step = decide(&identity, &answers)?;
                let next = carry_out(step, &identity, &mut make_cluster_id)?;
                if let Some(next) = &next {
                    founding.store.save(next).map_err(FormationError::Store)?;
                    told.identity = next.clone();
                }
                next
            };
            match next {
                None => waiting.pause(&identity, &answers).await,
                Some(next) => {
                    identity = next;
                    waiting.begin_again();
                }
            }
        }
        let founders = list_nodes(&identity.founders);
        tracing::info!(cluster = identity.cluster, founders, "the cluster is formed");
        Ok(identity)
    };
    tokio::select! {
        formed = forming => formed,
        () = answering => Err(FormationError::Options("the port for nodes was closed".to_owned())),
    }
}

/// Who this node is after a step, if it is one.
fn carry_out(
    step: Step,
    own: &Identity,
    make_cluster_id: &mut Option<impl FnOnce() -> String>,
) -> Result<Option<Identity>, FormationError> {
    let (phase, cluster) = match step {
        // An incarnation is asked for beforehand; there is nothing to be kept yet.
        Step::Wait | Step::ComeBack { .. } => return Ok(None),
        Step::Found => {
            let Some(make) = make_cluster_id.take() else { return Ok(None) };
            let cluster = make();
            if cluster.is_empty() || cluster.len() > CLUSTER_ID_BYTES_MAX {
                let why = format!("a cluster's id has from 1 to {CLUSTER_ID_BYTES_MAX} bytes");
                return Err(FormationError::Options(why));
            }
            tracing::info!(cluster, "this node makes the id of the new cluster");
            (Phase::Forming, cluster)
        }
        Step::Take(cluster) => {
            tracing::info!(cluster, "this node takes part in forming a cluster");
            (Phase::Forming, cluster)
        }
        Step::Formed => (Phase::Formed, own.cluster.clone()),
    };
    Ok(Some(Identity { phase, cluster, ..own.clone() }))
}

/// What others are told, and which of them asked.
struct Told {
    /// As it is kept.
    identity: Identity,
    /// How often each founder asked while it was empty.
    asked_empty: BTreeMap<NodeId, u64>,
}

impl Told {
    /// What is told to the one who says this.
    fn answer(&mut self, hello: &Hello) -> Identity {
        let mut identity = self.identity.clone();
        if hello.purpose != Purpose::Formation {
            // There is no node yet that could be called.
            identity.phase = Phase::Forming;
        } else if hello.cluster.is_empty() && identity.founders.contains(&hello.from) {
            *self.asked_empty.entry(hello.from).or_default() += 1;
        }
        identity
    }

    /// Those that were empty after the questions went out are not what they may have said they were.
    fn forget_what_changed(&self, asked_empty: &BTreeMap<NodeId, u64>, answers: &mut Answers) {
        for (peer, times) in &self.asked_empty {
            let was_more = answers
                .get(peer)
                .is_some_and(|answer| answer.as_ref().is_ok_and(|said| said.phase != Phase::Empty));
            if was_more && asked_empty.get(peer) != Some(times) {
                answers.insert(*peer, Err("it was empty a moment ago".to_owned()));
            }
        }
    }
}

/// Who this node is as it starts, and whether that goes with what it was given.
fn begin(founding: &Founding<'_>) -> Result<Identity, FormationError> {
    let node = founding.node;
    let mut founders: BTreeSet<NodeId> = founding.peers.keys().copied().collect();
    if !founders.is_empty() && !founders.contains(&node) {
        let named = list_nodes(&founders);
        let why = format!("--peers names nodes {named}, and not this one, which is node {node}");
        return Err(FormationError::Options(why));
    }
    founders.insert(node);
    if let Some(high) = founders.iter().find(|founder| founder.0 > NODE_NUMBER_MAX) {
        let why = format!("nodes have numbers up to {NODE_NUMBER_MAX}, and {high} is above that");
        return Err(FormationError::Options(why));
    }
    if founders.len() > FOUNDERS_MAX {
        let why =
            format!("--peers names {} nodes; a cluster is founded by {FOUNDERS_MAX} at most", founders.len());
        return Err(FormationError::Options(why));
    }
    match founding.store.load().map_err(FormationError::Store)? {
        None => Ok(Identity { shards: founding.shards, ..Identity::empty(node, founders) }),
        Some(stored) if stored.node != node => Err(FormationError::OtherNode { node, stored: stored.node }),
        Some(stored) if stored.founders != founders => {
            Err(FormationError::OtherFounders { node, here: founders, peer: node, there: stored.founders })
        }
        Some(stored) => Ok(stored),
    }
}

/// What a founder said, or why it did not.
type Answers = BTreeMap<NodeId, Result<Identity, String>>;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Somebody has not answered, or is not as far as he must be.
    Wait,
    /// This node makes the cluster's id.
    Found,
    /// This node is forming the cluster of that id.
    Take(String),
    /// All have agreed.
    Formed,
    /// The cluster of that id is there, and this node has lost its data. These are members, and can be asked what it is from
    /// here on.
    ComeBack { cluster: String, peers: BTreeSet<NodeId> },
}

/// What follows from what all others said in one round.
fn decide(own: &Identity, answers: &Answers) -> Result<Step, FormationError> {
    let node = own.node;
    let said = || answers.iter().filter_map(|(peer, answer)| Some((*peer, answer.as_ref().ok()?)));
    if let Some((peer, other)) = said().find(|(_, other)| other.founders != own.founders) {
        let (here, there) = (own.founders.clone(), other.founders.clone());
        return Err(FormationError::OtherFounders { node, here, peer, there });
    }
    let has_others = |(_, other): &(NodeId, &Identity)| other.shards != own.shards && other.shards != 0;
    // One that lost its data takes over how many the others have.
    let is_new = own.phase != Phase::Empty || said().all(|(_, other)| other.phase != Phase::Formed);
    if let Some((peer, other)) = said().find(has_others).filter(|_| own.shards != 0 && is_new) {
        return Err(FormationError::OtherShards { node, here: own.shards, peer, there: other.shards });
    }
    let of_a_cluster = |(_, other): &(NodeId, &Identity)| other.phase != Phase::Empty;
    let mut members = said().filter(of_a_cluster).map(|(peer, other)| (peer, &other.cluster));
    let first = match own.phase {
        Phase::Empty => members.next(),
        Phase::Forming | Phase::Formed => Some((node, &own.cluster)),
    };
    if let Some((one, cluster)) = first
        && let Some((other, other_cluster)) = members.find(|(_, other)| *other != cluster)
    {
        let (cluster, other_cluster) = (cluster.clone(), other_cluster.clone());
        return Err(FormationError::TwoClusters { one, cluster, other, other_cluster });
    }
    let formed: BTreeSet<NodeId> =
        said().filter(|(_, other)| other.phase == Phase::Formed).map(|(peer, _)| peer).collect();
    if let (Some(peer), Some((_, cluster))) = (formed.first().copied(), first) {
        let cluster = cluster.clone();
        return match own.phase {
            Phase::Empty => {
                let empty = said().filter(|answer| !of_a_cluster(answer)).map(|(peer, _)| peer);
                let empty: BTreeSet<NodeId> = empty.chain([node]).collect();
                let left = own.founders.len() - empty.len();
                match 2 * left > own.founders.len() {
                    true => Ok(Step::ComeBack { cluster, peers: formed }),
                    false => Err(FormationError::MajorityLost { cluster, peer, empty }),
                }
            }
            // Whoever is formed has made sure that all had taken the id.
            Phase::Forming | Phase::Formed => Ok(Step::Formed),
        };
    }
    let all_answered = own
        .founders
        .iter()
        .all(|founder| *founder == node || answers.get(founder).is_some_and(Result::is_ok));
    if !all_answered {
        return Ok(Step::Wait);
    }
    let all_agree = said().all(|answer| of_a_cluster(&answer));
    Ok(match (own.phase, first) {
        (Phase::Empty, Some((_, cluster))) => Step::Take(cluster.clone()),
        (Phase::Empty, None) if own.founders.first() == Some(&node) => Step::Found,
        (Phase::Forming, _) if all_agree => Step::Formed,
        (Phase::Formed, _) => Step::Formed,
        _ => Step::Wait,
    })
}

async fn ask_all(founding: &Founding<'_>, own: &Identity) -> Answers {
    let others = founding.peers.iter().filter(|(peer, _)| **peer != founding.node);
    let asking =
        others.map(|(peer, address)| async move { (*peer, ask(founding, own, *peer, address).await) });
    join_all(asking).await.into_iter().collect()
}

async fn ask(
    founding: &Founding<'_>,
    own: &Identity,
    peer: NodeId,
    address: &str,
) -> Result<Identity, String> {
    let hello = Hello::new(own, peer, Purpose::Formation);
    let greeted =
        connect(address, founding.listening.tls(), &hello).await.map_err(|error| error.to_string())?;
    match greeted.identity {
        Some(identity) if identity.node == peer => Ok(identity),
        Some(identity) => Err(format!("at {address} is node {}", identity.node)),
        None => Err("it did not say who it is".to_owned()),
    }
}

/// Asks the members that can be reached, one after the other, what this node is from here on; or why none of them can say.
async fn come_back(
    founding: &Founding<'_>,
    own: &Identity,
    cluster: &str,
    peers: &BTreeSet<NodeId>,
) -> Result<Identity, BTreeMap<NodeId, String>> {
    let mut refused = BTreeMap::new();
    for (peer, address) in founding.peers.iter().filter(|(peer, _)| peers.contains(peer)) {
        match ask_incarnation(founding, own, cluster, *peer, address).await {
            Ok(returned) => return Ok(returned),
            Err(why) => refused.insert(*peer, why),
        };
    }
    Err(refused)
}

async fn ask_incarnation(
    founding: &Founding<'_>,
    own: &Identity,
    cluster: &str,
    peer: NodeId,
    address: &str,
) -> Result<Identity, String> {
    let hello = Hello { token: founding.token, ..Hello::new(own, peer, Purpose::Incarnation) };
    let greeted =
        connect(address, founding.listening.tls(), &hello).await.map_err(|error| error.to_string())?;
    let returned = greeted.identity.ok_or("it did not say which incarnation this node is")?;
    let is_right = returned.node == own.node
        && returned.phase == Phase::Formed
        && returned.cluster == cluster
        && returned.founders == own.founders
        && returned.incarnation != Incarnation::FIRST;
    is_right.then_some(returned).ok_or_else(|| "its answer is not one to what was asked".to_owned())
}

/// Tells others who this node is, for as long as this is polled.
async fn answer_others(listening: &TcpListening, told: Arc<Mutex<Told>>) {
    let logged = Arc::default();
    listening
        .accept_all(|mut stream, peer| {
            let (told, logged) = (Arc::clone(&told), Arc::clone(&logged));
            async move {
                let judge = |hello: Hello| {
                    let own = told.lock().answer(&hello);
                    std::future::ready(Verdict::of(&hello, &own, false))
                };
                receive(&mut stream, peer, judge, &logged).await;
            }
        })
        .await;
}

/// Pauses between rounds, and says now and then what they are for.
struct Waiting {
    pauses: Pauses,
    logged: Option<Instant>,
}

impl Waiting {
    fn new(seed: u64) -> Waiting {
        Waiting { pauses: Pauses::new(seed), logged: None }
    }

    fn begin_again(&mut self) {
        self.pauses.begin_again();
    }

    async fn pause(&mut self, own: &Identity, answers: &Answers) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= WAITING_LOG) {
            self.logged = Some(Instant::now());
            let whom = waited_for(own, answers);
            tracing::info!(node = %own.node, "waiting for the other founders of the cluster: {whom}");
        }
        sleep(self.pauses.next()).await;
    }

    /// As [`Waiting::pause`], where members were asked in vain what this node is from here on.
    async fn pause_without_data(&mut self, own: &Identity, refused: &BTreeMap<NodeId, String>) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= WAITING_LOG) {
            self.logged = Some(Instant::now());
            let why: Vec<String> = refused.iter().map(|(peer, why)| format!("node {peer}: {why}")).collect();
            let why = why.join("; ");
            tracing::warn!(node = %own.node, "this node has lost its data, and is not taken in again yet: {why}");
        }
        sleep(self.pauses.next()).await;
    }
}

fn waited_for(own: &Identity, answers: &Answers) -> String {
    let reasons = answers.iter().filter_map(|(peer, answer)| match answer {
        Err(why) => Some(format!("node {peer} ({why})")),
        Ok(other) if other.phase == Phase::Empty && own.phase == Phase::Forming => {
            Some(format!("node {peer} (it has not taken the cluster's id yet)"))
        }
        Ok(_) => None,
    });
    let reasons: Vec<String> = reasons.collect();
    match (reasons.is_empty(), own.founders.first()) {
        (true, Some(first)) => format!("node {first} (it makes the cluster's id)"),
        _ => reasons.join(", "),
    }
}
