//! Reading single records by position, from any thread, beside the one that writes.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::format::{GROUP_BYTES_LIMIT, RECORD_HEADER_BYTES, RecordHeader};
use super::types::{JournalError, Position, RecordKind, RecoveredRecord};
use crate::disk::File;

/// Bytes read first, in the hope that the record is no longer.
const FIRST_READ_BYTES: u64 = 4096;

/// A file that can be read.
#[derive(Debug)]
pub(super) struct ReadableFile {
    pub path: PathBuf,
    pub base: u64,
    pub capacity: u64,
    pub file: Arc<dyn File>,
}

/// Reads records by position. Clones are handles to the same journal.
#[derive(Clone, Debug, Default)]
pub struct JournalReader {
    files: Arc<RwLock<Vec<Arc<ReadableFile>>>>,
}

impl JournalReader {
    pub(super) fn add(&self, file: Arc<ReadableFile>) {
        self.files.write().push(file);
    }

    /// Takes away what lies below a file's first position.
    pub(super) fn remove_below(&self, base: u64) {
        self.files.write().retain(|file| file.base >= base);
    }

    /// Reads the record at a position, which must be one that the journal gave out. A record that
    /// was released meanwhile is never mistaken for another.
    pub fn read(&self, position: Position) -> Result<RecoveredRecord, JournalError> {
        let file = {
            let files = self.files.read();
            let behind = files.partition_point(|file| file.base <= position.0);
            behind.checked_sub(1).map(|index| Arc::clone(&files[index]))
        };
        let Some(file) = file else { return Err(JournalError::Released(position)) };
        match read_record(&file, position) {
            // Overwritten while it was read, because it was released.
            Err(JournalError::Unreadable { .. }) if !self.has(&file) => Err(JournalError::Released(position)),
            result => result,
        }
    }

    fn has(&self, file: &Arc<ReadableFile>) -> bool {
        self.files.read().iter().any(|other| Arc::ptr_eq(other, file))
    }
}

fn read_record(file: &ReadableFile, position: Position) -> Result<RecoveredRecord, JournalError> {
    let unreadable = |why| JournalError::Unreadable { position, file: file.path.clone(), why };
    let place = position.0 - file.base;
    let room = file.capacity.saturating_sub(place);
    let mut bytes = vec![0; FIRST_READ_BYTES.min(room) as usize];
    let have = file.file.read_at(&mut bytes, place)?;
    bytes.truncate(have);
    let Some(header) = RecordHeader::decode(&bytes, position.0) else {
        return Err(unreadable("no record begins there"));
    };
    let whole = RECORD_HEADER_BYTES + header.length as usize;
    if whole > GROUP_BYTES_LIMIT || whole as u64 > room {
        return Err(unreadable("the record there is longer than the file"));
    }
    if bytes.len() < whole {
        let have = bytes.len();
        bytes.resize(whole, 0);
        if file.file.read_at(&mut bytes[have..], place + have as u64)? < whole - have {
            return Err(unreadable("the file is cut short"));
        }
    }
    let payload = Bytes::from(bytes).slice(RECORD_HEADER_BYTES..whole);
    if crc32c::crc32c(&payload) != header.payload_crc {
        return Err(unreadable("the payload does not fit its CRC"));
    }
    let kind = RecordKind(header.kind);
    Ok(RecoveredRecord { position, shard: header.shard, kind, payload, repeated: false })
}
