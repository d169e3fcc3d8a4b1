//! The partition log, step by step. Crashes are in `tests/partition_crashes.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_model::Offset;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch, split_batches, verify_batch};

use super::index::{IndexEntries, OffsetEntry, TimeEntry};
use super::names::{FileKind, Name, parse_name};
use super::*;
use crate::disk::{Disk, Fault, FaultKind, Operation, SimDisk};

const DIR: &str = "/shards/1/7";

/// A batch of so many records of about so many bytes each.
fn batch(base: Offset, records: usize, bytes: usize, timestamp: i64) -> StoredBatch {
    let mut builder = BatchBuilder::new();
    for index in 0..records {
        let value = vec![(base + index as i64) as u8; bytes];
        builder.push(timestamp - (records - 1 - index) as i64, None, Some(&value), &[]);
    }
    let bytes = builder.build();
    let header = BatchHeader::parse(&bytes).unwrap();
    StoredBatch::place(&header, bytes, base, 5)
}

struct Fixture {
    disk: SimDisk,
    handles: Arc<HandleCache>,
    log: PartitionLog,
}

impl Fixture {
    fn new() -> Fixture {
        let disk = SimDisk::new(1);
        let handles = HandleCache::new(disk.shared(), 100);
        let (log, report) =
            PartitionLog::open(&handles, Path::new(DIR), &PartitionManifest::default()).unwrap();
        assert_eq!(report, OpenReport::default());
        Fixture { disk, handles, log }
    }

    /// Appends batches of three records each until the log ends at an offset.
    fn fill(&mut self, upto: Offset, bytes: usize) {
        while self.log.end() < upto {
            let end = self.log.end();
            self.log.append(&[batch(end, 3, bytes, 1000 + end)], 77).unwrap();
        }
    }

    /// Three segments: from 0, 30 and 60, the last one open, up to 90.
    fn three_segments() -> Fixture {
        let mut fixture = Fixture::new();
        for upto in [30, 60, 90] {
            fixture.log.roll();
            fixture.fill(upto, 400);
        }
        fixture
    }

    fn names(&self) -> Vec<String> {
        self.disk.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    fn checkpoint(&mut self) -> (PartitionManifest, Ticket) {
        let dirty = self.log.take_dirty();
        dirty.sync(&self.disk).unwrap();
        self.log.manifest().unwrap()
    }

    fn reopen(&mut self, manifest: &PartitionManifest) -> OpenReport {
        self.handles = HandleCache::new(self.disk.shared(), 100);
        let (log, report) = PartitionLog::open(&self.handles, Path::new(DIR), manifest).unwrap();
        self.log = log;
        report
    }
}

fn wait(max_bytes: usize) -> ReadOptions {
    ReadOptions { max_bytes, at_least_one: true, cached_only: false }
}

/// Reads everything from an offset on, batch headers only, checking CRCs.
fn headers(reader: &PartitionReader, mut offset: Offset, max_bytes: usize) -> Vec<(Offset, Offset)> {
    let mut found = Vec::new();
    loop {
        let chunk = reader.read(offset, wait(max_bytes)).unwrap();
        if chunk.batches == 0 {
            return found;
        }
        let batches = split_batches(&chunk.bytes).unwrap();
        assert_eq!(batches.len(), chunk.batches);
        for (header, bytes) in batches {
            verify_batch(&bytes).unwrap();
            assert_eq!(header.leader_epoch, 5);
            found.push((header.base_offset, header.last_offset()));
        }
        offset = chunk.next_offset;
    }
}

#[test]
fn what_is_appended_is_read_from_every_offset_with_every_limit() {
    let fixture = Fixture::three_segments();
    let reader = fixture.log.reader();
    for max_bytes in [1, 1000, 5000, 1 << 20] {
        for offset in 0..90 {
            let all = headers(&reader, offset, max_bytes);
            let expected: Vec<_> = (offset / 3..30).map(|i| (i * 3, i * 3 + 2)).collect();
            assert_eq!(all, expected, "{offset} {max_bytes}");
        }
    }
    assert_eq!(reader.read(90, wait(100)).unwrap().batches, 0);
    for offset in [-1, 91] {
        let error = reader.read(offset, wait(100)).unwrap_err();
        assert_eq!(error, ReadError::OutOfRange { offset, start: 0, end: 90 });
    }
}

#[test]
fn limits_of_a_read_are_kept() {
    let fixture = Fixture::three_segments();
    let reader = fixture.log.reader();
    let one = batch(0, 3, 400, 1000).len();
    let read = |max_bytes, at_least_one| {
        reader.read(4, ReadOptions { max_bytes, at_least_one, cached_only: false }).unwrap()
    };
    assert_eq!((read(one - 1, true).bytes.len(), read(one - 1, true).batches), (one, 1));
    assert_eq!((read(one - 1, false).batches, read(one - 1, false).next_offset), (0, 4));
    assert_eq!(read(one, false).batches, 1);
    assert_eq!(read(3 * one + 50, false).next_offset, 12);
}

#[test]
fn the_open_segment_is_read_while_it_grows() {
    let mut fixture = Fixture::new();
    let reader = fixture.log.reader();
    let mut offset = 0;
    for end in (3..300).step_by(3) {
        fixture.fill(end, 100);
        let chunk = reader.read(offset, wait(1 << 20)).unwrap();
        assert_eq!((chunk.batches, chunk.next_offset), (1, end));
        offset = chunk.next_offset;
    }
}

#[test]
fn batches_must_follow_each_other() {
    let mut fixture = Fixture::new();
    fixture.fill(3, 10);
    for wrong in [[batch(2, 1, 1, 0), batch(3, 1, 1, 0)], [batch(3, 2, 1, 0), batch(6, 1, 1, 0)]] {
        assert!(matches!(fixture.log.append(&wrong, 0), Err(PartitionError::OutOfOrder { .. })));
    }
    assert_eq!(fixture.log.end(), 3);
}

#[test]
fn a_segment_that_cannot_hold_the_offset_is_full() {
    let disk = SimDisk::new(1);
    let handles = HandleCache::new(disk.shared(), 10);
    let (mut log, _) = PartitionLog::open(&handles, Path::new(DIR), &PartitionManifest::default()).unwrap();
    log.append(&[batch(0, 1, 1, 0)], 0).unwrap();
    let last = i64::from(i32::MAX);
    let mut far = batch(1, 1, 1, 0);
    far.last_offset = last + 1;
    assert!(matches!(log.append(&[far], 0), Err(PartitionError::SegmentFull { base: 0, .. })));
}

#[test]
fn indexes_are_the_bytes_that_kafka_writes() {
    let mut fixture = Fixture::new();
    // 61 bytes of header and about 1410 of records: an entry for every fourth batch.
    for (index, timestamp) in [50, 60, 55, 70, 65, 80, 80, 90, 10].into_iter().enumerate() {
        fixture.log.append(&[batch(index as i64 * 2, 2, 700, timestamp)], 0).unwrap();
    }
    let size = batch(0, 2, 700, 50).len();
    fixture.log.roll();
    let content = |kind| {
        let file = fixture.disk.open(&names::file_path(Path::new(DIR), 0, 0, kind), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let be =
        |relative: i32, position: usize| [relative.to_be_bytes(), (position as u32).to_be_bytes()].concat();
    assert_eq!(content(FileKind::OffsetIndex), [be(7, 3 * size), be(13, 6 * size)].concat());
    let be = |timestamp: i64, relative: i32| [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()].concat();
    assert_eq!(content(FileKind::TimeIndex), [be(70, 7), be(80, 11), be(90, 15)].concat());
}

#[test]
fn the_part_before_an_index_is_put_in_front_of_it() {
    let head = |last_offset, max_timestamp| BatchHead {
        base_offset: last_offset,
        last_offset,
        bytes: 5000,
        leader_epoch: 0,
        max_timestamp,
    };
    let mut whole = IndexEntries::new(0);
    let mut later = IndexEntries::new(0);
    let mut before = IndexEntries::new(0);
    for (index, timestamp) in [5, 9, 7, 8, 20].into_iter().enumerate() {
        let (position, head) = (index as u64 * 5000, head(index as i64, timestamp));
        whole.add(position, &head);
        if index < 2 {
            before.add(position, &head)
        } else {
            later.add(position, &head)
        };
    }
    later.prepend(before);
    assert_eq!(
        whole.times,
        [9, 20].map(|t| TimeEntry { timestamp: t, relative: if t == 9 { 1 } else { 4 } })
    );
    assert_eq!(later.times, whole.times);
    // One entry fewer: where the two parts meet, the count begins anew.
    let entry = |i: i32| OffsetEntry { relative: i, position: i as u32 * 5000 };
    assert_eq!(whole.offsets, [1, 2, 3, 4].map(entry));
    assert_eq!(later.offsets, [1, 3, 4].map(entry));
}

#[test]
fn batches_are_found_by_time() {
    let mut fixture = Fixture::three_segments();
    let check = |reader: &PartitionReader| {
        for (timestamp, base) in [(0, 0), (1000, 0), (1001, 3), (1030, 30), (1031, 33), (1086, 87)] {
            let hit = reader.find_timestamp(timestamp, false).unwrap().unwrap();
            assert_eq!((hit.base_offset, hit.last_offset), (base, base + 2), "{timestamp}");
            assert!(hit.max_timestamp >= timestamp && hit.leader_epoch == 5);
        }
        assert_eq!(reader.find_timestamp(1088, false).unwrap(), None);
    };
    check(&fixture.log.reader());
    let (manifest, _) = fixture.checkpoint();
    fixture.reopen(&manifest);
    check(&fixture.log.reader());
    fixture.log.retire_below(40);
    let hit = fixture.log.reader().find_timestamp(0, false).unwrap().unwrap();
    assert_eq!(hit.base_offset, 39, "the first that is not wholly below the start");
}

#[test]
fn opening_cuts_back_to_the_manifest_and_moves_the_rest_aside() {
    let mut fixture = Fixture::three_segments();
    let (manifest, _) = fixture.checkpoint();
    fixture.fill(99, 400);
    fixture.log.roll();
    fixture.fill(120, 400);
    fixture.disk.open(&Path::new(DIR).join("notes.txt"), OpenMode::Create).unwrap();
    let open = "00000000000000000060.log".to_owned();
    let report = fixture.reopen(&manifest);
    assert_eq!(report.unknown, ["notes.txt"]);
    assert_eq!(report.cut.iter().map(|(name, ..)| name).collect::<Vec<_>>(), [&open]);
    let aside = ["00000000000000000060.index", "00000000000000000060.timeindex", "00000000000000000099.log"];
    assert_eq!(report.set_aside, aside);
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20).len(), 30);
    // The journal brings the same again.
    fixture.fill(99, 400);
    fixture.log.roll();
    fixture.fill(120, 400);
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20).len(), 40);
    assert!(fixture.names().iter().any(|name| name.ends_with(".aside")));
    let (_, ticket) = fixture.checkpoint();
    fixture.log.unlink_retired(ticket).unwrap();
    assert!(!fixture.names().iter().any(|name| name.ends_with(".aside")));
    assert!(fixture.names().contains(&"notes.txt".to_owned()));
}

#[test]
fn a_file_that_is_too_short_or_missing_stops_the_opening_and_nothing_is_touched() {
    let mut fixture = Fixture::three_segments();
    let (manifest, _) = fixture.checkpoint();
    let path = Path::new(DIR).join("00000000000000000030.log");
    fixture.log.roll();
    let before = fixture.names();
    let full = manifest.segments[1].bytes;
    fixture.disk.open(&path, OpenMode::Write).unwrap().set_len(full - 1).unwrap();
    let open =
        |fixture: &Fixture| PartitionLog::open(&fixture.handles, Path::new(DIR), &manifest).unwrap_err();
    let PartitionError::Corrupt(corruption) = open(&fixture) else { panic!() };
    assert_eq!((corruption.file, corruption.position), (path.clone(), full - 1));
    assert_eq!(fixture.names(), before);
    fixture.disk.remove_file(&path).unwrap();
    let PartitionError::Corrupt(corruption) = open(&fixture) else { panic!() };
    assert!(corruption.why.contains("missing"), "{corruption}");
}

#[test]
fn manifests_that_contradict_themselves_are_refused() {
    let mut fixture = Fixture::three_segments();
    let (manifest, _) = fixture.checkpoint();
    let refused = |change: &dyn Fn(&mut PartitionManifest)| {
        let mut wrong = manifest.clone();
        change(&mut wrong);
        let error = PartitionLog::open(&fixture.handles, Path::new(DIR), &wrong).unwrap_err();
        assert!(matches!(error, PartitionError::Segment { .. }), "{error}");
    };
    refused(&|m| m.end = 89);
    refused(&|m| m.segments[0].closed = false);
    refused(&|m| m.segments[1].base = 29);
    refused(&|m| m.segments[1].bytes = 0);
}

#[test]
fn files_are_unlinked_when_no_manifest_and_no_reader_names_them() {
    let mut fixture = Fixture::three_segments();
    let reader = fixture.log.reader();
    let pinned = reader.pin();
    let (_, before) = fixture.checkpoint();
    let gone = fixture.log.retire_below(61);
    assert_eq!(gone.iter().map(|entry| entry.base).collect::<Vec<_>>(), [0, 30]);
    assert_eq!(reader.start(), 61);
    assert!(matches!(reader.read(60, wait(1)), Err(ReadError::OutOfRange { start: 61, .. })));
    assert_eq!(headers(&reader, 61, 1 << 20)[0].0, 60);

    let names = fixture.names();
    assert_eq!(fixture.log.unlink_retired(before).unwrap(), 2, "the durable manifest names them");
    let (manifest, after) = fixture.checkpoint();
    assert_eq!(manifest.segments.len(), 1);
    assert_eq!(fixture.log.unlink_retired(after).unwrap(), 2, "they are pinned");
    assert_eq!(fixture.names(), names);
    let mut bytes = [0; 8];
    assert_eq!(pinned.read_bytes(30, &mut bytes, 0).unwrap(), Some(8));
    assert_eq!(bytes, 30i64.to_be_bytes());
    drop(pinned);
    assert_eq!(fixture.log.unlink_retired(after).unwrap(), 0);
    assert_eq!(fixture.names(), ["00000000000000000060.log"]);
}

#[test]
fn a_rewrite_keeps_offsets_and_gets_the_next_generation() {
    let mut fixture = Fixture::three_segments();
    let reader = fixture.log.reader();
    let old = reader.pin();
    let mut rewrite = fixture.log.begin_rewrite(&[0, 30]).unwrap();
    for base in [3, 33, 51] {
        rewrite.push(&batch(base, 3, 400, 1000 + base).to_contiguous()).unwrap();
    }
    let misplaced = rewrite.push(&batch(60, 3, 400, 0).to_contiguous()).unwrap_err();
    assert!(matches!(misplaced, PartitionError::Corrupt(_)));
    fixture.log.commit_rewrite(rewrite.finish().unwrap()).unwrap();
    assert_eq!(headers(&reader, 0, 1 << 20)[..4], [(3, 5), (33, 35), (51, 53), (60, 62)]);
    assert_eq!(headers(&reader, 40, 1)[0], (51, 53));
    assert_eq!(reader.find_timestamp(1004, false).unwrap().unwrap().base_offset, 33);
    assert_eq!(old.segments().len(), 3);
    drop(old);
    let (manifest, ticket) = fixture.checkpoint();
    assert_eq!(fixture.log.unlink_retired(ticket).unwrap(), 0);
    assert_eq!(
        fixture.names(),
        [
            "00000000000000000000.1.index",
            "00000000000000000000.1.log",
            "00000000000000000000.1.timeindex",
            "00000000000000000060.log"
        ]
    );
    let report = fixture.reopen(&manifest);
    assert_eq!(report, OpenReport::default());
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20)[..2], [(3, 5), (33, 35)]);
    assert_eq!(scrub_segments(&fixture.log.reader(), &mut |_| true).unwrap().corrupt, []);
}

#[test]
fn what_is_wanted_of_segments_is_found_and_copied() {
    let mut fixture = Fixture::three_segments();
    let reader = fixture.log.reader();
    let wanted = |base| {
        let stretches = reader
            .stretches(base, &mut |from, to| [4, 7, 29, 30, 50].iter().any(|at| (from..=to).contains(at)));
        let wanted = stretches.unwrap().into_iter().filter(|stretch| stretch.wanted);
        wanted.collect::<Vec<_>>()
    };
    let one = batch(0, 3, 400, 0).len() as u64;
    let of = |from, to, batches, max_timestamp| Stretch {
        from,
        to,
        bytes: batches * one,
        max_timestamp,
        wanted: true,
    };
    assert_eq!(wanted(0), [of(3, 8, 2, 1006), of(27, 29, 1, 1027)]);
    assert_eq!(wanted(30), [of(30, 32, 1, 1030), of(48, 50, 1, 1048)]);
    assert_eq!(wanted(31), []);
    let mut rewrite = fixture.log.begin_rewrite(&[0, 30]).unwrap();
    // A run may go on in the next segment.
    rewrite.copy_runs(&[(3, 8), (27, 32), (48, 50)]).unwrap();
    let entry = rewrite.entry();
    assert_eq!((entry.base, entry.generation, entry.bytes), (0, 1, 5 * one));
    assert_eq!((entry.last_offset, entry.max_timestamp, entry.closed), (50, 1048, true));
    fixture.log.commit_rewrite(rewrite.finish().unwrap()).unwrap();
    let kept = [(3, 5), (6, 8), (27, 29), (30, 32), (48, 50), (60, 62)];
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20)[..6], kept);
}

#[test]
fn damage_of_what_is_wanted_is_told() {
    let fixture = Fixture::three_segments();
    let one = batch(0, 3, 400, 0).len() as u64;
    let file = fixture.disk.open(&Path::new(DIR).join("00000000000000000030.log"), OpenMode::Write).unwrap();
    file.write_at(&[IoSlice::new(b"x")], one + 100).unwrap();
    let reader = fixture.log.reader();
    let damaged = reader.stretches(30, &mut |from, _| from == 33);
    assert!(matches!(damaged, Err(ReadError::Corrupt(at)) if at.position == one));
    assert_eq!(reader.stretches(30, &mut |from, _| from != 33).unwrap().len(), 3);
}

#[test]
fn a_rewrite_that_leaves_nothing_leaves_no_file() {
    let mut fixture = Fixture::three_segments();
    let rewrite = fixture.log.begin_rewrite(&[30]).unwrap();
    fixture.log.commit_rewrite(rewrite.finish().unwrap()).unwrap();
    assert_eq!(headers(&fixture.log.reader(), 28, 1 << 20)[..2], [(27, 29), (60, 62)]);
    assert!(!fixture.names().contains(&"00000000000000000030.1.log".to_owned()));
}

#[test]
fn a_rewrite_overtaken_by_a_trim_is_refused() {
    let mut fixture = Fixture::three_segments();
    let rewrite = fixture.log.begin_rewrite(&[0]).unwrap();
    fixture.log.retire_below(30);
    let error = fixture.log.commit_rewrite(rewrite.finish().unwrap()).unwrap_err();
    assert!(matches!(error, PartitionError::Segment { base: 0, .. }));
    for wrong in [&[][..], &[60], &[30, 31]] {
        assert!(matches!(fixture.log.begin_rewrite(wrong), Err(PartitionError::Segment { .. })));
    }
    let abandoned = fixture.log.begin_rewrite(&[30]).unwrap();
    abandoned.abandon().unwrap();
    assert!(!fixture.names().contains(&"00000000000000000030.1.log".to_owned()));
}

#[test]
fn after_a_failed_sync_a_segment_must_be_written_anew() {
    let mut fixture = Fixture::three_segments();
    let (checkpoint, _) = fixture.checkpoint();
    fixture.fill(120, 400);
    let dirty = fixture.log.take_dirty();
    fixture.disk.fail(Fault { operation: Operation::Sync, after: 0, kind: FaultKind::Io });
    dirty.sync(&fixture.disk).unwrap_err();
    assert!(matches!(fixture.log.manifest(), Err(PartitionError::Failed { .. })));
    let refused = fixture.log.append(&[batch(120, 3, 400, 0)], 0);
    assert!(matches!(refused, Err(PartitionError::Failed { .. })));

    let mut repair = fixture.log.begin_repair(60).unwrap();
    repair.copy_below(checkpoint.end).unwrap();
    for base in (90..117).step_by(3) {
        repair.push(&batch(base, 3, 400, 1000 + base).to_contiguous()).unwrap();
    }
    let incomplete = repair.finish().unwrap();
    assert!(matches!(fixture.log.commit_rewrite(incomplete), Err(PartitionError::Segment { .. })));

    let mut repair = fixture.log.begin_repair(60).unwrap();
    repair.copy_below(checkpoint.end).unwrap();
    for base in (90..120).step_by(3) {
        repair.push(&batch(base, 3, 400, 1000 + base).to_contiguous()).unwrap();
    }
    fixture.log.commit_rewrite(repair.finish().unwrap()).unwrap();
    fixture.fill(130, 400);
    let (manifest, _) = fixture.checkpoint();
    fixture.disk.crash();
    fixture.reopen(&manifest);
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20).len(), 44);
    assert_eq!(scrub_segments(&fixture.log.reader(), &mut |_| true).unwrap().corruptions, 0);
}

#[test]
fn a_full_disk_can_be_waited_for() {
    let mut fixture = Fixture::new();
    fixture.disk.set_capacity(Some(0));
    let error = fixture.log.append(&[batch(0, 3, 400, 0)], 0).unwrap_err();
    assert!(matches!(&error, PartitionError::Disk(error) if error.is_no_space()), "{error}");
    assert_eq!(fixture.log.reader().segments(), []);
    fixture.disk.set_capacity(None);
    fixture.fill(30, 400);
    fixture.disk.set_capacity(Some(20 << 10));
    while fixture.log.append(&[batch(fixture.log.end(), 3, 400, 0)], 0).is_ok() {}
    fixture.disk.set_capacity(None);
    fixture.fill(300, 400);
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20).len(), 100);
}

#[test]
fn a_checkpoint_between_two_attempts_on_a_full_disk_does_no_harm() {
    let mut fixture = Fixture::new();
    fixture.fill(30, 400);
    fixture.log.roll();
    // Of the new segment's first write only a part is done.
    fixture.disk.set_capacity(Some(0));
    let batches = [batch(30, 3, 4000, 0), batch(33, 3, 4000, 0)];
    let used = (1 << 40) - {
        fixture.disk.set_capacity(Some(1 << 40));
        fixture.disk.available_space(Path::new(DIR)).unwrap()
    };
    fixture.disk.set_capacity(Some(used + 4096));
    for _ in 0..2 {
        let error = fixture.log.append(&batches, 0).unwrap_err();
        assert!(matches!(&error, PartitionError::Disk(error) if error.is_no_space()), "{error}");
        let (manifest, _) = fixture.checkpoint();
        assert_eq!(manifest.end, 30);
    }
    fixture.disk.set_capacity(None);
    fixture.log.append(&batches, 0).unwrap();
    let (manifest, _) = fixture.checkpoint();
    assert_eq!(manifest.end, 36);
    assert_eq!(fixture.log.dirty_files(), 0);
    fixture.disk.crash();
    fixture.reopen(&manifest);
    assert_eq!(headers(&fixture.log.reader(), 30, 1 << 20), [(30, 32), (33, 35)]);
}

#[test]
fn a_failed_write_is_not_papered_over() {
    let mut fixture = Fixture::new();
    fixture.fill(3, 400);
    fixture.disk.fail(Fault { operation: Operation::Write, after: 0, kind: FaultKind::Io });
    assert!(matches!(fixture.log.append(&[batch(3, 3, 400, 0)], 0), Err(PartitionError::Disk(_))));
    assert!(matches!(fixture.log.append(&[batch(3, 3, 400, 0)], 0), Err(PartitionError::Failed { .. })));
    assert_eq!(headers(&fixture.log.reader(), 0, 1 << 20), [(0, 2)]);
}

#[test]
fn reads_that_would_wait_say_so() {
    let mut fixture = Fixture::three_segments();
    let (manifest, _) = fixture.checkpoint();
    fixture.reopen(&manifest);
    let reader = fixture.log.reader();
    let cached = ReadOptions { max_bytes: 1 << 20, at_least_one: true, cached_only: true };
    assert_eq!(reader.read(0, cached).unwrap_err(), ReadError::WouldBlock, "the file is not open");
    for offset in [0, 29, 31, 85] {
        let waited = reader.read(offset, wait(1 << 20)).unwrap();
        assert_eq!(reader.read(offset, cached).unwrap(), waited);
        let waited = reader.find_timestamp(1000 + offset, false);
        assert_eq!(reader.find_timestamp(1000 + offset, true), waited);
        fixture.disk.set_cached(false);
        assert_eq!(reader.read(offset, cached).unwrap_err(), ReadError::WouldBlock);
        fixture.disk.set_cached(true);
    }
}

/// Damages an index file, and expects everything to be found all the same.
fn check_damaged_index(kind: FileKind, damage: impl Fn(&SimDisk, &Path)) {
    let mut fixture = Fixture::new();
    fixture.fill(900, 400);
    fixture.log.roll();
    let (manifest, _) = fixture.checkpoint();
    let path = names::file_path(Path::new(DIR), 0, 0, kind);
    damage(&fixture.disk, &path);
    fixture.reopen(&manifest);
    let reader = fixture.log.reader();
    for offset in (0..900).rev().step_by(7) {
        let chunk = reader.read(offset, wait(1)).unwrap();
        assert_eq!(chunk.next_offset, offset / 3 * 3 + 3, "{offset}");
        let hit = reader.find_timestamp(1000 + offset, false).unwrap();
        assert_eq!(hit.map(|hit| hit.base_offset), (offset <= 897).then_some((offset + 2) / 3 * 3));
    }
    let len = fixture.disk.open(&path, OpenMode::Read).unwrap().len().unwrap();
    assert!(len > 0 && len.is_multiple_of(if kind == FileKind::OffsetIndex { 8 } else { 12 }));
}

#[test]
fn damaged_indexes_are_rebuilt() {
    let overwrite = |bytes: Vec<u8>| {
        move |disk: &SimDisk, path: &Path| {
            let file = disk.open(path, OpenMode::Write).unwrap();
            file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
        }
    };
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        check_damaged_index(kind, |_, _| {});
        check_damaged_index(kind, |disk, path| disk.remove_file(path).unwrap());
        check_damaged_index(kind, |disk, path| disk.open(path, OpenMode::Write).unwrap().set_len(0).unwrap());
        check_damaged_index(kind, |disk, path| {
            disk.open(path, OpenMode::Write).unwrap().set_len(61).unwrap()
        });
        check_damaged_index(kind, overwrite(vec![0; 600]));
        check_damaged_index(kind, overwrite(vec![0xff; 100]));
        check_damaged_index(kind, overwrite(vec![1; 333]));
    }
}

/// Flips a bit of the fifth batch of the first segment, and expects that what lies before it is read, and
/// what lies from an offset on, and that whoever wants the batch itself is told where the damage is.
fn check_damaged_batch(place_in_batch: u64, why: &str, readable_from: Offset) {
    let mut fixture = Fixture::three_segments();
    let (manifest, _) = fixture.checkpoint();
    fixture.reopen(&manifest);
    let reader = fixture.log.reader();
    let path = Path::new(DIR).join("00000000000000000000.log");
    let size = manifest.segments[0].bytes / 10;
    assert!(fixture.disk.flip_bit(&path, size * 4 + place_in_batch, 4));
    for max_bytes in [1, 3000, 1 << 20] {
        let mut offset = 0;
        while offset < 12 {
            let before = reader.read(offset, wait(max_bytes)).unwrap();
            for (_, bytes) in split_batches(&before.bytes).unwrap() {
                verify_batch(&bytes).unwrap();
            }
            offset = before.next_offset;
        }
        assert_eq!(offset, 12, "everything before the damage");
        for offset in 12..15 {
            let ReadError::Corrupt(corruption) = reader.read(offset, wait(max_bytes)).unwrap_err() else {
                panic!()
            };
            assert_eq!((&corruption.file, corruption.position), (&path, size * 4));
            assert!(corruption.why.contains(why), "{corruption}");
        }
        let behind = headers(&reader, readable_from, max_bytes);
        assert_eq!(behind.first(), Some(&(readable_from, readable_from + 2)), "everything behind it");
        assert_eq!(headers(&reader, 30, max_bytes).last(), Some(&(87, 89)), "and the other segments");
    }
}

#[test]
fn a_damaged_batch_is_reported_and_all_others_are_read() {
    check_damaged_batch(300, "CRC", 15);
    check_damaged_batch(18, "CRC", 15);
    // Where a header cannot be relied on, the next batch that the index knows is where reading goes on.
    check_damaged_batch(16, "version 2", 27);
    // The base offset lies outside the CRC.
    check_damaged_batch(7, "missing before", 27);
}

#[test]
fn a_scrub_tells_file_and_place() {
    let mut fixture = Fixture::three_segments();
    let (manifest, _) = fixture.checkpoint();
    let clean = scrub_segments(&fixture.log.reader(), &mut |_| true).unwrap();
    assert_eq!((clean.segments, clean.batches, clean.corruptions), (3, 30, 0));
    let path = Path::new(DIR).join("00000000000000000030.log");
    let size = manifest.segments[1].bytes / 10;
    assert!(fixture.disk.flip_bit(&path, size * 4 + 100, 2));
    let report = scrub_segments(&fixture.log.reader(), &mut |_| true).unwrap();
    assert_eq!(report.corruptions, 1);
    assert_eq!((&report.corrupt[0].file, report.corrupt[0].position), (&path, size * 4));
    assert!(report.corrupt[0].why.contains("CRC"), "{}", report.corrupt[0]);
    // In the base offset, which the CRC does not cover.
    assert!(fixture.disk.flip_bit(&path, size * 7 + 7, 3));
    let report = scrub_segments(&fixture.log.reader(), &mut |_| true).unwrap();
    assert!(report.corruptions >= 2);
    let mut seen = 0;
    scrub_segments(&fixture.log.reader(), &mut |_| {
        seen += 1;
        false
    })
    .unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn handles_are_bounded_except_for_unsynced_files() {
    let disk = SimDisk::new(1);
    let handles = HandleCache::new(disk.shared(), 3);
    let mut logs: Vec<PartitionLog> = (0..10)
        .map(|id| {
            let dir = PathBuf::from(format!("/shards/1/{id}"));
            PartitionLog::open(&handles, &dir, &PartitionManifest::default()).unwrap().0
        })
        .collect();
    let mut dirty = DirtyFiles::new();
    for log in &mut logs {
        log.append(&[batch(0, 3, 10, 0)], 0).unwrap();
        assert_eq!((log.dirty_files(), handles.open_files()), (1, 0));
    }
    for log in &mut logs {
        dirty.merge(log.take_dirty());
    }
    assert_eq!((dirty.len(), handles.open_files()), (10, 3));
    dirty.sync(&disk).unwrap();
    for log in &mut logs {
        assert_eq!(headers(&log.reader(), 0, 1 << 20), [(0, 2)]);
        log.append(&[batch(3, 3, 10, 0)], 0).unwrap();
        assert_eq!(headers(&log.reader(), 0, 1 << 20), [(0, 2), (3, 5)]);
    }
    assert!(handles.open_files() <= 3);
}

#[test]
fn many_files_are_synced_with_one_call() {
    let disk = SimDisk::new(1);
    let handles = HandleCache::new(disk.shared(), 3);
    let mut dirty = DirtyFiles::new();
    for id in 0..300 {
        let dir = PathBuf::from(format!("/shards/1/{id}"));
        let (mut log, _) = PartitionLog::open(&handles, &dir, &PartitionManifest::default()).unwrap();
        log.append(&[batch(0, 3, 10, 0)], 0).unwrap();
        dirty.merge(log.take_dirty());
    }
    let before = disk.operations();
    dirty.sync(&disk).unwrap();
    assert_eq!(disk.operations() - before, 1);
}

#[test]
fn a_partition_is_removed_with_everything_of_ours() {
    let mut fixture = Fixture::three_segments();
    fixture.checkpoint();
    fixture.disk.open(&Path::new(DIR).join("notes.txt"), OpenMode::Create).unwrap();
    assert_eq!(remove_partition(&fixture.handles, Path::new(DIR)).unwrap(), ["notes.txt"]);
    assert_eq!(fixture.names(), ["notes.txt"]);
    fixture.disk.remove_file(&Path::new(DIR).join("notes.txt")).unwrap();
    assert!(remove_partition(&fixture.handles, Path::new(DIR)).unwrap().is_empty());
    assert!(fixture.disk.list(Path::new(DIR)).unwrap_err().is_not_found());
    assert!(remove_partition(&fixture.handles, Path::new(DIR)).unwrap().is_empty());
}

#[test]
fn only_names_that_were_written_are_known() {
    let segment = |base, generation, kind| Name::Segment { base, generation, kind };
    assert_eq!(parse_name("00000000000000000012.log"), segment(12, 0, FileKind::Log));
    assert_eq!(parse_name("00000000000000000012.3.timeindex"), segment(12, 3, FileKind::TimeIndex));
    assert_eq!(parse_name("00000000000000000012.3.log.aside"), Name::Leftover);
    assert_eq!(parse_name("00000000000000000012.log.repair"), Name::Leftover);
    for name in [
        "12.log",
        "00000000000000000012.0.log",
        "00000000000000000012.03.log",
        "00000000000000000012.txt",
        "-0000000000000000012.log",
        "99999999999999999999.log",
        "x.aside",
        ".log",
        "",
    ] {
        assert_eq!(parse_name(name), Name::Unknown, "{name}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_head_parser_panic(bytes: Vec<u8>) {
        let _ = BatchHead::parse(&bytes);
    }
}
