//! A data directory is read as it lies there, and what is damaged in it is named.

use std::path::Path;

use bytes::Bytes;
use weir_model::ShardId;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch};

use super::*;
use crate::disk::SimDisk;
use crate::journal::{Journal, JournalOptions, JournalRecord, RecordKind};
use crate::partition::{HandleCache, PartitionLog, PartitionManifest};

const JOURNAL: &str = "/data/journal";
const PARTITION: &str = "/data/shards/1/7";

fn data_dir() -> SimDisk {
    let disk = SimDisk::new(1);
    let options =
        JournalOptions { file_bytes: 64 << 10, group_bytes_max: 8 << 10, ..JournalOptions::default() };
    let (mut journal, _) = Journal::open(disk.shared(), Path::new(JOURNAL), options, &mut |_| {}).unwrap();
    let chunks = [Bytes::from_static(b"payload")];
    let record = JournalRecord { shard: ShardId(1), kind: RecordKind(2), chunks: &chunks };
    journal.append(&[record, record]).unwrap();
    journal.seal().unwrap();

    let handles = HandleCache::new(disk.shared(), 10);
    let (mut log, _) =
        PartitionLog::open(&handles, Path::new(PARTITION), &PartitionManifest::default()).unwrap();
    for base in 0..20 {
        let mut builder = BatchBuilder::new();
        builder.push(base * 3 % 7, None, Some(&[1; 1500]), &[]);
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes).unwrap();
        log.append(&[StoredBatch::place(&header, bytes, base, 0)], 0).unwrap();
    }
    log.roll();
    disk
}

#[derive(Default)]
struct Counts {
    records: usize,
    batches: usize,
    segments: usize,
    journals: usize,
}

impl Inspector for Counts {
    fn record(&mut self, record: RecoveredRecord) {
        assert_eq!(record.payload, b"payload"[..]);
        self.records += 1;
    }
    fn journal(&mut self, _: &Path, survey: JournalSurvey) {
        assert_eq!((survey.groups.len(), survey.cut), (3, None));
        self.journals += 1;
    }
    fn batch(&mut self, _: &Path, batch: &BatchFound) {
        assert_eq!(batch.problem, None);
        self.batches += 1;
    }
    fn segment(&mut self, check: SegmentCheck) {
        assert_eq!((check.first_offset, check.last_offset), (Some(0), Some(19)));
        self.segments += 1;
    }
}

#[test]
fn a_data_directory_is_walked_as_a_whole_and_in_parts() {
    let disk = data_dir();
    for (dir, expected) in [("/data", (2, 20, 1, 1)), (JOURNAL, (2, 0, 0, 1)), (PARTITION, (0, 20, 1, 0))] {
        let mut counts = Counts::default();
        inspect(&disk, Path::new(dir), &mut counts).unwrap();
        assert_eq!((counts.records, counts.batches, counts.segments, counts.journals), expected, "{dir}");
    }
    let nothing = inspect(&disk, Path::new("/data/shards"), &mut Counts::default()).unwrap_err();
    assert!(nothing.to_string().contains("no data directory"), "{nothing}");
}

#[test]
fn what_is_whole_is_clean_and_nothing_is_changed() {
    let disk = data_dir();
    let before = disk.operations();
    let verification = Verification::of(&disk, Path::new("/data")).unwrap();
    assert!(verification.is_clean());
    assert_eq!(verification.segments[0].index_problems, Vec::<String>::new());
    assert_eq!(disk.operations(), before);
}

#[test]
fn damage_is_named() {
    let disk = data_dir();
    let log = Path::new(PARTITION).join("00000000000000000000.log");
    let index = log.with_extension("index");
    let size = Verification::of(&disk, Path::new(PARTITION)).unwrap().segments[0].bytes / 20;
    assert!(disk.flip_bit(&log, 5 * size + 200, 0) && disk.flip_bit(&index, 3, 5));
    let verification = Verification::of(&disk, Path::new("/data")).unwrap();
    let segment = &verification.segments[0];
    assert!(!verification.is_clean());
    assert_eq!((segment.problems.len(), segment.problems[0].0, segment.batches), (1, 5 * size, 20));
    assert_eq!(segment.index_problems, ["entry 0 of 6 of the offset index fits no batch"]);

    let disk = data_dir();
    assert!(disk.flip_bit(&Path::new(JOURNAL).join("00000000000000000001.journal"), 4096 + 90, 0));
    let verification = Verification::of(&disk, Path::new("/data")).unwrap();
    assert!(!verification.is_clean());
    assert_eq!(verification.journals[0].1.lost[0].place, 4096);
}
