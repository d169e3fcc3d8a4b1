//! Format version 1, as files: `golden/v1` was written once and must be read for ever.
//!
//! As long as version 1 is what is written, the bytes are also compared with what the code writes
//! today. `WEIR_WRITE_GOLDEN=1 cargo test -p weir-log --test golden` writes them anew, which is only
//! right while the version is not out in the world.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use weir_log::disk::{Disk, OpenMode, SimDisk};
use weir_log::inspect::Verification;
use weir_log::journal::{Journal, JournalOptions, JournalRecord, RecordKind};
use weir_log::partition::{
    HandleCache, PartitionLog, PartitionManifest, ReadOptions, SegmentEntry, scrub_segments,
};
use weir_model::ShardId;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch, split_batches};

const DATA: &str = "/data";

fn options() -> JournalOptions {
    JournalOptions {
        file_bytes: 32 << 10,
        group_bytes_max: 16 << 10,
        journal_bytes_max: 1 << 20,
        spare_files_max: 0,
        identity: 0x0123_4567_89ab_cdef,
        accept_loss_from: None,
        must_exist: false,
    }
}

fn payload(index: u8) -> Vec<u8> {
    (0..3000u32).map(|i| (i * 7) as u8 ^ index).collect()
}

fn batch(base: i64) -> StoredBatch {
    let mut builder = BatchBuilder::new();
    for index in 0..3 {
        let value: Vec<u8> = (0..400u32).map(|i| (i + base as u32) as u8).collect();
        builder.push(1_700_000_000_000 + (base + index) * 10, Some(b"key"), Some(&value), &[]);
    }
    let bytes = builder.build();
    let header = BatchHeader::parse(&bytes).unwrap();
    StoredBatch::place(&header, bytes, base, 4)
}

/// What version 1 is: a journal of two files, and a partition of three segments.
fn write() -> SimDisk {
    let disk = SimDisk::new(0);
    let dir = Path::new(DATA).join("journal");
    let (mut journal, _) = Journal::open(disk.shared(), &dir, options(), &mut |_| {}).unwrap();
    let append = |journal: &mut Journal, shard, kind, payload: Vec<u8>| {
        let chunks = [Bytes::from(payload)];
        let record = JournalRecord { shard: ShardId(shard), kind: RecordKind(kind), chunks: &chunks };
        journal.append(&[record]).unwrap();
        journal.sync().unwrap();
    };
    append(&mut journal, 1, 0x80, b"a vote".to_vec());
    for index in 0..9 {
        append(&mut journal, 1 + u32::from(index) % 2, 1, payload(index));
    }
    journal.seal().unwrap();

    let handles = HandleCache::new(disk.shared(), 10);
    let (mut log, _) = PartitionLog::open(&handles, &partition(), &PartitionManifest::default()).unwrap();
    for base in (0..90).step_by(3) {
        if base % 30 == 0 {
            log.roll();
        }
        log.append(&[batch(base)], 1_700_000_000_000).unwrap();
    }
    let mut rewrite = log.begin_rewrite(&[30]).unwrap();
    for base in [30, 45, 54] {
        rewrite.push(&batch(base).to_contiguous()).unwrap();
    }
    log.commit_rewrite(rewrite.finish().unwrap()).unwrap();
    log.take_dirty().sync(&disk).unwrap();
    let (_, ticket) = log.manifest().unwrap();
    log.unlink_retired(ticket).unwrap();
    disk
}

fn partition() -> PathBuf {
    Path::new(DATA).join("shards/1/7")
}

fn manifest() -> PartitionManifest {
    let len = |batches: u64| batches * batch(0).len() as u64;
    let entry = |base: i64, generation, bytes, closed| SegmentEntry {
        base,
        generation,
        bytes,
        last_offset: if generation == 0 { base + 29 } else { 56 },
        max_timestamp: 1_700_000_000_000 + if generation == 0 { base + 29 } else { 56 } * 10,
        first_time: 1_700_000_000_000,
        closed,
    };
    let segments = vec![entry(0, 0, len(10), true), entry(30, 1, len(3), true), entry(60, 0, len(10), false)];
    PartitionManifest { start: 0, end: 90, segments }
}

/// All files below a directory of a simulated disk, by path relative to it.
fn files(disk: &dyn Disk, dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in disk.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            files(disk, &path, found);
        } else {
            let mut bytes = vec![0; entry.len as usize];
            let read = disk.open(&path, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
            assert_eq!(read, bytes.len());
            found.insert(path.strip_prefix(DATA).unwrap().to_owned(), bytes);
        }
    }
}

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// The golden files, on a disk.
fn golden() -> SimDisk {
    fn copy(from: &Path, to: &Path, disk: &SimDisk) {
        disk.create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &to, disk);
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                let file = disk.open(&to, OpenMode::CreateNew).unwrap();
                file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
            }
        }
    }
    let disk = SimDisk::new(0);
    copy(&golden_dir(), Path::new(DATA), &disk);
    disk
}

#[test]
fn what_is_written_today_is_version_1() {
    let mut written = BTreeMap::new();
    files(&write(), Path::new(DATA), &mut written);
    if std::env::var_os("WEIR_WRITE_GOLDEN").is_some() {
        for (path, bytes) in &written {
            let path = golden_dir().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let mut kept = BTreeMap::new();
    files(&golden(), Path::new(DATA), &mut kept);
    assert_eq!(written.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
    for (path, bytes) in &written {
        let differs = bytes.iter().zip(&kept[path]).position(|(a, b)| a != b);
        assert_eq!((differs, bytes.len()), (None, kept[path].len()), "{}", path.display());
    }
}

#[test]
fn the_journal_of_version_1_is_read() {
    let mut read = Vec::new();
    let dir = Path::new(DATA).join("journal");
    let (journal, report) =
        Journal::open(golden().shared(), &dir, options(), &mut |record| read.push(record)).unwrap();
    assert_eq!((report.files, report.cut, journal.files()[1].number), (2, None, 2));
    let votes: Vec<_> = read.iter().filter(|record| record.kind == RecordKind(0x80)).collect();
    assert_eq!(votes.iter().map(|vote| vote.repeated).collect::<Vec<_>>(), [false, true]);
    assert!(votes.iter().all(|vote| (vote.shard, &vote.payload[..]) == (ShardId(1), b"a vote")));
    let others: Vec<_> = read.iter().filter(|record| record.kind == RecordKind(1)).collect();
    assert_eq!(others.len(), 9);
    for (index, record) in (0..9).zip(others) {
        assert_eq!(
            (record.shard, &record.payload[..]),
            (ShardId(1 + u32::from(index) % 2), &payload(index)[..])
        );
    }
}

#[test]
fn the_partition_log_of_version_1_is_read() {
    let disk: Arc<dyn Disk> = golden().shared();
    let verification = Verification::of(&*disk, Path::new(DATA)).unwrap();
    assert!(verification.is_clean());
    assert!(verification.segments.iter().all(|segment| segment.index_problems.is_empty()));

    let handles = HandleCache::new(disk, 10);
    let (log, report) = PartitionLog::open(&handles, &partition(), &manifest()).unwrap();
    assert_eq!((report.set_aside.len(), report.cut.len(), report.unknown.len()), (0, 0, 0));
    let (mut offset, mut bases) = (0, Vec::new());
    let options = ReadOptions { max_bytes: 1 << 20, at_least_one: true, cached_only: false };
    while offset < 90 {
        let chunk = log.reader().read(offset, options).unwrap();
        for (header, bytes) in split_batches(&chunk.bytes).unwrap() {
            assert_eq!(bytes, batch(header.base_offset).to_contiguous());
            bases.push(header.base_offset);
        }
        offset = chunk.next_offset;
    }
    let expected: Vec<i64> = (0..30).step_by(3).chain([30, 45, 54]).chain((60..90).step_by(3)).collect();
    assert_eq!(bases, expected);
    let hit = log.reader().find_timestamp(1_700_000_000_400, false).unwrap().unwrap();
    assert_eq!((hit.base_offset, hit.leader_epoch), (45, 4));
    assert_eq!(scrub_segments(&log.reader(), &mut |_| true).unwrap().corruptions, 0);
}
