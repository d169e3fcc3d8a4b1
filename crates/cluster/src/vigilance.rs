//! Looking for damage before anybody meets it: replicas that differ, and bytes on disk that rotted.
//!
//! Every shard's leader has all replicas digest their state at one index and compare; one that differs
//! stops by itself. And every node reads all its segment files again, slowly, and says where a batch is
//! not what was written. Where other nodes have the segment it is mended with theirs ([`Mender`]), also when a client's read
//! was first to find the damage. Nothing is ever taken away: what cannot be mended is reported.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use weir_log::partition::{ScrubReport, SegmentEntry, segment_file_name};
use weir_model::command::{Command, Outcome};
use weir_model::{Offset, PartitionId};
use weir_shard::{PartitionView, ShardView};

use crate::blocking::Blocking;
use crate::handle::ShardHandle;
use crate::mending::Mender;
use crate::options::Drive;

/// How much of a disk's reading a scrub takes, in bytes a second.
const SCRUB_BYTES_PER_SECOND: u64 = 32 << 20;

/// How often it is looked whether a read has found damage.
const DOUBTS_EVERY: Duration = Duration::from_secs(1);

/// A scrub that rests looks this often whether the node stops.
const PACE_STEP: Duration = Duration::from_millis(100);

/// Has the replicas of a shard compare their states every `interval`, for as long as this node leads it.
pub(crate) async fn compare_digests(shard: ShardHandle, interval: Duration, mut stop: watch::Receiver<bool>) {
    while !stopped_within(interval, &mut stop).await {
        if !shard.leadership().ready {
            continue;
        }
        // A leadership that ends in between leaves the comparison to the next leader.
        if let Ok(Outcome::Digest { index, digest }) = shard.propose(Command::TakeDigest).await {
            let _ = shard.propose(Command::CompareDigest { index, digest }).await;
        }
    }
}

/// Reads every segment file of a shard every `interval`, and has those mended in which this or anybody's reading finds damage.
pub(crate) async fn watch_segments(
    view: ShardView,
    mut mender: Option<Mender>,
    interval: Duration,
    drive: Drive,
    blocking: Blocking,
    mut stop: watch::Receiver<bool>,
) {
    let mut next = Instant::now() + interval;
    while !stopped_within(DOUBTS_EVERY.min(interval), &mut stop).await {
        let doubts = view.take_doubts();
        if let Some(mender) = &mut mender {
            mend_doubtful(&view, mender, doubts).await;
        }
        if Instant::now() >= next {
            scrub(&view, &mut mender, drive, blocking, &stop).await;
            next = Instant::now() + interval;
        }
    }
}

async fn mend_doubtful(view: &ShardView, mender: &mut Mender, doubts: Vec<(PartitionId, Offset)>) {
    let mut done: BTreeSet<(PartitionId, Offset)> = BTreeSet::new();
    for (id, offset) in doubts {
        let Some(partition) = view.partition(id) else { continue };
        let holds = |entry: &SegmentEntry| entry.base <= offset;
        let Some(entry) = partition.segments_in_files().into_iter().rfind(holds) else { continue };
        if done.insert((id, entry.base)) {
            mender.mend(&partition, entry).await;
        }
    }
}

async fn scrub(
    view: &ShardView,
    mender: &mut Option<Mender>,
    drive: Drive,
    blocking: Blocking,
    stop: &watch::Receiver<bool>,
) {
    let mut total = ScrubReport::default();
    for partition in view.partitions() {
        let (stopping, scrubbed) = (stop.clone(), Arc::clone(&partition));
        let scrubbed =
            blocking.run(move || scrubbed.scrub(&mut |segment| pace(segment.bytes, drive, &stopping)));
        match scrubbed.await {
            Ok(Ok(report)) => {
                tell_of(&report, mender.is_some());
                if let Some(mender) = mender {
                    mend_all(&partition, mender, &report).await;
                }
                total.segments += report.segments;
                total.bytes += report.bytes;
                total.corruptions += report.corruptions;
            }
            Ok(Err(error)) => tracing::error!(%error, "a segment file cannot be read"),
            Err(_) => return,
        }
        if *stop.borrow() {
            return;
        }
    }
    tracing::debug!(
        segments = total.segments,
        bytes = total.bytes,
        corruptions = total.corruptions,
        "segment files were read again"
    );
}

fn tell_of(report: &ScrubReport, has_others: bool) {
    for corruption in &report.corrupt {
        let (file, position, why) = (corruption.file.display(), corruption.position, &corruption.why);
        match has_others {
            true => {
                tracing::error!(%file, position, why, "a stored batch is corrupt; other nodes are asked for it")
            }
            false => tracing::error!(
                %file, position, why,
                "a stored batch is corrupt; the records in it cannot be read on this node"
            ),
        }
    }
}

/// Mends every segment in which a scrub has found something.
async fn mend_all(partition: &PartitionView, mender: &mut Mender, report: &ScrubReport) {
    let harmed: BTreeSet<&OsStr> = report.corrupt.iter().filter_map(|found| found.file.file_name()).collect();
    let is_harmed = |entry: &SegmentEntry| harmed.contains(OsStr::new(&segment_file_name(entry)));
    for entry in partition.segments_in_files().into_iter().filter(is_harmed) {
        mender.mend(partition, entry).await;
    }
}

/// Keeps a scrub from taking the disk from those who wait for it; false if the node stops. The simulator
/// has no threads to hold up.
fn pace(bytes: u64, drive: Drive, stopping: &watch::Receiver<bool>) -> bool {
    if drive == Drive::Threads {
        let mut rest = Duration::from_micros(bytes * 1_000_000 / SCRUB_BYTES_PER_SECOND);
        while !rest.is_zero() && !*stopping.borrow() {
            let step = rest.min(PACE_STEP);
            std::thread::sleep(step);
            rest -= step;
        }
    }
    !*stopping.borrow()
}

/// Waits for the interval to pass; true if the node stops before.
async fn stopped_within(interval: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => true,
        () = tokio::time::sleep(interval) => false,
    }
}
