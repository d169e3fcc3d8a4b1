//! Measures the journal on the real disk: groups of records, one sync per group.
//!
//! `cargo run --release -p weir-log --example journal_speed [DIRECTORY]`

// Measuring is what this program is for.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_log::disk::RealDisk;
use weir_log::journal::{Journal, JournalOptions, JournalRecord, RecordKind};
use weir_model::ShardId;

const RUN: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    println!(
        "{:>12} {:>10} {:>12} {:>12} {:>10}",
        "record bytes", "per group", "records/s", "MB/s", "us/group"
    );
    for (payload_bytes, per_group) in
        [(200, 1), (200, 64), (200, 1024), (4096, 16), (65536, 16), (1 << 20, 4)]
    {
        let dir = tempfile::tempdir_in(&parent)?;
        let options = JournalOptions::default();
        let (mut journal, _) =
            Journal::open(RealDisk::shared(), &dir.path().join("journal"), options, &mut |_| {})?;
        journal.prepare_spare()?;
        let chunks = [Bytes::from(vec![7; payload_bytes])];
        let record = JournalRecord { shard: ShardId(1), kind: RecordKind(1), chunks: &chunks };
        let records = vec![record; per_group];
        let (start, mut groups) = (Instant::now(), 0u32);
        while start.elapsed() < RUN {
            journal.append(&records)?;
            let durable = journal.sync()?;
            journal.release_below(durable)?;
            groups += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let records = f64::from(groups) * per_group as f64;
        println!(
            "{payload_bytes:>12} {per_group:>10} {:>12.0} {:>12.1} {:>10.1}",
            records / seconds,
            records * payload_bytes as f64 / seconds / 1e6,
            seconds * 1e6 / f64::from(groups)
        );
    }
    Ok(())
}
