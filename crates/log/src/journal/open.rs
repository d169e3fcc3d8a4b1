//! Opening a journal: what is there is read, what may only be cached is written again, what was
//! never durable is cut off, and what is lost is said.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::encode::GroupEncoder;
use super::format::{
    ALIGNMENT, GROUP_BYTES_LIMIT, GROUP_HEADER_BYTES, JOURNAL_SHARD, KIND_ACCEPTED_LOSSES,
    RECORD_HEADER_BYTES,
};
use super::reader::{JournalReader, ReadableFile};
use super::recovery::{Plan, plan};
use super::scan::{ScannedFile, read_group, scan_dir};
use super::types::{
    JournalError, JournalOptions, JournalRecord, Position, RecordKind, RecoveredRecord, RecoveryReport,
};
use super::{Journal, LiveFile};
use crate::disk::{Disk, OpenMode};

impl JournalOptions {
    /// Longest payload of a record.
    pub(super) fn record_bytes_max(&self) -> usize {
        self.group_bytes_max - GROUP_HEADER_BYTES - RECORD_HEADER_BYTES
    }

    /// What kept records may take, so that a new file has room for the group it was begun for.
    pub(super) fn kept_bytes_max(&self) -> usize {
        (self.file_bytes / 8) as usize
    }

    fn check(&self) -> Result<(), JournalError> {
        let why = if !self.file_bytes.is_multiple_of(ALIGNMENT) || self.file_bytes < 8 * ALIGNMENT {
            "files must be a multiple of 4096 bytes and at least 32 KiB"
        } else if self.group_bytes_max as u64 > self.file_bytes / 2 {
            "a group may be at most half a file"
        } else if self.group_bytes_max > GROUP_BYTES_LIMIT || self.group_bytes_max < ALIGNMENT as usize {
            "a group may be from 4 KiB to 64 MiB"
        } else if self.journal_bytes_max < 2 * self.file_bytes {
            "the journal must be allowed two files at least"
        } else {
            return Ok(());
        };
        Err(JournalError::Options(why))
    }
}

impl Journal {
    /// Opens the journal in a directory, making it if it is not there, and hands every record that
    /// is in it to `recovered`, in order. What `recovered` got is durable once this returns; if it
    /// returns an error, it must be forgotten.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        recovered: &mut dyn FnMut(RecoveredRecord),
    ) -> Result<(Journal, RecoveryReport), JournalError> {
        options.check()?;
        disk.create_dir_all(dir)?;
        // Whatever names we see now, we also see after a crash.
        disk.sync_dir(dir)?;
        let files = scan_dir(&*disk, dir, OpenMode::Overwrite, Some(options.identity))?;
        let plan = plan(&files, options.accept_loss_from);
        if plan.groups.is_empty() && options.must_exist && options.accept_loss_from.is_none() {
            return Err(JournalError::Gone(dir.to_owned()));
        }
        if !plan.lost.is_empty() {
            return Err(JournalError::Corrupt { directory: dir.to_owned(), lost: plan.lost });
        }
        let mut report = RecoveryReport {
            groups: plan.groups.len() as u64,
            known_durable: Position(plan.durable),
            cut: plan.cut,
            accepted_losses: [&plan.accepted_before[..], &plan.accepted_now[..]].concat(),
            ..RecoveryReport::default()
        };
        report.bytes_rewritten = rewrite_uncertain(&files, &plan)?;
        let mut journal = Journal::over(disk, dir, options, &files, &plan);
        report.files = journal.live.len();
        report.records = journal.hand_over(&files, &plan, recovered)?;
        journal.settle(&files, &plan)?;
        Ok((journal, report))
    }

    fn over(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        files: &[ScannedFile],
        plan: &Plan,
    ) -> Journal {
        let reader = JournalReader::default();
        let mut live: VecDeque<LiveFile> = VecDeque::new();
        for at in &plan.groups {
            let scanned = &files[at.file];
            let base = scanned.base().unwrap_or(plan.first);
            if live.back().is_none_or(|last| last.number != scanned.number) {
                let capacity = scanned.len - scanned.len % ALIGNMENT;
                let file = Arc::clone(&scanned.file);
                reader.add(Arc::new(ReadableFile {
                    path: scanned.path.clone(),
                    base,
                    capacity,
                    file: Arc::clone(&file),
                }));
                live.push_back(LiveFile { number: scanned.number, base, head_end: base, capacity, file });
            }
        }
        let durable_written = plan.durable;
        Journal {
            disk,
            dir: dir.to_owned(),
            options,
            live,
            spares: VecDeque::new(),
            being_made: None,
            highest_number: files.last().map_or(0, |file| file.number),
            end: plan.end,
            durable: plan.end,
            first: plan.first,
            records_end: plan.end,
            durable_written,
            kept: BTreeMap::new(),
            reader,
            encoder: GroupEncoder::default(),
            poisoned: None,
        }
    }

    /// Hands over every record, and learns the kept ones.
    fn hand_over(
        &mut self,
        files: &[ScannedFile],
        plan: &Plan,
        recovered: &mut dyn FnMut(RecoveredRecord),
    ) -> Result<u64, JournalError> {
        let mut count = 0;
        for at in &plan.groups {
            let (file, group) = (&files[at.file], &files[at.file].groups[at.group]);
            let (bytes, records) = read_group(file, group)?;
            let bytes = Bytes::from(bytes);
            for record in records.iter().filter(|record| record.header.shard != JOURNAL_SHARD) {
                let payload = bytes.slice(record.payload());
                let (shard, kind) = (record.header.shard, RecordKind(record.header.kind));
                if kind.is_kept() {
                    self.keep(shard, kind, Bytes::copy_from_slice(&payload));
                }
                let position = Position(group.header.position + record.at as u64);
                recovered(RecoveredRecord {
                    position,
                    shard,
                    kind,
                    payload,
                    repeated: group.header.repeated,
                });
                count += 1;
            }
        }
        Ok(count)
    }

    /// Makes the outcome of this opening durable: the end of the log, and accepted losses.
    fn settle(&mut self, files: &[ScannedFile], plan: &Plan) -> Result<(), JournalError> {
        let in_use = |number| self.live.iter().any(|live: &LiveFile| live.number == number);
        let last_begun =
            files.iter().rev().find(|file| !file.groups.is_empty()).map_or(0, |file| file.number);
        let unused: Vec<(u64, u64)> =
            files.iter().filter(|file| !in_use(file.number)).map(|file| (file.number, file.len)).collect();
        for (number, _) in unused.iter().filter(|(number, _)| *number > last_begun) {
            self.spares.push_back(*number);
        }
        // Behind the cut lie groups that would be taken for good ones if the log grew up to them.
        // A file that begins at the cut makes them nothing.
        if self.live.is_empty() || plan.cut.is_some_and(|cut| cut.groups_dropped > 0) {
            self.begin_file()?;
        }
        if !plan.accepted_now.is_empty() {
            self.write_accepted_losses(plan)?;
        }
        if self.durable_written < self.records_end {
            self.make_room_unlimited(&[])?;
            self.write_group(&[], false, false, &mut Vec::new())?;
        }
        self.sync()?;
        for (number, bytes) in unused.into_iter().filter(|(number, _)| *number <= last_begun) {
            self.recycle(number, bytes)?;
        }
        Ok(())
    }

    fn write_accepted_losses(&mut self, plan: &Plan) -> Result<(), JournalError> {
        let ranges: Vec<u8> = plan
            .accepted_now
            .iter()
            .flat_map(|range| [range.from.0.to_le_bytes(), range.to.0.to_le_bytes()])
            .flatten()
            .collect();
        let chunks = [Bytes::from(ranges)];
        let kind = RecordKind(KIND_ACCEPTED_LOSSES);
        let records = [JournalRecord { shard: JOURNAL_SHARD, kind, chunks: &chunks }];
        self.make_room_unlimited(&records)?;
        self.write_group(&records, false, false, &mut Vec::new())
    }
}

/// Writes again, as they are, the groups that nothing says were durable: what a read shows may only
/// be in the page cache, which forgets what the device refused. Returns their bytes.
fn rewrite_uncertain(files: &[ScannedFile], plan: &Plan) -> Result<u64, JournalError> {
    let mut rewritten = 0;
    let mut touched: Vec<usize> = Vec::new();
    for at in &plan.groups {
        let (file, group) = (&files[at.file], &files[at.file].groups[at.group]);
        if group.header.position < plan.durable {
            continue;
        }
        let (bytes, _) = read_group(file, group)?;
        file.file.write_at(&[IoSlice::new(&bytes)], group.place)?;
        rewritten += bytes.len() as u64;
        if touched.last() != Some(&at.file) {
            touched.push(at.file);
        }
    }
    for file in touched {
        files[file].file.sync_data()?;
    }
    Ok(rewritten)
}
