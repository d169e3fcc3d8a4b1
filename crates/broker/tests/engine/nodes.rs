//! Three nodes that know of each other: what each says of itself, and who leads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use weir_broker::{AdminError, Broker, BrokerOptions, CreateTopic, HostPort, ListenerInfo, NodeInfo};
use weir_cluster::{Clock, Drive, LocalTransport, Node, NodeOptions, OnFatal};
use weir_log::disk::SimDisk;
use weir_model::command::{Command, Outcome};
use weir_model::node::NodeMeta;
use weir_model::{NodeId, ShardId, TimestampMs};

use crate::support::{EPOCH, World};

const DATA_SHARDS: u32 = 5;

struct StandingClock;

impl Clock for StandingClock {
    fn now_ms(&self) -> TimestampMs {
        EPOCH
    }
}

struct Nodes {
    transport: LocalTransport,
    ids: Vec<NodeId>,
    nodes: Vec<Arc<Node>>,
    brokers: Vec<Arc<Broker>>,
    connected: Vec<watch::Sender<BTreeSet<NodeId>>>,
}

impl Nodes {
    async fn started() -> Nodes {
        let transport = LocalTransport::new();
        let ids: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut nodes = Vec::new();
        for (seed, &id) in ids.iter().enumerate() {
            let mut options = NodeOptions::new(id, "/data", OnFatal::new(|_| {}));
            options.data_shards = DATA_SHARDS;
            options.voters.clone_from(&ids);
            options.disk_reserve_bytes = 0;
            options.seed = seed as u64;
            let disk = SimDisk::new(seed as u64);
            let drive = Drive::Tasks { sync_latency: Duration::from_micros(100) };
            let node = Node::start(options, disk.shared(), transport.end(id), Arc::new(StandingClock), drive);
            let node = node.await.expect("it starts");
            transport.connect(&node);
            nodes.push(node);
        }
        let mut all = Nodes { transport, ids, nodes, brokers: Vec::new(), connected: Vec::new() };
        // Partitions are opened by who leads, and there are none.
        all.lead_everything(0).await;
        for (at, node) in all.nodes.iter().enumerate() {
            let (sender, connected) = watch::channel(all.others(at));
            let mut options = BrokerOptions::new("three", [at as u8; 32]);
            options.connected = Some(connected);
            options.zone = Some(format!("zone-{}", at + 1));
            let broker = Broker::start(node.clone(), Arc::new(StandingClock), options).await;
            all.brokers.push(broker.expect("it starts"));
            all.connected.push(sender);
        }
        all
    }

    fn others(&self, at: usize) -> BTreeSet<NodeId> {
        self.ids.iter().copied().filter(|id| *id != self.ids[at]).collect()
    }

    async fn lead_everything(&self, to: usize) {
        for shard in (0..=DATA_SHARDS).map(ShardId) {
            let handles: Vec<_> = self.nodes.iter().map(|node| node.shard(shard).expect("a shard")).collect();
            while !handles[to].leadership().ready {
                // One that was only just elected is left alone: it would be asked to give the shard to itself.
                let others = handles.iter().enumerate().filter(|(at, _)| *at != to);
                for (_, leader) in others.filter(|(_, handle)| handle.leadership().is_leader) {
                    leader.transfer_leadership(self.ids[to]).await.expect("it is asked");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Who leads each shard, by what its leader knows.
    fn leaders(&self) -> Vec<Option<u64>> {
        let leads = |shard| {
            let leader =
                self.nodes.iter().find(|node| node.shard(shard).is_some_and(|s| s.leadership().ready));
            leader.map(|node| node.node_id().0)
        };
        (0..=DATA_SHARDS).map(ShardId).map(leads).collect()
    }

    /// Says something in the place of a node that cannot reach the meta shard's leader itself.
    async fn propose(&self, command: Command) {
        let metas = self.nodes.iter().filter_map(|node| node.shard(ShardId::META));
        let leader = metas.into_iter().find(|meta| meta.leadership().ready).expect("somebody leads");
        assert_eq!(leader.propose(command).await, Ok(Outcome::Done));
        // Until the others have applied it as well.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn register_all(&self) {
        for &id in &self.ids {
            self.propose(Command::RegisterNode { node: NodeMeta { id, ..NodeMeta::default() } }).await;
        }
    }

    /// Cuts a node off, and lets everybody see it.
    fn cut(&self, at: usize) {
        self.transport.isolate(self.ids[at], &self.ids, true);
        for (other, connected) in self.connected.iter().enumerate() {
            connected.send_modify(|connected| match other == at {
                true => connected.clear(),
                false => drop(connected.remove(&self.ids[at])),
            });
        }
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn some(leaders: [u64; 6]) -> Vec<Option<u64>> {
    leaders.map(Some).to_vec()
}

#[tokio::test(start_paused = true)]
async fn shards_are_led_by_all_nodes_in_turn_and_stay_there() {
    let three = Nodes::started().await;
    assert_eq!(three.leaders(), some([1; 6]));
    seconds(30).await;
    assert_eq!(three.leaders(), some([1, 2, 3, 1, 2, 3]));
    let terms = |three: &Nodes| three.brokers[0].shards().iter().map(|shard| shard.term).collect::<Vec<_>>();
    let before = terms(&three);
    seconds(120).await;
    assert_eq!(terms(&three), before, "nothing moves that is where it should be");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_leads_nothing_until_it_may_again() {
    let three = Nodes::started().await;
    three.register_all().await;
    seconds(30).await;
    three.propose(Command::SetDraining { node: NodeId(2), draining: true }).await;
    seconds(10).await;
    assert_eq!(three.leaders(), some([1, 3, 3, 1, 3, 3]));
    assert!(three.brokers[2].cluster().nodes[1].draining);
    three.brokers[0].set_draining(NodeId(2), false).await.expect("node 1 leads the meta shard");
    seconds(30).await;
    assert_eq!(three.leaders(), some([1, 2, 3, 1, 2, 3]));
    let unknown = three.brokers[0].set_draining(NodeId(9), true).await;
    assert_eq!(unknown, Err(AdminError::UnknownNode(NodeId(9))));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_gives_away_what_it_leads() {
    let three = Nodes::started().await;
    three.brokers[0].give_leaderships_away(Duration::from_secs(3)).await;
    assert!(!three.leaders().contains(&Some(1)), "{:?}", three.leaders());
    seconds(1).await;
    assert!(three.leaders().iter().all(Option::is_some), "{:?}", three.leaders());
}

#[tokio::test(start_paused = true)]
async fn nobody_to_take_over_costs_no_time() {
    let three = Nodes::started().await;
    three.connected[0].send_replace(BTreeSet::new());
    let began = tokio::time::Instant::now();
    three.brokers[0].give_leaderships_away(Duration::from_secs(3)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_is_none_and_others_take_its_shards() {
    let three = Nodes::started().await;
    seconds(30).await;
    three.cut(1);
    let shard = |at: usize| three.brokers[at].shards()[1].leader;
    assert_eq!([0, 1, 2].map(shard), [None; 3], "nobody can reach it, and it reaches no majority");
    assert!(three.brokers[1].not_ready_because().is_some_and(|why| why.contains("has no leader")));
    seconds(10).await;
    assert!(three.brokers[0].is_ready() && !three.brokers[1].is_ready());
    assert_eq!(three.brokers[0].shards().iter().map(|shard| shard.leader).collect::<Vec<_>>(), {
        [1, 3, 3, 1, 3, 3].map(|id| Some(NodeId(id))).to_vec()
    });
    assert_eq!([0, 1, 2].map(|at: usize| three.brokers[0].cluster().nodes[at].live), [true, false, true]);
}

fn listener(protocol: &'static str, address: &str) -> ListenerInfo {
    let address: SocketAddr = address.parse().expect("an address");
    ListenerInfo { protocol, address }
}

fn shown(node: &NodeInfo) -> (BTreeMap<String, String>, Option<&str>, Option<&str>) {
    let advertised = node.advertised.iter().map(|(name, at)| (name.clone(), at.to_string())).collect();
    (advertised, node.zone.as_deref(), node.version.as_deref())
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_where_the_others_are() {
    let three = Nodes::started().await;
    let other = |at: usize| three.brokers[at].cluster().nodes[0].clone();
    assert_eq!(shown(&other(1)), (BTreeMap::new(), None, None), "a voter is listed before it says anything");
    let listeners = [
        listener("kafka", "10.0.0.1:9092"),
        listener("kafka", "10.0.0.1:9094"),
        listener("http", "0.0.0.0:9347"),
        listener("amqp", "[::1]:5672"),
    ];
    three.brokers[0].note_listeners(listeners.to_vec());
    seconds(5).await;
    let wanted = [("kafka", "10.0.0.1:9092"), ("amqp", "[::1]:5672")];
    let wanted: BTreeMap<String, String> = wanted.map(|(name, at)| (name.to_owned(), at.to_owned())).into();
    for at in [1, 2] {
        assert_eq!(
            shown(&other(at)),
            (BTreeMap::clone(&wanted), Some("zone-1"), Some(env!("CARGO_PKG_VERSION")))
        );
    }
    assert_eq!(shown(&other(0)).0, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_node_says_it_once_and_again_when_it_is_something_else() {
    let mut world = World::new(7);
    let at = HostPort { host: "a.example".into(), port: 1 };
    world.options.advertised = BTreeMap::from([("kafka".to_owned(), at)]);
    world.start().await;
    seconds(20).await;
    let meta = world.node().shard(ShardId::META).expect("a shard").clone();
    let said = || meta.view().nodes().node(NodeId(1)).map(|node| node.meta.advertised.clone());
    assert_eq!(said(), None, "nothing is open yet");
    world.broker().note_listeners(vec![listener("kafka", "10.0.0.1:9092"), listener("http", "10.0.0.1:1")]);
    seconds(1).await;
    let ports = |said: Option<BTreeMap<String, HostPort>>| {
        said.into_iter().flatten().map(|(name, at)| (name, at.port)).collect::<Vec<_>>()
    };
    assert_eq!(ports(said()), [("http".to_owned(), 1), ("kafka".to_owned(), 1)]);
    let before = meta.view().applied_index();
    seconds(60).await;
    assert_eq!(meta.view().applied_index(), before, "it is not said again");
    world.broker().note_listeners(vec![listener("http", "10.0.0.1:2")]);
    seconds(1).await;
    assert_eq!(ports(said()), [("http".to_owned(), 2), ("kafka".to_owned(), 1)]);
    world.restart().await;
    let meta = world.node().shard(ShardId::META).expect("a shard").clone();
    assert_eq!(meta.view().nodes().iter().count(), 1, "and is known after a restart");
}

impl Nodes {
    /// Registers all with the zones in which they stand.
    async fn register_in_zones(&self) {
        for &id in &self.ids {
            let zone = Some(format!("zone-{id}"));
            self.propose(Command::RegisterNode { node: NodeMeta { id, zone, ..NodeMeta::default() } }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_read_where_the_reader_stands_if_somebody_there_has_it() {
    let three = Nodes::started().await;
    three.register_in_zones().await;
    let topic = three.brokers[0]
        .create_topic(CreateTopic { name: "t".into(), ..CreateTopic::default() }, false)
        .await
        .expect("it is made");
    let leads = &three.brokers[0];
    let partition = leads.partition(&topic, 0).expect("it is there");
    assert_eq!(leads.replica_in(&partition, "zone-2"), Some(NodeId(2)));
    assert_eq!(leads.replica_in(&partition, "zone-1"), None, "it is read here");
    assert_eq!(leads.replica_in(&partition, "nowhere"), None);
    // Who does not lead sends nobody on.
    seconds(1).await;
    let follower = three.brokers[1].partition(&topic, 0).expect("it is there");
    assert_eq!(three.brokers[1].replica_in(&follower, "zone-3"), None);
    // Nor is anybody sent to a node that is not there, or to one that is to leave.
    three.propose(Command::SetLeaving { node: NodeId(3), leaving: true }).await;
    assert_eq!(leads.replica_in(&partition, "zone-3"), None);
    three.cut(1);
    assert_eq!(leads.replica_in(&partition, "zone-2"), None);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_to_leave_gives_up_everything_and_is_forgotten() {
    let three = Nodes::started().await;
    three.register_in_zones().await;
    seconds(30).await;
    let ids = |at: usize| {
        let nodes = three.brokers[at].cluster().nodes;
        nodes.into_iter().map(|node| node.id.0).collect::<Vec<_>>()
    };
    three.brokers[0].set_leaving(NodeId(2), true).await.expect("it leads the meta shard");
    seconds(30).await;
    assert_eq!((ids(0), ids(2)), (vec![1, 3], vec![1, 3]));
    for shard in three.brokers[0].shards() {
        assert_eq!(shard.voters, [1, 3].map(NodeId), "shard {}", shard.id);
        assert!(shard.listening.is_empty());
    }
    assert!(!three.leaders().contains(&Some(2)), "{:?}", three.leaders());
    // It cannot say anything of itself any more, and the other two cannot both go.
    let unknown = three.brokers[0].set_leaving(NodeId(2), true).await;
    assert_eq!(unknown, Err(AdminError::UnknownNode(NodeId(2))));
    three.brokers[0].set_leaving(NodeId(3), true).await.expect("there is another one");
    assert_eq!(three.brokers[0].set_leaving(NodeId(1), true).await, Err(AdminError::LastNode(NodeId(1))));
    // Until it is gone it may stay.
    three.brokers[0].set_leaving(NodeId(3), false).await.expect("it is there");
    seconds(30).await;
    assert_eq!(ids(0), [1, 3]);
    assert!(three.brokers[0].is_ready() && three.brokers[2].is_ready());
}
