//! The receiving side, which is measured.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use crate::Amount;

/// Bytes of the ring that stands for a journal: written in place again and again, so that its pages are
/// there already.
pub(crate) const RING_BYTES: u64 = 256 << 20;

/// The two files that each chunk is written to.
pub(crate) struct Files {
    ring: File,
    growing: File,
}

impl Files {
    /// Makes the files and fills as much of the ring as will be written.
    pub(crate) fn prepare(directory: &Path, amount: Amount) -> io::Result<Files> {
        let create = |name: &str| OpenOptions::new().write(true).create_new(true).open(directory.join(name));
        let ring = create("ring")?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..RING_BYTES.min(amount.bytes)).step_by(zeros.len()) {
            ring.write_all_at(&zeros, offset)?;
        }
        Ok(Files { ring, growing: create("growing")? })
    }
}

/// What it took.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Of this thread alone.
    pub(crate) cpu_seconds: f64,
    /// Of all bytes; using it keeps it from being optimised away.
    pub(crate) crc32c: u32,
}

/// Serves one sender.
pub(crate) fn receive(listener: &TcpListener, files: &Files, amount: Amount) -> io::Result<Cost> {
    let (mut connection, _) = listener.accept()?;
    let (began, cpu_began) = (seconds(ClockId::Monotonic), seconds(ClockId::ThreadCPUTime));
    let mut chunk = vec![0; amount.chunk as usize];
    let length = u64::from(amount.chunk);
    let (mut received, mut place_in_ring, mut crc32c) = (0, 0, 0);
    while received + length <= amount.bytes {
        connection.read_exact(&mut chunk)?;
        crc32c = crc32c::crc32c_append(crc32c, &chunk);
        if place_in_ring + length > RING_BYTES {
            place_in_ring = 0;
        }
        files.ring.write_all_at(&chunk, place_in_ring)?;
        files.growing.write_all_at(&chunk, received)?;
        place_in_ring += length;
        received += length;
    }
    Ok(Cost {
        bytes: received,
        seconds: seconds(ClockId::Monotonic) - began,
        cpu_seconds: seconds(ClockId::ThreadCPUTime) - cpu_began,
        crc32c,
    })
}

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
