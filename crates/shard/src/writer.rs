//! The segment writer: drains tails into segment files in large writes, beside `apply`.
//!
//! A batch leaves its tail when its file can be read, not when it is durable: that is a checkpoint's
//! business, and until then the journal has it. Files are synced here only where there are so many that
//! they could not all be kept open until then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_log::disk::DiskError;
use weir_log::partition::PartitionError;

use crate::files::ShardFiles;
use crate::shard::ShardOptions;
use crate::view::{PartitionView, Shown};

/// Writes what waits. One per shard; run it whenever the shard has unwritten bytes.
#[derive(Debug)]
pub struct SegmentWriter {
    files: Arc<ShardFiles>,
    shown: Arc<Shown>,
    options: ShardOptions,
}

/// What one run has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written.
    pub bytes: usize,
    /// Batches written.
    pub batches: usize,
    /// Whether more waits.
    pub more: bool,
}

/// Why segments could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The disk is full, or no further file can be opened. Nothing is lost: run the writer again when there
    /// is room.
    #[error(transparent)]
    Full(DiskError),
    /// The shard has stopped, and nothing of it may be written any more: what the files hold is not
    /// certain. What was applied is written anew from the journal when the shard is opened again.
    #[error("segments of this shard cannot be written any more; restart the node: {0}")]
    Stopped(String),
}

impl SegmentWriter {
    pub(crate) fn new(files: Arc<ShardFiles>, shown: Arc<Shown>, options: ShardOptions) -> SegmentWriter {
        SegmentWriter { files, shown, options }
    }

    /// Writes what waits, up to a bound, and says how far it came.
    pub fn run_once(&mut self) -> Result<Progress, WriteError> {
        let mut progress = Progress::default();
        while progress.bytes < self.options.run_bytes_max {
            if let Some(why) = self.files.stopped() {
                return Err(WriteError::Stopped(why));
            }
            let Some(_writing) = self.files.begin_writing() else { break };
            let Some(partition) = self.files.first_waiting() else { break };
            let more = self.write(&partition, &mut progress)?;
            self.files.first_written(more);
            if self.files.dirty_files() >= self.options.dirty_files_max {
                self.files.sync().map_err(WriteError::Stopped)?;
            }
        }
        progress.more = !self.files.is_written();
        Ok(progress)
    }

    /// Writes what waits of one partition, up to a bound. Returns whether more of it waits.
    fn write(&self, partition: &Arc<PartitionView>, progress: &mut Progress) -> Result<bool, WriteError> {
        let Some(run) = partition.next_run(self.options.write_bytes_max) else { return Ok(false) };
        let written = partition.files().writing(self.files.handles(), |log| {
            let dirty_before = log.dirty_files();
            if run.starts_segment {
                log.roll();
            }
            log.append(&run.batches, run.time)?;
            Ok(log.dirty_files() - dirty_before)
        });
        let dirty_files = match written {
            Ok((dirty_files, was_opened)) => {
                if was_opened {
                    self.files.tidy_later(partition);
                }
                dirty_files
            }
            Err(error) => return Err(self.failed(error)),
        };
        // Before the batches leave the tail: a checkpoint that finds them written must sync them.
        self.files.note_dirty(partition, dirty_files);
        let (bytes, more) = partition.written(run.batches.len());
        self.shown.unwritten_bytes.fetch_sub(bytes, Ordering::AcqRel);
        progress.bytes += bytes;
        progress.batches += run.batches.len();
        Ok(more)
    }

    fn failed(&self, error: PartitionError) -> WriteError {
        match error {
            PartitionError::Disk(error) if error.clears_by_itself() => WriteError::Full(error),
            error => {
                self.files.stop(error.to_string());
                WriteError::Stopped(error.to_string())
            }
        }
    }
}
