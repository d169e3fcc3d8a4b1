//! Opening a partition log: its files are cut back to what the manifest says, and what the manifest
//! does not know is moved out of the way. Nothing is read, so it takes as long for a large log as
//! for a small one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use super::PartitionLog;
use super::handles::HandleCache;
use super::index::IndexEntries;
use super::names::{ASIDE, FileKind, Name, file_name, parse_name};
use super::reader::{Range, Shared};
use super::segment::{Index, Segment};
use super::types::{Corruption, OpenReport, PartitionError, PartitionManifest, SegmentEntry};
use crate::disk::OpenMode;

impl PartitionLog {
    /// Opens the log in a directory, which need not exist as long as no segment is named. The
    /// journal's entries behind the manifest must be applied again by appending.
    pub fn open(
        handles: &Arc<HandleCache>,
        dir: &Path,
        manifest: &PartitionManifest,
    ) -> Result<(PartitionLog, OpenReport), PartitionError> {
        check_manifest(manifest)?;
        let disk = handles.disk();
        let (present, dir_made) = match disk.list(dir) {
            Err(error) if error.is_not_found() => (Vec::new(), false),
            entries => (entries?, true),
        };
        let lengths: BTreeMap<&str, u64> = present
            .iter()
            .filter(|entry| !entry.is_dir)
            .map(|entry| (entry.name.as_str(), entry.len))
            .collect();
        for entry in &manifest.segments {
            check_length(dir, entry, &lengths)?;
        }

        // Everything that must be there is: only now is anything changed.
        let mut report = OpenReport::default();
        let mut aside = Vec::new();
        let named = named_files(manifest);
        for entry in &present {
            match parse_name(&entry.name) {
                _ if entry.is_dir => report.unknown.push(entry.name.clone()),
                Name::Unknown => report.unknown.push(entry.name.clone()),
                Name::Leftover => aside.push(dir.join(&entry.name)),
                Name::Segment { .. } if named.contains(&entry.name) => {}
                Name::Segment { .. } => {
                    let path = dir.join(format!("{}{ASIDE}", entry.name));
                    disk.rename(&dir.join(&entry.name), &path)?;
                    report.set_aside.push(entry.name.clone());
                    aside.push(path);
                }
            }
        }
        aside.sort();
        aside.dedup();
        let dir: Arc<Path> = dir.into();
        let segments = segments_of(handles, &dir, manifest, &lengths, &mut report)?;
        let range = Range { start: manifest.start, end: manifest.end, segments: segments.into() };
        let shared = Shared { dir, handles: Arc::clone(handles), range: RwLock::new(range) };
        let log = PartitionLog {
            shared: Arc::new(shared),
            retired: Vec::new(),
            dir_dirty: !report.set_aside.is_empty(),
            aside,
            next_ticket: 0,
            dirty: Vec::new(),
            dirty_indexes: Vec::new(),
            dir_made,
        };
        Ok((log, report))
    }
}

/// The segments that a manifest names, their files cut back to what it says.
pub(super) fn segments_of(
    handles: &Arc<HandleCache>,
    dir: &Arc<Path>,
    manifest: &PartitionManifest,
    lengths: &BTreeMap<&str, u64>,
    report: &mut OpenReport,
) -> Result<Vec<Arc<Segment>>, PartitionError> {
    let mut segments = Vec::with_capacity(manifest.segments.len());
    for entry in &manifest.segments {
        cut(handles, dir, entry, lengths, report)?;
        let index = if entry.closed {
            let name = |kind| file_name(entry.base, entry.generation, kind);
            let there = |kind| lengths.contains_key(name(kind).as_str());
            let both = there(FileKind::OffsetIndex) && there(FileKind::TimeIndex);
            if both { Index::Files } else { Index::Unknown }
        } else {
            let entries = IndexEntries::new(entry.base);
            Index::Memory { entries, from: entry.bytes, from_offset: entry.last_offset + 1 }
        };
        segments.push(Arc::new(Segment::new(dir, handles, entry, index)));
    }
    Ok(segments)
}

/// Files that the manifest names: an open segment has no index on disk.
fn named_files(manifest: &PartitionManifest) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in &manifest.segments {
        let kinds = if entry.closed { &FileKind::ALL[..] } else { &[FileKind::Log] };
        names.extend(kinds.iter().map(|kind| file_name(entry.base, entry.generation, *kind)));
    }
    names
}

pub(super) fn check_manifest(manifest: &PartitionManifest) -> Result<(), PartitionError> {
    let mut next = 0;
    for (index, entry) in manifest.segments.iter().enumerate() {
        let why = if entry.base < next {
            "the manifest names it before a segment that it overlaps with"
        } else if entry.last_offset < entry.base || entry.bytes == 0 {
            "the manifest names it although it is empty"
        } else if entry.last_offset >= manifest.end {
            "the manifest says that it reaches beyond the log's end"
        } else if !entry.closed && index + 1 < manifest.segments.len() {
            "the manifest says that it is open, but it is not the last"
        } else {
            next = entry.last_offset + 1;
            continue;
        };
        return Err(PartitionError::Segment { base: entry.base, why });
    }
    Ok(())
}

pub(super) fn check_length(
    dir: &Path,
    entry: &SegmentEntry,
    lengths: &BTreeMap<&str, u64>,
) -> Result<(), PartitionError> {
    let name = file_name(entry.base, entry.generation, FileKind::Log);
    let why = match lengths.get(name.as_str()) {
        Some(len) if *len >= entry.bytes => return Ok(()),
        Some(len) => format!("it has {len} bytes, the manifest says {}", entry.bytes),
        None => format!("it is missing, the manifest says that it has {} bytes", entry.bytes),
    };
    let position = lengths.get(name.as_str()).copied().unwrap_or(0);
    Err(PartitionError::Corrupt(Corruption { file: dir.join(name), position, why }))
}

/// Cuts off what lies behind the manifest's length: the journal brings it again.
fn cut(
    handles: &HandleCache,
    dir: &Path,
    entry: &SegmentEntry,
    lengths: &BTreeMap<&str, u64>,
    report: &mut OpenReport,
) -> Result<(), PartitionError> {
    let name = file_name(entry.base, entry.generation, FileKind::Log);
    let len = lengths.get(name.as_str()).copied().unwrap_or(0);
    if len > entry.bytes {
        handles.disk().open(&dir.join(&name), OpenMode::Write)?.set_len(entry.bytes)?;
        report.cut.push((name, len, entry.bytes));
    }
    Ok(())
}
