//! What follows from what others say, and that no order of asking, dying and losing disks leads astray.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_model::{Incarnation, NodeId};

use super::{Answers, FormationError, Step, Told, decide};
use crate::identity::{Identity, Phase};
use crate::transport::tcp::handshake::{Hello, Purpose};

fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn identity(node: u64, phase: Phase, cluster: &str) -> Identity {
    let incarnation = Incarnation::FIRST;
    let founders = nodes(&[1, 2, 3]);
    Identity { node: NodeId(node), phase, cluster: cluster.into(), founders, incarnation, shards: 8 }
}

fn empty(node: u64) -> Identity {
    identity(node, Phase::Empty, "")
}

fn forming(node: u64, cluster: &str) -> Identity {
    identity(node, Phase::Forming, cluster)
}

fn formed(node: u64, cluster: &str) -> Identity {
    identity(node, Phase::Formed, cluster)
}

fn answers(said: &[Identity], silent: &[u64]) -> Answers {
    let said = said.iter().map(|identity| (identity.node, Ok(identity.clone())));
    said.chain(silent.iter().map(|node| (NodeId(*node), Err("it is down".into())))).collect()
}

#[test]
fn all_empty_the_lowest_makes_the_id_and_the_others_take_it() {
    assert_eq!(decide(&empty(1), &answers(&[empty(2), empty(3)], &[])), Ok(Step::Found));
    assert_eq!(decide(&empty(2), &answers(&[empty(1), empty(3)], &[])), Ok(Step::Wait));
    let take = Ok(Step::Take("lake".into()));
    assert_eq!(decide(&empty(3), &answers(&[forming(1, "lake"), empty(2)], &[])), take);
    // The lowest as well, if it has nothing and another has the id.
    assert_eq!(decide(&empty(1), &answers(&[forming(2, "lake"), empty(3)], &[])), take);
}

#[test]
fn nobody_goes_on_before_all_have_answered() {
    assert_eq!(decide(&empty(1), &answers(&[empty(2)], &[3])), Ok(Step::Wait));
    assert_eq!(decide(&empty(2), &answers(&[forming(1, "lake")], &[3])), Ok(Step::Wait));
    assert_eq!(decide(&forming(2, "lake"), &answers(&[forming(1, "lake")], &[3])), Ok(Step::Wait));
    assert_eq!(decide(&forming(1, "lake"), &answers(&[forming(2, "lake"), empty(3)], &[])), Ok(Step::Wait));
}

#[test]
fn all_forming_or_formed_is_formed() {
    let answers = answers(&[formed(1, "lake"), forming(3, "lake")], &[]);
    assert_eq!(decide(&forming(2, "lake"), &answers), Ok(Step::Formed));
}

#[test]
fn one_that_is_formed_has_made_sure_of_all_others() {
    // Whether they are down, or have lost what they had.
    for others in [answers(&[formed(1, "lake")], &[3]), answers(&[formed(1, "lake"), empty(3)], &[])] {
        assert_eq!(decide(&forming(2, "lake"), &others), Ok(Step::Formed));
    }
    let error =
        decide(&forming(2, "lake"), &answers(&[formed(1, "lake"), forming(3, "sea")], &[])).unwrap_err();
    assert!(matches!(error, FormationError::TwoClusters { .. }), "{error}");
}

#[test]
fn an_empty_node_beside_one_that_is_formed_must_come_back_as_another() {
    let come_back = |peers: &[u64]| Ok(Step::ComeBack { cluster: "lake".into(), peers: nodes(peers) });
    // At once, whoever else is down or not as far.
    assert_eq!(decide(&empty(1), &answers(&[formed(2, "lake")], &[3])), come_back(&[2]));
    assert_eq!(decide(&empty(1), &answers(&[formed(2, "lake"), forming(3, "lake")], &[])), come_back(&[2]));
    assert_eq!(decide(&empty(1), &answers(&[formed(2, "lake"), formed(3, "lake")], &[])), come_back(&[2, 3]));
}

#[test]
fn an_empty_node_must_not_go_on_where_a_majority_is_lost_or_another_cluster_is_meant() {
    let lost =
        FormationError::MajorityLost { cluster: "lake".into(), peer: NodeId(2), empty: nodes(&[1, 3]) };
    assert!(lost.to_string().contains("directories of nodes 1, 3 are empty"), "{lost}");
    assert_eq!(decide(&empty(1), &answers(&[formed(2, "lake"), empty(3)], &[])), Err(lost));
    // Of two, one is no majority.
    let two = |identity: Identity| Identity { founders: nodes(&[1, 2]), ..identity };
    let error = decide(&two(empty(1)), &answers(&[two(formed(2, "lake"))], &[])).unwrap_err();
    assert!(matches!(error, FormationError::MajorityLost { .. }), "{error}");
    let error = decide(&empty(1), &answers(&[formed(2, "lake"), formed(3, "sea")], &[])).unwrap_err();
    assert!(matches!(error, FormationError::TwoClusters { .. }), "{error}");
    let others = Identity { founders: nodes(&[1, 2, 4]), ..formed(2, "lake") };
    let error = decide(&empty(1), &answers(&[others, formed(3, "lake")], &[])).unwrap_err();
    assert!(matches!(error, FormationError::OtherFounders { .. }), "{error}");
}

#[test]
fn different_clusters_are_named() {
    let error = decide(&forming(1, "lake"), &answers(&[forming(3, "sea")], &[2])).unwrap_err();
    let (one, other) = (NodeId(1), NodeId(3));
    let (cluster, other_cluster) = ("lake".into(), "sea".into());
    assert_eq!(error, FormationError::TwoClusters { one, cluster, other, other_cluster });
    let error = decide(&empty(1), &answers(&[forming(2, "lake"), forming(3, "sea")], &[])).unwrap_err();
    assert!(error.to_string().starts_with("node 2 is of cluster lake, and node 3 of cluster sea"), "{error}");
}

#[test]
fn different_numbers_of_shards_are_named_before_anything_is_agreed_on() {
    let other = Identity { shards: 4, ..empty(2) };
    let error = decide(&empty(1), &answers(std::slice::from_ref(&other), &[3])).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("node 1 has 8 data shards, and node 2 has 4: all nodes must have as many"),
        "{error}"
    );
    let forming = decide(&forming(1, "lake"), &answers(&[other], &[3])).unwrap_err();
    assert!(matches!(forming, FormationError::OtherShards { .. }), "{forming}");
    // One that does not tell, and those of whom one that lost its data takes over how many there are.
    let silent = Identity { shards: 0, ..empty(2) };
    assert_eq!(decide(&empty(1), &answers(&[silent, empty(3)], &[])), Ok(Step::Found));
    let member = Identity { shards: 4, ..formed(2, "lake") };
    let back = Step::ComeBack { cluster: "lake".into(), peers: nodes(&[2]) };
    assert_eq!(decide(&empty(1), &answers(&[member], &[3])), Ok(back));
}

#[test]
fn different_founders_are_named() {
    let other = Identity { founders: nodes(&[1, 2, 4]), ..empty(2) };
    let error = decide(&empty(1), &answers(&[other], &[3])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--peers of node 1 names nodes 1, 2, 3, and that of node 2 names nodes 1, 2, 4; they differ in 3, 4, and \
         must be the same"
    );
}

/// A founder in the model: its disk, and what its process has heard since it last began to ask.
#[derive(Default)]
struct Founder {
    disk: Option<Identity>,
    /// None while the process is down, or has given up.
    heard: Option<Answers>,
    has_given_up: bool,
    has_lost_its_disk: bool,
    /// With the disk that it has now or with one that it lost.
    was_ever_formed: bool,
    /// It has forgotten votes that it gave.
    has_forgotten: bool,
    /// It is another voter by now.
    came_back: bool,
}

/// One run of founders that ask, decide, die, come back, and lose disks, fewer than a majority of them.
fn run_model(seed: u64, count: u64) -> Vec<Founder> {
    let mut random = SmallRng::seed_from_u64(seed);
    let all: BTreeSet<NodeId> = (1..=count).map(NodeId).collect();
    let mut founders: BTreeMap<NodeId, Founder> =
        all.iter().map(|node| (*node, Founder::default())).collect();
    let mut losses_left = random.random_range(0..=(count - 1) / 2);
    let mut made = 0;
    for _ in 0..400 {
        let node = NodeId(random.random_range(1..=count));
        let founder = founders.get_mut(&node).unwrap();
        let own = founder.disk.clone().unwrap_or_else(|| Identity::empty(node, all.clone()));
        match random.random_range(0..20) {
            0 => founder.heard = None,
            // Most of them late, where they matter.
            1 if losses_left > 0 && (own.phase == Phase::Formed || random.random_bool(0.1)) => {
                losses_left -= 1;
                founder.has_forgotten |= own.phase == Phase::Formed;
                (founder.disk, founder.heard, founder.has_given_up) = (None, None, false);
                founder.came_back = false;
                founder.has_lost_its_disk = true;
            }
            2..=4 if founder.heard.is_none() && !founder.has_given_up => founder.heard = Some(Answers::new()),
            _ => {
                if founder.heard.is_none() || own.phase == Phase::Formed {
                    continue;
                }
                // Asks one more, who may be down.
                let peer = NodeId(random.random_range(1..=count));
                let said = match founders.get_mut(&peer) {
                    Some(other) if peer != node && other.heard.is_some() => {
                        if own.phase == Phase::Empty {
                            // What it said before does not hold any more.
                            let was_empty = |said: &Identity| said.phase == Phase::Empty;
                            let heard = other.heard.as_mut().unwrap();
                            heard.retain(|who, said| *who != node || said.as_ref().is_ok_and(was_empty));
                        }
                        other.disk.clone().unwrap_or_else(|| Identity::empty(peer, all.clone()))
                    }
                    _ => continue,
                };
                let remembering = founders.values().filter(|founder| {
                    founder.disk.as_ref().is_some_and(|disk| disk.phase == Phase::Formed)
                        && !founder.came_back
                });
                let agree = remembering.count() as u64 > count / 2;
                let ever_formed = founders.values().filter(|founder| founder.was_ever_formed).count() as u64;
                let founder = founders.get_mut(&node).unwrap();
                let heard = founder.heard.as_mut().unwrap();
                heard.insert(peer, Ok(said));
                let forming = |cluster| {
                    let votes_counted = ever_formed > count / 2;
                    assert!(!founder.has_forgotten || !votes_counted, "seed {seed}: node {node} begins anew");
                    Some(Identity { phase: Phase::Forming, cluster, ..own.clone() })
                };
                founder.disk = match decide(&own, heard) {
                    Ok(Step::Wait) => {
                        if heard.len() as u64 == count - 1 {
                            heard.clear();
                        }
                        continue;
                    }
                    Ok(Step::Found) => {
                        made += 1;
                        forming(format!("{made}"))
                    }
                    Ok(Step::Take(cluster)) => forming(cluster),
                    Ok(Step::Formed) => {
                        founder.was_ever_formed = true;
                        Some(Identity { phase: Phase::Formed, ..own })
                    }
                    // Those that remember their votes are a majority, and agree to it.
                    Ok(Step::ComeBack { cluster, .. }) if agree => {
                        founder.came_back = true;
                        let incarnation = Incarnation(1);
                        Some(Identity { phase: Phase::Formed, cluster, incarnation, ..own })
                    }
                    Ok(Step::ComeBack { .. }) => {
                        heard.clear();
                        continue;
                    }
                    Err(_) => {
                        (founder.heard, founder.has_given_up) = (None, true);
                        continue;
                    }
                };
                founder.heard = Some(Answers::new());
            }
        }
    }
    founders.into_values().collect()
}

#[test]
fn what_a_founder_said_before_it_was_empty_does_not_hold() {
    let ask = |told: &mut Told, from: &Identity| {
        let answer = told.answer(&Hello::new(from, NodeId(1), Purpose::Formation));
        assert_eq!(answer, told.identity);
    };
    let mut told = Told { identity: forming(1, "lake"), asked_empty: BTreeMap::new() };
    ask(&mut told, &empty(2));
    let before = told.asked_empty.clone();
    let all = || answers(&[forming(2, "lake"), forming(3, "lake")], &[]);
    let mut heard = all();
    ask(&mut told, &forming(2, "lake"));
    told.forget_what_changed(&before, &mut heard);
    assert_eq!(heard, all(), "what it said after it was empty holds");
    ask(&mut told, &empty(2));
    ask(&mut told, &empty(7));
    told.forget_what_changed(&before, &mut heard);
    assert!(heard[&NodeId(2)].is_err() && heard[&NodeId(3)].is_ok(), "{heard:?}");
    assert_eq!(decide(&forming(1, "lake"), &heard), Ok(Step::Wait));
    // That it is empty holds all the same, and strangers are not remembered.
    let mut heard = answers(&[empty(2), empty(3)], &[]);
    told.forget_what_changed(&before, &mut heard);
    assert!(heard.values().all(Result::is_ok));
    assert_eq!(told.asked_empty.keys().copied().collect::<Vec<_>>(), [NodeId(2)]);
    // Who wants more than to know is told that it is not the time yet.
    told.identity = formed(1, "lake");
    assert_eq!(
        told.answer(&Hello::new(&formed(2, "lake"), NodeId(1), Purpose::Shards)).phase,
        Phase::Forming
    );
}

#[test]
fn no_order_of_events_lets_a_node_vote_that_forgot_its_votes() {
    let (mut formed_at_all, mut came_back) = (0, 0);
    for seed in 0..20_000 {
        let founders = run_model(seed, 3 + seed % 3);
        let formed: Vec<&Founder> = founders
            .iter()
            .filter(|founder| founder.disk.as_ref().is_some_and(|disk| disk.phase == Phase::Formed))
            .collect();
        let clusters: BTreeSet<&str> =
            formed.iter().filter_map(|founder| Some(founder.disk.as_ref()?.cluster.as_str())).collect();
        assert!(clusters.len() <= 1, "seed {seed}: clusters {clusters:?}");
        if founders.iter().all(|founder| !founder.has_lost_its_disk && !founder.has_given_up) {
            formed_at_all += usize::from(formed.len() == founders.len());
        }
        came_back += founders.iter().filter(|founder| founder.has_forgotten && founder.came_back).count();
    }
    // The model gets somewhere.
    assert!(formed_at_all > 1000, "{formed_at_all} clusters were formed");
    assert!(came_back > 100, "{came_back} nodes that had forgotten came back");
}
