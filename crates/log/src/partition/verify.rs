//! Whether a file that came from elsewhere is the segment that a manifest names.

use std::path::Path;

use super::scrub::wrong_place;
use super::types::{Corruption, ReadError, SegmentEntry};
use super::walk::{LONG_WALK_BYTES, Walk};
use crate::disk::{Disk, OpenMode};
use crate::partition::rewrite::check_crc;

/// Reads all of a segment's file and checks it: every batch's CRC, that offsets follow each other, and that length and
/// last offset are those of the entry. Memory is bounded by the longest batch.
pub fn verify_segment(disk: &dyn Disk, path: &Path, entry: &SegmentEntry) -> Result<(), ReadError> {
    let file = disk.open(path, OpenMode::Read)?;
    let corrupt = |position: u64, why: String| {
        Err(ReadError::Corrupt(Corruption { file: path.to_owned(), position, why }))
    };
    let length = file.len()?;
    if length != entry.bytes {
        return corrupt(length, format!("the file has {length} bytes, the manifest says {}", entry.bytes));
    }
    let mut walk = Walk::new(&*file, path, 0, entry.bytes, LONG_WALK_BYTES);
    let mut next = entry.base;
    while let Some((position, head)) = walk.next()? {
        if let Some(why) = wrong_place(&head, next, entry) {
            return corrupt(position, why.to_owned());
        }
        if let Err(why) = check_crc(walk.batch(position, &head)?) {
            return corrupt(position, why);
        }
        next = head.last_offset.saturating_add(1);
    }
    if next != entry.last_offset.saturating_add(1) {
        let why = format!("the segment ends at offset {}, the manifest says {}", next - 1, entry.last_offset);
        return corrupt(entry.bytes, why);
    }
    Ok(())
}
