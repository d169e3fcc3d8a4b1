//! Nodes over real connections that lose their directories, ask what they are from here on, and come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use weir_cluster::{Founding, Identity, IdentityStore, Node, Phase, TcpTransport, form};
use weir_log::disk::SimDisk;
use weir_model::command::Outcome;
use weir_model::{Incarnation, NodeId, ShardId};

use crate::network::{ANYWHERE, LONG, listen, run, transport, wait_for_nodes};
use crate::support::{Machine, SHARD, append, open_partition, values};

/// What tells processes apart.
static TOKENS: AtomicU64 = AtomicU64::new(1);

/// A data directory: whose it is, beside what is on the disk.
#[derive(Clone, Default)]
struct Directory(Arc<Mutex<Option<Identity>>>);

impl IdentityStore for Directory {
    fn load(&self) -> Result<Option<Identity>, String> {
        Ok(self.0.lock().clone())
    }

    fn save(&self, identity: &Identity) -> Result<(), String> {
        *self.0.lock() = Some(identity.clone());
        Ok(())
    }
}

/// A process.
struct Running {
    node: Arc<Node>,
    transport: Arc<TcpTransport>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

struct Place {
    machine: Machine,
    directory: Directory,
    running: Option<Running>,
}

struct Cluster {
    peers: BTreeMap<NodeId, String>,
    places: BTreeMap<NodeId, Place>,
}

/// Forms, starts, and serves, as a process does.
async fn start(machine: Machine, directory: Directory, peers: BTreeMap<NodeId, String>) -> Running {
    let listening = listen(&peers[&machine.id], None).await;
    let founding = Founding {
        store: &directory,
        node: machine.id,
        peers: &peers,
        listening: &listening,
        shards: 1,
        seed: machine.id.0,
        token: TOKENS.fetch_add(1, Ordering::SeqCst),
    };
    let identity = form(founding, || "lake".to_owned()).await.expect("it is formed");
    assert_eq!(directory.load(), Ok(Some(identity.clone())), "it is kept before the node starts");
    let incarnation = identity.incarnation;
    let machine = machine.tuned(move |options| options.incarnation = incarnation);
    let addresses: Vec<(u64, String)> = peers.iter().map(|(node, at)| (node.0, at.clone())).collect();
    let transport = transport(identity, &addresses, None);
    let node = machine.try_start(Arc::clone(&transport) as _).await.expect("the node starts");
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(listening.serve(Arc::clone(&node), Arc::clone(&transport), async {
        let _ = stopped.await;
    }));
    Running { node, transport, stop, serving }
}

impl Cluster {
    async fn start() -> Cluster {
        let mut peers = BTreeMap::new();
        for node in 1..=3 {
            // A port that was just free.
            peers.insert(NodeId(node), listen(ANYWHERE, None).await.local_addr().to_string());
        }
        let voters: Vec<NodeId> = peers.keys().copied().collect();
        let place = |id: &NodeId| {
            let machine = Machine { id: *id, voters: voters.clone(), ..Machine::alone(id.0) };
            (*id, Place { machine, directory: Directory::default(), running: None })
        };
        let mut cluster = Cluster { places: voters.iter().map(place).collect(), peers };
        let starting = voters.iter().map(|id| cluster.starting(*id)).collect::<Vec<_>>();
        for (id, running) in voters.iter().zip(starting) {
            cluster.is_started(*id, running).await;
        }
        cluster
    }

    fn starting(&self, id: NodeId) -> JoinHandle<Running> {
        let place = &self.places[&id];
        tokio::spawn(start(place.machine.clone(), place.directory.clone(), self.peers.clone()))
    }

    async fn is_started(&mut self, id: NodeId, starting: JoinHandle<Running>) {
        let running = timeout(LONG, starting).await.expect("it comes to an end").expect("it does not panic");
        self.places.get_mut(&id).expect("a place").running = Some(running);
    }

    /// The process dies.
    async fn kill(&mut self, id: NodeId) {
        let running = self.places.get_mut(&id).and_then(|place| place.running.take()).expect("it runs");
        running.node.abandon().await;
        drop(running.stop);
        running.serving.await.expect("it ends in order");
    }

    /// Its directory is gone; it is given back, for a scenario in which it is found again.
    fn lose(&mut self, id: NodeId) -> (SimDisk, Option<Identity>) {
        let place = self.places.get_mut(&id).expect("a place");
        let disk = std::mem::replace(&mut place.machine.disk, SimDisk::new(77));
        (disk, place.directory.0.lock().take())
    }

    fn incarnation(&self, id: NodeId) -> Incarnation {
        self.node(id).incarnation()
    }

    fn node(&self, id: NodeId) -> &Arc<Node> {
        &self.places[&id].running.as_ref().expect("it runs").node
    }

    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.places.values().filter_map(|place| place.running.as_ref()).map(|running| &running.node)
    }

    async fn leader(&self) -> &Arc<Node> {
        let began = Instant::now();
        loop {
            let leads = |node: &&Arc<Node>| node.shard(SHARD).expect("the shard").leadership().ready;
            if let Some(leader) = self.nodes().find(leads) {
                return leader;
            }
            assert!(began.elapsed() < LONG, "nobody leads");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Appends, by whoever leads, until it is acknowledged.
    async fn write(&self, value: &str) {
        let began = Instant::now();
        loop {
            let proposed = self.leader().await.shard(SHARD).expect("the shard").propose(append(value));
            match timeout(Duration::from_secs(2), proposed).await {
                Ok(Ok(Outcome::Appended(_))) => return,
                _ => assert!(began.elapsed() < LONG, "{value} is not acknowledged"),
            }
        }
    }

    async fn votes_everywhere(&self, id: NodeId) {
        let began = Instant::now();
        for shard in [ShardId::META, SHARD, ShardId(2)] {
            let is_done = || {
                self.node(id).shard(shard).expect("the shard").votes()
                    && self.nodes().all(|node| node.shard(shard).expect("the shard").catching_up().is_empty())
            };
            while !is_done() {
                assert!(began.elapsed() < LONG, "node {id} does not vote in shard {shard}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Waits until the nodes have the same, with each of these once.
    async fn check(&self, written: &[String]) {
        let began = Instant::now();
        let all = || -> Vec<Vec<String>> {
            self.nodes().map(|node| values(node.shard(SHARD).expect("the shard"))).collect()
        };
        let is_right = |all: &[Vec<String>]| {
            let copies = |value: &String| all[0].iter().filter(|other| *other == value).count();
            all.iter().all(|values| *values == all[0]) && written.iter().all(|value| copies(value) == 1)
        };
        while !is_right(&all()) {
            assert!(began.elapsed() < LONG, "the nodes do not come to agree");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn stop(mut self) {
        let running: Vec<NodeId> = self.places.keys().copied().collect();
        for id in running {
            if self.places[&id].running.is_some() {
                self.kill(id).await;
            }
        }
    }
}

#[test]
fn a_node_that_lost_its_directory_asks_what_it_is_and_comes_back_again_and_again() {
    run(async {
        let mut cluster = Cluster::start().await;
        open_partition(cluster.leader().await.shard(SHARD).expect("the shard")).await;
        let mut written = Vec::new();
        for (round, lost) in [2, 2, 1].map(NodeId).into_iter().enumerate() {
            let mut write = Vec::from_iter((0..20).map(|number| format!("{round} {number}")));
            cluster.kill(lost).await;
            cluster.lose(lost);
            for value in &write[..10] {
                cluster.write(value).await;
            }
            let starting = cluster.starting(lost);
            cluster.is_started(lost, starting).await;
            assert_eq!(cluster.incarnation(lost), Incarnation([1, 2, 1][round]));
            for value in &write[10..] {
                cluster.write(value).await;
            }
            timeout(LONG, cluster.node(lost).ready()).await.expect("in time").expect("it is ready");
            cluster.votes_everywhere(lost).await;
            written.append(&mut write);
            cluster.check(&written).await;
        }
        // The first two have their places from the cluster; without the third they are a majority.
        cluster.kill(NodeId(3)).await;
        cluster.write("without the third").await;
        let starting = cluster.starting(NodeId(3));
        cluster.is_started(NodeId(3), starting).await;
        written.push("without the third".to_owned());
        cluster.check(&written).await;
        cluster.stop().await;
    });
}

#[test]
fn a_number_that_is_in_use_is_not_given_away_and_a_directory_that_was_replaced_is_refused() {
    run(async {
        let mut cluster = Cluster::start().await;
        open_partition(cluster.leader().await.shard(SHARD).expect("the shard")).await;
        // Another process with the number of a node that is there, which asks the two others.
        let mut peers = cluster.peers.clone();
        peers.insert(NodeId(2), listen(ANYWHERE, None).await.local_addr().to_string());
        let place = &cluster.places[&NodeId(2)];
        let mut twin = tokio::spawn(start(place.machine.clone(), Directory::default(), peers));
        assert!(timeout(Duration::from_secs(3), &mut twin).await.is_err(), "it must not start");
        twin.abort();
        let meta = cluster.node(NodeId(1)).shard(ShardId::META).expect("the meta shard");
        assert_eq!(meta.view().nodes().incarnation(NodeId(2)), Incarnation::FIRST);

        // Its directory is lost; the node comes back, and then the directory is found.
        cluster.kill(NodeId(2)).await;
        let (disk, identity) = cluster.lose(NodeId(2));
        let starting = cluster.starting(NodeId(2));
        cluster.is_started(NodeId(2), starting).await;
        cluster.votes_everywhere(NodeId(2)).await;
        cluster.write("one").await;
        cluster.kill(NodeId(2)).await;
        let (new_disk, new_identity) = cluster.lose(NodeId(2));
        assert_eq!(new_identity.as_ref().map(|identity| identity.phase), Some(Phase::Formed));
        let place = cluster.places.get_mut(&NodeId(2)).expect("a place");
        place.machine.disk = disk;
        *place.directory.0.lock() = identity;
        let starting = cluster.starting(NodeId(2));
        cluster.is_started(NodeId(2), starting).await;
        assert_eq!(cluster.incarnation(NodeId(2)), Incarnation::FIRST);
        sleep(Duration::from_secs(3)).await;
        let found = cluster.node(NodeId(2)).shard(SHARD).expect("the shard").leadership();
        assert_eq!((found.leader, found.is_leader), (None, false));
        for (id, other) in [(1, 3), (3, 1)] {
            let running = cluster.places[&NodeId(id)].running.as_ref().expect("it runs");
            wait_for_nodes(&running.transport, &[other]).await;
        }
        cluster.write("two").await;
        // The new directory is what counts.
        cluster.kill(NodeId(2)).await;
        let place = cluster.places.get_mut(&NodeId(2)).expect("a place");
        place.machine.disk = new_disk;
        *place.directory.0.lock() = new_identity;
        let starting = cluster.starting(NodeId(2));
        cluster.is_started(NodeId(2), starting).await;
        cluster.check(&["one".to_owned(), "two".to_owned()]).await;
        cluster.stop().await;
    });
}

#[test]
fn one_that_has_nothing_waits_for_a_majority() {
    run(async {
        let mut cluster = Cluster::start().await;
        open_partition(cluster.leader().await.shard(SHARD).expect("the shard")).await;
        cluster.write("one").await;
        cluster.kill(NodeId(2)).await;
        cluster.kill(NodeId(3)).await;
        cluster.lose(NodeId(3));
        // One that has its data is down: it may come back, and is waited for.
        let mut third = cluster.starting(NodeId(3));
        assert!(timeout(Duration::from_secs(4), &mut third).await.is_err(), "it must not start");
        assert_eq!(cluster.places[&NodeId(3)].directory.load(), Ok(None));
        let second = cluster.starting(NodeId(2));
        cluster.is_started(NodeId(2), second).await;
        cluster.is_started(NodeId(3), third).await;
        // Asked for more than once, and given once to each who asked.
        assert_eq!(cluster.incarnation(NodeId(3)), Incarnation(1));
        cluster.votes_everywhere(NodeId(3)).await;
        cluster.write("two").await;
        cluster.check(&["one".to_owned(), "two".to_owned()]).await;
        cluster.stop().await;
    });
}
