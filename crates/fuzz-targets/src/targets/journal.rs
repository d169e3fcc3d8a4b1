//! A journal of up to two files of any bytes. Opening it is refused, or what it hands over is what it hands over
//! the next time, after a crash, with what was appended behind it.
//!
//! The first byte says where the second file begins, and whether the CRCs of group headers and of their first
//! records are made to fit: a mutation would otherwise hardly ever get past them.

use bytes::Bytes;
use std::io::IoSlice;
use std::path::Path;
use weir_log::disk::{Disk, OpenMode, SimDisk};
use weir_log::journal::{Journal, JournalError, JournalOptions, JournalRecord, RecordKind, RecoveredRecord};
use weir_log::journal::survey_journal;
use weir_model::ShardId;

const DIR: &str = "/journal";
const FILE_BYTES: usize = 32 << 10;
const GROUP_ALIGNMENT: usize = 4096;
/// Bytes after which mutations of a file are cut off.
const FILE_BYTES_MAX: usize = 2 * FILE_BYTES;

fn options() -> JournalOptions {
    JournalOptions {
        file_bytes: FILE_BYTES as u64,
        group_bytes_max: 8 << 10,
        journal_bytes_max: 1 << 20,
        spare_files_max: 1,
        identity: 9,
        accept_loss_from: None,
        must_exist: false,
    }
}

pub fn run(data: &[u8]) {
    let Some((&how, content)) = data.split_first() else { return };
    let disk = SimDisk::new(0);
    disk.create_dir_all(Path::new(DIR)).expect("a fresh disk takes a directory");
    let (first, second) = content.split_at(content.len().min(usize::from(how >> 1) * GROUP_ALIGNMENT));
    for (number, content) in [(1, first), (2, second)] {
        let mut content = content[..content.len().min(FILE_BYTES_MAX)].to_vec();
        if how & 1 == 1 {
            make_crcs_fit(&mut content);
        }
        let path = Path::new(DIR).join(format!("{number:020}.journal"));
        let file = disk.open(&path, OpenMode::CreateNew).expect("a fresh disk takes a file");
        file.write_at(&[IoSlice::new(&content)], 0).expect("a fresh disk takes bytes");
    }
    disk.sync_filesystem(Path::new(DIR)).expect("a fresh disk syncs");
    let mut surveyed = Vec::new();
    let survey = survey_journal(&disk, Path::new(DIR), &mut |record| surveyed.push(record));
    let Ok((mut journal, handed_over)) = open(&disk) else { return };
    assert!(survey.is_ok() && surveyed == handed_over, "looking at it shows what opening it hands over");
    let chunks = [Bytes::from_static(b"one more")];
    let record = JournalRecord { shard: ShardId(1), kind: RecordKind(1), chunks: &chunks };
    // Kept records of the input may leave no room in a file, or the positions no room above.
    if journal.append(&[record]).and_then(|_| journal.sync()).is_err() {
        return;
    }
    disk.crash();
    let (_, again) = open(&disk).expect("what was opened and synced opens again");
    let new = |records: &[RecoveredRecord]| {
        records.iter().filter(|record| !record.repeated).cloned().collect::<Vec<_>>()
    };
    let (before, after) = (new(&handed_over), new(&again));
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(after[before.len()].payload, b"one more"[..]);
}

fn open(disk: &SimDisk) -> Result<(Journal, Vec<RecoveredRecord>), JournalError> {
    let mut records = Vec::new();
    Journal::open(disk.shared(), Path::new(DIR), options(), &mut |record| records.push(record))
        .map(|(journal, _)| (journal, records))
}

fn make_crcs_fit(content: &mut [u8]) {
    for group in content.chunks_mut(GROUP_ALIGNMENT).filter(|group| group.starts_with(b"WJG")) {
        if let Some((header, record)) = group.split_at_mut_checked(64) {
            if let Some(record) = record.first_chunk_mut::<20>() {
                let position = u64::from_le_bytes(header[24..32].try_into().unwrap_or_default()) + 64;
                let crc = crc32c::crc32c_append(crc32c::crc32c(&record[..16]), &position.to_le_bytes());
                record[16..].copy_from_slice(&crc.to_le_bytes());
                if header[52..56] == [1, 0, 0, 0] {
                    header[56..60].copy_from_slice(&crc32c::crc32c(record).to_le_bytes());
                }
            }
            let crc = crc32c::crc32c(&header[8..]);
            header[4..8].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (records, bytes) in [(0, 0), (1, 10), (3, 100), (12, 6000)] {
        let disk = SimDisk::new(0);
        let (mut journal, _) = open(&disk).expect("an empty journal opens");
        for index in 0..records {
            let chunks = [Bytes::from(vec![index as u8; bytes])];
            let kind = RecordKind(if index % 3 == 1 && bytes < 1000 { 0x81 } else { 1 });
            let record = JournalRecord { shard: ShardId(index % 2), kind, chunks: &chunks };
            journal.append(&[record]).expect("a small record is taken");
        }
        journal.seal().expect("a simulated disk syncs");
        let mut files = Vec::new();
        for entry in disk.list(Path::new(DIR)).expect("the journal has a directory") {
            let file = disk.open(&Path::new(DIR).join(entry.name), OpenMode::Read).expect("it was listed");
            let mut content = vec![0; FILE_BYTES];
            file.read_at(&mut content, 0).expect("a simulated disk reads");
            files.push(content);
        }
        files.truncate(2);
        for fit in [0, 1] {
            let split = (FILE_BYTES / GROUP_ALIGNMENT) as u8;
            seeds.push([vec![split << 1 | fit], files.concat()].concat());
        }
    }
    seeds
}
