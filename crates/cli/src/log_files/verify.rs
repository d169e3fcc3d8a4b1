//! Checks every batch of every segment file, the journal, and the checkpoints; and that all that these
//! name is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_log::disk::RealDisk;
use weir_log::journal::{RecoveredRecord, survey_journal};
use weir_log::partition::{PartitionManifest, SegmentEntry, segment_file_name};
use weir_model::{PartitionId, ShardId};
use weir_shard::{CheckpointSurvey, survey_checkpoint};

use super::segments::{Batches, Stop, find};
use crate::exit::Failure;
use crate::output::{self, Format, Table, human_bytes};
use crate::serve::read_identity;

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
    let is_data_dir = is_data_dir(path);
    if is_data_dir || journal.is_dir() {
        checked.push(check_journal(&journal));
    }
    let mut expected = BTreeMap::new();
    if is_data_dir {
        for (shard, directory) in shards(path) {
            checked.push(check_checkpoint(shard, &directory, &mut expected));
        }
        // Every vote is kept in the journal, from before the first record on.
        if !expected.is_empty() && checked[0].batches == 0 && checked[0].problems.is_empty() {
            checked[0].problem("nothing is in it although checkpoints cover records".to_owned());
        }
    }
    let mut files: BTreeSet<PathBuf> = find(path)?.into_iter().collect();
    files.extend(expected.keys().cloned());
    let files: Vec<PathBuf> = files.into_iter().collect();
    for (done, file) in files.iter().enumerate() {
        if files.len() > 100 && done % 100 == 0 {
            eprintln!("{done} of {} files", files.len());
        }
        // Only the last file of a partition may end within a batch: the others were finished.
        let last = files.get(done + 1).is_none_or(|next| next.parent() != file.parent());
        let mut segment = check_segment(file, last, expected.get(file));
        // A server that runs meanwhile may have let go of the file.
        if !segment.problems.is_empty() && !file.exists() && is_let_go(path, file) {
            segment.problems.clear();
        }
        checked.push(segment);
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

/// Whether a directory is a whole data directory, of which it is known what must be there.
fn is_data_dir(path: &Path) -> bool {
    path.join("node.toml").exists() || path.join("shards").is_dir()
}

/// The shards that must be there, and those that are, with their directories.
fn shards(path: &Path) -> BTreeMap<ShardId, PathBuf> {
    let named = read_identity(path).ok().flatten().map_or(0, |identity| identity.shards);
    let directory = path.join("shards");
    let present = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let present = present.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let with_directory = |shard: u32| (ShardId(shard), directory.join(shard.to_string()));
    (0..=named).chain(present).map(with_directory).collect()
}

/// A shard's checkpoint; and what segment files must be there according to it.
fn check_checkpoint(
    shard: ShardId,
    directory: &Path,
    expected: &mut BTreeMap<PathBuf, SegmentEntry>,
) -> Checked {
    let mut checked = Checked::of(&directory.join("checkpoint"));
    match survey_checkpoint(RealDisk::shared(), directory, shard) {
        Ok(Some(survey)) => {
            checked.bytes = survey.bytes;
            expected.extend(expected_of(directory, &survey));
        }
        Ok(None) => checked.problem("there is no manifest".to_owned()),
        Err(error) => checked.problem(error.to_string()),
    }
    checked
}

fn expected_of(directory: &Path, survey: &CheckpointSurvey) -> BTreeMap<PathBuf, SegmentEntry> {
    let of_partition = |(id, manifest): &(PartitionId, PartitionManifest)| {
        let directory = directory.join(id.to_string());
        let with_path = move |entry: &SegmentEntry| (directory.join(segment_file_name(entry)), *entry);
        manifest.segments.iter().map(with_path).collect::<Vec<_>>()
    };
    survey.partitions.iter().flat_map(of_partition).collect()
}

/// Whether the checkpoint of this moment does not name a file that an earlier one did.
fn is_let_go(path: &Path, file: &Path) -> bool {
    shards(path).into_iter().any(|(shard, directory)| {
        file.starts_with(&directory)
            && survey_checkpoint(RealDisk::shared(), &directory, shard)
                .is_ok_and(|survey| survey.is_some_and(|s| !expected_of(&directory, &s).contains_key(file)))
    })
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

/// Reads a segment file; `expected` is what a checkpoint says of it.
fn check_segment(file: &Path, last: bool, expected: Option<&SegmentEntry>) -> Checked {
    let mut checked = Checked::of(file);
    let batches = match Batches::open(file) {
        Ok(batches) => batches,
        Err(why) => {
            checked.problem(why.to_string());
            return checked;
        }
    };
    // What lies behind a checkpoint's length is brought again by the journal, whatever it is.
    let covered = expected.map_or(0, |entry| entry.bytes);
    let mut next = expected.filter(|entry| entry.generation == 0).map(|entry| entry.base);
    let mut ends = Vec::new();
    for batch in batches {
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
                } else if next.is_some_and(|next| header.base_offset > next) && is_dense(file) {
                    checked.problem(format!(
                        "at byte {}: records are missing before the offset {}",
                        batch.position, header.base_offset
                    ));
                }
                next = Some(header.last_offset() + 1);
                ends.push((checked.bytes, header.last_offset()));
            }
            Err(Stop::CutShort { position }) if last && position >= covered => checked.cut_short = true,
            Err(Stop::NoBatch { position, .. }) if last && expected.is_some() && position >= covered => {
                checked.cut_short = true;
            }
            Err(Stop::CutShort { position }) => {
                checked.problem(format!("at byte {position}: the file ends within a batch"));
            }
            Err(Stop::NoBatch { position, why }) => checked.problem(format!("at byte {position}: {why}")),
            Err(Stop::Io(error)) => checked.problem(error.to_string()),
        }
    }
    if let Some(entry) = expected
        && checked.problems.is_empty()
        && !ends.contains(&(entry.bytes, entry.last_offset))
    {
        checked.problem(format!(
            "at byte {}: the checkpoint says that the record with offset {} ends there, and it does not",
            entry.bytes, entry.last_offset
        ));
    }
    checked
}

/// Whether offsets in the file have no holes: that of a rewritten segment has a generation in its name.
fn is_dense(file: &Path) -> bool {
    file.file_stem().is_some_and(|stem| !stem.to_string_lossy().contains('.'))
}

impl Checked {
    fn of(path: &Path) -> Checked {
        Checked {
            path: path.display().to_string(),
            batches: 0,
            records: 0,
            bytes: 0,
            cut_short: false,
            problems: Vec::new(),
        }
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// The journal's groups, as the server would read them.
fn check_journal(directory: &Path) -> Checked {
    let mut checked = Checked::of(directory);
    if !directory.exists() {
        checked.problem("the journal is missing".to_owned());
        return checked;
    }
    let mut bytes = 0;
    let mut add = |record: RecoveredRecord| bytes += record.payload.len() as u64;
    match survey_journal(&*RealDisk::shared(), directory, &mut add) {
        Ok(survey) => {
            checked.bytes = bytes;
            checked.batches = survey.groups.len() as u64;
            checked.records = survey.groups.iter().map(|group| u64::from(group.records)).sum();
            checked.cut_short = survey.cut.is_some();
            survey.lost.iter().for_each(|lost| checked.problem(lost.to_string()));
        }
        Err(error) => checked.problem(error.to_string()),
    }
    checked
}
