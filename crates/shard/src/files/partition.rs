//! One partition's segment files. Those of a partition that was opened since the last start are not
//! looked at before something is to be written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use weir_log::partition::{
    HandleCache, PartitionError, PartitionLog, PartitionManifest, PartitionReader, SegmentEntry,
};

use crate::state::partition::PartitionState;

/// A partition's files.
#[derive(Debug)]
pub(crate) struct PartitionFiles {
    dir: PathBuf,
    /// Locked while something is written.
    log: Mutex<Option<PartitionLog>>,
    /// Set when the log is opened; there is nothing to be read before.
    reader: OnceLock<PartitionReader>,
}

impl PartitionFiles {
    /// The files of a partition of which nothing is written.
    pub(crate) fn unopened(dir: PathBuf) -> PartitionFiles {
        PartitionFiles { dir, log: Mutex::new(None), reader: OnceLock::new() }
    }

    /// The files of a partition that a checkpoint knows, cut back to what it says.
    pub(crate) fn open(
        handles: &Arc<HandleCache>,
        dir: PathBuf,
        manifest: &PartitionManifest,
    ) -> Result<PartitionFiles, PartitionError> {
        let (log, _) = PartitionLog::open(handles, &dir, manifest)?;
        let reader = OnceLock::from(log.reader());
        Ok(PartitionFiles { dir, log: Mutex::new(Some(log)), reader })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn reader(&self) -> Option<&PartitionReader> {
        self.reader.get()
    }

    /// Runs something on the log, if it is open.
    pub(crate) fn with_log<T>(&self, run: impl FnOnce(&mut PartitionLog) -> T) -> Option<T> {
        self.log.lock().as_mut().map(run)
    }

    /// Runs something on the log, which is opened if need be. Says whether it was.
    pub(crate) fn writing<T>(
        &self,
        handles: &Arc<HandleCache>,
        write: impl FnOnce(&mut PartitionLog) -> Result<T, PartitionError>,
    ) -> Result<(T, bool), PartitionError> {
        let mut log = self.log.lock();
        match &mut *log {
            Some(log) => Ok((write(log)?, false)),
            none => {
                // What lies there was written after the last checkpoint by a process that is gone. It
                // is all coming again.
                let (opened, _) = PartitionLog::open(handles, &self.dir, &PartitionManifest::default())?;
                self.reader.get_or_init(|| opened.reader());
                Ok((write(none.insert(opened))?, true))
            }
        }
    }

    /// Goes on with what the manifest of a later state names. `show` is called when all of that was found to be there,
    /// and calls what it is given, which touches no disk; readers see the new files from then on.
    pub(crate) fn switch(
        &self,
        handles: &Arc<HandleCache>,
        manifest: &PartitionManifest,
        show: impl FnOnce(&mut dyn FnMut()),
    ) -> Result<(), PartitionError> {
        let mut log = self.log.lock();
        match &mut *log {
            Some(log) => {
                let mut prepared = Some(log.prepare_switch(manifest)?);
                show(&mut || {
                    if let Some(prepared) = prepared.take() {
                        log.commit_switch(prepared);
                    }
                });
            }
            none => {
                let (opened, _) = PartitionLog::open(handles, &self.dir, manifest)?;
                let opened = none.insert(opened);
                show(&mut || drop(self.reader.set(opened.reader())));
            }
        }
        Ok(())
    }

    /// Takes the log out, for good.
    pub(crate) fn take_log(&self) -> Option<PartitionLog> {
        self.log.lock().take()
    }
}

/// The files that a partition's state implies.
pub(crate) fn manifest_of(state: &PartitionState) -> PartitionManifest {
    let entry = |(at, segment): (usize, &crate::SegmentInfo)| SegmentEntry {
        base: segment.id.base,
        generation: segment.id.generation,
        bytes: segment.bytes,
        last_offset: segment.last_offset,
        max_timestamp: segment.max_timestamp,
        first_time: segment.first_time,
        closed: at + 1 < state.segments.len(),
    };
    let segments = state.segments.iter().enumerate().map(entry).collect();
    PartitionManifest { start: state.log_start, end: state.next_offset, segments }
}
