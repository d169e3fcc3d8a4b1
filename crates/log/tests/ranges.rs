//! Records that are sent from where they lie: the same bytes as are read, and only if they are known to be sound and
//! at hand.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use weir_log::disk::{FileRange, RealDisk, SimDisk};
use weir_log::partition::{
    HandleCache, PartitionLog, PartitionManifest, PartitionReader, RangeChunk, ReadError, ReadOptions,
};
use weir_model::Offset;
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch};

const BATCH_BYTES: usize = 5_000;
const SIM_DIR: &str = "/shards/1/7";

fn batch(base: Offset) -> StoredBatch {
    let mut builder = BatchBuilder::new();
    for record in 0..2 {
        builder.push(base, None, Some(&vec![(base + record) as u8; BATCH_BYTES / 2]), &[]);
    }
    let bytes = builder.build();
    let header = BatchHeader::parse(&bytes).unwrap();
    StoredBatch::place(&header, bytes, base, 5)
}

fn append(log: &mut PartitionLog, batches: usize) {
    for _ in 0..batches {
        let batch = batch(log.end());
        log.append(&[batch], 1).unwrap();
    }
}

/// A closed segment of 100 batches and an open one of 50.
fn two_segments(handles: &Arc<HandleCache>, dir: &Path) -> PartitionLog {
    let (mut log, _) = PartitionLog::open(handles, dir, &PartitionManifest::default()).unwrap();
    append(&mut log, 100);
    log.roll();
    append(&mut log, 50);
    log
}

fn reopen(
    log: &mut PartitionLog,
    sync: &dyn Fn(weir_log::partition::DirtyFiles),
    handles: &Arc<HandleCache>,
    dir: &Path,
) -> PartitionLog {
    sync(log.take_dirty());
    let (manifest, _) = log.manifest().unwrap();
    PartitionLog::open(handles, dir, &manifest).unwrap().0
}

fn read(reader: &PartitionReader, offset: Offset, max_bytes: usize) -> (Vec<u8>, Offset) {
    let options = ReadOptions { max_bytes, at_least_one: true, cached_only: false };
    let chunk = reader.read(offset, options).unwrap();
    (chunk.bytes.to_vec(), chunk.next_offset)
}

/// A range, when read, is what a read of the same place gives, or less of it.
fn check_range(reader: &PartitionReader, found: &RangeChunk, offset: Offset) {
    let bytes = found.range.first(usize::MAX).unwrap();
    assert_eq!((bytes.to_vec(), found.next_offset), read(reader, offset, bytes.len()), "offset {offset}");
}

/// Follows the ranges from an offset on, checks each, and returns where they end.
fn follow(reader: &PartitionReader, mut offset: Offset, max_bytes: usize) -> Offset {
    while let Some(found) = reader.range(offset, max_bytes) {
        assert!(found.range.len() <= max_bytes && found.next_offset > offset);
        check_range(reader, &found, offset);
        offset = found.next_offset;
    }
    offset
}

#[test]
fn what_this_process_wrote_is_given_as_ranges_of_whole_batches() {
    let disk = SimDisk::new(1);
    let handles = HandleCache::new(disk.shared(), 100);
    let log = two_segments(&handles, Path::new(SIM_DIR));
    let reader = log.reader();
    for max_bytes in [40_000, 64 << 10, 1 << 20] {
        for offset in 0..300 {
            let end = follow(&reader, offset, max_bytes);
            // The rest of each segment is too small to be worth it, and is read.
            let small = |segment_end: Offset| (segment_end - 14..=segment_end).contains(&end);
            assert!(small(200) || small(300), "from {offset} by {max_bytes}: {end}");
        }
    }
    assert!(reader.range(0, 20_000).is_none(), "too little to be worth it");
    for outside in [-1, 300, 301, Offset::MAX] {
        assert!(reader.range(outside, 1 << 20).is_none());
    }
}

#[test]
fn what_was_there_before_is_read_and_checked_once_first() {
    let disk = SimDisk::new(1);
    let dir = Path::new(SIM_DIR);
    let handles = HandleCache::new(disk.shared(), 100);
    let mut log = two_segments(&handles, dir);
    let handles = HandleCache::new(disk.shared(), 100);
    let log = reopen(&mut log, &|dirty| dirty.sync(&disk).unwrap(), &handles, dir);
    let reader = log.reader();
    assert!(reader.range(0, 1 << 20).is_none());
    let (_, next) = read(&reader, 0, 300_000);
    assert_eq!(next, 118);
    let found = reader.range(0, 1 << 20).unwrap();
    check_range(&reader, &found, 0);
    assert_eq!(found.next_offset, next, "and not more than was read");
    assert!(reader.range(next, 1 << 20).is_none());
}

#[test]
fn what_is_not_at_hand_is_read_and_checked_anew() {
    let disk = SimDisk::new(1);
    let handles = HandleCache::new(disk.shared(), 100);
    let log = two_segments(&handles, Path::new(SIM_DIR));
    let reader = log.reader();
    disk.set_cached(false);
    assert!(reader.range(0, 1 << 20).is_none());
    disk.set_cached(true);
    assert!(reader.range(0, 1 << 20).is_some_and(|found| found.next_offset > 0), "nothing was looked at");
    read(&reader, 0, 40_000);
    disk.set_cached(false);
    assert!(reader.range(0, 1 << 20).is_none());
}

#[test]
fn damage_is_never_sent_from_where_it_lies() {
    let disk = SimDisk::new(1);
    let dir = Path::new(SIM_DIR);
    let handles = HandleCache::new(disk.shared(), 100);
    let mut log = two_segments(&handles, dir);
    let handles = HandleCache::new(disk.shared(), 100);
    let log = reopen(&mut log, &|dirty| dirty.sync(&disk).unwrap(), &handles, dir);
    let reader = log.reader();
    let damaged = 30 * batch(0).len() as u64 + 500;
    disk.flip_bit(&dir.join("00000000000000000000.log"), damaged, 3);
    let (_, next) = read(&reader, 0, 1 << 20);
    assert_eq!(next, 60, "the read ends before it");
    assert_eq!(follow(&reader, 0, 1 << 20), 60);
    let options = ReadOptions { max_bytes: 1 << 20, at_least_one: true, cached_only: false };
    assert!(matches!(reader.read(60, options), Err(ReadError::Corrupt(_))));
    assert!(reader.range(60, 1 << 20).is_none());
}

/// Sends all of a range, whatever the socket takes at a time, and returns what came out at the other end.
fn sent(mut range: FileRange, socket: &impl AsFd, mut peer: impl Read + Send) -> Vec<u8> {
    let mut received = vec![0; range.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| peer.read_exact(&mut received).unwrap());
        while !range.is_empty() {
            match range.send(socket.as_fd()) {
                Ok(sent) => assert!(sent > 0),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    });
    received
}

#[test]
fn a_real_file_goes_into_a_real_socket() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("7");
    std::fs::create_dir(&dir).unwrap();
    let handles = HandleCache::new(RealDisk::shared(), 100);
    let mut log = two_segments(&handles, &dir);
    let reader = log.reader();
    let Some(found) = reader.range(0, 1 << 20) else {
        // A system that cannot tell what is cached (Linux before 6.5) reads everything.
        assert!(log.reader().range(200, 1 << 20).is_none());
        return;
    };
    check_range(&reader, &found, 0);
    let (expected, _) = read(&reader, 0, found.range.len());
    let (socket, peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    assert_eq!(sent(found.range.clone(), &socket, peer), expected);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (peer, _) = listener.accept().unwrap();
    // Also when the segment is gone meanwhile.
    sync_all(log.take_dirty());
    log.retire_below(200);
    let (_, ticket) = log.manifest().unwrap();
    log.unlink_retired(ticket).unwrap();
    assert_eq!(sent(found.range, &socket, peer), expected);
}

fn sync_all(dirty: weir_log::partition::DirtyFiles) {
    dirty.sync(&RealDisk).unwrap();
}

#[test]
fn a_file_that_became_shorter_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let handles = HandleCache::new(RealDisk::shared(), 100);
    let log = two_segments(&handles, root.path());
    let Some(mut found) = log.reader().range(0, 1 << 20) else { return };
    let file =
        std::fs::OpenOptions::new().write(true).open(root.path().join("00000000000000000000.log")).unwrap();
    file.set_len(0).unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    assert_eq!(found.range.first(10).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(found.range.send(socket.as_fd()).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}
