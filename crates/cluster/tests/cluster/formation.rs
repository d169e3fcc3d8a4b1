//! Founders that find each other over real connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use weir_cluster::{FormationError, Founding, Identity, IdentityStore, PeerTls, Phase, form};
use weir_model::NodeId;

use crate::network::{ANYWHERE, Echo, LONG, Papers, call_until_answered, listen, run};

/// A data directory.
#[derive(Default)]
struct Directory {
    saved: Mutex<Option<Identity>>,
    /// What it was told to keep, in order.
    history: Mutex<Vec<Phase>>,
    is_broken: bool,
}

impl IdentityStore for Directory {
    fn load(&self) -> Result<Option<Identity>, String> {
        if self.is_broken { Err("node.toml is damaged".into()) } else { Ok(self.saved.lock().clone()) }
    }

    fn save(&self, identity: &Identity) -> Result<(), String> {
        self.history.lock().push(identity.phase);
        *self.saved.lock() = Some(identity.clone());
        Ok(())
    }
}

type Formed = Result<(Identity, Echo), FormationError>;

/// A machine for a node: its directory and its port stay when the process ends.
#[derive(Clone)]
struct Machine {
    node: u64,
    directory: Arc<Directory>,
    peers: BTreeMap<NodeId, String>,
    tls: Option<Arc<PeerTls>>,
    /// Ids that were made anywhere.
    made: Arc<AtomicUsize>,
}

impl Machine {
    /// Takes the port, forms the cluster, and serves, as a process does.
    fn start(&self) -> JoinHandle<Formed> {
        let machine = self.clone();
        tokio::spawn(async move {
            let Machine { node, directory, peers, tls, made } = machine;
            let address = peers[&NodeId(node)].replace("localhost", "127.0.0.1");
            let listening = listen(address, tls.clone()).await;
            let store: &dyn IdentityStore = &*directory;
            let (node, listening_at) = (NodeId(node), &listening);
            let founding = Founding {
                store,
                node,
                peers: &peers,
                listening: listening_at,
                shards: 1,
                seed: node.0,
                token: node.0,
            };
            let make = || format!("lake-{}", made.fetch_add(1, Ordering::SeqCst));
            let identity = form(founding, make).await?;
            let peers: Vec<(u64, String)> =
                peers.iter().map(|(node, address)| (node.0, address.clone())).collect();
            let echo = Echo::start_on(listening, identity.clone(), &peers, tls);
            Ok((identity, echo))
        })
    }

    fn phase(&self) -> Phase {
        self.directory.saved.lock().as_ref().map_or(Phase::Empty, |identity| identity.phase)
    }

    fn lose_disk(&self) {
        *self.directory.saved.lock() = None;
    }
}

async fn machines(count: u64) -> Vec<Machine> {
    let mut peers = BTreeMap::new();
    for node in 1..=count {
        // A port that was just free.
        let port = listen(ANYWHERE, None).await.local_addr();
        peers.insert(NodeId(node), port.to_string());
    }
    let made = Arc::new(AtomicUsize::new(0));
    (1..=count)
        .map(|node| Machine {
            node,
            directory: Arc::default(),
            peers: peers.clone(),
            tls: None,
            made: Arc::clone(&made),
        })
        .collect()
}

async fn within<T>(task: JoinHandle<T>) -> T {
    timeout(LONG, task).await.expect("it comes to an end").expect("it does not panic")
}

/// Waits until all are formed, checks that they agree, and that they reach each other.
async fn all_formed(machines: &[Machine], tasks: Vec<JoinHandle<Formed>>) -> Vec<Echo> {
    let mut serving = Vec::new();
    let mut clusters = BTreeSet::new();
    for (machine, task) in machines.iter().zip(tasks) {
        let (identity, echo) = within(task).await.expect("it is formed");
        assert_eq!((identity.node, identity.phase), (NodeId(machine.node), Phase::Formed));
        assert_eq!(identity.founders, machine.peers.keys().copied().collect());
        assert_eq!(machine.directory.saved.lock().clone(), Some(identity.clone()));
        clusters.insert(identity.cluster);
        serving.push(echo);
    }
    assert_eq!(clusters.len(), 1, "{clusters:?}");
    for (index, echo) in serving.iter().enumerate() {
        for other in (1..=machines.len() as u64).filter(|other| *other != index as u64 + 1) {
            call_until_answered(&echo.transport, other, "hello").await;
        }
    }
    serving
}

#[test]
fn three_form_a_cluster_in_every_order_of_starting() {
    run(async {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for pause in [0, 150] {
                let machines = machines(3).await;
                let mut tasks = BTreeMap::new();
                for index in order {
                    tasks.insert(index, machines[index].start());
                    sleep(Duration::from_millis(pause)).await;
                    let is_last = index == order[2];
                    assert!(
                        is_last || machines.iter().all(|machine| machine.phase() == Phase::Empty),
                        "{order:?}"
                    );
                }
                let serving = all_formed(&machines, tasks.into_values().collect()).await;
                assert_eq!(machines[0].made.load(Ordering::SeqCst), 1);
                for machine in &machines {
                    assert_eq!(*machine.directory.history.lock(), [Phase::Forming, Phase::Formed]);
                }
                for echo in serving {
                    echo.stop().await;
                }
            }
        }
    });
}

#[test]
fn one_that_is_formed_is_not_asked_again_and_a_lone_node_asks_nobody() {
    run(async {
        let machines = machines(1).await;
        let (identity, _) = within(machines[0].start()).await.expect("it is formed");
        let alone = Identity::formed(NodeId(1), "lake-0".into(), [NodeId(1)].into());
        assert_eq!(identity, Identity { shards: 1, ..alone });
        // Nobody else is there, and nobody has to be.
        let mut peers = machines[0].peers.clone();
        peers.insert(NodeId(2), "127.0.0.1:9".into());
        let formed = Identity::formed(NodeId(1), "lake".into(), peers.keys().copied().collect());
        let machine = Machine { peers, ..machines[0].clone() };
        *machine.directory.saved.lock() = Some(formed.clone());
        assert_eq!(within(machine.start()).await.expect("it is formed").0, formed);
        assert_eq!(machine.made.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn founders_that_die_and_come_back_in_the_middle_go_on_where_they_were() {
    run(async {
        for round in 0..6 {
            let machines = machines(3).await;
            // Two that are killed again and again, at other moments each time, and with them whatever they heard.
            let mut tasks: Vec<_> = machines.iter().map(Machine::start).collect();
            for step in 0..8u64 {
                sleep(Duration::from_millis((round * 7 + step * 13) % 60)).await;
                let index = (step as usize + round as usize) % 3;
                if !tasks[index].is_finished() {
                    tasks[index].abort();
                    let _ = (&mut tasks[index]).await;
                    tasks[index] = machines[index].start();
                }
            }
            let serving = all_formed(&machines, tasks).await;
            assert!(machines[0].made.load(Ordering::SeqCst) <= 1 + 8);
            for echo in serving {
                echo.stop().await;
            }
        }
    });
}

#[test]
fn one_that_was_not_there_when_the_others_were_forming_joins_when_it_comes() {
    run(async {
        let machines = machines(3).await;
        let first = machines[0].start();
        let second = machines[1].start();
        let third = machines[2].start();
        while machines[0].phase() == Phase::Empty {
            sleep(Duration::from_millis(1)).await;
        }
        // The third dies before it knows, or after.
        third.abort();
        let _ = third.await;
        sleep(Duration::from_millis(500)).await;
        if machines[2].phase() == Phase::Empty {
            assert_ne!(machines[0].phase(), Phase::Formed);
            assert!(!first.is_finished() && !second.is_finished());
        }
        let third = machines[2].start();
        for echo in all_formed(&machines, vec![first, second, third]).await {
            echo.stop().await;
        }
    });
}

#[test]
fn a_node_that_lost_its_disk_does_not_start_before_members_say_what_it_is_and_never_where_a_majority_is_lost()
{
    run(async {
        let machines = machines(3).await;
        let tasks = machines.iter().map(Machine::start).collect();
        let mut serving = all_formed(&machines, tasks).await;
        let lose = async |serving: &mut Vec<Echo>, index: usize| {
            serving.remove(index).stop().await;
            machines[index].lose_disk();
        };
        // Those that are left have no shards here, and cannot agree on anything.
        lose(&mut serving, 2).await;
        let mut third = machines[2].start();
        let waited = timeout(Duration::from_millis(1500), &mut third).await;
        assert!(waited.is_err(), "it must not start");
        assert_eq!(machines[2].phase(), Phase::Empty);
        // With two that have nothing, nobody can say any more what was acknowledged.
        lose(&mut serving, 0).await;
        let error = within(machines[0].start()).await.err().expect("it must not start");
        let FormationError::MajorityLost { cluster, peer, empty } = &error else { panic!("{error}") };
        assert_eq!((cluster.as_str(), *peer), ("lake-0", NodeId(2)));
        assert_eq!(*empty, [1, 3].map(NodeId).into());
        assert!(error.to_string().contains("are no majority"), "{error}");
        third.abort();
        assert!(machines[0].phase() == Phase::Empty && machines[2].phase() == Phase::Empty);
        for echo in serving {
            echo.stop().await;
        }
    });
}

#[test]
fn founders_that_were_given_different_peers_say_in_what_they_differ() {
    run(async {
        let mut machines = machines(3).await;
        machines[2].peers.insert(NodeId(4), "127.0.0.1:9".into());
        let mut tasks = tokio::task::JoinSet::new();
        for machine in &machines {
            let task = machine.start();
            tasks.spawn(async move { task.await.expect("it does not panic").err() });
        }
        // Whoever notices first ends, and those that did not ask him before wait for him.
        let first = timeout(LONG, tasks.join_next()).await.expect("it comes to an end");
        let error = first.expect("a founder").expect("it does not panic").expect("it must not start");
        assert!(matches!(error, FormationError::OtherFounders { .. }), "{error}");
        assert!(error.to_string().contains("they differ in 4"), "{error}");
        assert!(machines.iter().all(|machine| machine.phase() == Phase::Empty));
    });
}

#[test]
fn a_directory_of_another_node_or_cluster_is_not_used() {
    run(async {
        let machines = machines(3).await;
        let start_with = async |index: usize, saved: Identity| {
            *machines[index].directory.saved.lock() = Some(saved);
            within(machines[index].start()).await.err().expect("it must not start").to_string()
        };
        let founders: BTreeSet<NodeId> = (1..=3).map(NodeId).collect();
        let error = start_with(0, Identity::formed(NodeId(2), "lake".into(), founders.clone())).await;
        assert_eq!(error, "the data directory is that of node 2, and this node is to be node 1");
        let error = start_with(0, Identity::formed(NodeId(1), "lake".into(), [NodeId(1)].into())).await;
        assert!(error.contains("its cluster was founded by nodes 1;"), "{error}");
        // Two that are forming different clusters.
        let forming = |node, cluster: &str| Identity {
            phase: Phase::Forming,
            ..Identity::formed(NodeId(node), cluster.into(), founders.clone())
        };
        *machines[1].directory.saved.lock() = Some(forming(2, "sea"));
        let other = machines[1].start();
        let error = start_with(0, forming(1, "lake")).await;
        let expected = "node 1 is of cluster lake, and node 2 of cluster sea";
        assert!(error.starts_with(expected), "{error}");
        other.abort();
    });
}

#[test]
fn what_cannot_be_read_or_named_is_an_error() {
    run(async {
        let machines = machines(1).await;
        let directory = Directory { is_broken: true, ..Directory::default() };
        let broken = Machine { directory: Arc::new(directory), ..machines[0].clone() };
        assert_eq!(
            within(broken.start()).await.err().expect("it must not start"),
            FormationError::Store("node.toml is damaged".into())
        );
        let listening = listen(ANYWHERE, None).await;
        let founding = |node| Founding {
            store: &*machines[0].directory,
            node: NodeId(node),
            peers: &machines[0].peers,
            listening: &listening,
            shards: 1,
            seed: 0,
            token: 0,
        };
        let unnamed = form(founding(7), || "lake".into()).await.expect_err("it is not among the peers");
        assert!(unnamed.to_string().contains("and not this one, which is node 7"), "{unnamed}");
        let long = form(founding(1), || "x".repeat(65)).await.expect_err("the id is too long");
        assert!(matches!(long, FormationError::Options(_)), "{long}");
        assert_eq!(machines[0].phase(), Phase::Empty);
    });
}

#[test]
fn a_cluster_is_formed_over_tls() {
    run(async {
        let papers = Papers::new();
        let mut machines = machines(3).await;
        let addresses: BTreeMap<NodeId, String> = machines[0]
            .peers
            .iter()
            .map(|(node, address)| (*node, address.replace("127.0.0.1", "localhost")))
            .collect();
        for machine in &mut machines {
            machine.peers = addresses.clone();
            machine.tls = Some(papers.issue(&format!("node-{}", machine.node), "localhost", &papers));
        }
        let tasks = machines.iter().map(Machine::start).collect();
        for echo in all_formed(&machines, tasks).await {
            echo.stop().await;
        }
    });
}
