//! The journal's edges, one by one. Crashes are in `tests/journal_crashes.rs`.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::ShardId;

use parking_lot::Mutex;

use super::format::{GroupHeader, RecordHeader};
use super::*;
use crate::disk::{Fault, FaultKind, Operation, SimDisk};

const DIR: &str = "/journal";

fn options() -> JournalOptions {
    JournalOptions {
        file_bytes: 32 << 10,
        group_bytes_max: 8 << 10,
        journal_bytes_max: 128 << 10,
        spare_files_max: 1,
        identity: 7,
        accept_loss_from: None,
        must_exist: false,
    }
}

fn open(disk: &SimDisk) -> (Journal, Vec<RecoveredRecord>, RecoveryReport) {
    let mut recovered = Vec::new();
    let (journal, report) =
        Journal::open(disk.shared(), Path::new(DIR), options(), &mut |record| recovered.push(record))
            .unwrap();
    (journal, recovered, report)
}

fn append(journal: &mut Journal, kind: u8, payload: &[u8]) -> Result<Position, JournalError> {
    let chunks = [Bytes::copy_from_slice(payload)];
    let record = JournalRecord { shard: ShardId(1), kind: RecordKind(kind), chunks: &chunks };
    journal.append(&[record]).map(|positions| positions[0])
}

fn path_of(number: u64) -> PathBuf {
    Path::new(DIR).join(file_name(number))
}

#[test]
fn records_come_back_in_order_with_their_positions() {
    let disk = SimDisk::new(1);
    let (mut journal, recovered, report) = open(&disk);
    assert!(recovered.is_empty() && report.files == 0);
    let positions: Vec<Position> = (0..20u8).map(|i| append(&mut journal, 1, &[i; 3000]).unwrap()).collect();
    assert_eq!(journal.sync().unwrap(), journal.end());
    assert!(journal.files().len() > 1);
    disk.crash();
    let (journal, recovered, report) = open(&disk);
    assert_eq!(recovered.iter().map(|r| r.position).collect::<Vec<_>>(), positions);
    assert!(recovered.iter().enumerate().all(|(i, r)| r.payload == vec![i as u8; 3000]));
    assert_eq!((report.records, report.cut), (20, None));
    assert_eq!(journal.read(positions[13]).unwrap(), recovered[13]);
    assert!(matches!(journal.read(Position(positions[13].0 + 1)), Err(JournalError::Unreadable { .. })));
}

#[test]
fn records_of_one_append_share_a_group_and_large_ones_are_spread() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let chunks: Vec<[Bytes; 1]> = (0..10u8).map(|i| [vec![i; 2000].into()]).collect();
    let records: Vec<JournalRecord<'_>> = chunks
        .iter()
        .map(|chunks| JournalRecord { shard: ShardId(2), kind: RecordKind(1), chunks })
        .collect();
    journal.append(&records).unwrap();
    journal.seal().unwrap();
    let survey = survey_journal(&disk, Path::new(DIR), &mut |_| {}).unwrap();
    let groups: Vec<u32> = survey.groups.iter().map(|group| group.records).collect();
    assert_eq!(groups, [0, 4, 4, 2, 0]);
    assert_eq!((survey.end, survey.known_durable.0), (journal.end(), journal.end().0 - 4096));
}

#[test]
fn a_full_journal_says_so_and_goes_on_when_files_are_released() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let mut last = Position(0);
    let full = loop {
        match append(&mut journal, 1, &[1; 8000]) {
            Ok(position) => last = position,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, JournalError::Full { used_bytes: 131_072, bytes_max: 131_072 }), "{full}");
    assert!(journal.pressure().is_high());
    journal.seal().unwrap();
    journal.release_below(last).unwrap();
    assert!(!journal.pressure().is_high());
    assert!(append(&mut journal, 1, b"goes on").unwrap() > last);
    assert_eq!(journal.read(last).unwrap().payload, [1; 8000][..]);
    assert!(matches!(journal.read(Position(4096 + 64)), Err(JournalError::Released(_))));
    let names = disk.list(Path::new(DIR)).unwrap().len();
    assert!(names <= journal.files().len() + 1, "{names} files, one of them spare");
}

#[test]
fn what_is_not_durable_is_not_released() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    for _ in 0..4 {
        append(&mut journal, 1, &[1; 8000]).unwrap();
    }
    assert_eq!(journal.files().len(), 2);
    journal.release_below(journal.end()).unwrap();
    assert_eq!(journal.files().len(), 2, "the second file's head is not durable");
    journal.sync().unwrap();
    journal.release_below(journal.end()).unwrap();
    assert_eq!(journal.files().len(), 1);
}

#[test]
fn kept_records_outlive_their_file() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    append(&mut journal, 0x80, b"first vote").unwrap();
    append(&mut journal, 0x81, b"gone").unwrap();
    append(&mut journal, 0x80, b"last vote").unwrap();
    append(&mut journal, 0x81, b"").unwrap();
    for _ in 0..9 {
        append(&mut journal, 1, &[1; 8000]).unwrap();
    }
    journal.sync().unwrap();
    journal.release_below(journal.durable()).unwrap();
    disk.crash();
    let (_, recovered, _) = open(&disk);
    let kept: Vec<_> = recovered.iter().filter(|r| r.kind.is_kept()).collect();
    assert!(!kept.is_empty());
    assert!(kept.iter().all(|r| r.repeated && r.payload == b"last vote"[..]));
}

#[test]
fn limits_are_named_errors() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let max = 8192 - 64 - 20;
    append(&mut journal, 1, &vec![0; max]).unwrap();
    let refused = append(&mut journal, 1, &vec![0; max + 1]).unwrap_err();
    assert_eq!(refused, JournalError::RecordTooLarge { bytes: max + 1, bytes_max: max });
    assert!(matches!(append(&mut journal, 0x80, &[0; 5000]), Err(JournalError::KeptTooLarge { .. })));
    let chunks = [];
    let own = JournalRecord { shard: ShardId(u32::MAX), kind: RecordKind(1), chunks: &chunks };
    assert!(matches!(journal.append(&[own]), Err(JournalError::Options(_))));
    let wrong = JournalOptions { file_bytes: 5000, ..options() };
    let opened = Journal::open(disk.shared(), Path::new(DIR), wrong, &mut |_| {});
    assert!(matches!(opened, Err(JournalError::Options(_))));
}

#[test]
fn another_data_directorys_journal_is_refused() {
    let disk = SimDisk::new(1);
    drop(open(&disk));
    let other = JournalOptions { identity: 8, ..options() };
    let error = Journal::open(disk.shared(), Path::new(DIR), other, &mut |_| {}).unwrap_err();
    assert!(matches!(error, JournalError::Foreign { found: 7, expected: 8, .. }), "{error}");
}

#[test]
fn a_newer_format_is_refused() {
    let disk = SimDisk::new(1);
    drop(open(&disk));
    let file = disk.open(&path_of(1), OpenMode::Write).unwrap();
    file.write_at(&[std::io::IoSlice::new(b"WJG\x02")], 0).unwrap();
    let error = Journal::open(disk.shared(), Path::new(DIR), options(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, JournalError::NewerFormat { version: 2, .. }), "{error}");
}

#[test]
fn opening_writes_down_that_what_it_handed_over_is_durable() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let position = append(&mut journal, 1, b"survives").unwrap();
    disk.kill_process();
    let (_, recovered, report) = open(&disk);
    assert_eq!((recovered[0].position, report.bytes_rewritten), (position, 4096));
    disk.crash();
    assert!(disk.flip_bit(&path_of(1), position.0 + 21, 0));
    let error = Journal::open(disk.shared(), Path::new(DIR), options(), &mut |_| {}).unwrap_err();
    let JournalError::Corrupt { lost, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (lost[0].from, lost[0].to, &lost[0].shards[..]),
        (Position(4096), Position(8192), &[ShardId(1)][..])
    );
    assert!(error.to_string().contains("00000000000000000001.journal at byte 4096"), "{error}");
}

#[test]
fn a_disk_without_space_for_the_next_file_can_be_retried() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    disk.set_capacity(Some(40 << 10));
    let error = loop {
        if let Err(error) = append(&mut journal, 1, &[1; 8000]) {
            break error;
        }
    };
    assert!(matches!(&error, JournalError::Disk(error) if error.is_no_space()), "{error}");
    disk.set_capacity(None);
    append(&mut journal, 1, &[2; 8000]).unwrap();
    journal.sync().unwrap();
}

#[test]
fn a_failed_write_ends_it() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    disk.fail(Fault { operation: Operation::Write, after: 0, kind: FaultKind::Io });
    assert!(matches!(append(&mut journal, 1, b"x"), Err(JournalError::Poisoned(_))));
    assert!(matches!(append(&mut journal, 1, b"x"), Err(JournalError::Poisoned(_))));
    assert!(matches!(journal.sync(), Err(JournalError::Poisoned(_))));
}

#[test]
fn a_file_whose_new_name_may_be_lost_is_not_written_to() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (mut journal, ..) = open(&disk);
        let mut last = Position(0);
        while journal.files().len() < 2 {
            last = append(&mut journal, 1, &[1; 3000]).unwrap();
        }
        journal.sync().unwrap();
        // The sync of the group that says that the file is not needed is good, that of its name not.
        disk.fail(Fault { operation: Operation::Sync, after: 1, kind: FaultKind::Io });
        journal.release_below(last).unwrap_err();
        let mut synced = Vec::new();
        while synced.len() < 10
            && let Ok(position) = append(&mut journal, 1, &[2; 3000])
            && journal.sync().is_ok()
        {
            synced.push(position);
        }
        drop(journal);
        disk.crash();
        let (_, recovered, _) = open(&disk);
        let there: Vec<Position> = recovered.iter().map(|record| record.position).collect();
        assert!(synced.iter().all(|position| there.contains(position)), "seed {seed}");
    }
}

/// A file during whose first read something happens.
struct Interrupted {
    file: Arc<dyn File>,
    by: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl File for Interrupted {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<usize, DiskError> {
        if let Some(interrupt) = self.by.lock().take() {
            interrupt();
        }
        self.file.read_at(buffer, position)
    }
    fn try_read_cached(&self, buffer: &mut [u8], position: u64) -> Result<Option<usize>, DiskError> {
        self.file.try_read_cached(buffer, position)
    }
    fn write_at(&self, slices: &[std::io::IoSlice<'_>], position: u64) -> Result<(), DiskError> {
        self.file.write_at(slices, position)
    }
    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }
    fn sync_data(&self) -> Result<(), DiskError> {
        self.file.sync_data()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }
}

#[test]
fn a_record_that_is_written_over_while_it_is_read_is_not_mistaken_for_another() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let old = append(&mut journal, 1, &[1; 3000]).unwrap();
    let reader = JournalReader::default();
    let readers = reader.clone();
    let interrupt = move || {
        let last = loop {
            let last = append(&mut journal, 1, &[2; 3000]).unwrap();
            if journal.files().len() == 2 {
                break last;
            }
        };
        journal.sync().unwrap();
        journal.release_below(last).unwrap();
        readers.remove_below(journal.files()[0].base.0);
        // Fills the second file and half of the first one, which is the third now.
        for _ in 0..10 {
            append(&mut journal, 1, &[3; 3000]).unwrap();
        }
        assert_eq!(journal.files()[1].number, 3);
    };
    let path = path_of(1);
    let file: Arc<dyn File> = Arc::new(Interrupted {
        file: disk.open(&path, OpenMode::Read).unwrap(),
        by: Mutex::new(Some(Box::new(interrupt))),
    });
    reader.add(Arc::new(ReadableFile { path, base: 0, capacity: 32 << 10, file }));
    assert_eq!(reader.read(old), Err(JournalError::Released(old)));
}

#[test]
fn damage_to_what_is_not_needed_any_more_stops_nothing() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let mut last = Position(0);
    while journal.files().len() < 3 {
        last = append(&mut journal, 1, &[1; 3000]).unwrap();
    }
    journal.sync().unwrap();
    disk.fail(Fault { operation: Operation::Name, after: 0, kind: FaultKind::Io });
    journal.release_below(last).unwrap_err();
    drop(journal);
    disk.crash();
    assert!(disk.flip_bit(&path_of(2), 4096 + 100, 1));
    let (journal, recovered, report) = open(&disk);
    assert_eq!((recovered.len(), recovered[0].position), (1, last));
    assert_eq!((report.cut, journal.files().len()), (None, 1));
}

#[test]
fn spares_are_made_ahead_and_used() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    journal.prepare_spare().unwrap();
    journal.prepare_spare().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), 2);
    for _ in 0..4 {
        append(&mut journal, 1, &[1; 8000]).unwrap();
    }
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), 2);
    let files = journal.files();
    assert_eq!((files[1].number, files[1].base), (2, files[0].end));
}

#[test]
fn a_spare_that_is_made_beside_the_journal_is_used_next_or_given_a_number_behind() {
    let disk = SimDisk::new(1);
    let options = JournalOptions { journal_bytes_max: 1 << 20, ..options() };
    let open = |recovered: &mut usize| {
        let count = &mut |_| *recovered += 1;
        Journal::open(disk.shared(), Path::new(DIR), options, count).unwrap().0
    };
    let mut journal = open(&mut 0);
    let number_in_use = |journal: &super::Journal| journal.files().last().map(|file| file.number);
    let in_time = journal.order_spare().expect("there is none");
    assert!(journal.order_spare().is_none(), "one is being made");
    let mut pauses = 0;
    let made = in_time.make(&mut || pauses += 1);
    assert!(pauses > 0);
    journal.spare_made(&in_time, made).unwrap();
    for _ in 0..4 {
        append(&mut journal, 1, &[1; 8000]).unwrap();
    }
    assert_eq!(number_in_use(&journal), Some(2));

    // The journal could not wait for the next one.
    let late = journal.order_spare().expect("there is none");
    for _ in 0..4 {
        append(&mut journal, 1, &[2; 8000]).unwrap();
    }
    assert_eq!(number_in_use(&journal), Some(4));
    let made = late.make(&mut || {});
    journal.spare_made(&late, made).unwrap();
    for _ in 0..4 {
        append(&mut journal, 1, &[3; 8000]).unwrap();
    }
    assert_eq!(number_in_use(&journal), Some(5));

    // One that could not be made leaves no trace.
    let failing = journal.order_spare().expect("there is none");
    disk.fail(Fault { operation: Operation::Write, after: 0, kind: FaultKind::NoSpace });
    let made = failing.make(&mut || {});
    assert!(matches!(journal.spare_made(&failing, made), Err(JournalError::Disk(_))));
    disk.heal();
    append(&mut journal, 1, &[4; 8000]).unwrap();
    journal.sync().unwrap();
    drop(journal);
    disk.crash();
    let mut recovered = 0;
    open(&mut recovered);
    assert_eq!(recovered, 13);
}

#[test]
fn released_files_are_kept_within_what_the_journal_may_take() {
    let disk = SimDisk::new(1);
    let options = JournalOptions { spare_files_max: 100, ..options() };
    let (mut journal, _) = Journal::open(disk.shared(), Path::new(DIR), options, &mut |_| {}).unwrap();
    for _ in 0..40 {
        append(&mut journal, 1, &[1; 8000]).unwrap();
        journal.sync().unwrap();
        if journal.files().len() == 3 {
            journal.release_below(journal.end()).unwrap();
            let files = disk.list(Path::new(DIR)).unwrap();
            assert!(files.len() as u64 * options.file_bytes <= options.journal_bytes_max, "{files:?}");
            assert!(files.len() >= 3, "those that were released are there to be used again: {files:?}");
        }
    }
}

#[test]
fn spares_are_given_up_where_their_space_is_needed() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    journal.prepare_spare().unwrap();
    journal.remove_spares().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), 1);
    for _ in 0..4 {
        append(&mut journal, 1, &[1; 8000]).unwrap();
    }
    journal.sync().unwrap();
    drop(journal);
    assert_eq!(open(&disk).1.len(), 4);
}

#[test]
fn a_journal_that_must_exist_is_not_begun_anew() {
    let disk = SimDisk::new(1);
    let expecting = JournalOptions { must_exist: true, ..options() };
    let gone = || Journal::open(disk.shared(), Path::new(DIR), expecting, &mut |_| {}).err();
    assert_eq!(gone(), Some(JournalError::Gone(Path::new(DIR).to_owned())));
    // Nor is something written over that may be a journal to somebody else.
    let file = disk.open(&Path::new(DIR).join("00000000000000000001.journal"), OpenMode::CreateNew).unwrap();
    file.write_at(&[std::io::IoSlice::new(&[0x5a; 32 << 10])], 0).unwrap();
    assert_eq!(gone(), Some(JournalError::Gone(Path::new(DIR).to_owned())));
    let mut first = [0; 4096];
    file.read_at(&mut first, 0).unwrap();
    assert_eq!(first, [0x5a; 4096]);
    open(&disk);
    assert_eq!(gone(), None);
}

#[test]
fn readers_read_beside_the_writer() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk);
    let reader = Arc::new(journal.reader());
    let position = append(&mut journal, 3, &[9; 7000]).unwrap();
    let other = Arc::clone(&reader);
    let read = std::thread::spawn(move || other.read(position)).join().unwrap().unwrap();
    assert_eq!((read.kind, read.payload), (RecordKind(3), vec![9; 7000].into()));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_parsers_panic(bytes: Vec<u8>, position: u64) {
        if let Some(header) = GroupHeader::decode(&bytes) {
            let _ = super::format::check_group(&header, &bytes);
        }
        let _ = RecordHeader::decode(&bytes, position);
    }
}
