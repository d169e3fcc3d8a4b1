//! Three real processes that are one cluster: forming it, seeing it, draining a node, killing one.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Said, Server, said, said_with_input, weir};

/// How often it is looked whether something has come about.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looks until it is given up: far more than anything here takes.
pub const LOOKS_MAX: u32 = 600;

/// Three nodes on free ports of this machine, each in a directory of its own.
struct Three {
    dir: tempfile::TempDir,
    /// Where each node is reached by the others.
    ports: Vec<u16>,
    servers: Vec<Option<Server>>,
}

impl Three {
    fn started() -> Three {
        let dir = tempfile::tempdir().expect("a directory");
        let mut three = Three { dir, ports: free_ports(3), servers: vec![None, None, None] };
        three.start(&[1, 2, 3]);
        three
    }

    /// Where a node is run.
    fn path(&self, node: usize) -> PathBuf {
        let path = self.dir.path().join(format!("node{node}"));
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    fn peers(&self) -> String {
        let peers: Vec<String> =
            (1..).zip(&self.ports).map(|(node, port)| format!("{node}=127.0.0.1:{port}")).collect();
        peers.join(",")
    }

    /// Starts nodes together: each waits for the others.
    fn start(&mut self, nodes: &[usize]) {
        let flags = |node: usize| {
            [
                ["--node-id".to_owned(), node.to_string()],
                ["--peers".to_owned(), self.peers()],
                ["--listen".to_owned(), format!("cluster=127.0.0.1:{}", self.ports[node - 1])],
                ["--listen".to_owned(), "kafka=127.0.0.1:0".to_owned()],
                ["--listen".to_owned(), "http=127.0.0.1:0".to_owned()],
                ["--zone".to_owned(), format!("zone-{node}")],
            ]
            .concat()
        };
        let starting: Vec<_> = nodes
            .iter()
            .map(|&node| {
                let (path, flags) = (self.path(node), flags(node));
                let start = move || {
                    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                    Server::run(&path, &flags)
                };
                (node, thread::spawn(start))
            })
            .collect();
        for (node, starting) in starting {
            self.servers[node - 1] = Some(starting.join().expect("it starts"));
        }
    }

    fn server(&self, node: usize) -> &Server {
        self.servers[node - 1].as_ref().expect("it is running")
    }

    fn end(&mut self, node: usize, signal: &str) -> Said {
        self.servers[node - 1].take().expect("it is running").end(signal)
    }

    /// What a command line says that asks this node.
    #[track_caller]
    fn ask(&self, node: usize, args: &[&str]) -> Said {
        said(&mut self.server(node).weir(self.dir.path(), args))
    }

    /// The cluster as a node sees it.
    fn seen_by(&self, node: usize) -> Value {
        let status = self.ask(node, &["cluster", "status", "--output", "json"]);
        serde_json::from_str(&status.out).unwrap_or_else(|_| panic!("{status:?}"))
    }

    /// Looks at the cluster from a node until it is as it should be.
    #[track_caller]
    fn until(&self, node: usize, what: &str, is: impl Fn(&Value) -> bool) {
        let mut seen = Value::Null;
        for _ in 0..LOOKS_MAX {
            seen = self.seen_by(node);
            if is(&seen) {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("{what} has not come about: {seen:#}");
    }

    /// Produces through one node and reads everything through another.
    #[track_caller]
    fn produce_and_read(&self, by: usize, line: &str, through: usize, all: &[&str]) {
        let mut produce = self.server(by).weir(self.dir.path(), &["produce", "t"]);
        assert_eq!(said_with_input(&mut produce, &format!("{line}\n")).ok(), "1 record(s) to t\n");
        let read = self.ask(through, &["consume", "t", "--until-end"]).ok();
        let mut read: Vec<&str> = read.lines().collect();
        read.sort_unstable();
        assert_eq!(read, all, "read through node {through}");
    }
}

/// Ports that were free a moment ago.
pub fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address").port()).collect()
}

/// How many shards each node leads.
fn leads(cluster: &Value) -> Vec<u64> {
    nodes(cluster).iter().map(|node| node["leads"].as_u64().expect("a number")).collect()
}

pub fn nodes(cluster: &Value) -> &[Value] {
    cluster["nodes"].as_array().expect("a list")
}

fn live(cluster: &Value) -> Vec<bool> {
    nodes(cluster).iter().map(|node| node["live"] == true).collect()
}

pub fn has_leaders(cluster: &Value) -> bool {
    cluster["shards"].as_array().expect("a list").iter().all(|shard| !shard["leader"].is_null())
}

#[test]
fn three_nodes_are_one_cluster_that_survives_one_of_them() {
    let mut three = Three::started();
    for node in 1..=3 {
        let announced = three.server(node).listener("cluster").map(str::to_owned);
        assert_eq!(announced, Some(format!("127.0.0.1:{}", three.ports[node - 1])));
        three.until(node, "a cluster of three that know each other", |cluster| {
            let told = |node: &Value| node["advertised"]["kafka"].is_string() && node["zone"].is_string();
            nodes(cluster).iter().filter(|node| told(node)).count() == 3 && live(cluster) == [true; 3]
        });
        three.until(node, "leaders on all nodes", |cluster| leads(cluster) == [3, 3, 3]);
    }
    let ids: Vec<Value> = (1..=3).map(|node| three.seen_by(node)["cluster_id"].clone()).collect();
    assert!(ids[0].is_string() && ids[1] == ids[0] && ids[2] == ids[0], "{ids:?}");
    let table = three.ask(2, &["cluster", "status"]).ok();
    assert!(table.contains("asked node   2, ready") && table.contains("0 (meta)"), "{table}");
    assert!(table.contains("zone-3"), "{table}");

    // Any node takes what another one has to do.
    three.ask(2, &["topic", "create", "t", "--partitions", "9"]).ok();
    three.produce_and_read(1, "a", 3, &["a"]);
    three.produce_and_read(3, "b", 2, &["a", "b"]);

    three.end(2, "KILL");
    three.until(1, "another leader for all", |cluster| {
        live(cluster) == [true, false, true] && has_leaders(cluster) && leads(cluster)[1] == 0
    });
    three.produce_and_read(3, "c", 1, &["a", "b", "c"]);

    three.start(&[2]);
    three.until(3, "its return", |cluster| live(cluster) == [true; 3] && leads(cluster) == [3, 3, 3]);
    three.produce_and_read(2, "d", 2, &["a", "b", "c", "d"]);

    let drained = three.ask(1, &["node", "drain", "3"]);
    assert_eq!(drained.ok(), "node 3 leads nothing, until `weir node undrain 3`\n");
    assert_eq!(leads(&three.seen_by(3))[2], 0);
    assert!(three.ask(2, &["node", "list"]).ok().contains("draining"));
    three.produce_and_read(3, "e", 3, &["a", "b", "c", "d", "e"]);
    three.ask(3, &["node", "undrain", "3"]).ok();
    three.until(1, "its share again", |cluster| leads(cluster) == [3, 3, 3]);

    // A planned stop: the others have everything at once.
    let stopped = three.end(3, "TERM");
    assert_eq!(stopped.status, Some(0), "{}", stopped.err);
    three.produce_and_read(1, "f", 2, &["a", "b", "c", "d", "e", "f"]);

    // Without a majority nobody leads, and the status says so.
    three.end(2, "KILL");
    three.until(1, "no leader", |cluster| !has_leaders(cluster) && cluster["ready"] == false);
    let status = three.ask(1, &["cluster", "status"]);
    assert_eq!(status.status, Some(1), "{status:?}");
    assert!(
        status.err.starts_with("weir: shards without a leader that node 1 can reach: 0, "),
        "{}",
        status.err
    );
    assert!(status.out.contains("not ready: ") && status.out.contains("not connected"), "{}", status.out);
    three.end(1, "KILL");
    refuse_other_founders(&three);
    refuse_to_forget_votes(&three);
}

#[test]
fn a_node_whose_directory_is_gone_is_filled_anew_and_votes_again() {
    let mut three = Three::started();
    three.ask(2, &["topic", "create", "t", "--partitions", "9"]).ok();
    three.produce_and_read(1, "a", 3, &["a"]);
    for (round, lost) in [(1, 2), (2, 2), (1, 3)] {
        let others = [1, 2, 3].into_iter().filter(|node| *node != lost);
        three.end(lost, "KILL");
        fs::remove_dir_all(three.path(lost).join("data")).expect("it is gone");
        three.start(&[lost]);
        for node in others.chain([lost]) {
            three.until(node, "its vote in all shards", |cluster| {
                has_leaders(cluster) && catching_up(cluster) == 0 && leads(cluster) == [3, 3, 3]
            });
        }
        let identity = fs::read_to_string(three.path(lost).join("data/node.toml")).expect("an identity");
        assert!(identity.contains("format-version = 3\n"), "{identity}");
        assert!(identity.contains(&format!("incarnation = {round}\n")), "{identity}");
        three.produce_and_read(
            lost,
            &format!("{lost}{round}"),
            1,
            match (round, lost) {
                (1, 2) => &["21", "a"],
                (2, 2) => &["21", "22", "a"],
                _ => &["21", "22", "31", "a"],
            },
        );
    }
    // Both were lost, and with the third gone they have everything, and are a majority.
    three.end(1, "KILL");
    three.until(2, "another leader for all", |cluster| {
        live(cluster) == [false, true, true] && has_leaders(cluster) && leads(cluster)[0] == 0
    });
    three.produce_and_read(3, "b", 2, &["21", "22", "31", "a", "b"]);

    // A second directory is lost before anybody could fill it: nobody begins anew beside the one that is left.
    three.end(2, "KILL");
    fs::remove_dir_all(three.path(1).join("data")).expect("it is gone");
    fs::remove_dir_all(three.path(2).join("data")).expect("it is gone");
    let serve = |node: usize| {
        let (number, peers) = (node.to_string(), three.peers());
        let listen = format!("cluster=127.0.0.1:{}", three.ports[node - 1]);
        let flags = ["serve", "--data-dir", "data", "--node-id", &number, "--listen", "http=127.0.0.1:0"];
        weir(&three.path(node), &[&flags[..], &["--peers", &peers, "--listen", &listen]].concat())
    };
    let quiet = std::process::Stdio::null;
    let mut waiting = serve(1).stdout(quiet()).stderr(quiet()).spawn().expect("it runs");
    until_it_listens(three.ports[0]);
    let refused = said(&mut serve(2));
    waiting.kill().and_then(|()| waiting.wait()).expect("it ran");
    assert_eq!((refused.out.as_str(), refused.status), ("", Some(64)), "{}", refused.err);
    let words = "but the data directories of nodes 1, 2 are empty, and the others are no majority";
    assert!(refused.err.contains(words), "{}", refused.err);
}

/// In how many shards a node has no vote yet.
fn catching_up(cluster: &Value) -> usize {
    let shards = cluster["shards"].as_array().expect("a list");
    shards.iter().map(|shard| shard["catching_up"].as_array().expect("a list").len()).sum()
}

/// A node whose journal is gone does not know how it voted, and must not vote as if it never had.
fn refuse_to_forget_votes(three: &Three) {
    let path = three.path(1);
    fs::remove_dir_all(path.join("data/journal")).expect("it is gone");
    // As if no checkpoint had ever been made.
    fs::remove_dir_all(path.join("data/shards")).expect("they are gone");
    let listen = format!("cluster=127.0.0.1:{}", three.ports[0]);
    let peers = three.peers();
    let serve = ["serve", "--data-dir", "data", "--node-id", "1", "--log-level", "error", "--peers", &peers];
    for accepted in [&[][..], &["--journal-accept-loss-from", "0"]] {
        let flags = [&serve[..], &["--listen", "http=127.0.0.1:0", "--listen", &listen], accepted].concat();
        let refused = said(&mut weir(&path, &flags));
        assert_eq!((refused.out.as_str(), refused.status), ("", Some(65)), "{refused:?}");
        assert!(refused.err.contains("although this node has run with it"), "{refused:?}");
    }
}

/// Who founded the cluster is settled with a directory.
fn refuse_other_founders(three: &Three) {
    let path = three.path(1);
    let refused = |flags: &[&str]| {
        let listen = ["serve", "--data-dir", "data", "--listen", "http=127.0.0.1:0", "--log-level", "error"];
        let Said { out, err, status } = said(&mut weir(&path, &[&listen, flags].concat()));
        assert_eq!((out.as_str(), status), ("", Some(64)), "{err}");
        err
    };
    assert_eq!(
        refused(&[]),
        "weir: the data directory data is of a cluster that was founded by nodes 1, 2, 3; give --node-id, --listen \
         cluster=ADDRESS and --peers with where these nodes are\n"
    );
    let cluster = ["--node-id", "1", "--listen", "cluster=127.0.0.1:0"];
    assert_eq!(
        refused(&[&cluster[..], &["--peers", "1=127.0.0.1:1,2=127.0.0.1:2,4=127.0.0.1:4"]].concat()),
        "weir: the data directory data is of a cluster that was founded by nodes 1, 2, 3, but peers names 1, 2, 4; the \
         ids must be the same, only addresses may change\n"
    );
}

#[test]
fn a_node_that_is_alone_says_so_and_stays_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let run = |args: &[&str]| said(&mut server.weir(dir.path(), args));
    let table = run(&["cluster", "status"]).ok();
    assert!(table.contains("asked node   1, ready"), "{table}");
    assert_eq!(table.lines().filter(|line| line.contains(" live ")).count(), 1, "{table}");
    let nodes: Value = serde_json::from_str(&run(&["node", "list", "--output", "json"]).ok()).unwrap();
    assert_eq!(
        (&nodes[0]["id"], &nodes[0]["leads"], &nodes[0]["draining"]),
        (&1.into(), &9.into(), &false.into())
    );
    assert_eq!(run(&["node", "drain", "1"]).err, {
        "weir: there is no other node that is connected and may lead in place of node 1; `weir node list` lists the \
         nodes\n"
    });
    assert_eq!(run(&["node", "undrain", "7"]).err, {
        "weir: there is no node 7 that said anything of itself; `weir node list` lists the nodes\n"
    });
    assert_eq!(server.end("TERM").status, Some(0));
    let peers = "1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3";
    let serve = ["serve", "--data-dir", "data", "--node-id", "1", "--log-level", "error", "--peers", peers];
    let listen = ["--listen", "http=127.0.0.1:0", "--listen", "cluster=127.0.0.1:0"];
    let refused = said(&mut weir(dir.path(), &[&serve[..], &listen].concat()));
    assert_eq!(
        (refused.err.as_str(), refused.status),
        (
            "weir: the data directory data is that of a node that is alone, which cannot become one of others; remove \
         peers and join from the configuration, so that others can join it, or choose another --data-dir\n",
            Some(64)
        )
    );
}

#[test]
fn a_node_that_waits_for_the_others_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let ports = free_ports(3);
    let peers: Vec<String> =
        (1..).zip(&ports).map(|(node, port)| format!("{node}=127.0.0.1:{port}")).collect();
    let child =
        weir(dir.path(), &["serve", "--data-dir", "data", "--node-id", "1", "--peers", &peers.join(",")])
            .args(["--listen", "http=127.0.0.1:0", "--listen", &format!("cluster=127.0.0.1:{}", ports[0])])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it runs");
    until_it_listens(ports[0]);
    until_it_catches_sigterm(child.id());
    let signalled = std::process::Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(signalled.expect("kill runs").success());
    let ended: Said = child.wait_with_output().expect("it ends").into();
    assert_eq!((ended.out.as_str(), ended.status), ("", Some(0)), "{}", ended.err);
    assert!(ended.err.contains("stopped before it had started"), "{}", ended.err);
    assert!(!Path::new(&dir.path().join("data/node.toml")).exists(), "nothing is settled yet");
}

/// Somebody else may listen on the port that was free a moment before.
fn until_it_catches_sigterm(process: u32) {
    const SIGTERM: u64 = 15;
    for _ in 0..LOOKS_MAX {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("as Linux has it");
        if u64::from_str_radix(caught.trim(), 16).expect("a mask") & 1 << (SIGTERM - 1) != 0 {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("{process} does not catch SIGTERM");
}

fn until_it_listens(port: u16) {
    for _ in 0..LOOKS_MAX {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("nothing listens on port {port}");
}
