//! Checks every batch of every segment file, and the journal.

use std::path::Path;

use serde::Serialize;
use weir_log::disk::RealDisk;
use weir_log::journal::survey_journal;

use super::segments::{Batches, Stop, find};
use crate::exit::Failure;
use crate::output::{self, Format, Table, human_bytes};

/// What was found in one file, or in the journal.
#[derive(Debug, Serialize)]
struct Checked {
    path: String,
    batches: u64,
    records: u64,
    bytes: u64,
    /// The file ends within a batch, as one does whose last write was interrupted.
    cut_short: bool,
    problems: Vec<String>,
}

/// Problems of one file that are listed; a file that is all wrong need not fill the screen.
const PROBLEMS_MAX: usize = 20;

/// Checks everything at or below a path. Damage is told by the exit status as well.
pub fn verify(path: &Path, format: Format) -> Result<(), Failure> {
    let mut checked = Vec::new();
    let journal = path.join("journal");
    if journal.is_dir() {
        checked.push(check_journal(&journal)?);
    }
    let files = find(path)?;
    for (done, file) in files.iter().enumerate() {
        if files.len() > 100 && done % 100 == 0 {
            eprintln!("{done} of {} files", files.len());
        }
        // Only the last file of a partition may end within a batch: the others were finished.
        let last = files.get(done + 1).is_none_or(|next| next.parent() != file.parent());
        checked.push(check_segment(file, last)?);
    }
    if checked.is_empty() {
        return Err(Failure::Usage(format!(
            "there are no segment files and no journal at {}",
            path.display()
        )));
    }
    output::print(format, &checked, |checked| table(checked))?;
    let damaged: Vec<&Checked> = checked.iter().filter(|checked| !checked.problems.is_empty()).collect();
    match damaged.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Corrupt(format!(
            "{} of {} file(s) are damaged, the first: {}: {}; restore them from a copy or a replica, and leave them \
             where they are until then",
            damaged.len(),
            checked.len(),
            first.path,
            first.problems[0]
        ))),
    }
}

fn table(checked: &[Checked]) -> Table {
    let mut table = Table::new(&["file", "batches", "records", "size", "state"]);
    for file in checked {
        let state = match (file.problems.first(), file.cut_short) {
            (Some(first), _) => format!("DAMAGED ({}): {first}", file.problems.len()),
            (None, true) => "ok, ends within a batch".to_owned(),
            (None, false) => "ok".to_owned(),
        };
        let (batches, records) = (file.batches.to_string(), file.records.to_string());
        table.row([file.path.clone(), batches, records, human_bytes(file.bytes), state]);
    }
    table
}

fn check_segment(file: &Path, last: bool) -> Result<Checked, Failure> {
    let mut checked = Checked {
        path: file.display().to_string(),
        batches: 0,
        records: 0,
        bytes: 0,
        cut_short: false,
        problems: Vec::new(),
    };
    let mut next: Option<i64> = None;
    for batch in Batches::open(file)? {
        match batch {
            Ok(batch) => {
                let header = &batch.header;
                checked.batches += 1;
                checked.records += u64::from(header.record_count.max(0).unsigned_abs());
                checked.bytes += batch.bytes.len() as u64;
                if let Err(error) = &batch.verified {
                    checked.problem(format!("at byte {}: {error}", batch.position));
                }
                if next.is_some_and(|next| header.base_offset < next) {
                    checked.problem(format!(
                        "at byte {}: the offset {} does not rise",
                        batch.position, header.base_offset
                    ));
                }
                next = Some(header.last_offset() + 1);
            }
            Err(Stop::CutShort { .. }) if last => checked.cut_short = true,
            Err(Stop::CutShort { position }) => {
                checked.problem(format!("at byte {position}: the file ends within a batch"));
            }
            Err(Stop::NoBatch { position, why }) => checked.problem(format!("at byte {position}: {why}")),
            Err(Stop::Io(error)) => checked.problem(error.to_string()),
        }
    }
    Ok(checked)
}

impl Checked {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// The journal's groups, as the server would read them.
fn check_journal(directory: &Path) -> Result<Checked, Failure> {
    let mut bytes = 0;
    let survey =
        survey_journal(&*RealDisk::shared(), directory, &mut |record| bytes += record.payload.len() as u64)
            .map_err(|error| Failure::Corrupt(error.to_string()))?;
    let lost = survey.lost.iter().map(ToString::to_string).take(PROBLEMS_MAX).collect();
    Ok(Checked {
        path: directory.display().to_string(),
        batches: survey.groups.len() as u64,
        records: survey.groups.iter().map(|group| u64::from(group.records)).sum(),
        bytes,
        cut_short: survey.cut.is_some(),
        problems: lost,
    })
}
