//! Going on with other files: a snapshot of a later state has been put in place beside the files of a log that is open,
//! and the log becomes what the snapshot's manifest says. Readers that have begun go on with what they saw; those that
//! begin afterwards see the new state, through the same handles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_model::Offset;

use super::names::FileKind;
use super::open::{check_length, check_manifest, segments_of};
use super::reader::Range;
use super::types::{OpenReport, PartitionError, PartitionManifest};
use super::{PartitionLog, remove_if_there};

/// What a log is to become; its files were found to be there.
#[derive(Debug)]
#[must_use = "until it is committed, the log is what it was"]
pub struct LogSwitch {
    range: Range,
    named: BTreeSet<(Offset, u32)>,
    dir_made: bool,
}

impl PartitionLog {
    /// Looks whether the directory has all that a manifest names, and cuts files back to it. The manifest must be that
    /// of a later state of the same log, and be durable; nothing may be appended from here on until
    /// [`PartitionLog::commit_switch`]. What was appended and is not named is lost to the log.
    pub fn prepare_switch(&mut self, manifest: &PartitionManifest) -> Result<LogSwitch, PartitionError> {
        check_manifest(manifest)?;
        let dir = Arc::clone(&self.shared.dir);
        let handles = Arc::clone(&self.shared.handles);
        let (present, dir_made) = match handles.disk().list(&dir) {
            Err(error) if error.is_not_found() => (Vec::new(), false),
            entries => (entries?, true),
        };
        let files = present.iter().filter(|entry| !entry.is_dir);
        let lengths: BTreeMap<&str, u64> = files.map(|entry| (entry.name.as_str(), entry.len)).collect();
        for entry in &manifest.segments {
            check_length(&dir, entry, &lengths)?;
        }
        let named: BTreeSet<(Offset, u32)> =
            manifest.segments.iter().map(|entry| (entry.base, entry.generation)).collect();
        // A segment that was begun and holds nothing is no part of any state; a later one may want its name.
        for begun in self.dirty.iter().filter(|segment| segment.entry().bytes == 0) {
            if !named.contains(&(begun.base, begun.generation)) {
                remove_if_there(handles.disk().remove_file(&begun.path(FileKind::Log)))?;
            }
        }
        let segments = segments_of(&handles, &dir, manifest, &lengths, &mut OpenReport::default())?;
        let range = Range { start: manifest.start, end: manifest.end, segments: segments.into() };
        Ok(LogSwitch { range, named, dir_made })
    }

    /// Becomes what was prepared. Segments that are not named any more are retired, as by a rewrite. Touches no disk.
    pub fn commit_switch(&mut self, switch: LogSwitch) {
        let LogSwitch { range, named, dir_made } = switch;
        let before = std::mem::replace(&mut *self.shared.range.write(), range);
        self.retired.retain(|(_, segment)| !named.contains(&(segment.base, segment.generation)));
        for segment in before.segments.iter() {
            segment.forget_handles(&self.shared.handles);
            if !named.contains(&(segment.base, segment.generation)) {
                self.retired.push((self.next_ticket, Arc::clone(segment)));
            }
        }
        self.dirty.clear();
        self.dirty_indexes.clear();
        self.dir_made = dir_made;
    }
}
