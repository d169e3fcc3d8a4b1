//! The journal against a naive model, on a disk that loses power at every operation in turn.
//!
//! The model is the list of records appended so far. Whatever happens, what opening the journal
//! hands over is an unbroken stretch of that list that leaves out nothing that was synced and not
//! released, and nothing that was once cut off ever comes back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_log::disk::{Fault, FaultKind, Operation, SimDisk};
use weir_log::journal::{
    Journal, JournalError, JournalOptions, JournalRecord, Position, RecordKind, RecoveredRecord,
};
use weir_model::ShardId;

const DIR: &str = "/data/journal";

fn options() -> JournalOptions {
    JournalOptions {
        file_bytes: 64 << 10,
        group_bytes_max: 16 << 10,
        journal_bytes_max: 1 << 20,
        spare_files_max: 1,
        identity: 0x5eed,
        accept_loss_from: None,
        must_exist: false,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    /// Unknown while it is not sure that the append came about.
    position: Option<Position>,
    shard: ShardId,
    kind: RecordKind,
    payload: Bytes,
}

type Kept = BTreeMap<(ShardId, RecordKind), Bytes>;

/// What was appended, and what of it must be there.
#[derive(Default)]
struct Model {
    records: Vec<Written>,
    /// Records that are synced.
    synced: usize,
    /// Records that were released, or may have been.
    released: usize,
    made: u64,
}

impl Model {
    fn make(&mut self, rng: &mut SmallRng) -> Written {
        self.made += 1;
        let shard = ShardId(rng.random_range(0..3));
        let kind = RecordKind([1, 2, 0x80, 0x81][rng.random_range(0..4)]);
        let len = match rng.random_range(0..10) {
            0..6 => rng.random_range(8..200),
            6..9 => rng.random_range(200..5000),
            _ => rng.random_range(5000..15_000),
        };
        let len = if kind.is_kept() { len % 300 } else { len };
        let mut payload = vec![self.made as u8; len];
        if len >= 8 {
            payload[..8].copy_from_slice(&self.made.to_le_bytes());
        } else if kind.is_kept() {
            payload.clear();
        }
        Written { position: None, shard, kind, payload: payload.into() }
    }

    fn kept(&self) -> Kept {
        let mut kept = Kept::new();
        for record in self.records.iter().filter(|record| record.kind.is_kept()) {
            if record.payload.is_empty() {
                kept.remove(&(record.shard, record.kind));
            } else {
                kept.insert((record.shard, record.kind), record.payload.clone());
            }
        }
        kept
    }

    /// Compares with what a journal handed over; from then on the two agree.
    fn reconcile(&mut self, recovered: &[RecoveredRecord]) {
        let originals: Vec<&RecoveredRecord> = recovered.iter().filter(|record| !record.repeated).collect();
        let same = |written: &Written, read: &RecoveredRecord| {
            written.position.is_none_or(|position| position == read.position)
                && (written.shard, written.kind) == (read.shard, read.kind)
                && written.payload == read.payload
        };
        let start = match originals.first() {
            None => self.synced.max(self.released),
            Some(first) => self
                .records
                .iter()
                .position(|written| same(written, first))
                .unwrap_or_else(|| panic!("a record nobody appended, or cut before: {first:?}")),
        };
        let end = start + originals.len();
        assert!(start <= self.released, "lost: from {start}, released {}", self.released);
        assert!(end >= self.synced, "lost: to {end}, synced {}", self.synced);
        assert!(end <= self.records.len(), "more than was appended");
        for (written, read) in self.records[start..end].iter_mut().zip(&originals) {
            assert!(same(written, read), "expected {written:?}, found {read:?}");
            written.position = Some(read.position);
        }
        assert!(recovered.windows(2).all(|pair| pair[0].position < pair[1].position));
        self.records.truncate(end);
        self.synced = end;
        self.released = start;

        let mut kept = Kept::new();
        for record in recovered.iter().filter(|record| record.kind.is_kept()) {
            if record.payload.is_empty() {
                kept.remove(&(record.shard, record.kind));
            } else {
                kept.insert((record.shard, record.kind), record.payload.clone());
            }
        }
        assert_eq!(kept, self.kept(), "the latest of each kept kind");
    }
}

fn open(disk: &SimDisk, options: JournalOptions) -> Result<(Journal, Vec<RecoveredRecord>), JournalError> {
    let mut recovered = Vec::new();
    Journal::open(disk.shared(), Path::new(DIR), options, &mut |record| recovered.push(record))
        .map(|(journal, _)| (journal, recovered))
}

/// One random step. `Err` when the disk went down.
fn step(journal: &mut Journal, model: &mut Model, rng: &mut SmallRng) -> Result<(), JournalError> {
    match rng.random_range(0..20) {
        0..9 => {
            let batch: Vec<Written> = (0..rng.random_range(1..5)).map(|_| model.make(rng)).collect();
            let chunks: Vec<Vec<Bytes>> = batch
                .iter()
                .map(|record| {
                    let at = rng.random_range(0..=record.payload.len());
                    vec![record.payload.slice(..at), record.payload.slice(at..)]
                })
                .collect();
            let records: Vec<JournalRecord<'_>> = batch
                .iter()
                .zip(&chunks)
                .map(|(record, chunks)| JournalRecord { shard: record.shard, kind: record.kind, chunks })
                .collect();
            let before = model.records.len();
            model.records.extend(batch.iter().cloned());
            match journal.append(&records) {
                Ok(positions) => {
                    for (written, position) in model.records[before..].iter_mut().zip(positions) {
                        written.position = Some(position);
                    }
                }
                Err(JournalError::Full { .. }) => {
                    // Some of it may have gone before the file was full.
                    release(journal, model, model.synced)?;
                    journal.sync()?;
                    return Err(JournalError::Options("stop here"));
                }
                Err(error) => return Err(error),
            }
        }
        9..15 => {
            journal.sync()?;
            model.synced = model.records.len();
        }
        15..17 => {
            journal.seal()?;
            model.synced = model.records.len();
        }
        17..19 => {
            let keep = rng.random_range(0..10).min(model.synced);
            release(journal, model, model.synced - keep)?;
        }
        _ => journal.prepare_spare()?,
    }
    if let Some(written) = model.records[model.released..].last()
        && let Some(position) = written.position
    {
        let read = journal.read(position)?;
        assert_eq!((read.position, &read.payload), (position, &written.payload));
    }
    Ok(())
}

fn release(journal: &mut Journal, model: &mut Model, upto: usize) -> Result<(), JournalError> {
    let Some(position) = model.records.get(upto).map_or(Some(journal.durable()), |record| record.position)
    else {
        return Ok(());
    };
    model.released = model.released.max(upto);
    journal.release_below(position)
}

/// Runs steps until one fails or all are done, then what `disturb` does to the disk, three times,
/// each time checking what is left.
fn check(seed: u64, steps: usize, crash_at: Option<u64>, disturb: impl Fn(&SimDisk)) -> u64 {
    let disk = SimDisk::new(seed);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = Model::default();
    for _ in 0..3 {
        if let Some(operation) = crash_at {
            disk.crash_at(disk.operations() + operation);
        }
        if let Ok((mut journal, recovered)) = open(&disk, options()) {
            model.reconcile(&recovered);
            for _ in 0..steps {
                if step(&mut journal, &mut model, &mut rng).is_err() {
                    break;
                }
            }
        }
        disturb(&disk);
        let (_, recovered) = open(&disk, options()).expect("a journal that only lost power opens");
        model.reconcile(&recovered);
        disk.crash();
    }
    disk.operations()
}

#[test]
fn power_loss_at_every_operation_loses_nothing_synced() {
    for seed in 0..8 {
        let operations = check(seed, 60, None, SimDisk::crash) / 3;
        for operation in 0..operations {
            check(seed, 60, Some(operation), SimDisk::crash);
        }
    }
}

#[test]
fn power_loss_after_many_different_runs_loses_nothing_synced() {
    for seed in 1000..2500 {
        check(seed, 5 + seed as usize % 60, None, SimDisk::crash);
    }
}

#[test]
fn a_killed_process_loses_nothing_at_all_that_was_appended() {
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut model = Model::default();
        for _ in 0..4 {
            let (mut journal, recovered) = open(&disk, options()).unwrap();
            model.synced = model.records.len();
            model.reconcile(&recovered);
            for _ in 0..30 {
                if step(&mut journal, &mut model, &mut rng).is_err() {
                    model.records.retain(|record| record.position.is_some());
                    break;
                }
            }
            disk.kill_process();
        }
    }
}

#[test]
fn after_a_failed_sync_the_page_cache_is_not_believed() {
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut model = Model::default();
        let (mut journal, _) = open(&disk, options()).unwrap();
        for _ in 0..20 {
            step(&mut journal, &mut model, &mut rng).unwrap();
        }
        disk.fail(Fault { operation: Operation::Sync, after: seed % 3, kind: FaultKind::Io });
        while step(&mut journal, &mut model, &mut rng).is_ok() {}
        disk.heal();
        // A failing creation of a spare file is no harm; every other failed sync is final.
        if journal.sync().is_err() {
            assert!(matches!(journal.append(&[]), Err(JournalError::Poisoned(_))));
            assert!(matches!(journal.seal(), Err(JournalError::Poisoned(_))));
        } else {
            continue;
        }
        disk.kill_process();
        // The next process sees what was never written to the device ...
        let (journal, recovered) = open(&disk, options()).unwrap();
        drop(journal);
        model.reconcile(&recovered);
        // ... and whatever it was told must survive from then on.
        disk.crash();
        let (_, recovered) = open(&disk, options()).unwrap();
        model.reconcile(&recovered);
    }
}

/// Many short lives of one journal, each with its own options, of which some end in the middle of
/// the next one's recovery: the power goes or the process dies, and single operations fail. What
/// the journal's owner would survive, goes on.
#[test]
fn crashes_and_failures_on_top_of_each_other_lose_nothing_synced() {
    for seed in 0..1500u64 {
        let disk = SimDisk::new(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut model = Model::default();
        for _ in 0..8 {
            if rng.random_range(0..3) > 0 {
                let soon = if rng.random() { 12 } else { 150 };
                disk.crash_at(disk.operations() + rng.random_range(0..soon));
            }
            let mut failing = false;
            while rng.random_range(0..3) == 0 {
                failing = true;
                let operation = [Operation::Sync, Operation::Name, Operation::Write][rng.random_range(0..3)];
                let kind = [FaultKind::Io, FaultKind::NoSpace][rng.random_range(0..2)];
                disk.fail(Fault { operation, after: rng.random_range(0..20), kind });
            }
            let options = JournalOptions {
                file_bytes: [64 << 10, 96 << 10][rng.random_range(0..2)],
                spare_files_max: rng.random_range(0..3),
                ..options()
            };
            match open(&disk, options) {
                Ok((mut journal, recovered)) => {
                    model.reconcile(&recovered);
                    for _ in 0..rng.random_range(0..60) {
                        match step(&mut journal, &mut model, &mut rng) {
                            Ok(()) => {}
                            // Files could not be made or given back, and nothing was lost by it.
                            Err(JournalError::Disk(_))
                                if !disk.is_down()
                                    && model.records.last().is_none_or(|r| r.position.is_some()) => {}
                            Err(_) => break,
                        }
                    }
                }
                Err(error) => assert!(failing || disk.is_down(), "seed {seed}: {error}"),
            }
            disk.heal();
            if rng.random() { disk.crash() } else { disk.kill_process() }
        }
        for _ in 0..2 {
            let opened = open(&disk, options());
            let (_, recovered) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            model.reconcile(&recovered);
            disk.crash();
        }
    }
}

/// A sealed journal of a few files.
fn sealed(seed: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = Model::default();
    let (mut journal, _) = open(&disk, options()).unwrap();
    for _ in 0..50 {
        step(&mut journal, &mut model, &mut rng).unwrap();
    }
    journal.seal().unwrap();
    model.synced = model.records.len();
    disk.crash();
    (disk, model)
}

#[test]
fn one_flipped_bit_is_reported_or_harmless() {
    let (mut reported, mut harmless) = (0, 0);
    for seed in 0..400u64 {
        let (disk, mut model) = sealed(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let files = weir_log::disk::Disk::list(&disk, Path::new(DIR)).unwrap();
        let file = &files[rng.random_range(0..files.len())];
        let path = Path::new(DIR).join(&file.name);
        // Half of the time where headers are.
        let place = rng.random_range(0..file.len);
        let place = if seed % 2 == 0 { place / 4096 * 4096 + place % 100 } else { place };
        assert!(disk.flip_bit(&path, place, rng.random_range(0..8)));
        match open(&disk, options()) {
            Ok((journal, recovered)) => {
                drop(journal);
                model.reconcile(&recovered);
                harmless += 1;
            }
            Err(JournalError::Corrupt { lost, .. }) => {
                reported += 1;
                accept(&disk, &model, lost[0].from);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(reported > 50 && harmless > 50, "{reported} {harmless}");
}

/// Accepts the loss, and checks that everything else is there, then and ever after.
fn accept(disk: &SimDisk, model: &Model, from: Position) {
    let above = JournalOptions { accept_loss_from: Some(Position(from.0 + 1)), ..options() };
    assert!(matches!(open(disk, above), Err(JournalError::Corrupt { .. })), "not what was accepted");
    let mut recovered = Vec::new();
    let accepting = JournalOptions { accept_loss_from: Some(from), ..options() };
    let (journal, report) =
        Journal::open(disk.shared(), Path::new(DIR), accepting, &mut |record| recovered.push(record))
            .unwrap();
    drop(journal);
    let lost = &report.accepted_losses;
    assert!(!lost.is_empty());
    let present: Vec<Position> = recovered.iter().filter(|r| !r.repeated).map(|r| r.position).collect();
    let base = recovered.first().map_or(Position(u64::MAX), |record| record.position).min(from);
    let expected: Vec<Position> = model
        .records
        .iter()
        .filter_map(|record| record.position)
        .filter(|p| *p >= base && !lost.iter().any(|range| range.from <= *p && *p < range.to))
        .collect();
    assert_eq!(present, expected);
    disk.crash();
    let (_, again) = open(disk, options()).expect("the acceptance is written down");
    let again: Vec<Position> = again.iter().filter(|r| !r.repeated).map(|r| r.position).collect();
    assert_eq!(again, expected);
}

#[test]
fn a_missing_file_is_reported() {
    for seed in 0..40 {
        let (disk, _) = sealed(seed);
        let (journal, _) = open(&disk, options()).unwrap();
        let files = journal.files();
        drop(journal);
        for gone in &files[..files.len() - 1] {
            let path = Path::new(DIR).join(format!("{:020}.journal", gone.number));
            let disk: Arc<dyn weir_log::disk::Disk> = disk.shared();
            let aside = path.with_extension("aside");
            disk.rename(&path, &aside).unwrap();
            let opened = Journal::open(Arc::clone(&disk), Path::new(DIR), options(), &mut |_| {});
            match opened {
                Err(JournalError::Corrupt { lost, .. }) => {
                    assert_eq!((lost[0].from, lost[0].to), (gone.base, gone.end));
                }
                other => panic!("{other:?}"),
            }
            disk.rename(&aside, &path).unwrap();
        }
    }
}
