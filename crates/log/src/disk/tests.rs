//! Both disks do the same things; the simulated one also does what real ones do on a bad day.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;

fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.open(path, OpenMode::Create).unwrap();
    file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
    file
}

fn content(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Whole blocks may go past the page cache, and whoever reads through it must see them all the same.
fn overwrites_are_read_back_however_they_lie(disk: &dyn Disk, path: &Path) {
    const BLOCK: usize = 4096;
    let made = disk.open(path, OpenMode::CreateNew).unwrap();
    made.allocate(8 * BLOCK as u64).unwrap();
    made.sync_data().unwrap();
    let reader = disk.open(path, OpenMode::Read).unwrap();
    let mut expected = vec![0; 8 * BLOCK];
    assert_eq!(content(disk, path), expected);
    let mut memory = vec![0; 4 * BLOCK];
    let edge = memory.as_ptr().align_offset(BLOCK);
    let file = disk.open(path, OpenMode::Overwrite).unwrap();
    for (turn, (start, length, place)) in
        [(edge, 2 * BLOCK, BLOCK), (edge + 1, BLOCK, 4 * BLOCK), (edge, 100, 6 * BLOCK), (edge, BLOCK, 77)]
            .into_iter()
            .enumerate()
    {
        memory[start..start + length].fill(turn as u8 + 1);
        file.write_at(&[IoSlice::new(&memory[start..start + length])], place as u64).unwrap();
        expected[place..place + length].fill(turn as u8 + 1);
        let mut read = vec![0; 8 * BLOCK];
        assert_eq!(reader.read_at(&mut read, 0).unwrap(), read.len());
        assert_eq!(read, expected, "write {turn}");
    }
    file.sync_data().unwrap();
    disk.remove_file(path).unwrap();
}

/// What every disk must do.
fn check_disk(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    disk.create_dir_all(&dir).unwrap();
    disk.create_dir_all(&dir).unwrap();
    let path = dir.join("one");
    let missing = disk.open(&path, OpenMode::Write).unwrap_err();
    assert!(missing.is_not_found() && missing.path == path, "{missing}");

    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    assert_eq!(disk.open(&path, OpenMode::CreateNew).unwrap_err().kind, DiskErrorKind::AlreadyExists);
    let many: Vec<Vec<u8>> = (0..3000u32).map(|i| vec![i as u8; (i % 7) as usize]).collect();
    let slices: Vec<IoSlice<'_>> = many.iter().map(|bytes| IoSlice::new(bytes)).collect();
    file.write_at(&slices, 5000).unwrap();
    let expected = [vec![0; 5000], many.concat()].concat();
    assert_eq!(content(disk, &path), expected);
    let mut cached = vec![0; 100];
    if let Some(n) = file.try_read_cached(&mut cached, 5000).unwrap() {
        assert_eq!(cached[..n], expected[5000..5000 + n]);
    }
    assert_eq!(file.read_at(&mut cached, expected.len() as u64 - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut cached, 1 << 40).unwrap(), 0);

    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), expected.len() as u64, "allocate never shrinks");
    file.allocate(20_000).unwrap();
    assert_eq!(content(disk, &path)[expected.len()..], vec![0; 20_000 - expected.len()]);
    file.set_len(5001).unwrap();
    file.set_len(5003).unwrap();
    assert_eq!(content(disk, &path), [&expected[..5001], &[0, 0]].concat());
    file.sync_data().unwrap();
    disk.sync_dir(&dir).unwrap();
    disk.sync_filesystem(root).unwrap();
    assert!(disk.available_space(root).unwrap() > 0);

    overwrites_are_read_back_however_they_lie(disk, &dir.join("blocks"));

    put(disk, &dir.join("two"), b"2");
    disk.rename(&dir.join("two"), &path).unwrap();
    assert_eq!(content(disk, &path), b"2");
    assert_eq!(file.len().unwrap(), 5003, "a replaced file lives on in its handles");
    let names = |dir: &Path| disk.list(dir).unwrap().into_iter().map(|e| (e.name, e.len, e.is_dir));
    assert_eq!(names(&dir).collect::<Vec<_>>(), [("one".to_owned(), 1, false)]);
    assert_eq!(names(&root.join("a")).collect::<Vec<_>>(), [("b".to_owned(), 0, true)]);

    assert!(disk.remove_dir(&dir).is_err());
    disk.remove_file(&path).unwrap();
    assert!(disk.remove_file(&path).unwrap_err().is_not_found());
    disk.remove_dir(&dir).unwrap();
    assert!(disk.list(&dir).unwrap_err().is_not_found());
}

#[test]
fn a_real_disk_is_a_disk() {
    let root = tempfile::tempdir().unwrap();
    check_disk(&RealDisk, root.path());
}

#[test]
fn a_simulated_disk_is_a_disk() {
    check_disk(&SimDisk::new(1), Path::new("/data"));
}

#[test]
fn a_data_directory_is_locked_once() {
    let root = tempfile::tempdir().unwrap();
    let held = lock_data_dir(root.path()).unwrap();
    let refused = lock_data_dir(root.path()).unwrap_err();
    assert!(refused.to_string().contains(&format!("in use by process {}", std::process::id())), "{refused}");
    drop(held);
    lock_data_dir(root.path()).unwrap();
}

fn path() -> PathBuf {
    PathBuf::from("/d/file")
}

fn prepared(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new("/d")).unwrap();
    put(&disk, &path(), &[1; 8192]).sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk
}

#[test]
fn what_is_synced_survives_and_what_is_not_survives_in_part() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = prepared(seed);
        put(&disk, &path(), &[2; 8192]);
        put(&disk, Path::new("/d/unsynced"), b"x");
        disk.crash();
        let bytes = content(&disk, &path());
        assert_eq!(bytes.len(), 8192);
        let sectors: Vec<u8> = bytes
            .chunks(512)
            .map(|sector| {
                assert!(sector.iter().all(|b| *b == sector[0]), "a sector is written whole");
                sector[0]
            })
            .collect();
        match sectors.iter().filter(|s| **s == 2).count() {
            0 => lost += 1,
            16 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 20 && kept > 20 && torn > 20, "{lost} {kept} {torn}");
}

#[test]
fn the_same_seed_crashes_the_same_way() {
    let run = |seed| {
        let disk = prepared(seed);
        put(&disk, &path(), &[2; 5000]);
        put(&disk, Path::new("/d/other"), b"x");
        disk.crash();
        (content(&disk, &path()), disk.list(Path::new("/d")).unwrap())
    };
    assert_eq!(run(7), run(7));
    assert!((0..20).any(|seed| run(seed) != run(7)));
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let survivors = |seed, sync: bool| {
        let disk = prepared(seed);
        put(&disk, Path::new("/d/new"), b"x").sync_data().unwrap();
        disk.rename(&path(), Path::new("/d/renamed")).unwrap();
        if sync {
            disk.sync_dir(Path::new("/d")).unwrap();
        }
        disk.crash();
        disk.list(Path::new("/d")).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>().join(" ")
    };
    let seen: std::collections::BTreeSet<String> = (0..100).map(|seed| survivors(seed, false)).collect();
    let all = ["file", "file new", "new renamed", "renamed"].map(str::to_owned);
    assert_eq!(seen, all.into_iter().collect());
    assert!((0..100).all(|seed| survivors(seed, true) == "new renamed"));
}

#[test]
fn a_directory_that_was_made_halfway_is_durable_when_it_is_made_again() {
    let dir = Path::new("/d/a/b");
    for seed in 0..20 {
        for operation in 0.. {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(Path::new("/d")).unwrap();
            disk.crash_at(disk.operations() + operation);
            let made = disk.create_dir_all(dir).is_ok();
            disk.kill_process();
            disk.create_dir_all(dir).unwrap();
            put(&disk, &dir.join("file"), b"x").sync_data().unwrap();
            disk.sync_dir(dir).unwrap();
            disk.crash();
            assert_eq!(content(&disk, &dir.join("file")), b"x");
            if made {
                break;
            }
        }
    }
}

#[test]
fn a_failed_sync_leaves_the_cache_clean_and_the_device_behind() {
    let disk = prepared(3);
    let file = put(&disk, &path(), &[2; 8192]);
    disk.fail(Fault { operation: Operation::Sync, after: 0, kind: FaultKind::Io });
    assert_eq!(file.sync_data().unwrap_err().kind, DiskErrorKind::Io);
    file.sync_data().unwrap();
    assert_eq!(content(&disk, &path()), [2; 8192], "the cache shows what was written");
    disk.drop_cache(&path());
    assert_ne!(content(&disk, &path()), [2; 8192], "the device does not have it");
}

#[test]
fn a_crash_at_an_operation_stops_everything_until_the_restart() {
    let disk = prepared(5);
    let file = disk.open(&path(), OpenMode::Write).unwrap();
    let next = disk.operations();
    disk.crash_at(next + 1);
    file.write_at(&[IoSlice::new(b"good")], 0).unwrap();
    assert!(!disk.is_down());
    file.sync_data().unwrap_err();
    assert!(disk.is_down());
    disk.open(&path(), OpenMode::Read).unwrap_err();
    disk.restart();
    file.write_at(&[IoSlice::new(b"dead")], 0).unwrap_err();
    assert_eq!(content(&disk, &path()).len(), 8192);
}

#[test]
fn a_killed_process_leaves_the_cache() {
    let disk = prepared(5);
    let file = put(&disk, &path(), &[2; 100]);
    disk.kill_process();
    file.sync_data().unwrap_err();
    assert_eq!(content(&disk, &path())[..100], [2; 100]);
}

#[test]
fn a_full_disk_refuses_growth_only() {
    let disk = prepared(5);
    disk.set_capacity(Some(12 << 10));
    let file = put(&disk, &path(), &[3; 8192]);
    file.write_at(&[IoSlice::new(&[3; 4096])], 8192).unwrap();
    assert!(file.write_at(&[IoSlice::new(&[3])], 3 * 4096).unwrap_err().is_no_space());
    assert!(file.allocate(5 * 4096).unwrap_err().is_no_space());
    file.write_at(&[IoSlice::new(&[4; 4096])], 0).unwrap();
    file.set_len(4096).unwrap();
    assert_eq!(disk.available_space(Path::new("/d")).unwrap(), 8192);
    file.allocate(12288).unwrap();
}

#[test]
fn a_bit_turned_over_is_read_back_so() {
    let disk = prepared(5);
    assert!(disk.flip_bit(&path(), 4097, 3));
    assert!(!disk.flip_bit(&path(), 8192, 0));
    let bytes = content(&disk, &path());
    assert_eq!((bytes[4096], bytes[4097]), (1, 1 ^ 8));
}

#[test]
fn planned_faults_strike_once_each() {
    let disk = prepared(5);
    let file = disk.open(&path(), OpenMode::Write).unwrap();
    disk.fail(Fault { operation: Operation::Write, after: 1, kind: FaultKind::NoSpace });
    disk.fail(Fault { operation: Operation::Read, after: 0, kind: FaultKind::Io });
    file.write_at(&[IoSlice::new(b"a")], 0).unwrap();
    assert!(file.write_at(&[IoSlice::new(b"b")], 0).unwrap_err().is_no_space());
    file.write_at(&[IoSlice::new(b"c")], 0).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, 0).unwrap_err().kind, DiskErrorKind::Io);
    assert_eq!((file.read_at(&mut byte, 0).unwrap(), byte), (1, *b"c"));
}
