//! A segment file of any bytes, as long as its manifest says. Every read ends, in batches that were there or in
//! an error that names the place; what a scrub finds nothing wrong with is read from its first offset to its last.

use std::io::IoSlice;
use std::path::Path;
use weir_log::disk::{Disk, OpenMode, SimDisk};
use weir_log::inspect::Verification;
use weir_log::partition::{
    HandleCache, PartitionLog, PartitionManifest, ReadOptions, SegmentEntry, scrub_segments,
};
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch};

const DIR: &str = "/partition";
const RECORDS: i64 = 30;

pub fn run(data: &[u8]) {
    let Some((&closed, content)) = data.split_first() else { return };
    let disk = SimDisk::new(0);
    disk.create_dir_all(Path::new(DIR)).expect("a fresh disk takes a directory");
    let path = Path::new(DIR).join(format!("{:020}.log", 0));
    let file = disk.open(&path, OpenMode::CreateNew).expect("a fresh disk takes a file");
    file.write_at(&[IoSlice::new(content)], 0).expect("a fresh disk takes bytes");
    let entry = SegmentEntry {
        base: 0,
        generation: 0,
        bytes: content.len() as u64,
        last_offset: RECORDS - 1,
        max_timestamp: 1000,
        first_time: 0,
        closed: closed & 1 == 1,
    };
    let manifest = PartitionManifest { start: 0, end: RECORDS, segments: vec![entry] };
    Verification::of(&disk, Path::new(DIR)).expect("looking at damage is no error");
    let handles = HandleCache::new(disk.shared(), 10);
    let Ok((log, _)) = PartitionLog::open(&handles, Path::new(DIR), &manifest) else { return };
    let reader = log.reader();
    let scrubbed = scrub_segments(&reader, &mut |_| true).expect("a simulated disk reads");
    let options = ReadOptions { max_bytes: 500, at_least_one: true, cached_only: false };
    let mut offset = 0;
    while offset < RECORDS {
        match reader.read(offset, options) {
            Ok(chunk) => {
                assert!(chunk.next_offset > offset, "a read goes forward");
                offset = chunk.next_offset;
            }
            Err(error) => {
                assert!(scrubbed.corruptions > 0, "a scrub would have found it: {error}");
                return;
            }
        }
    }
    let found = reader.find_timestamp(500, false);
    assert!(found.is_ok() || scrubbed.corruptions > 0, "{found:?}");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut content = Vec::new();
    for (base, records) in [(0, 1), (1, 10), (11, 4), (15, 15)] {
        let mut builder = BatchBuilder::new();
        for index in 0..records {
            builder.push((base + index) * 30, Some(b"key"), Some(&[7; 90]), &[]);
        }
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes).expect("a built batch has a header");
        content.extend_from_slice(&StoredBatch::place(&header, bytes, base, 2).to_contiguous());
    }
    [0, 1].map(|closed| [&[closed][..], &content].concat()).to_vec()
}
