//! Giving a replica that is behind what the journals still have a copy of the shard: the leader's durable checkpoint and
//! the segment files that the replica lacks.
//!
//! # What is said
//!
//! The leader calls; every call names the leader's vote and the checkpoint, and every answer says what the replica wants
//! next, one thing at a time. So the leader remembers nothing, and whatever is lost on the way is made good by offering
//! the same checkpoint again: the replica goes on where it was.
//!
//! ```text
//! request = vote, applied index u64, applied term u64, manifest bytes u64, manifest crc u32, part u8, body
//!   0 offer      nothing more
//!   1 piece      file, from u64, crc u32, bytes to the end          at most 1 MiB
//!   2 checksum   file, from u64, to u64, crc u32                    over at most 64 MiB
//!   3 install    nothing more
//! answer  = result u8, body
//!   0 wants bytes      file, from u64, to u64
//!   1 wants a checksum file, from u64, to u64
//!   2 is complete      nothing more: it can be installed
//!   3 installed        vote; or what the replica has is as late
//!   4 higher vote      vote
//!   5 unknown          nothing more: it must be offered first
//! file    = kind u8: 0 manifest | 1 state, number u64 | 2 segment, partition u64, base i64, generation u32
//! ```
//!
//! A replica takes one snapshot at a time: an offer of another one takes the place of the one before. While the leader
//! sends, its files stay on its disk; after [`NO_PROGRESS_MAX`] without any progress it gives up, and after
//! [`IDLE_MAX`] without a call so does the replica. The vote is looked at in every call, and what counts is that the
//! consensus library accepts it before it installs.
//!
//! # Where a crash may fall
//!
//! The replica, in this order:
//!
//! 1. *Pieces are staged.* A start removes the staging directory. Nothing else was touched.
//! 2. *The library has accepted the vote*, which is durable in the journal before it goes on. The replica then has a vote
//!    and its old state, as after any append that was refused.
//! 3. *Entries that contradict the snapshot are void.* That record is in the journal's line when the library hands the
//!    snapshot over, and is made durable before the switch ([`JournalQueue::barrier`]). Were it not, a start could find
//!    the new state with entries behind it that do not follow it. A crash right after it finds the old state with a
//!    shorter log; none of the entries was committed.
//! 4. *Segment files are put in place.* They do the old state no harm; see `weir_shard`'s module `snapshot`.
//! 5. *The manifest is renamed*: the switch. Before it is durable a start finds the old state, with all of the log that
//!    belongs to it, since nothing is purged before the library was told. If it fails, the process ends: only a start can
//!    tell which of the two it is.
//! 6. *The log is purged.* The library does so when it was told that the snapshot is installed, and appends nothing before
//!    that; so no entry that follows the snapshot is in the journal of a replica with the old state. A crash in between
//!    finds the new state and old entries. Those that end below it are nothing to a start; those that reach it agree with
//!    it (3), and serve followers. The entries that follow leave a gap in the journal, which is covered by the checkpoint.
//! 7. *How far is purged is noted* along with whatever is written next (`journal::records`).
//!
//! The leader changes nothing of its own but that files stay.
//!
//! # An old fault that this mends
//!
//! What was purged last is written down only with the next write. After a power loss between the two, a leader that was
//! started again takes its first entry for the last purged one, and has nothing that follows what a follower may have
//! that ends there exactly: that follower could never catch up. It now gets a snapshot, as whoever is behind the log does.

mod messages;
mod pace;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use messages::{Part, SnapshotAnswer, SnapshotRequest};
pub(crate) use pace::Pace;
pub(crate) use receive::SnapshotReceiver;
pub(crate) use send::SnapshotSender;

#[cfg(doc)]
use crate::journal::queue::JournalQueue;

/// How long one call may take; an install is waited for by further ones.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a leader goes on without any progress, once the replica has answered at all. Its files are held as long.
const NO_PROGRESS_MAX: Duration = Duration::from_secs(120);

/// Between a call that failed and the next.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Between a refusal and the next attempt, which may send much again.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// How long a replica keeps a snapshot that nobody goes on with.
const IDLE_MAX: Duration = Duration::from_secs(180);
