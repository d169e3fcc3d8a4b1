//! Looking for damage before anybody meets it: replicas that differ, and bytes on disk that rotted.
//!
//! Every shard's leader has all replicas digest their state at one index and compare; one that differs
//! stops by itself. And every node reads all its segment files again, slowly, and says where a batch is
//! not what was written. Nothing is mended or taken away here: what cannot be read is reported.

use std::time::Duration;

use tokio::sync::watch;
use weir_log::partition::ScrubReport;
use weir_model::command::{Command, Outcome};
use weir_shard::ShardView;

use crate::blocking::Blocking;
use crate::handle::ShardHandle;
use crate::options::Drive;

/// How much of a disk's reading a scrub takes, in bytes a second.
const SCRUB_BYTES_PER_SECOND: u64 = 32 << 20;

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

/// Reads every segment file of a shard every `interval`.
pub(crate) async fn scrub(
    view: ShardView,
    interval: Duration,
    drive: Drive,
    blocking: Blocking,
    mut stop: watch::Receiver<bool>,
) {
    while !stopped_within(interval, &mut stop).await {
        let mut total = ScrubReport::default();
        for partition in view.partitions() {
            let stopping = stop.clone();
            let scrubbed =
                blocking.run(move || partition.scrub(&mut |segment| pace(segment.bytes, drive, &stopping)));
            match scrubbed.await {
                Ok(Ok(report)) => {
                    report.corrupt.iter().for_each(|corruption| {
                        tracing::error!(
                            file = %corruption.file.display(),
                            position = corruption.position,
                            why = corruption.why,
                            "a stored batch is corrupt; the records in it cannot be read on this node"
                        );
                    });
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
