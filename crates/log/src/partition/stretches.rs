//! What of a segment is still wanted, as stretches of whole batches.

use weir_model::{Offset, TimestampMs};

use super::names::FileKind;
use super::reader::PartitionReader;
use super::rewrite::check_crc;
use super::types::{Corruption, ReadError};
use super::walk::{LONG_WALK_BYTES, Walk};

/// Stretches of one segment, of 40 bytes each in memory. What lies behind so many is wanted as a whole.
const STRETCHES_MAX: usize = 1 << 20;

/// Batches that follow each other in a segment and are all wanted, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Offset of the first record.
    pub from: Offset,
    /// Offset of the last record.
    pub to: Offset,
    /// Bytes of the batches.
    pub bytes: u64,
    /// Largest timestamp in them, or -1.
    pub max_timestamp: TimestampMs,
    /// Whether they are wanted.
    pub wanted: bool,
}

impl PartitionReader {
    /// Walks through the closed segment that begins at `base` and asks of every batch, by its first and last offset,
    /// whether it is wanted. Of those that are the CRC is checked. Nothing if there is no such segment any more.
    pub fn stretches(
        &self,
        base: Offset,
        wanted: &mut dyn FnMut(Offset, Offset) -> bool,
    ) -> Result<Vec<Stretch>, ReadError> {
        let range = self.range_now();
        let Some(segment) = range.segments.iter().find(|segment| segment.base == base) else {
            return Ok(Vec::new());
        };
        let (file, path) = (segment.log_file(&self.shared.handles, false)?, segment.path(FileKind::Log));
        let mut walk = Walk::new(&*file, &path, 0, segment.entry().bytes, LONG_WALK_BYTES);
        let mut stretches: Vec<Stretch> = Vec::new();
        while let Some((position, head)) = walk.next()? {
            let wanted = stretches.len() >= STRETCHES_MAX || wanted(head.base_offset, head.last_offset);
            if wanted && let Err(why) = check_crc(walk.batch(position, &head)?) {
                return Err(ReadError::Corrupt(Corruption { file: path, position, why }));
            }
            match stretches.last_mut().filter(|last| last.wanted == wanted) {
                Some(last) => {
                    last.to = head.last_offset;
                    last.bytes += head.bytes as u64;
                    last.max_timestamp = last.max_timestamp.max(head.max_timestamp);
                }
                None => stretches.push(Stretch {
                    from: head.base_offset,
                    to: head.last_offset,
                    bytes: head.bytes as u64,
                    max_timestamp: head.max_timestamp,
                    wanted,
                }),
            }
        }
        Ok(stretches)
    }
}
