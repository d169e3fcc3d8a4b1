//! Looking at a journal that nobody has open, changing nothing.

use std::path::Path;

use bytes::Bytes;

use super::format::JOURNAL_SHARD;
use super::recovery::plan;
use super::scan::{read_group, scan_dir};
use super::types::{Cut, JournalError, JournalFile, LostRange, Position, RecordKind, RecoveredRecord};
use crate::disk::{Disk, OpenMode};

/// One group of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Number of its file.
    pub file: u64,
    /// Where it begins.
    pub position: Position,
    /// What it says was durable.
    pub durable: Position,
    /// Its bytes, padding included.
    pub bytes: u64,
    /// Its records, those of the journal itself excluded.
    pub records: u32,
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalSurvey {
    /// Files with something in them; `end` is where the next begins.
    pub files: Vec<JournalFile>,
    /// Files with nothing in them.
    pub spare_files: usize,
    /// All groups in order.
    pub groups: Vec<GroupSummary>,
    /// The highest position that the groups say was durable.
    pub known_durable: Position,
    /// Where the log ends.
    pub end: Position,
    /// An unfinished write at the end.
    pub cut: Option<Cut>,
    /// Losses that the operator has accepted.
    pub accepted_losses: Vec<LostRange>,
    /// Losses: with any, the journal does not open.
    pub lost: Vec<LostRange>,
}

/// Reads a whole journal, handing every record to `record`. An absent directory is an empty journal.
pub fn survey_journal(
    disk: &dyn Disk,
    dir: &Path,
    record: &mut dyn FnMut(RecoveredRecord),
) -> Result<JournalSurvey, JournalError> {
    if disk.list(dir).is_err_and(|error| error.is_not_found()) {
        return Ok(JournalSurvey::default());
    }
    let files = scan_dir(disk, dir, OpenMode::Read, None)?;
    let plan = plan(&files, None);
    let mut survey = JournalSurvey {
        known_durable: Position(plan.durable),
        end: Position(plan.end),
        cut: plan.cut,
        accepted_losses: plan.accepted_before,
        lost: plan.lost,
        ..JournalSurvey::default()
    };
    for at in &plan.groups {
        let (file, group) = (&files[at.file], &files[at.file].groups[at.group]);
        let (bytes, records) = read_group(file, group)?;
        let bytes = Bytes::from(bytes);
        let header = &group.header;
        let mut count = 0;
        for found in records.iter().filter(|found| found.header.shard != JOURNAL_SHARD) {
            count += 1;
            record(RecoveredRecord {
                position: Position(header.position + found.at as u64),
                shard: found.header.shard,
                kind: RecordKind(found.header.kind),
                payload: bytes.slice(found.payload()),
                repeated: header.repeated,
            });
        }
        if survey.files.last().is_none_or(|last| last.number != file.number) {
            let base = Position(header.position - group.place);
            let (number, bytes) = (file.number, file.len);
            survey.files.push(JournalFile { number, base, end: base, bytes });
        }
        if let Some(last) = survey.files.last_mut() {
            last.end = Position(header.end());
        }
        survey.groups.push(GroupSummary {
            file: file.number,
            position: Position(header.position),
            durable: Position(header.durable),
            bytes: header.padded_bytes(),
            records: count,
        });
    }
    survey.spare_files = files.len() - survey.files.len();
    Ok(survey)
}
