//! Writing segments anew, as a command said, when a checkpoint is made: the first one that knows them as they become, and
//! with whose manifest the old files may go. Until it is durable a restart finds the old ones, and the command again.

use std::sync::Arc;

use weir_log::disk::DiskError;
use weir_log::partition::{PartitionError, RewrittenSegment, SegmentRewrite};
use weir_model::{Offset, SegmentId};

use super::ShardFiles;
use crate::state::partition::SegmentInfo;
use crate::view::PartitionView;

/// Segments that are to become one, or none.
#[derive(Debug)]
pub(crate) struct Rewriting {
    pub partition: Arc<PartitionView>,
    /// Neighbours, rising.
    pub segments: Vec<SegmentId>,
    /// The batches that stay, as runs of offsets.
    pub kept: Vec<(Offset, Offset)>,
    /// What the state says that comes of it.
    pub new: Option<SegmentInfo>,
}

/// Why segments could not be written anew.
#[derive(Debug)]
pub(crate) enum RewriteError {
    /// The disk is full; again, when there is room.
    Full(DiskError),
    /// The files are not what they should be.
    Failed(String),
}

impl ShardFiles {
    /// Writes the segments anew and puts the new one in their place, to be synced with the next checkpoint. All that the
    /// old ones hold must have been written.
    pub(super) fn rewrite(&self, rewriting: &Rewriting) -> Result<(), RewriteError> {
        let Rewriting { partition, segments, kept, new } = rewriting;
        let bases: Vec<Offset> = segments.iter().map(|id| id.base).collect();
        let files = partition.files();
        // The log is not held while the bytes are copied: its writer goes on.
        let begun = files.with_log(|log| log.begin_rewrite(&bases));
        let Some(begun) = begun else {
            return Err(RewriteError::Failed(
                "segments of a partition without files were to be rewritten".into(),
            ));
        };
        let written = written(begun?, kept, *new)?;
        match files.with_log(|log| log.commit_rewrite(written)) {
            Some(committed) => committed?,
            None => {
                return Err(RewriteError::Failed("a partition's files went while it was rewritten".into()));
            }
        }
        self.note_dirty(partition, 0);
        Ok(())
    }
}

/// The new segment's file, written. It must be what the state says: its length stands in manifests.
fn written(
    mut rewrite: SegmentRewrite,
    kept: &[(Offset, Offset)],
    new: Option<SegmentInfo>,
) -> Result<RewrittenSegment, RewriteError> {
    if let Err(error) = rewrite.copy_runs(kept) {
        // Its file is set aside at the next start if it cannot be removed now.
        let _ = rewrite.abandon();
        return Err(error.into());
    }
    let entry = rewrite.entry();
    let is_expected = match new {
        None => entry.bytes == 0,
        Some(new) => {
            (entry.base, entry.generation) == (new.id.base, new.id.generation)
                && (entry.bytes, entry.last_offset) == (new.bytes, new.last_offset)
                && entry.max_timestamp == new.max_timestamp
        }
    };
    if !is_expected {
        let why =
            format!("segment {} was written anew as {entry:?}, where the state has {new:?}", entry.base);
        let _ = rewrite.abandon();
        return Err(RewriteError::Failed(why));
    }
    Ok(rewrite.finish()?)
}

impl From<PartitionError> for RewriteError {
    fn from(error: PartitionError) -> RewriteError {
        match error {
            PartitionError::Disk(error) if error.clears_by_itself() => RewriteError::Full(error),
            error => RewriteError::Failed(error.to_string()),
        }
    }
}
