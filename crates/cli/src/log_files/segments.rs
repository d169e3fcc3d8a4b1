//! Where segment files are, and their batches one by one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use weir_model::batch::{BATCH_HEADER_BYTES, BatchError, BatchHeader, LENGTH_PREFIX_BYTES, verify_batch};

use crate::exit::Failure;

/// How deep segment files lie below a data directory: `shards/<shard>/<partition>/<file>`.
const DEPTH_MAX: usize = 4;

/// Largest batch that is believed: no setting allows one as large.
const BATCH_BYTES_MAX: usize = 512 << 20;

/// All segment files at or below a path, in the order of their names.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let kind = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if kind.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    collect(path, DEPTH_MAX, &mut files).map_err(|error| unreadable(path, &error))?;
    files.sort();
    Ok(files)
}

fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if depth > 1 {
                collect(&path, depth - 1, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "log") {
            files.push(path);
        }
    }
    Ok(())
}

/// A file or directory that the system does not let us read.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::Usage(format!("{} cannot be read: {error}", path.display()))
}

/// A batch where it lies.
pub struct PlacedBatch {
    /// Position of its first byte in the file.
    pub position: u64,
    pub header: BatchHeader,
    pub bytes: Bytes,
    /// Whether its checksum and counts are right.
    pub verified: Result<(), BatchError>,
}

/// Why a file cannot be read on.
#[derive(Debug)]
pub enum Stop {
    /// It ends within a batch. That is how a file looks whose last write was interrupted.
    CutShort { position: u64 },
    /// What stands there is not a batch.
    NoBatch { position: u64, why: String },
    /// The system does not let us read it.
    Io(io::Error),
}

/// A segment file's batches, in order.
pub struct Batches {
    file: File,
    position: u64,
    done: bool,
}

impl Batches {
    pub fn open(path: &Path) -> Result<Batches, Failure> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        Ok(Batches { file, position: 0, done: false })
    }

    fn read(&mut self) -> Result<Option<PlacedBatch>, Stop> {
        let position = self.position;
        let mut head = [0; BATCH_HEADER_BYTES];
        match fill(&mut self.file, &mut head).map_err(Stop::Io)? {
            0 => return Ok(None),
            BATCH_HEADER_BYTES => {}
            _ => return Err(Stop::CutShort { position }),
        }
        let length = i32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let total = usize::try_from(length).ok().map(|length| LENGTH_PREFIX_BYTES + length);
        let total = total.filter(|total| (BATCH_HEADER_BYTES..=BATCH_BYTES_MAX).contains(total));
        let total = total
            .ok_or_else(|| Stop::NoBatch { position, why: format!("its length field says {length}") })?;
        let rest = (total - BATCH_HEADER_BYTES) as u64;
        // Grows with what is really there, whatever the length field says.
        let mut bytes = head.to_vec();
        let read = (&self.file).take(rest).read_to_end(&mut bytes).map_err(Stop::Io)?;
        if (read as u64) < rest {
            return Err(Stop::CutShort { position });
        }
        let bytes = BytesMut::from(&bytes[..]).freeze();
        let header =
            BatchHeader::parse(&bytes).map_err(|error| Stop::NoBatch { position, why: error.to_string() })?;
        self.position += total as u64;
        let verified = verify_batch(&bytes).map(drop);
        Ok(Some(PlacedBatch { position, header, bytes, verified }))
    }
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Iterator for Batches {
    type Item = Result<PlacedBatch, Stop>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let batch = self.read().transpose();
        self.done = !matches!(batch, Some(Ok(_)));
        batch
    }
}
