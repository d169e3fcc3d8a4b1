//! Index files of any bytes beside a good segment: whatever they say, every offset and every time is found, and
//! what is found is right.
//!
//! The first two bytes say how long the offset index is; the rest is the time index.

use std::io::IoSlice;
use std::path::Path;
use weir_log::disk::{Disk, OpenMode, SimDisk};
use weir_log::partition::{HandleCache, PartitionLog, PartitionManifest, ReadOptions};
use weir_model::Offset;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch};

const DIR: &str = "/partition";
const BATCHES: i64 = 60;
const RECORDS: i64 = 3;

/// A partition with one closed segment, and its manifest.
fn segment() -> (SimDisk, PartitionManifest) {
    let disk = SimDisk::new(0);
    let handles = HandleCache::new(disk.shared(), 10);
    let (mut log, _) = PartitionLog::open(&handles, Path::new(DIR), &PartitionManifest::default())
        .expect("an empty partition opens");
    for base in (0..BATCHES * RECORDS).step_by(RECORDS as usize) {
        log.append(&[batch(base)], 0).expect("a simulated disk takes a batch");
    }
    log.roll();
    let (manifest, _) = log.manifest().expect("nothing failed");
    (disk, manifest)
}

/// A batch of about 700 bytes. Timestamps rise in steps, with falls between.
fn batch(base: Offset) -> StoredBatch {
    let mut builder = BatchBuilder::new();
    for _ in 0..RECORDS {
        builder.push(timestamp(base), None, Some(&[base as u8; 200]), &[]);
    }
    let bytes = builder.build();
    let header = BatchHeader::parse(&bytes).expect("a built batch has a header");
    StoredBatch::place(&header, bytes, base, 0)
}

fn timestamp(base: Offset) -> i64 {
    if base % 2 == 0 { base * 10 } else { base * 3 }
}

pub fn run(data: &[u8]) {
    let Some((&length, content)) = data.split_first_chunk() else { return };
    let (disk, manifest) = segment();
    let (offsets, times) = content.split_at(content.len().min(u16::from_be_bytes(length).into()));
    for (extension, content) in [("index", offsets), ("timeindex", times)] {
        let path = Path::new(DIR).join(format!("{:020}.{extension}", 0));
        let file = disk.open(&path, OpenMode::Write).expect("the segment is closed");
        file.set_len(0).and_then(|()| file.write_at(&[IoSlice::new(content)], 0)).expect("there is room");
    }
    let handles = HandleCache::new(disk.shared(), 10);
    let (log, _) = PartitionLog::open(&handles, Path::new(DIR), &manifest).expect("indexes are not looked at");
    let reader = log.reader();
    let options = ReadOptions { max_bytes: 1, at_least_one: true, cached_only: false };
    for offset in (0..BATCHES * RECORDS).rev().step_by(7) {
        let chunk = reader.read(offset, options).expect("every offset is found");
        let base = offset / RECORDS * RECORDS;
        assert_eq!((chunk.bytes, chunk.next_offset), (batch(base).to_contiguous(), base + RECORDS));
    }
    for time in [0, 1, 500, 900, 1000, 1740, 1741] {
        let bases = (0..BATCHES * RECORDS).step_by(RECORDS as usize);
        let expected = bases.into_iter().find(|base| timestamp(*base) >= time);
        let hit = reader.find_timestamp(time, false).expect("a search by time works");
        assert_eq!(hit.map(|hit| hit.base_offset), expected, "time {time}");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let (disk, _) = segment();
    let read = |extension: &str| {
        let path = Path::new(DIR).join(format!("{:020}.{extension}", 0));
        let file = disk.open(&path, OpenMode::Read).expect("the segment is closed");
        let mut content = vec![0; file.len().expect("it is open") as usize];
        file.read_at(&mut content, 0).expect("a simulated disk reads");
        content
    };
    let (offsets, times) = (read("index"), read("timeindex"));
    let seed = |offsets: &[u8], times: &[u8]| {
        [&(offsets.len() as u16).to_be_bytes()[..], offsets, times].concat()
    };
    vec![seed(&offsets, &times), seed(&[], &times), seed(&offsets, &[]), seed(&[0; 80], &[0; 120])]
}
