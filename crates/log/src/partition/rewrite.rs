//! Writing segments anew: under a later generation with what is left of them, or, after a failed
//! write, under their own name with exactly what they held.
//!
//! The writing itself runs beside the log; only beginning and committing need its writer.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_model::Offset;
use weir_model::batch::BatchHeader;

use super::handles::HandleCache;
use super::head::BatchHead;
use super::index::IndexEntries;
use super::names::{FileKind, REPAIR, file_path};
use super::segment::{Index, Segment};
use super::types::{Corruption, PartitionError, SegmentEntry};
use super::walk::{LONG_WALK_BYTES, SHORT_WALK_BYTES, Walk};
use super::{PartitionLog, SEGMENT_BYTES_MAX, remove_if_there};
use crate::disk::{File, OpenMode};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A later generation, holding some of the records.
    Rewrite,
    /// The same generation, holding the same bytes in a new file.
    Repair,
}

/// A segment that is being written anew. Dropped without [`SegmentRewrite::finish`], its file is
/// left behind and set aside at the next start.
#[derive(Debug)]
pub struct SegmentRewrite {
    handles: Arc<HandleCache>,
    dir: Arc<Path>,
    inputs: Vec<Arc<Segment>>,
    purpose: Purpose,
    generation: u32,
    path: PathBuf,
    file: Arc<dyn File>,
    entries: IndexEntries,
    bytes: u64,
    last_offset: Offset,
    max_timestamp: i64,
    buffer: Vec<u8>,
}

/// A segment that was written anew and synced, to be committed.
#[derive(Debug)]
pub struct RewrittenSegment {
    rewrite: SegmentRewrite,
}

impl PartitionLog {
    /// Begins to write closed, neighbouring segments anew as one, of a later generation.
    pub fn begin_rewrite(&self, bases: &[Offset]) -> Result<SegmentRewrite, PartitionError> {
        let inputs = self.neighbours(bases)?;
        let Some(first) = inputs.first() else {
            return Err(PartitionError::Segment { base: -1, why: "a rewrite needs a segment" });
        };
        if let Some(open) = inputs.iter().find(|segment| !segment.entry().closed) {
            return Err(PartitionError::Segment { base: open.base, why: "it is still open" });
        }
        let generation = inputs.iter().map(|segment| segment.generation).max().unwrap_or(0) + 1;
        let path = file_path(&self.shared.dir, first.base, generation, FileKind::Log);
        self.begin(inputs, Purpose::Rewrite, generation, path)
    }

    /// Begins to write a segment that failed anew, under its own name. All of its batches must be
    /// pushed: up to the last checkpoint they can be copied ([`SegmentRewrite::copy_below`]), the
    /// rest comes from the journal.
    pub fn begin_repair(&self, base: Offset) -> Result<SegmentRewrite, PartitionError> {
        let inputs = self.neighbours(&[base])?;
        let (generation, mut path) = (inputs[0].generation, inputs[0].path(FileKind::Log).into_os_string());
        path.push(REPAIR);
        self.begin(inputs, Purpose::Repair, generation, path.into())
    }

    /// Puts a segment that was written anew in the place of what it was made from. Readers that
    /// have begun go on with the old files.
    pub fn commit_rewrite(&mut self, rewritten: RewrittenSegment) -> Result<(), PartitionError> {
        let rewrite = rewritten.rewrite;
        let bases: Vec<Offset> = rewrite.inputs.iter().map(|segment| segment.base).collect();
        let current = self.neighbours(&bases)?;
        if !current.iter().zip(&rewrite.inputs).all(|(a, b)| Arc::ptr_eq(a, b)) {
            return Err(PartitionError::Segment { base: bases[0], why: "it was rewritten meanwhile" });
        }
        let old = rewrite.inputs[0].entry();
        let entry = SegmentEntry {
            generation: rewrite.generation,
            bytes: rewrite.bytes,
            last_offset: rewrite.last_offset,
            max_timestamp: rewrite.max_timestamp,
            ..old
        };
        let disk = Arc::clone(self.shared.handles.disk());
        match rewrite.purpose {
            Purpose::Repair if (entry.bytes, entry.last_offset) != (old.bytes, old.last_offset) => {
                let why = "it was written anew with other content than it had";
                return Err(PartitionError::Segment { base: old.base, why });
            }
            Purpose::Repair => disk.rename(&rewrite.path, &rewrite.inputs[0].path(FileKind::Log))?,
            Purpose::Rewrite if entry.bytes == 0 => remove_if_there(disk.remove_file(&rewrite.path))?,
            Purpose::Rewrite => {}
        }
        self.dir_dirty = true;
        let index = Index::Memory { entries: rewrite.entries, from: 0, from_offset: entry.base };
        let new = (entry.bytes > 0)
            .then(|| Arc::new(Segment::new(&self.shared.dir, &self.shared.handles, &entry, index)));
        self.replace(&rewrite.inputs, new.as_ref());
        match rewrite.purpose {
            Purpose::Rewrite => {
                let ticket = self.next_ticket;
                self.retired.extend(rewrite.inputs.into_iter().map(|segment| (ticket, segment)));
            }
            Purpose::Repair => {
                let old = &rewrite.inputs[0];
                old.forget_handles(&self.shared.handles);
                self.dirty.retain(|segment| !Arc::ptr_eq(segment, old));
            }
        }
        if let Some(segment) = new
            && let Ok(indexes) = segment.write_indexes(&self.shared.handles)
        {
            self.dirty_indexes.extend(indexes);
        }
        Ok(())
    }

    fn begin(
        &self,
        inputs: Vec<Arc<Segment>>,
        purpose: Purpose,
        generation: u32,
        path: PathBuf,
    ) -> Result<SegmentRewrite, PartitionError> {
        // Whatever has this name is an attempt that was given up.
        let file = self.shared.handles.disk().open(&path, OpenMode::Create)?;
        file.set_len(0)?;
        let base = inputs.first().map_or(0, |segment| segment.base);
        Ok(SegmentRewrite {
            handles: Arc::clone(&self.shared.handles),
            dir: Arc::clone(&self.shared.dir),
            inputs,
            purpose,
            generation,
            path,
            file,
            entries: IndexEntries::new(base),
            bytes: 0,
            last_offset: base - 1,
            max_timestamp: -1,
            buffer: Vec::new(),
        })
    }

    /// The segments of these bases, which must follow each other.
    fn neighbours(&self, bases: &[Offset]) -> Result<Vec<Arc<Segment>>, PartitionError> {
        let segments = self.shared.range.read().segments.clone();
        let first = bases.first().copied().unwrap_or(-1);
        let at = segments.iter().position(|segment| segment.base == first);
        let found: Vec<Arc<Segment>> =
            at.map_or(&[][..], |at| &segments[at..]).iter().take(bases.len()).cloned().collect();
        if found.is_empty() || !found.iter().map(|segment| segment.base).eq(bases.iter().copied()) {
            let why = "there is no such segment, or none after it as named";
            return Err(PartitionError::Segment { base: first, why });
        }
        Ok(found)
    }

    fn replace(&mut self, old: &[Arc<Segment>], new: Option<&Arc<Segment>>) {
        let mut range = self.shared.range.write();
        let mut segments = Vec::with_capacity(range.segments.len());
        for segment in range.segments.iter() {
            if Arc::ptr_eq(segment, &old[0]) {
                segments.extend(new.cloned());
            } else if !old.iter().any(|gone| Arc::ptr_eq(gone, segment)) {
                segments.push(Arc::clone(segment));
            }
        }
        range.segments = segments.into();
    }
}

impl SegmentRewrite {
    /// Adds a whole batch, with its place in it. Its CRC is checked, and that its offsets rise.
    pub fn push(&mut self, batch: &[u8]) -> Result<(), PartitionError> {
        let refused = |why: &str| {
            let (file, position) = (self.path.clone(), self.bytes);
            PartitionError::Corrupt(Corruption { file, position, why: format!("not written: {why}") })
        };
        let head = BatchHead::parse(batch).map_err(refused)?;
        check_crc(batch).map_err(|why| refused(&why))?;
        let highest = self.inputs.last().map_or(-1, |segment| segment.last_offset());
        let base = self.inputs.first().map_or(0, |segment| segment.base);
        if head.bytes != batch.len() || head.base_offset <= self.last_offset || head.last_offset > highest {
            return Err(refused("the batch does not belong behind the one before it"));
        }
        if self.bytes + head.bytes as u64 > SEGMENT_BYTES_MAX || head.last_offset - base > i64::from(i32::MAX)
        {
            let (bytes, last_offset) = (self.bytes, head.last_offset);
            return Err(PartitionError::SegmentFull { base, bytes, last_offset });
        }
        self.entries.add(self.bytes, &head);
        self.bytes += head.bytes as u64;
        self.last_offset = head.last_offset;
        self.max_timestamp = self.max_timestamp.max(head.max_timestamp);
        self.buffer.extend_from_slice(batch);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Copies all batches of the inputs that end below an offset, checking each.
    pub fn copy_below(&mut self, offset: Offset) -> Result<(), PartitionError> {
        for segment in self.inputs.clone() {
            let (file, path) = (segment.log_file(&self.handles, false)?, segment.path(FileKind::Log));
            let mut walk = Walk::new(&*file, &path, 0, segment.entry().bytes, LONG_WALK_BYTES);
            while let Some((position, head)) = walk.next()? {
                if head.last_offset >= offset {
                    return Ok(());
                }
                let batch = walk.batch(position, &head)?;
                self.push(batch)?;
            }
        }
        Ok(())
    }

    /// Copies the batches of the inputs that lie in runs of offsets, rising, each checked. Runs begin and end where
    /// batches do.
    pub fn copy_runs(&mut self, runs: &[(Offset, Offset)]) -> Result<(), PartitionError> {
        for segment in self.inputs.clone() {
            let (file, path) = (segment.log_file(&self.handles, false)?, segment.path(FileKind::Log));
            let entry = segment.entry();
            let first = runs.partition_point(|(_, to)| *to < entry.base);
            for (from, to) in runs[first..].iter().take_while(|(from, _)| *from <= entry.last_offset) {
                let Some((position, _)) = segment.seek(&self.handles, &*file, *from, false)? else {
                    continue;
                };
                let mut walk = Walk::new(&*file, &path, position, entry.bytes, SHORT_WALK_BYTES);
                while let Some((position, head)) = walk.next()?.filter(|(_, head)| head.last_offset <= *to) {
                    let batch = walk.batch(position, &head)?;
                    self.push(batch)?;
                }
            }
        }
        Ok(())
    }

    /// What the segment is so far.
    pub fn entry(&self) -> SegmentEntry {
        let old = self.inputs.first().map(|segment| segment.entry());
        SegmentEntry {
            base: old.map_or(0, |old| old.base),
            generation: self.generation,
            bytes: self.bytes,
            last_offset: self.last_offset,
            max_timestamp: self.max_timestamp,
            first_time: old.map_or(-1, |old| old.first_time),
            closed: true,
        }
    }

    /// Writes out what is left and syncs it.
    pub fn finish(mut self) -> Result<RewrittenSegment, PartitionError> {
        self.flush()?;
        self.file.sync_data()?;
        Ok(RewrittenSegment { rewrite: self })
    }

    /// Gives it up and removes its file.
    pub fn abandon(self) -> Result<(), PartitionError> {
        remove_if_there(self.handles.disk().remove_file(&self.path))?;
        Ok(self.handles.disk().sync_dir(&self.dir)?)
    }

    fn flush(&mut self) -> Result<(), PartitionError> {
        let position = self.bytes - self.buffer.len() as u64;
        self.file.write_at(&[IoSlice::new(&self.buffer)], position)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Checks the CRC of a whole batch. Other than for batches on their way in, counts and offsets need
/// not agree: a rewrite leaves holes.
pub(super) fn check_crc(batch: &[u8]) -> Result<BatchHeader, String> {
    const CRC_COVERS_FROM: usize = 21;
    let header = BatchHeader::parse(batch).map_err(|error| error.to_string())?;
    let computed = crc32c::crc32c(&batch[CRC_COVERS_FROM..header.total_bytes()]);
    if computed != header.crc {
        return Err(format!("the batch's CRC-32C is {computed:08x}, its header says {:08x}", header.crc));
    }
    Ok(header)
}
