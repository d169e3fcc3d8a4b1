//! `weir cluster` and `weir node`: which nodes there are, who leads what, and taking a node out of the leadership.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::confirm;
use super::server::Server;
use super::topics::Common;
use crate::exit::Failure;
use crate::output::{self, Format, Table, cell};
use crate::serve::abandon_others;

/// How often it is looked whether a node still leads something.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Subcommand)]
pub enum ClusterCommand {
    /// Which nodes there are, and who leads which shard, as the asked node sees it. The status is 1 if a shard has no
    /// leader.
    Status {
        #[command(flatten)]
        common: Common,
    },
    /// Go on with what one node has, because so many others are lost for ever that they are no majority. The node whose
    /// directory this is must not be running. It becomes the first of a new cluster, which others can join with empty
    /// directories. WHATEVER ONLY THE OTHERS HAVE IS LOST, ACKNOWLEDGED OR NOT.
    #[command(
        after_help = "Choose the node that has most: `weir cluster status`, asked of each that still runs, shows under \
        `applied here` how far it is.\n\nExample:\n  weir cluster recover /var/lib/weir"
    )]
    Recover {
        /// The node's data directory.
        directory: PathBuf,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Subcommand)]
pub enum NodeCommand {
    /// List nodes.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Have a node lead nothing, and wait until that is so. It goes on to store and to answer. May be interrupted: the
    /// node goes on to give away what it leads.
    #[command(
        after_help = "Before a node is stopped for longer this is of use; a short stop needs nothing: a node \
        gives away what it leads when it is told to stop.\n\nExample:\n  weir node drain 2 && ssh node2 systemctl stop weir"
    )]
    Drain {
        /// Its id.
        id: u64,
        /// Do not wait.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Take a node out of the cluster for good, and wait until that is done. Others get its votes, its copies are given up,
    /// and then it is forgotten: its process ends, and its data directory is of no use any more. May be interrupted: the
    /// cluster goes on with it.
    #[command(
        after_help = "A node that is gone for ever is removed in the same way, if the others are a majority.\n\nExample:\n  \
        weir node remove 2"
    )]
    Remove {
        /// Its id.
        id: u64,
        /// Have it stay after all, if it is not gone yet.
        #[arg(long)]
        cancel: bool,
        /// Do not wait.
        #[arg(long)]
        no_wait: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Let a node lead again. It gets its share back by and by.
    Undrain {
        /// Its id.
        id: u64,
        #[command(flatten)]
        common: Common,
    },
}

impl ClusterCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        let common = match self {
            ClusterCommand::Status { common } => common,
            ClusterCommand::Recover { directory, yes } => return recover(&directory, yes),
        };
        let cluster = Server::new(&common.server)?.get("/cluster")?;
        match common.output.output {
            Format::Json => output::print_json(&cluster)?,
            Format::Table => output::print_text(&status(&cluster))?,
        }
        let leaderless = leaderless(&cluster);
        match leaderless.is_empty() {
            true => Ok(()),
            false => Err(Failure::Failed(format!(
                "shards without a leader that node {} can reach: {}; a shard needs a majority of its voters",
                cell(&cluster["node_id"]),
                leaderless.join(", ")
            ))),
        }
    }
}

impl NodeCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            NodeCommand::List { common } => {
                let nodes = Server::new(&common.server)?.get("/nodes")?;
                output::print(common.output.output, &nodes, listed)
            }
            NodeCommand::Drain { id, no_wait, common } => drain(id, !no_wait, &common),
            NodeCommand::Remove { id, cancel: true, common, .. } => {
                let node = set_leaving(&Server::new(&common.server)?, id, false)?;
                say(&common, &node, &format!("node {id} stays"))
            }
            NodeCommand::Remove { id, no_wait, yes, common, .. } => remove(id, !no_wait, yes, &common),
            NodeCommand::Undrain { id, common } => {
                let node = set_draining(&Server::new(&common.server)?, id, false)?;
                say(&common, &node, &format!("node {id} may lead again"))
            }
        }
    }
}

fn recover(directory: &Path, yes: bool) -> Result<(), Failure> {
    let at = directory.display();
    confirm(
        &format!(
            "Give up every other node of the cluster that {at} is of? Whatever only they have is lost, acknowledged or not, \
             and if they are not, they must never be started again with the directories that they have."
        ),
        yes,
    )?;
    let identity = abandon_others(directory)?;
    output::print_text(&format!(
        "node {} is the first of the new cluster {}\n\
         start it with --node-id {0} and --listen cluster=ADDRESS, without --peers; empty the directories of the others, and \
         have them join it with --join ADDRESS\n",
        identity.node_id, identity.cluster_id
    ))
}

fn set_draining(server: &Server, id: u64, draining: bool) -> Result<Value, Failure> {
    server.patch(&format!("/nodes/{id}"), &json!({ "draining": draining }))
}

fn set_leaving(server: &Server, id: u64, leaving: bool) -> Result<Value, Failure> {
    server.patch(&format!("/nodes/{id}"), &json!({ "leaving": leaving }))
}

fn remove(id: u64, wait: bool, yes: bool, common: &Common) -> Result<(), Failure> {
    let server = Server::new(&common.server)?;
    server.get(&format!("/nodes/{id}"))?;
    confirm(&format!("Take node {id} out of the cluster, and give up its copy of everything?"), yes)?;
    let node = set_leaving(&server, id, true)?;
    if !wait {
        let line = format!("node {id} leaves the cluster; `weir node list` shows how far that is");
        return say(common, &node, &line);
    }
    until_it_is_gone(&server, id)?;
    say(common, &json!({ "id": id, "removed": true }), &format!("node {id} is of the cluster no more"))
}

/// Shows how much is left whenever that is something else. The node that is asked may be the one that goes: its process ends
/// when others have told it that it is gone.
fn until_it_is_gone(server: &Server, id: u64) -> Result<(), Failure> {
    let is_asked_itself = server.get("/cluster")?["node_id"] == id;
    let mut shown = None;
    loop {
        let nodes = match server.get("/nodes") {
            Err(Failure::Unreachable(_)) if is_asked_itself => return Ok(()),
            nodes => nodes?,
        };
        let Some(node) = nodes.as_array().into_iter().flatten().find(|node| node["id"] == id) else {
            return Ok(());
        };
        if node["leaving"] != true {
            return Err(Failure::Failed(format!("node {id} stays: somebody has said so meanwhile")));
        }
        let replicas = node["replicas"].as_u64().unwrap_or_default();
        if shown != Some(replicas) {
            // Where nobody looks at progress, nothing is lost.
            let _ = writeln!(std::io::stderr(), "node {id} has a replica of {replicas} shard(s)");
            shown = Some(replicas);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn drain(id: u64, wait: bool, common: &Common) -> Result<(), Failure> {
    let server = Server::new(&common.server)?;
    refuse_the_last(&server, id)?;
    let node = set_draining(&server, id, true)?;
    if !wait {
        let line = format!("node {id} gives away what it leads, until `weir node undrain {id}`");
        return say(common, &node, &line);
    }
    let node = until_it_leads_nothing(&server, id)?;
    say(common, &node, &format!("node {id} leads nothing, until `weir node undrain {id}`"))
}

/// Shows how much is left whenever that is something else.
fn until_it_leads_nothing(server: &Server, id: u64) -> Result<Value, Failure> {
    let mut shown = None;
    loop {
        let node = server.get(&format!("/nodes/{id}"))?;
        let leads = node["leads"].as_u64().unwrap_or_default();
        if leads == 0 {
            return Ok(node);
        }
        if shown != Some(leads) {
            // Where nobody looks at progress, nothing is lost.
            let _ = writeln!(std::io::stderr(), "node {id} leads {leads} shard(s)");
            shown = Some(leads);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Where nobody else could lead there is nothing to wait for.
fn refuse_the_last(server: &Server, id: u64) -> Result<(), Failure> {
    let nodes = server.get("/nodes")?;
    let others = nodes.as_array().into_iter().flatten().filter(|node| node["id"] != id);
    match others.into_iter().any(|node| state(node) == "live") {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "there is no other node that is connected and may lead in place of node {id}; `weir node list` lists the nodes"
        ))),
    }
}

/// One line for people, the whole answer for programs.
fn say(common: &Common, answer: &Value, line: &str) -> Result<(), Failure> {
    match common.output.output {
        Format::Json => output::print_json(answer),
        Format::Table => output::print_text(&format!("{line}\n")),
    }
}

fn listed(nodes: &Value) -> Table {
    let mut table = Table::new(&["node", "state", "leads", "zone", "version", "advertised"]);
    for node in nodes.as_array().into_iter().flatten() {
        let advertised = node["advertised"].as_object().into_iter().flatten();
        let advertised: Vec<String> = advertised.map(|(name, at)| format!("{name}={}", cell(at))).collect();
        table.row([
            cell(&node["id"]),
            state(node).to_owned(),
            cell(&node["leads"]),
            cell(&node["zone"]),
            cell(&node["version"]),
            cell(&advertised.join(" ").into()),
        ]);
    }
    table
}

fn state(node: &Value) -> &'static str {
    match (node["live"] == true, node["draining"] == true) {
        (true, _) if node["leaving"] == true => "leaving",
        (false, _) if node["leaving"] == true => "not connected, leaving",
        (true, false) => "live",
        (true, true) => "draining",
        (false, false) => "not connected",
        (false, true) => "not connected, draining",
    }
}

fn status(cluster: &Value) -> String {
    let mut text = format!("{:<13}{}\n", "cluster", cell(&cluster["cluster_id"]));
    text.push_str(&format!("{:<13}{}", "asked node", cell(&cluster["node_id"])));
    match cluster["not_ready_because"].as_str() {
        None => text.push_str(", ready\n\n"),
        Some(why) => text.push_str(&format!(", not ready: {why}\n\n")),
    }
    text.push_str(&listed(&cluster["nodes"]).render());
    let mut shards = Table::new(&["shard", "leader", "term", "voters", "other replicas", "applied here"]);
    for shard in cluster["shards"].as_array().into_iter().flatten() {
        let voters = shard["voters"].as_array().into_iter().flatten();
        let behind = shard["catching_up"].as_array().map(Vec::as_slice).unwrap_or_default();
        let voter = |node: &Value| match behind.contains(node) {
            true => format!("({} is catching up)", cell(node)),
            false => cell(node),
        };
        let voters: Vec<String> = voters.map(voter).collect();
        let leader = match shard["leader"].is_null() {
            true => "none".to_owned(),
            false => cell(&shard["leader"]),
        };
        let id = if shard["id"] == 0 { "0 (meta)".to_owned() } else { cell(&shard["id"]) };
        let term = cell(&shard["term"]);
        let listening = shard["listening"].as_array().into_iter().flatten();
        let others: Vec<String> = listening.map(cell).collect();
        let others = if others.is_empty() { "-".to_owned() } else { others.join(" ") };
        shards.row([id, leader, term, voters.join(" "), others, cell(&shard["applied_index"])]);
    }
    text.push('\n');
    text.push_str(&shards.render());
    text
}

/// The shards that nobody leads.
fn leaderless(cluster: &Value) -> Vec<String> {
    let shards = cluster["shards"].as_array().into_iter().flatten();
    shards.filter(|shard| shard["leader"].is_null()).map(|shard| cell(&shard["id"])).collect()
}
