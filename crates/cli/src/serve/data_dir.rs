//! The data directory: whose it is, in what format, and that nobody else uses it.
//!
//! `node.toml` is written once, when the directory is made, and only read from then on. What cannot be read
//! is never replaced: the server stops and says so.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_log::disk::{Lock, LockError, lock_data_dir};
use weir_model::NodeId;

use crate::config::Config;
use crate::exit::Failure;

/// The format that this binary reads and writes.
const FORMAT_VERSION: u64 = 1;

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
}

impl Identity {
    /// The node.
    pub fn node(&self) -> NodeId {
        NodeId(self.node_id)
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
        let identity = match read_identity(&path)? {
            Some(identity) => identity,
            None => make(&path, config)?,
        };
        check(&path, &identity, config)?;
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
    if version != FORMAT_VERSION as i64 {
        let newer = version > FORMAT_VERSION as i64;
        return Err(Failure::Usage(format!(
            "the data directory {} has format version {version}, this binary reads version {FORMAT_VERSION}; \
             use {} version of weir, or another directory",
            directory.display(),
            if newer { "a newer" } else { "the older" }
        )));
    }
    toml::from_str(&text).map(Some).map_err(|error| unreadable(error.message()))
}

/// Makes `node.toml`, durably: once it is there the directory is a data directory.
fn make(directory: &Path, config: &Config) -> Result<Identity, Failure> {
    refuse_foreign(directory)?;
    let identity = Identity {
        format_version: FORMAT_VERSION,
        node_id: config.node_id.unwrap_or(NodeId(1)).0,
        cluster_id: uuid::Uuid::new_v4().to_string(),
        shards: config.shards.unwrap_or(SHARDS),
        journal_identity: format!("{:016x}", super::random_u64()),
    };
    let text = toml::to_string(&identity)
        .map_err(|error| Failure::Failed(format!("{NODE_FILE} cannot be written: {error}")))?;
    let text = format!(
        "# Made with the data directory, and never changed: weir refuses what does not fit it.\n{text}"
    );
    let path = directory.join(NODE_FILE);
    let new = directory.join("node.toml.new");
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, &path))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|error| cannot("write", &path, &error))?;
    tracing::info!(directory = %directory.display(), cluster_id = identity.cluster_id, "made a data directory");
    Ok(identity)
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
    identity.journal().map(drop)
}
