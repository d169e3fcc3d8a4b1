//! Reading a journal file from end to end, trusting nothing in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_model::ShardId;

use super::format::{
    ALIGNMENT, GROUP_HEADER_BYTES, GroupHeader, JOURNAL_SHARD, KIND_ACCEPTED_LOSSES, RecordInGroup,
    check_group, legible_shards, newer_version,
};
use super::types::JournalError;
use crate::disk::{Disk, DiskError, File, OpenMode};

/// Bytes read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// What a file is called.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:020}.journal")
}

/// The number of a file of that name, `None` for what the journal never wrote.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".journal")?;
    (number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit())).then(|| number.parse().ok())?
}

/// A group that passed every check.
#[derive(Clone, Debug)]
pub(super) struct ScannedGroup {
    pub place: u64,
    pub header: GroupHeader,
    /// Ranges of which it says that the operator accepted their loss.
    pub accepted: Vec<(u64, u64)>,
}

/// A place where a group should begin, but none does.
#[derive(Clone, Debug)]
pub(super) struct BadPlace {
    pub place: u64,
    pub why: &'static str,
    pub shards: Vec<ShardId>,
}

#[derive(Debug)]
pub(super) struct ScannedFile {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub len: u64,
    /// In order.
    pub groups: Vec<ScannedGroup>,
    /// The first place of each gap between groups, and of the one behind the last.
    pub bad: Vec<BadPlace>,
}

impl ScannedFile {
    /// Position of the file's first byte; `None` if nothing valid is in it.
    pub(super) fn base(&self) -> Option<u64> {
        self.groups.first().map(|group| group.header.position - group.place)
    }
}

/// Reads all files of a journal, ordered by number.
///
/// With `identity`, a file that belongs to another data directory is an error; without, whatever
/// comes first in a file is believed.
pub(super) fn scan_dir(
    disk: &dyn Disk,
    dir: &Path,
    mode: OpenMode,
    identity: Option<u64>,
) -> Result<Vec<ScannedFile>, JournalError> {
    let mut files = Vec::new();
    for entry in disk.list(dir)? {
        if let Some(number) = number_of(&entry.name).filter(|_| !entry.is_dir) {
            let path = dir.join(&entry.name);
            let file = disk.open(&path, mode)?;
            files.push(scan_file(number, path, file, identity)?);
        }
    }
    Ok(files)
}

fn scan_file(
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    identity: Option<u64>,
) -> Result<ScannedFile, JournalError> {
    let len = file.len()?;
    let mut scanned = ScannedFile { number, path, file: Arc::clone(&file), len, groups: vec![], bad: vec![] };
    let mut window = Window::new(&*file, len);
    let (mut identity, mut at, mut in_gap) = (identity, 0, false);
    while at < len {
        match scan_place(&mut window, at, &scanned, identity)? {
            Ok(group) => {
                identity = Some(group.header.identity);
                at += group.header.padded_bytes();
                scanned.groups.push(group);
                in_gap = false;
            }
            Err(bad) => {
                if !in_gap {
                    scanned.bad.push(bad);
                }
                in_gap = true;
                at += ALIGNMENT;
            }
        }
    }
    Ok(scanned)
}

fn scan_place(
    window: &mut Window<'_>,
    place: u64,
    file: &ScannedFile,
    identity: Option<u64>,
) -> Result<Result<ScannedGroup, BadPlace>, JournalError> {
    let bad = |why| Ok(Err(BadPlace { place, why, shards: Vec::new() }));
    let bytes = window.get(place, GROUP_HEADER_BYTES as u64)?;
    if let Some(version) = newer_version(bytes).filter(|_| place == 0) {
        return Err(JournalError::NewerFormat { file: file.path.clone(), version });
    }
    let Some(header) = GroupHeader::decode(bytes) else {
        return bad("no group begins there");
    };
    if header.generation != file.number {
        return bad("only a group of an earlier use of the file is there");
    }
    if let Some(expected) = identity.filter(|expected| *expected != header.identity) {
        if place == 0 {
            let found = header.identity;
            return Err(JournalError::Foreign { file: file.path.clone(), found, expected });
        }
        return bad("only a group of another journal is there");
    }
    let base = file.base().or_else(|| header.position.checked_sub(place));
    if base.is_none_or(|base| base + place != header.position) || header.end() < header.position {
        return bad("only a group of another place is there");
    }
    if place + header.padded_bytes() > file.len {
        return bad("the group there is longer than the file");
    }
    let group = window.get(place, u64::from(header.length))?;
    match check_group(&header, group) {
        Ok(records) => {
            let accepted = accepted_losses(group, &records);
            Ok(Ok(ScannedGroup { place, header, accepted }))
        }
        Err(why) => Ok(Err(BadPlace { place, why, shards: legible_shards(&header, group) })),
    }
}

fn accepted_losses(group: &[u8], records: &[RecordInGroup]) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    for record in records {
        if record.header.shard == JOURNAL_SHARD && record.header.kind == KIND_ACCEPTED_LOSSES {
            for range in group[record.payload()].as_chunks::<16>().0 {
                let [from, to] = [&range[..8], &range[8..]]
                    .map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
                ranges.push((from, to));
            }
        }
    }
    ranges
}

/// A part of a file in memory, which moves forward.
struct Window<'a> {
    file: &'a dyn File,
    file_len: u64,
    bytes: Vec<u8>,
    start: u64,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn File, file_len: u64) -> Window<'a> {
        Window { file, file_len, bytes: Vec::new(), start: 0 }
    }

    /// The `n` bytes at a place, fewer at the end of the file.
    fn get(&mut self, place: u64, n: u64) -> Result<&[u8], DiskError> {
        let end = (place + n).min(self.file_len);
        if place < self.start || end > self.start + self.bytes.len() as u64 {
            // Both lengths are bounded: by the file, by the window, and by the longest group.
            let want = n.max(WINDOW_BYTES).min(self.file_len - place) as usize;
            self.bytes.resize(want, 0);
            let have = self.file.read_at(&mut self.bytes, place)?;
            self.bytes.truncate(have);
            self.start = place;
        }
        let from = (place - self.start) as usize;
        let to = (from + n as usize).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

/// Reads one group again, padding included, and checks it again.
pub(super) fn read_group(
    file: &ScannedFile,
    group: &ScannedGroup,
) -> Result<(Vec<u8>, Vec<RecordInGroup>), JournalError> {
    let mut bytes = vec![0; group.header.padded_bytes() as usize];
    let have = file.file.read_at(&mut bytes, group.place)?;
    let unreadable = |why| JournalError::Unreadable {
        position: super::Position(group.header.position),
        file: file.path.clone(),
        why,
    };
    if have < bytes.len() || GroupHeader::decode(&bytes) != Some(group.header) {
        return Err(unreadable("the group was there a moment ago and is gone"));
    }
    let records = check_group(&group.header, &bytes[..group.header.length as usize]).map_err(unreadable)?;
    Ok((bytes, records))
}
