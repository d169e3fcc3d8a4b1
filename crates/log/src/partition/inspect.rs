//! Looking at the files of a partition that nobody has open, changing nothing and trusting nothing.

use std::path::{Path, PathBuf};

use weir_model::Offset;
use weir_model::batch::BatchHeader;

use super::index::{OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry};
use super::index::{decode_offset_entry, decode_time_entry};
use super::names::{FileKind, Name, file_path, parse_name};
use super::rewrite::check_crc;
use super::types::ReadError;
use super::walk::{LONG_WALK_BYTES, Walk};
use crate::disk::{Disk, DiskError, OpenMode};

/// Longest index that is looked at: one of a full segment is not longer.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// One batch as it lies in a segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFound {
    /// Where it begins.
    pub position: u64,
    /// Its header.
    pub header: BatchHeader,
    /// What is wrong with it, if its CRC does not fit.
    pub problem: Option<String>,
}

/// What a segment file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentCheck {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Bytes from its start that are whole batches.
    pub whole_bytes: u64,
    /// Number of batches.
    pub batches: u64,
    /// Offset of the first record, if there is one.
    pub first_offset: Option<Offset>,
    /// Offset of the last record, if there is one.
    pub last_offset: Option<Offset>,
    /// What is wrong, and where. Behind the length that the last checkpoint gave it, a file may end
    /// anyhow: that part is cut off and brought again by the journal.
    pub problems: Vec<(u64, String)>,
    /// What is wrong with its indexes; they are rebuilt when they are used.
    pub index_problems: Vec<String>,
}

/// Reads every segment file of a partition's directory, handing over every batch and, after the
/// last of each file, what is to be said about the file.
pub fn inspect_partition(
    disk: &dyn Disk,
    dir: &Path,
    batch: &mut dyn FnMut(&Path, &BatchFound),
    segment: &mut dyn FnMut(SegmentCheck),
) -> Result<(), DiskError> {
    for entry in disk.list(dir)? {
        if let Name::Segment { base, generation, kind: FileKind::Log } = parse_name(&entry.name) {
            segment(inspect_segment(disk, dir, base, generation, batch)?);
        }
    }
    Ok(())
}

/// Whether a directory holds files of a partition.
pub fn is_partition_dir(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    let is_segment = |name: &str| matches!(parse_name(name), Name::Segment { .. });
    Ok(disk.list(dir)?.iter().any(|entry| !entry.is_dir && is_segment(&entry.name)))
}

fn inspect_segment(
    disk: &dyn Disk,
    dir: &Path,
    base: Offset,
    generation: u32,
    batch: &mut dyn FnMut(&Path, &BatchFound),
) -> Result<SegmentCheck, DiskError> {
    let path = file_path(dir, base, generation, FileKind::Log);
    let file = disk.open(&path, OpenMode::Read)?;
    let bytes = file.len()?;
    let mut indexes = Indexes::load(disk, dir, base, generation)?;
    let mut check = SegmentCheck {
        path: path.clone(),
        bytes,
        whole_bytes: 0,
        batches: 0,
        first_offset: None,
        last_offset: None,
        problems: Vec::new(),
        index_problems: Vec::new(),
    };
    let mut walk = Walk::new(&*file, &path, 0, bytes, LONG_WALK_BYTES);
    let mut next = base;
    loop {
        let (position, head) = match walk.next() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(ReadError::Disk(error)) => return Err(error),
            Err(ReadError::Corrupt(corruption)) => {
                check.problems.push((corruption.position, corruption.why));
                break;
            }
            Err(ReadError::WouldBlock | ReadError::OutOfRange { .. }) => break,
        };
        let content = match walk.batch(position, &head) {
            Ok(content) => content,
            Err(ReadError::Disk(error)) => return Err(error),
            Err(_) => break,
        };
        let problem = check_crc(content).err();
        if let Ok(header) = BatchHeader::parse(content) {
            batch(&path, &BatchFound { position, header, problem: problem.clone() });
        }
        check.problems.extend(problem.map(|why| (position, why)));
        if head.base_offset < next {
            check.problems.push((position, format!("offset {} does not rise", head.base_offset)));
        } else if head.base_offset > next && generation == 0 {
            check
                .problems
                .push((position, format!("offsets {next} to {} are missing", head.base_offset - 1)));
        }
        indexes.step(position, head.last_offset - base, head.max_timestamp);
        check.batches += 1;
        check.whole_bytes = position + head.bytes as u64;
        check.first_offset = check.first_offset.or(Some(head.base_offset));
        check.last_offset = Some(head.last_offset);
        next = head.last_offset.saturating_add(1);
    }
    check.index_problems = indexes.problems();
    Ok(check)
}

/// The index files of a segment, compared with its batches one by one.
#[derive(Default)]
struct Indexes {
    offsets: Vec<OffsetEntry>,
    next_offset_entry: usize,
    times: Vec<TimeEntry>,
    next_time_entry: usize,
    max_timestamp: i64,
    problems: Vec<String>,
}

impl Indexes {
    fn load(disk: &dyn Disk, dir: &Path, base: Offset, generation: u32) -> Result<Indexes, DiskError> {
        let mut indexes = Indexes { max_timestamp: -1, ..Indexes::default() };
        let mut read = |kind, entry_bytes: usize| {
            let path = file_path(dir, base, generation, kind);
            let file = match disk.open(&path, OpenMode::Read) {
                Err(error) if error.is_not_found() => return Ok(Vec::new()),
                file => file?,
            };
            let len = file.len()?;
            if len > INDEX_BYTES_MAX || !len.is_multiple_of(entry_bytes as u64) {
                indexes.problems.push(format!("{} has an impossible length of {len}", path.display()));
                return Ok(Vec::new());
            }
            let mut bytes = vec![0; len as usize];
            let have = file.read_at(&mut bytes, 0)?;
            bytes.truncate(have);
            Ok::<_, DiskError>(bytes)
        };
        let offsets = read(FileKind::OffsetIndex, OFFSET_ENTRY_BYTES)?;
        let times = read(FileKind::TimeIndex, TIME_ENTRY_BYTES)?;
        indexes.offsets = offsets.as_chunks().0.iter().map(decode_offset_entry).collect();
        indexes.times = times.as_chunks().0.iter().map(decode_time_entry).collect();
        Ok(indexes)
    }

    /// Goes past the entries of one batch.
    fn step(&mut self, position: u64, relative: i64, max_timestamp: i64) {
        self.max_timestamp = self.max_timestamp.max(max_timestamp);
        let offset = |entry: &&OffsetEntry| {
            u64::from(entry.position) == position && i64::from(entry.relative) == relative
        };
        if self.offsets.get(self.next_offset_entry).filter(offset).is_some() {
            self.next_offset_entry += 1;
        }
        let time = |entry: &&TimeEntry| {
            (i64::from(entry.relative), entry.timestamp) == (relative, self.max_timestamp)
                && max_timestamp == self.max_timestamp
        };
        if self.times.get(self.next_time_entry).filter(time).is_some() {
            self.next_time_entry += 1;
        }
    }

    fn problems(mut self) -> Vec<String> {
        for (kind, seen, all) in [
            ("offset", self.next_offset_entry, self.offsets.len()),
            ("time", self.next_time_entry, self.times.len()),
        ] {
            if seen < all {
                self.problems.push(format!("entry {seen} of {all} of the {kind} index fits no batch"));
            }
        }
        self.problems
    }
}
