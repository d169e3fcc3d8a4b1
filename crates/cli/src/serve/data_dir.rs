//! The data directory: whose it is, in what format, and that nobody else uses it.
//!
//! `node.toml` is written when the directory is made, and only read from then on; that of a node among several is
//! written while they form a cluster, whose steps it keeps. What cannot be read is never replaced: the server stops and
//! says so.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_cluster::IdentityStore;
use weir_log::disk::{Lock, LockError, lock_data_dir};
use weir_model::{Incarnation, NodeId};

use crate::config::Config;
use crate::config::cluster::listed;
use crate::exit::Failure;

/// The format of a directory whose node is alone.
const FORMAT_VERSION: u64 = 1;

/// The format of a directory whose node is one of several: a binary that knows of no other nodes must not open it.
const FORMAT_VERSION_FOUNDED: u64 = 2;

/// The format of a directory whose node came back without its data: a binary that knows of no incarnations would vote as
/// the one that was lost, and must not open it.
const FORMAT_VERSION_RETURNED: u64 = 3;

/// The format of a directory whose node founded a cluster by itself that others may join, or joined one: a binary that knows
/// of no other nodes than founders must not open it.
const FORMAT_VERSION_GROWN: u64 = 4;

/// The newest format.
const FORMAT_VERSION_MAX: u64 = FORMAT_VERSION_GROWN;

/// Data shards of a directory that is made without saying how many.
const SHARDS: u32 = 8;

const NODE_FILE: &str = "node.toml";
const NODE_FILE_BYTES_MAX: u64 = 64 << 10;

/// What a new data directory may already contain: what we make before `node.toml`, and what file systems
/// make at the root of a volume.
const NOT_DATA: &[&str] = &["lock", "node.toml.new", "lost+found"];

/// A data directory that this process has to itself.
#[derive(Debug)]
pub struct DataDir {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is.
    pub identity: Identity,
    _lock: Lock,
}

/// What `node.toml` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Identity {
    /// Version of everything in the directory.
    pub format_version: u64,
    /// The node that the data belongs to.
    pub node_id: u64,
    /// The cluster that the node belongs to.
    pub cluster_id: String,
    /// Number of data shards.
    pub shards: u32,
    /// What the journal's files must say, in hexadecimal, so that one cannot be mistaken for another's.
    pub journal_identity: String,
    /// How far the nodes are with forming their cluster; none where the node is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The ids of the nodes that the cluster was founded by; none where the node is alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub founders: BTreeSet<u64>,
    /// How often the node has begun with nothing; not written where it never has.
    #[serde(default, skip_serializing_if = "is_first")]
    pub incarnation: u32,
    /// Whether the next start is to go on without those who were nodes of its cluster before; not written otherwise.
    #[serde(default, skip_serializing_if = "is_not")]
    pub abandons_others: bool,
    /// Whether a start has come to its end: from then on there is a journal, without which the node must not start.
    #[serde(default, skip_serializing_if = "is_not")]
    pub has_started: bool,
}

fn is_not(flag: &bool) -> bool {
    !*flag
}

fn is_first(incarnation: &u32) -> bool {
    *incarnation == Incarnation::FIRST.0
}

/// How far the nodes are with forming their cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// This node knows the cluster's id, and not yet that all others do.
    Forming,
    /// All know it.
    Formed,
}

impl Identity {
    /// The node.
    pub fn node(&self) -> NodeId {
        NodeId(self.node_id)
    }

    /// The nodes that the cluster was founded by.
    fn founders(&self) -> BTreeSet<NodeId> {
        match self.is_alone() {
            true => BTreeSet::from([self.node()]),
            false => self.founders.iter().copied().map(NodeId).collect(),
        }
    }

    /// Whether the node became one of a cluster that others had founded.
    pub fn has_joined(&self) -> bool {
        self.phase.is_some() && !self.founders.contains(&self.node_id)
    }

    /// Why it cannot be what was written here; none if it can.
    fn contradiction(&self) -> Option<&'static str> {
        let is_first = is_first(&self.incarnation);
        let is_founder = self.founders.contains(&self.node_id);
        match (self.format_version, self.phase, self.founders.len()) {
            (FORMAT_VERSION..FORMAT_VERSION_GROWN, ..) if self.abandons_others => {
                Some("it abandons other nodes, which its format version does not know")
            }
            (FORMAT_VERSION, None, 0) if is_first => None,
            (FORMAT_VERSION, _, 1..) => Some("it names founders, which no node has that is alone"),
            (FORMAT_VERSION, ..) => Some("it has a phase or an incarnation, which no node has that is alone"),
            (_, None, _) => Some("it has no phase"),
            (_, Some(Phase::Forming), _) if !is_first => Some("only a member has another incarnation"),
            (FORMAT_VERSION_GROWN, _, 0) => Some("it names no founders"),
            (FORMAT_VERSION_GROWN, ..) if is_founder && self.founders.len() > 1 => {
                Some("its format version does not go with its founders")
            }
            (FORMAT_VERSION_GROWN, ..) if !is_founder && is_first => {
                Some("a node that joined has another incarnation than the first")
            }
            (FORMAT_VERSION_GROWN, ..) => None,
            (_, _, 0 | 1) => Some("it does not name several founders"),
            _ if !is_founder => Some("the node is none of its founders"),
            (version, ..) if (version == FORMAT_VERSION_RETURNED) == is_first => {
                Some("its format version does not go with its incarnation")
            }
            _ => None,
        }
    }

    /// Whether the node was begun alone, and nobody can join it.
    fn is_alone(&self) -> bool {
        self.format_version == FORMAT_VERSION
    }

    /// What the journal's files must say.
    pub fn journal(&self) -> Result<u64, Failure> {
        u64::from_str_radix(&self.journal_identity, 16).map_err(|_| {
            Failure::Corrupt(format!(
                "{NODE_FILE}: journal-identity '{}' is not a hexadecimal number; restore the file from a copy",
                self.journal_identity
            ))
        })
    }
}

impl DataDir {
    /// Opens the directory that the configuration names; makes it if it is missing or empty.
    pub fn open(config: &Config) -> Result<DataDir, Failure> {
        let path = config.data_dir.clone();
        fs::create_dir_all(&path).map_err(|error| cannot("make the data directory", &path, &error))?;
        let lock = lock_data_dir(&path).map_err(|error| match error {
            LockError::InUse { .. } => Failure::Usage(error.to_string()),
            LockError::Disk(error) if error.clears_by_itself() => {
                Failure::Io(format!("the data directory cannot be used: {error}"))
            }
            LockError::Disk(error) => Failure::Usage(format!("the data directory cannot be used: {error}")),
        })?;
        let identity = match (read_identity(&path)?, &config.cluster) {
            (Some(identity), cluster) => {
                check(&path, &identity, config)?;
                match cluster {
                    // Others may join it from here on, and then nobody must open it as if there were none.
                    Some(_) if identity.is_alone() => open_to_others(&path, identity)?,
                    _ => identity,
                }
            }
            (None, None) => make(&path, config)?,
            // Written by the first step of forming the cluster.
            (None, Some(_)) => {
                refuse_foreign(&path)?;
                drawn(config)
            }
        };
        Ok(DataDir { path, identity, _lock: lock })
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let words = format!("cannot {what} {}: {error}", path.display());
    match error.kind() {
        // Another directory, or other rights to it, are what helps.
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory => Failure::Usage(words),
        _ => Failure::Io(words),
    }
}

/// What `node.toml` in a directory says; `None` if there is none.
pub fn read_identity(directory: &Path) -> Result<Option<Identity>, Failure> {
    let path = directory.join(NODE_FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot("read", &path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(NODE_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| cannot("read", &path, &error))?;
    let unreadable = |why: &str| {
        Failure::Corrupt(format!("{} cannot be read: {why}; restore it from a copy", path.display()))
    };
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not text"))?;
    // The version is looked at first: a file of another version may say anything else.
    let table: toml::Table = toml::from_str(&text).map_err(|error| unreadable(error.message()))?;
    let version = table.get("format-version").and_then(toml::Value::as_integer);
    let version = version.ok_or_else(|| unreadable("it has no format-version"))?;
    let known = FORMAT_VERSION as i64..=FORMAT_VERSION_MAX as i64;
    if !known.contains(&version) {
        return Err(Failure::Usage(format!(
            "the data directory {} has format version {version}, this binary reads versions {FORMAT_VERSION} to \
             {FORMAT_VERSION_MAX}; use {} version of weir, or another directory",
            directory.display(),
            if version > *known.end() { "a newer" } else { "the older" }
        )));
    }
    let identity: Identity = toml::from_str(&text).map_err(|error| unreadable(error.message()))?;
    match identity.contradiction() {
        None => Ok(Some(identity)),
        Some(why) => Err(unreadable(why)),
    }
}

/// Makes `node.toml`, durably: once it is there the directory is a data directory.
fn make(directory: &Path, config: &Config) -> Result<Identity, Failure> {
    refuse_foreign(directory)?;
    let identity = Identity { cluster_id: uuid::Uuid::new_v4().to_string(), ..drawn(config) };
    write_identity(directory, &identity)?;
    tracing::info!(directory = %directory.display(), cluster_id = identity.cluster_id, "made a data directory");
    Ok(identity)
}

fn open_to_others(directory: &Path, identity: Identity) -> Result<Identity, Failure> {
    let identity = Identity {
        format_version: FORMAT_VERSION_GROWN,
        phase: Some(Phase::Formed),
        founders: BTreeSet::from([identity.node_id]),
        ..identity
    };
    write_identity(directory, &identity)?;
    tracing::info!(directory = %directory.display(), "from here on other nodes can join this one");
    Ok(identity)
}

/// The identity of a directory that is new; of the cluster nothing is known yet.
fn drawn(config: &Config) -> Identity {
    let founders: BTreeSet<u64> =
        config.cluster.iter().flat_map(|cluster| cluster.peers.keys().map(|node| node.0)).collect();
    Identity {
        format_version: match (&config.cluster, founders.len()) {
            (None, _) => FORMAT_VERSION,
            (Some(_), 0 | 1) => FORMAT_VERSION_GROWN,
            (Some(_), _) => FORMAT_VERSION_FOUNDED,
        },
        node_id: config.node_id.unwrap_or(NodeId(1)).0,
        cluster_id: String::new(),
        shards: config.shards.unwrap_or(SHARDS),
        journal_identity: format!("{:016x}", super::random_u64()),
        phase: None,
        founders,
        incarnation: Incarnation::FIRST.0,
        abandons_others: false,
        has_started: false,
    }
}

/// Makes the node of a directory the first and only one of a new cluster, with everything that it has. The next start carries
/// that out; should that be interrupted, the one after it.
pub fn abandon_others(directory: &Path) -> Result<Identity, Failure> {
    let _lock = lock_data_dir(directory).map_err(|error| Failure::Usage(error.to_string()))?;
    let refused =
        |why: &str| Err(Failure::Usage(format!("the data directory {} {why}", directory.display())));
    let identity = match read_identity(directory)? {
        None => return refused("has no node.toml: it is no node's, or not whole"),
        Some(identity) if identity.is_alone() => return refused("is that of a node that is alone: start it"),
        Some(identity) if identity.phase == Some(Phase::Forming) => {
            return refused("is of a cluster that was never formed: there is nothing in it to go on with");
        }
        Some(identity) => identity,
    };
    let identity = Identity {
        format_version: FORMAT_VERSION_GROWN,
        cluster_id: uuid::Uuid::new_v4().to_string(),
        founders: BTreeSet::from([identity.node_id]),
        abandons_others: true,
        ..identity
    };
    write_identity(directory, &identity)?;
    Ok(identity)
}

fn write_identity(directory: &Path, identity: &Identity) -> Result<(), Failure> {
    let text = toml::to_string(identity)
        .map_err(|error| Failure::Failed(format!("{NODE_FILE} cannot be written: {error}")))?;
    let text = format!(
        "# Made with the data directory, and not to be changed: weir refuses what does not fit it.\n{text}"
    );
    let path = directory.join(NODE_FILE);
    let new = directory.join("node.toml.new");
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, &path))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|error| cannot("write", &path, &error))
}

impl DataDir {
    /// Notes that a start has come to its end, and with it whatever it was to do once.
    pub fn note_start(&self) -> Result<(), Failure> {
        if self.identity.has_started && !self.identity.abandons_others {
            return Ok(());
        }
        // Steps of forming a cluster were kept since it was opened.
        match read_identity(&self.path)? {
            Some(kept) => {
                write_identity(&self.path, &Identity { has_started: true, abandons_others: false, ..kept })
            }
            None => Err(Failure::Corrupt(format!("{NODE_FILE} of {} is gone", self.path.display()))),
        }
    }
}

/// Where the steps of forming a cluster are kept.
impl IdentityStore for DataDir {
    fn load(&self) -> Result<Option<weir_cluster::Identity>, String> {
        let stored = read_identity(&self.path).map_err(|failure| failure.to_string())?;
        Ok(stored.map(|identity| weir_cluster::Identity {
            node: identity.node(),
            phase: match identity.phase {
                Some(Phase::Forming) => weir_cluster::Phase::Forming,
                Some(Phase::Formed) | None => weir_cluster::Phase::Formed,
            },
            founders: identity.founders(),
            incarnation: Incarnation(identity.incarnation),
            shards: identity.shards,
            cluster: identity.cluster_id,
        }))
    }

    fn save(&self, identity: &weir_cluster::Identity) -> Result<(), String> {
        let phase = match identity.phase {
            weir_cluster::Phase::Empty => return Err("a node of no cluster has nothing to keep".to_owned()),
            weir_cluster::Phase::Forming => Phase::Forming,
            weir_cluster::Phase::Formed => Phase::Formed,
        };
        let is_one_of_several = identity.founders.len() > 1 && identity.founders.contains(&identity.node);
        let format_version = match (is_one_of_several, identity.incarnation) {
            (false, _) => FORMAT_VERSION_GROWN,
            (true, Incarnation::FIRST) => FORMAT_VERSION_FOUNDED,
            (true, _) => FORMAT_VERSION_RETURNED,
        };
        let stored = Identity {
            format_version,
            incarnation: identity.incarnation.0,
            cluster_id: identity.cluster.clone(),
            phase: Some(phase),
            founders: identity.founders.iter().map(|node| node.0).collect(),
            shards: identity.shards,
            ..self.identity.clone()
        };
        write_identity(&self.path, &stored).map_err(|failure| failure.to_string())
    }
}

/// A directory with something else in it is not ours to fill.
fn refuse_foreign(directory: &Path) -> Result<(), Failure> {
    let entries = fs::read_dir(directory).map_err(|error| cannot("read", directory, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| cannot("read", directory, &error))?;
        if !NOT_DATA.iter().any(|name| entry.file_name() == *name) {
            return Err(Failure::Usage(format!(
                "{} has no {NODE_FILE} but is not empty (there is {}); choose another --data-dir, or restore {NODE_FILE}",
                directory.display(),
                entry.file_name().display()
            )));
        }
    }
    Ok(())
}

fn check(directory: &Path, identity: &Identity, config: &Config) -> Result<(), Failure> {
    let differs = |key: &str, asked: u64, has: u64| {
        Failure::Usage(format!(
            "the data directory {} was made with {key} {has}, not {asked}; remove {key} from the configuration, or \
             choose another --data-dir",
            directory.display()
        ))
    };
    if let Some(asked) = config.node_id.filter(|asked| *asked != identity.node()) {
        return Err(differs("node-id", asked.0, identity.node_id));
    }
    if let Some(asked) = config.shards.filter(|asked| *asked != identity.shards) {
        return Err(differs("shards", asked.into(), identity.shards.into()));
    }
    check_founders(directory, identity, config)?;
    identity.journal().map(drop)
}

/// Who founded the cluster is settled with its data.
fn check_founders(directory: &Path, identity: &Identity, config: &Config) -> Result<(), Failure> {
    let (directory, founders) = (directory.display(), identity.founders());
    let founded_by = || {
        format!(
            "the data directory {directory} is of a cluster that was founded by nodes {}",
            listed(founders.iter())
        )
    };
    let refused = |why: String| Err(Failure::Usage(why));
    match &config.cluster {
        None if identity.is_alone() => Ok(()),
        None if identity.has_joined() || founders.len() == 1 => refused(format!(
            "{}; give --node-id and --listen cluster=ADDRESS, where the others reach this node",
            founded_by()
        )),
        None => refused(format!(
            "{}; give --node-id, --listen cluster=ADDRESS and --peers with where these nodes are",
            founded_by()
        )),
        Some(cluster) if identity.is_alone() && (cluster.peers.len() > 1 || !cluster.join.is_empty()) => {
            refused(format!(
                "the data directory {directory} is that of a node that is alone, which cannot become one of others; remove \
                 peers and join from the configuration, so that others can join it, or choose another --data-dir"
            ))
        }
        Some(cluster) if !cluster.join.is_empty() => Ok(()),
        // Those who join later are in its own catalog.
        Some(cluster) if cluster.peers.is_empty() => match identity.has_joined() || founders.len() == 1 {
            true => Ok(()),
            false => refused(format!("{}; give --peers or --join with where others are", founded_by())),
        },
        Some(_) if identity.has_joined() => refused(format!(
            "{}, which node {} joined later; give --join with where one of its nodes is in place of --peers",
            founded_by(),
            identity.node()
        )),
        Some(cluster) => {
            let asked: BTreeSet<NodeId> = cluster.peers.keys().copied().collect();
            match asked == founders {
                true => Ok(()),
                false => refused(format!(
                    "{}, but peers names {}; the ids must be the same, only addresses may change",
                    founded_by(),
                    listed(asked.iter())
                )),
            }
        }
    }
}
