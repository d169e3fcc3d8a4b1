//! The journal and the partition log on the machine's own file system, where reads without waiting
//! and preallocated files are the kernel's.

use bytes::Bytes;
use weir_log::disk::RealDisk;
use weir_log::journal::{Journal, JournalOptions, JournalRecord, Position, RecordKind};
use weir_log::partition::{HandleCache, PartitionLog, PartitionManifest, ReadError, ReadOptions};
use weir_model::ShardId;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch};

#[test]
fn the_journal_recycles_its_files_and_is_read_back() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    let options = JournalOptions {
        file_bytes: 1 << 20,
        group_bytes_max: 128 << 10,
        journal_bytes_max: 4 << 20,
        ..JournalOptions::default()
    };
    let (mut journal, _) = Journal::open(RealDisk::shared(), &dir, options, &mut |_| {}).unwrap();
    // More chunks than one system call takes, large and small.
    let chunks: Vec<Bytes> = (0..1500u32).map(|i| vec![i as u8; (i % 70) as usize].into()).collect();
    let large = [Bytes::from(vec![3; 60_000])];
    let mut written: Vec<Position> = Vec::new();
    for _ in 0..100 {
        let record = |chunks| JournalRecord { shard: ShardId(1), kind: RecordKind(1), chunks };
        written.extend(journal.append(&[record(&chunks), record(&large)]).unwrap());
        let durable = journal.sync().unwrap();
        journal.release_below(Position(durable.0.saturating_sub(1 << 20))).unwrap();
    }
    let files = journal.files();
    assert!(files[0].number > 5 && std::fs::read_dir(&dir).unwrap().count() <= files.len() + 2);
    drop(journal);
    let mut read = Vec::new();
    let (_, report) =
        Journal::open(RealDisk::shared(), &dir, options, &mut |record| read.push(record)).unwrap();
    assert_eq!(report.cut, None);
    let expected: Vec<Position> = written.into_iter().filter(|at| *at >= files[0].base).collect();
    assert_eq!(read.iter().map(|record| record.position).collect::<Vec<_>>(), expected);
    assert!(read.chunks(2).all(|pair| pair[0].payload == chunks.concat() && pair[1].payload == large[0]));
}

#[test]
fn the_partition_log_is_read_with_and_without_waiting() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("1/7");
    let handles = HandleCache::new(RealDisk::shared(), 4);
    let (mut log, _) = PartitionLog::open(&handles, &dir, &PartitionManifest::default()).unwrap();
    let batch = |base: i64| {
        let mut builder = BatchBuilder::new();
        builder.push(base, None, Some(&vec![base as u8; 10 + base as usize * 37 % 5000]), &[]);
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes).unwrap();
        StoredBatch::place(&header, bytes, base, 1)
    };
    for first in (0..3000).step_by(100) {
        log.append(&(first..first + 100).map(batch).collect::<Vec<_>>(), 0).unwrap();
        if first % 1000 == 900 {
            log.roll();
        }
    }
    log.take_dirty().sync(&RealDisk).unwrap();
    let (manifest, _) = log.manifest().unwrap();
    drop(log);
    let (log, report) = PartitionLog::open(&handles, &dir, &manifest).unwrap();
    assert_eq!(report, Default::default());
    let reader = log.reader();
    for offset in (0..3000).step_by(13) {
        let mut options = ReadOptions { max_bytes: 20_000, at_least_one: true, cached_only: false };
        let waited = reader.read(offset, options).unwrap();
        assert_eq!(waited.bytes[..batch(offset).len()], batch(offset).to_contiguous());
        options.cached_only = true;
        // Not every file system can tell what is cached.
        match reader.read(offset, options) {
            Ok(chunk) => assert_eq!(chunk.bytes[..batch(offset).len()], batch(offset).to_contiguous()),
            Err(error) => assert_eq!(error, ReadError::WouldBlock),
        }
        assert_eq!(reader.find_timestamp(offset, false).unwrap().unwrap().base_offset, offset);
    }
}
