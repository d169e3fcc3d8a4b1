//! Reading everything to see whether it is still what was written.

use super::head::BatchHead;
use super::names::FileKind;
use super::reader::PartitionReader;
use super::rewrite::check_crc;
use super::segment::Segment;
use super::types::{Corruption, ReadError, SegmentEntry};
use super::walk::{LONG_WALK_BYTES, Walk};
use crate::disk::DiskError;

/// Corruptions that are listed; what is beyond is counted.
const LISTED_MAX: usize = 1000;

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Segments read.
    pub segments: usize,
    /// Batches read.
    pub batches: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is corrupt: the first thousand.
    pub corrupt: Vec<Corruption>,
    /// How much is corrupt in all.
    pub corruptions: u64,
}

/// Reads every batch of the log's segments of this moment: CRCs, offsets without holes where there
/// must be none, ends as the manifest has them. `done` is called after each segment, so that the
/// caller can pace it; it goes on while that returns true.
pub fn scrub_segments(
    reader: &PartitionReader,
    done: &mut dyn FnMut(&SegmentEntry) -> bool,
) -> Result<ScrubReport, DiskError> {
    let mut report = ScrubReport::default();
    for segment in reader.range_now().segments.iter() {
        let entry = segment.entry();
        match scrub_segment(reader, segment, &entry, &mut report) {
            Ok(()) | Err(ReadError::WouldBlock | ReadError::OutOfRange { .. }) => {}
            Err(ReadError::Corrupt(corruption)) => report.add(corruption),
            Err(ReadError::Disk(error)) => return Err(error),
        }
        report.segments += 1;
        if !done(&entry) {
            break;
        }
    }
    Ok(report)
}

impl ScrubReport {
    fn add(&mut self, corruption: Corruption) {
        self.corruptions += 1;
        if self.corrupt.len() < LISTED_MAX {
            self.corrupt.push(corruption);
        }
    }
}

fn scrub_segment(
    reader: &PartitionReader,
    segment: &Segment,
    entry: &SegmentEntry,
    report: &mut ScrubReport,
) -> Result<(), ReadError> {
    let (file, path) = (segment.log_file(&reader.shared.handles, false)?, segment.path(FileKind::Log));
    let mut walk = Walk::new(&*file, &path, 0, entry.bytes, LONG_WALK_BYTES);
    let mut next = entry.base;
    while let Some((position, head)) = walk.next()? {
        report.batches += 1;
        report.bytes += head.bytes as u64;
        let crc = check_crc(walk.batch(position, &head)?).err();
        let found = crc.or_else(|| wrong_place(&head, next, entry).map(str::to_owned));
        if let Some(why) = found {
            report.add(Corruption { file: path.clone(), position, why });
        }
        next = head.last_offset + 1;
    }
    if next != entry.last_offset + 1 {
        let why = format!("the segment ends at offset {}, not {}", next - 1, entry.last_offset);
        report.add(Corruption { file: path.clone(), position: entry.bytes, why });
    }
    Ok(())
}

pub(super) fn wrong_place(head: &BatchHead, next: i64, entry: &SegmentEntry) -> Option<&'static str> {
    if head.base_offset < next {
        Some("the batch's offset does not rise")
    } else if entry.generation == 0 && head.base_offset > next {
        Some("records are missing before the batch")
    } else {
        None
    }
}
