//! Why a proposal, or the start of a node, failed.

use std::path::PathBuf;

use weir_log::disk::DiskError;
use weir_log::journal::JournalError;
use weir_model::{NodeId, ShardId};

/// Why a command was not applied, or why nobody here knows whether it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or none does right now. The command was not taken: ask the leader.
    #[error("this node does not lead the shard; {}", leader_words(.leader))]
    NotLeader {
        /// Who leads as far as this node knows.
        leader: Option<NodeId>,
    },
    /// The leadership ended while the command was on its way. The next leader may have it or not:
    /// only a repeat that the state machine recognises is safe.
    #[error("the leadership ended before the command was committed; it may still be applied; {}", leader_words(.leader))]
    LeadershipLost {
        /// Who leads as far as this node knows.
        leader: Option<NodeId>,
    },
    /// More is on its way than may wait. Wait for admission, or try again later.
    #[error("too much is waiting to be written; try again later")]
    Overloaded,
    /// The disk has no room for more records. Clears by itself when there is space again.
    #[error("the disk has {available_bytes} bytes left, which are kept in reserve; free some space")]
    DiskFull {
        /// What is left.
        available_bytes: u64,
    },
    /// The command does not fit the journal.
    #[error("a command of {bytes} bytes is more than the {bytes_max} that the journal takes")]
    TooLarge {
        /// What it would take.
        bytes: usize,
        /// What fits.
        bytes_max: usize,
    },
    /// The node is being stopped.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The replica has stopped and says why.
    #[error("the shard's replica has stopped: {0}")]
    Stopped(String),
    /// No majority answered in time.
    #[error("no majority of the shard's voters answered in time")]
    Timeout,
}

fn leader_words(leader: &Option<NodeId>) -> String {
    match leader {
        Some(node) => format!("node {node} does"),
        None => "no leader is known".to_owned(),
    }
}

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Options that make no sense.
    #[error("{0}")]
    Options(String),
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The journal does not open.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal holds something that this binary cannot read.
    #[error("the journal in {} has a record of shard {shard} that cannot be read: {why}", directory.display())]
    JournalRecord {
        /// The journal's directory.
        directory: PathBuf,
        /// Whose record.
        shard: ShardId,
        /// What is wrong.
        why: String,
    },
    /// Entries are missing between a shard's checkpoint and what the journal still has.
    #[error(
        "the journal lacks entries {from} to {to} of shard {shard}, which are not in its checkpoint either"
    )]
    MissingEntries {
        /// Which shard.
        shard: ShardId,
        /// First index that is missing.
        from: u64,
        /// Last index that is missing.
        to: u64,
    },
    /// A shard has a checkpoint, but the journal knows nothing of it, although it keeps every vote.
    #[error(
        "the journal in {} has no vote of shard {shard}, whose checkpoint covers entry {applied}: it was removed, or is \
         not the one that belongs here; put it back, or accept the loss of what was in it",
        directory.display()
    )]
    MissingVote {
        /// The journal's directory.
        directory: PathBuf,
        /// Which shard.
        shard: ShardId,
        /// The last entry of its checkpoint.
        applied: u64,
    },
    /// A shard does not open.
    #[error("shard {shard} does not open: {why}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why, in words.
        why: String,
    },
    /// The consensus library refused to start.
    #[error("shard {shard} does not start: {why}")]
    Raft {
        /// Which shard.
        shard: ShardId,
        /// Why, in words.
        why: String,
    },
}
