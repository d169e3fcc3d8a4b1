//! Real processes of which one was there first: others join it, it leaves, one dies and is removed, and nothing is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use super::cluster::{LOOK_EVERY, LOOKS_MAX, free_ports, has_leaders, nodes};
use crate::support::{Said, Server, said, said_with_input, weir};

/// Nodes that are started one by one, each in a directory of its own.
struct Growing {
    dir: tempfile::TempDir,
    /// Where each node is reached by the others.
    ports: Vec<u16>,
    servers: BTreeMap<usize, Server>,
}

impl Growing {
    fn path(&self, node: usize) -> PathBuf {
        let path = self.dir.path().join(format!("node{node}"));
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.ports[node - 1])
    }

    fn flags(&self, node: usize, more: &[&str]) -> Vec<String> {
        let (id, at) = (node.to_string(), format!("cluster={}", self.address(node)));
        let own = [
            "--node-id",
            &id,
            "--listen",
            &at,
            "--listen",
            "kafka=127.0.0.1:0",
            "--listen",
            "http=127.0.0.1:0",
        ];
        [&own, more].concat().into_iter().map(str::to_owned).collect()
    }

    fn start(&mut self, node: usize, more: &[&str]) {
        let flags = self.flags(node, more);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.servers.insert(node, Server::run(&self.path(node), &flags));
    }

    /// Starts a node that joins the cluster of another one.
    fn join(&mut self, node: usize, of: usize) {
        let seed = self.address(of);
        self.start(node, &["--join", &seed]);
    }

    /// What a start says that comes to nothing.
    fn refused(&self, node: usize, more: &[&str]) -> String {
        let flags = self.flags(node, more);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let serve = ["serve", "--data-dir", "data", "--log-level", "off"];
        let said = said(&mut weir(&self.path(node), &[&serve, &flags[..]].concat()));
        assert_eq!((said.out.contains("ready"), said.status), (false, Some(64)), "{said:?}");
        said.err
    }

    #[track_caller]
    fn ask(&self, node: usize, args: &[&str]) -> Said {
        said(&mut self.servers[&node].weir(self.dir.path(), args))
    }

    /// Looks at the cluster from each of these nodes until it is as it should be.
    #[track_caller]
    fn until(&self, by: &[usize], what: &str, is: impl Fn(&Value) -> bool) {
        for node in by {
            let mut seen = Value::Null;
            let came = (0..LOOKS_MAX).any(|_| {
                let status = self.ask(*node, &["cluster", "status", "--output", "json"]);
                seen = serde_json::from_str(&status.out).unwrap_or_else(|_| panic!("{status:?}"));
                is(&seen) || {
                    thread::sleep(LOOK_EVERY);
                    false
                }
            });
            assert!(came, "{what} has not come about: {seen:#}");
        }
    }

    /// Produces through one node and reads everything through another.
    #[track_caller]
    fn produce_and_read(&self, by: usize, line: &str, through: usize, all: &[&str]) {
        let mut produce = self.servers[&by].weir(self.dir.path(), &["produce", "t"]);
        assert_eq!(said_with_input(&mut produce, &format!("{line}\n")).ok(), "1 record(s) to t\n");
        let read = self.ask(through, &["consume", "t", "--until-end"]).ok();
        let mut read: Vec<&str> = read.lines().collect();
        read.sort_unstable();
        assert_eq!(read, all, "read through node {through}");
    }

    /// Waits for the end of a process that ends by itself.
    #[track_caller]
    fn ended(&mut self, node: usize) -> Said {
        self.servers.remove(&node).expect("it was started").ended()
    }
}

/// Of every shard its voters, and those that have a replica without a vote.
fn replicas(cluster: &Value) -> Vec<(Vec<u64>, Vec<u64>)> {
    let listed = |shard: &Value, name: &str| -> Vec<u64> {
        shard[name].as_array().expect("a list").iter().map(|node| node.as_u64().expect("a number")).collect()
    };
    let shards = cluster["shards"].as_array().expect("a list");
    shards.iter().map(|shard| (listed(shard, "voters"), listed(shard, "listening"))).collect()
}

fn are(ids: &[u64]) -> impl Fn(&Value) -> bool {
    move |cluster| {
        nodes(cluster).iter().map(|node| node["id"].as_u64().expect("a number")).eq(ids.iter().copied())
    }
}

fn vote_everywhere(voters: &[u64], listening: &[u64]) -> impl Fn(&Value) -> bool {
    move |cluster| {
        let all = replicas(cluster);
        has_leaders(cluster) && all.iter().all(|(votes, others)| votes == voters && others == listening)
    }
}

#[test]
fn one_node_becomes_several_and_is_not_needed_any_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all = Growing { dir, ports: free_ports(4), servers: BTreeMap::new() };
    all.start(1, &["--shards", "3"]);
    all.ask(1, &["topic", "create", "t", "--partitions", "6"]).ok();
    all.produce_and_read(1, "a", 1, &["a"]);

    // Two that vote would survive no loss that one does: the second has everything, and no vote.
    all.join(2, 1);
    all.until(&[1, 2], "a second copy", vote_everywhere(&[1], &[2]));
    all.produce_and_read(2, "b", 2, &["a", "b"]);
    // Settings that are not the cluster's; a number that is taken up again afterwards.
    let seed = all.address(2);
    let other = all.refused(3, &["--join", &seed, "--shards", "4"]);
    assert!(other.contains("the cluster has 3 data shards, not 4"), "{other}");
    all.join(3, 2);
    all.until(&[1, 2, 3], "three that vote", vote_everywhere(&[1, 2, 3], &[]));

    // The fourth takes its turn: in three of the four shards it votes, as all do.
    all.join(4, 3);
    all.until(&[1, 4], "turns", |cluster| {
        let shards = replicas(cluster);
        let votes = |node: u64| shards.iter().filter(|(voters, _)| voters.contains(&node)).count();
        has_leaders(cluster) && (1..=4).all(|node| votes(node) == 3)
    });
    all.produce_and_read(4, "c", 1, &["a", "b", "c"]);

    // Whoever was first leaves like any other, by the word of another, and its process ends.
    let removed = all.ask(4, &["node", "remove", "1", "--yes"]).ok();
    assert_eq!(removed, "node 1 is of the cluster no more\n");
    let words = "node 1 was removed from the cluster: this data directory of it is of no use any more";
    let ended = all.ended(1);
    assert!(ended.err.contains(words) && ended.status == Some(64), "{ended:?}");
    all.until(&[2, 3, 4], "three that are left", |cluster| {
        are(&[2, 3, 4])(cluster) && vote_everywhere(&[2, 3, 4], &[])(cluster)
    });
    all.produce_and_read(2, "d", 3, &["a", "b", "c", "d"]);
    assert!(all.refused(1, &[]).contains(words), "its directory is of no use");

    // With another directory it is as welcome as any node; alone in its catalog it needs nobody to tell it where others are.
    fs::remove_dir_all(all.path(1).join("data")).expect("it is gone");
    all.join(1, 4);
    all.until(&[1, 2], "four", are(&[1, 2, 3, 4]));
    assert_eq!(all.servers.remove(&1).expect("it is running").end("TERM").status, Some(0));
    all.start(1, &[]);
    all.produce_and_read(1, "e", 1, &["a", "b", "c", "d", "e"]);

    // One that is gone for ever is removed in the same way.
    all.servers.remove(&3).expect("it is running").end("KILL");
    let peers = format!("3={},1={}", all.address(3), all.address(1));
    let other = all.refused(3, &["--peers", &peers]);
    assert!(other.contains("founded by nodes 1, which node 3 joined later; give --join"), "{other}");
    all.ask(2, &["node", "remove", "3", "--yes"]).ok();
    all.until(&[1, 2, 4], "three that are there", |cluster| {
        are(&[1, 2, 4])(cluster) && vote_everywhere(&[1, 2, 4], &[])(cluster)
    });
    all.produce_and_read(4, "f", 1, &["a", "b", "c", "d", "e", "f"]);

    // The last one that stays cannot be removed, and who is not there neither.
    let unknown = all.ask(2, &["node", "remove", "9", "--yes"]);
    assert!(unknown.err.contains("there is no node 9") && unknown.status != Some(0), "{unknown:?}");
    for node in ["1", "4"] {
        all.ask(2, &["node", "remove", node, "--yes", "--no-wait"]).ok();
    }
    let last = all.ask(2, &["node", "remove", "2", "--yes"]);
    assert!(last.err.contains("node 2 cannot leave: there is no other node that stays"), "{last:?}");
    all.until(&[2], "one that is left", |cluster| are(&[2])(cluster) && vote_everywhere(&[2], &[])(cluster));
    all.produce_and_read(2, "g", 2, &["a", "b", "c", "d", "e", "f", "g"]);
}

#[test]
fn a_node_that_was_begun_alone_can_be_opened_to_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all = Growing { dir, ports: free_ports(3), servers: BTreeMap::new() };
    let alone = Server::start(&all.path(1));
    let sent = said_with_input(&mut alone.weir(all.dir.path(), &["produce", "t"]), "a\n");
    assert_eq!(sent.ok(), "1 record(s) to t\n");
    assert_eq!(alone.end("TERM").status, Some(0));
    all.start(1, &[]);
    all.join(2, 1);
    all.join(3, 1);
    all.until(&[1, 2, 3], "three that vote", vote_everywhere(&[1, 2, 3], &[]));
    all.produce_and_read(3, "b", 2, &["a", "b"]);

    // From then on nobody opens its directory as if there were no others.
    all.servers.remove(&1).expect("it is running").end("KILL");
    let serve = ["serve", "--data-dir", "data", "--listen", "http=127.0.0.1:0", "--log-level", "error"];
    let refused = said(&mut weir(&all.path(1), &serve));
    assert_eq!(refused.status, Some(64));
    assert_eq!(refused.err, {
        "weir: the data directory data is of a cluster that was founded by nodes 1; give --node-id and --listen \
         cluster=ADDRESS, where the others reach this node\n"
    });
    all.produce_and_read(2, "c", 3, &["a", "b", "c"]);
    all.start(1, &[]);
    all.until(&[1], "its return", |cluster| has_leaders(cluster) && cluster["ready"] == true);
    all.produce_and_read(1, "d", 1, &["a", "b", "c", "d"]);

    // One whose directory is gone joins again under its number.
    all.servers.remove(&2).expect("it is running").end("KILL");
    fs::remove_dir_all(all.path(2).join("data")).expect("it is gone");
    all.join(2, 3);
    all.until(&[1, 2, 3], "its vote in all shards", vote_everywhere(&[1, 2, 3], &[]));
    let identity = fs::read_to_string(all.path(2).join("data/node.toml")).expect("an identity");
    assert!(
        identity.contains("format-version = 4\n") && identity.contains("incarnation = 2\n"),
        "{identity}"
    );

    // Asked itself, a node answers as long as it is one.
    assert_eq!(all.ask(3, &["node", "remove", "3", "--yes"]).ok(), "node 3 is of the cluster no more\n");
    assert_eq!(all.ended(3).status, Some(64));
    all.until(&[1, 2], "two that are left", are(&[1, 2]));
}

#[test]
fn what_is_left_of_a_cluster_goes_on_when_an_operator_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all = Growing { dir, ports: free_ports(3), servers: BTreeMap::new() };
    all.start(1, &["--shards", "3"]);
    all.join(2, 1);
    all.join(3, 1);
    all.until(&[1, 2, 3], "three that vote", vote_everywhere(&[1, 2, 3], &[]));
    all.ask(1, &["topic", "create", "t", "--partitions", "6"]).ok();
    for (line, all_lines) in [("a", &["a"][..]), ("b", &["a", "b"])] {
        all.produce_and_read(2, line, 3, all_lines);
    }
    let recover = |all: &Growing, node: usize, more: &[&str]| {
        let directory = all.path(node).join("data");
        let directory = directory.to_str().expect("a path");
        said(&mut weir(all.dir.path(), &[&["cluster", "recover", directory], more].concat()))
    };
    // Nobody can do it by mistake, and not beneath a process.
    let asked = recover(&all, 3, &[]);
    assert!(asked.err.contains("Whatever only they have is lost") && asked.status == Some(64), "{asked:?}");
    let running = recover(&all, 3, &["--yes"]);
    assert!(running.err.contains("in use") && running.status == Some(64), "{running:?}");

    for node in 1..=3 {
        all.servers.remove(&node).expect("it is running").end("KILL");
    }
    let recovered = recover(&all, 3, &["--yes"]).ok();
    assert!(recovered.starts_with("node 3 is the first of the new cluster "), "{recovered}");
    all.start(3, &[]);
    all.until(&[3], "a shard's only voter", |cluster| {
        has_leaders(cluster) && replicas(cluster).iter().all(|(voters, _)| voters == &[3])
    });
    all.produce_and_read(3, "c", 3, &["a", "b", "c"]);
    let identity = fs::read_to_string(all.path(3).join("data/node.toml")).expect("an identity");
    assert!(!identity.contains("abandons-others") && identity.contains("founders = [3]"), "{identity}");
    // Again, it is an ordinary node.
    all.servers.remove(&3).expect("it is running").end("KILL");
    all.start(3, &[]);
    all.produce_and_read(3, "d", 3, &["a", "b", "c", "d"]);

    for node in [1, 2] {
        fs::remove_dir_all(all.path(node).join("data")).expect("it is gone");
        all.join(node, 3);
    }
    all.until(&[1, 2, 3], "three that vote", vote_everywhere(&[1, 2, 3], &[]));
    all.servers.remove(&3).expect("it is running").end("KILL");
    all.produce_and_read(1, "e", 2, &["a", "b", "c", "d", "e"]);

    // Where there is nobody to be abandoned, or nothing to go on with.
    let none = said(&mut weir(all.dir.path(), &["cluster", "recover", "nowhere", "--yes"]));
    assert_eq!(none.status, Some(64), "{none:?}");
    let alone = Server::start(&all.dir.path().join("node3").join(".."));
    assert_eq!(alone.end("TERM").status, Some(0));
    let alone = said(&mut weir(all.dir.path(), &["cluster", "recover", "data", "--yes"]));
    assert!(alone.err.contains("is that of a node that is alone: start it"), "{alone:?}");
}

/// An authority, and the files of a certificate of it for this machine.
fn papers(dir: &std::path::Path, name: &str) -> Vec<String> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let files = [("ca", authority.pem()), ("certificate", certificate.pem()), ("key", key.serialize_pem())];
    let mut flags = Vec::new();
    for (what, content) in files {
        let path = dir.join(format!("{name}-{what}.pem"));
        fs::write(&path, content).expect("a file");
        flags.extend([format!("--cluster-tls-{what}"), path.to_str().expect("a path").to_owned()]);
    }
    flags
}

#[test]
fn nodes_that_know_each_other_by_certificates_let_nobody_else_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all = Growing { dir, ports: free_ports(3), servers: BTreeMap::new() };
    let (ours, theirs) = (papers(all.dir.path(), "ours"), papers(all.dir.path(), "theirs"));
    let flags = |all: &Growing, papers: &[String], of: Option<usize>| -> Vec<String> {
        let join = of.map(|of| ["--join".to_owned(), all.address(of)]);
        papers.iter().cloned().chain(join.into_iter().flatten()).collect()
    };
    let start = |all: &mut Growing, node: usize, flags: &[String]| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        all.start(node, &flags);
    };
    let first = flags(&all, &ours, None);
    start(&mut all, 1, &first);
    all.ask(1, &["topic", "create", "t", "--partitions", "6"]).ok();
    // Without a certificate, and with one that another authority vouches for: it goes on asking, and is never let in.
    for strange in [flags(&all, &[], Some(1)), flags(&all, &theirs, Some(1))] {
        let strange = all.flags(2, &strange.iter().map(String::as_str).collect::<Vec<_>>());
        let serve: Vec<&str> =
            ["serve", "--data-dir", "data"].into_iter().chain(strange.iter().map(String::as_str)).collect();
        let mut waits = weir(&all.path(2), &serve)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut said =
            std::io::BufRead::lines(std::io::BufReader::new(waits.stderr.take().expect("it is piped")));
        let refused = said
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.contains("is not taken into the cluster yet"));
        waits.kill().and_then(|()| waits.wait()).expect("it ran");
        assert!(refused.is_some(), "it says that it is not let in");
        assert!(!all.path(2).join("data/node.toml").exists(), "nothing is settled");
    }
    all.until(&[1], "nobody else", are(&[1]));
    for node in [2, 3] {
        let flags = flags(&all, &ours, Some(1));
        start(&mut all, node, &flags);
    }
    all.until(&[1, 2, 3], "three that vote", vote_everywhere(&[1, 2, 3], &[]));
    all.produce_and_read(2, "a", 3, &["a"]);
}
