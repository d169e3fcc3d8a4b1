//! What `weir log dump` and `weir log verify` are made of: reading a data directory that nobody has
//! open, changing nothing. Lock the directory first ([`crate::disk::lock_data_dir`]).

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskError};
use crate::journal::{JournalError, JournalSurvey, RecoveredRecord, survey_journal};
use crate::partition::{BatchFound, SegmentCheck, inspect_partition, is_partition_dir};

/// Why a directory could not be inspected. Damage is not an error: it is what is looked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The journal cannot be read at all.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nothing of Weir's is in the directory.
    #[error(
        "{} is no data directory, journal or partition of Weir: neither 'journal' and 'shards', \
         nor *.journal, nor *.log files are in it",
        .0.display()
    )]
    NothingThere(PathBuf),
}

/// Takes what an inspection comes across. The default of each method takes no notice.
pub trait Inspector {
    /// A record of the journal.
    fn record(&mut self, record: RecoveredRecord) {
        let _ = record;
    }

    /// The journal as a whole.
    fn journal(&mut self, dir: &Path, survey: JournalSurvey) {
        let _ = (dir, survey);
    }

    /// A batch of a segment file.
    fn batch(&mut self, file: &Path, batch: &BatchFound) {
        let _ = (file, batch);
    }

    /// A segment file as a whole.
    fn segment(&mut self, check: SegmentCheck) {
        let _ = check;
    }
}

/// Walks through a data directory, or a journal's or a partition's directory alone.
pub fn inspect(disk: &dyn Disk, dir: &Path, inspector: &mut dyn Inspector) -> Result<(), InspectError> {
    let names = disk.list(dir)?;
    let has_dir = |name: &str| names.iter().any(|entry| entry.is_dir && entry.name == name);
    if has_dir("journal") || has_dir("shards") {
        inspect_journal(disk, &dir.join("journal"), inspector)?;
        return inspect_shards(disk, &dir.join("shards"), inspector);
    }
    if names.iter().any(|entry| !entry.is_dir && entry.name.ends_with(".journal")) {
        return inspect_journal(disk, dir, inspector);
    }
    if is_partition_dir(disk, dir)? {
        return inspect_segments(disk, dir, inspector);
    }
    Err(InspectError::NothingThere(dir.to_owned()))
}

fn inspect_journal(disk: &dyn Disk, dir: &Path, inspector: &mut dyn Inspector) -> Result<(), InspectError> {
    let survey = survey_journal(disk, dir, &mut |record| inspector.record(record))?;
    inspector.journal(dir, survey);
    Ok(())
}

fn inspect_shards(disk: &dyn Disk, dir: &Path, inspector: &mut dyn Inspector) -> Result<(), InspectError> {
    for shard in subdirectories(disk, dir)? {
        for partition in subdirectories(disk, &shard)? {
            if is_partition_dir(disk, &partition)? {
                inspect_segments(disk, &partition, inspector)?;
            }
        }
    }
    Ok(())
}

fn inspect_segments(disk: &dyn Disk, dir: &Path, inspector: &mut dyn Inspector) -> Result<(), InspectError> {
    // Both callbacks need the inspector, one at a time.
    let inspector = std::cell::RefCell::new(inspector);
    Ok(inspect_partition(
        disk,
        dir,
        &mut |file, batch| inspector.borrow_mut().batch(file, batch),
        &mut |check| inspector.borrow_mut().segment(check),
    )?)
}

/// The directories in a directory, none if it does not exist.
fn subdirectories(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, DiskError> {
    match disk.list(dir) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        entries => {
            Ok(entries?.iter().filter(|entry| entry.is_dir).map(|entry| dir.join(&entry.name)).collect())
        }
    }
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The journals that were read: one in a data directory.
    pub journals: Vec<(PathBuf, JournalSurvey)>,
    /// Segment files that were read.
    pub segments: Vec<SegmentCheck>,
}

impl Verification {
    /// Verifies whatever [`inspect`] accepts.
    pub fn of(disk: &dyn Disk, dir: &Path) -> Result<Verification, InspectError> {
        let mut verification = Verification::default();
        inspect(disk, dir, &mut verification)?;
        Ok(verification)
    }

    /// Whether nothing is lost from the journal and every segment file is whole.
    pub fn is_clean(&self) -> bool {
        self.journals.iter().all(|(_, survey)| survey.lost.is_empty())
            && self.segments.iter().all(|segment| segment.problems.is_empty())
    }
}

impl Inspector for Verification {
    fn journal(&mut self, dir: &Path, survey: JournalSurvey) {
        self.journals.push((dir.to_owned(), survey));
    }

    fn segment(&mut self, check: SegmentCheck) {
        self.segments.push(check);
    }
}
