//! Stepping through the batches of a segment file, reading it in pieces.

use std::path::Path;

use super::head::{BatchHead, HEAD_BYTES};
use super::types::{Corruption, ReadError};
use crate::disk::File;

/// Bytes read at a time when only a few batches are to be stepped over.
pub(super) const SHORT_WALK_BYTES: usize = 16 << 10;

/// Bytes read at a time when a whole file is walked through.
pub(super) const LONG_WALK_BYTES: usize = 1 << 20;

/// Reads at a position, waiting or not.
pub(super) fn read_at(
    file: &dyn File,
    buffer: &mut [u8],
    position: u64,
    cached_only: bool,
) -> Result<usize, ReadError> {
    if cached_only {
        match file.try_read_cached(buffer, position)? {
            // Nothing where something should be is as good as a miss.
            None | Some(0) if !buffer.is_empty() => Err(ReadError::WouldBlock),
            n => Ok(n.unwrap_or(0)),
        }
    } else {
        Ok(file.read_at(buffer, position)?)
    }
}

/// As [`read_at`], into new memory.
pub(super) fn read_vec(
    file: &dyn File,
    len: usize,
    position: u64,
    cached_only: bool,
) -> Result<Vec<u8>, ReadError> {
    if cached_only {
        match file.try_read_vec_cached(len, position)? {
            Some(bytes) if len == 0 || !bytes.is_empty() => Ok(bytes),
            // Nothing where something should be is as good as a miss.
            _ => Err(ReadError::WouldBlock),
        }
    } else {
        Ok(file.read_vec(len, position)?)
    }
}

/// Walks over batches from a position to the end of the log's part of the file.
pub(super) struct Walk<'a> {
    file: &'a dyn File,
    path: &'a Path,
    position: u64,
    end: u64,
    piece: usize,
    cached_only: bool,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    buffered_at: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(file: &'a dyn File, path: &'a Path, from: u64, to: u64, piece: usize) -> Walk<'a> {
        Walk {
            file,
            path,
            position: from,
            end: to,
            piece,
            cached_only: false,
            buffer: Vec::new(),
            buffered_at: 0,
        }
    }

    pub(super) fn cached_only(mut self, cached_only: bool) -> Walk<'a> {
        self.cached_only = cached_only;
        self
    }

    /// The next batch's position and head.
    pub(super) fn next(&mut self) -> Result<Option<(u64, BatchHead)>, ReadError> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let bytes = self.bytes(position, HEAD_BYTES)?;
        let head = BatchHead::parse(bytes).map_err(|why| self.corrupt(position, why))?;
        if position + head.bytes as u64 > self.end {
            return Err(self.corrupt(position, "the batch is longer than the log's part of the file"));
        }
        self.position += head.bytes as u64;
        Ok(Some((position, head)))
    }

    /// All bytes of the batch at a position, as [`Walk::next`] returned it.
    pub(super) fn batch(&mut self, position: u64, head: &BatchHead) -> Result<&[u8], ReadError> {
        let have = self.bytes(position, head.bytes)?.len();
        if have < head.bytes {
            return Err(self.corrupt(position, "the file ends within a batch"));
        }
        self.bytes(position, head.bytes)
    }

    pub(super) fn corrupt(&self, position: u64, why: impl Into<String>) -> ReadError {
        ReadError::Corrupt(Corruption { file: self.path.to_owned(), position, why: why.into() })
    }

    /// Up to `n` bytes at a position, fewer only at the end of the file.
    fn bytes(&mut self, position: u64, n: usize) -> Result<&[u8], ReadError> {
        let buffered = self.buffered_at..self.buffered_at + self.buffer.len() as u64;
        let wanted = (position + n as u64).min(self.end);
        if position < buffered.start || wanted > buffered.end {
            // Bounded by the log's part of the file, whatever a length in it says.
            let room = (self.end - position).min(n.max(self.piece) as u64) as usize;
            self.buffer.resize(room, 0);
            self.buffered_at = position;
            let have = read_at(self.file, &mut self.buffer, position, self.cached_only);
            self.buffer.truncate(*have.as_ref().unwrap_or(&0));
            if have? < n.min(room) && self.cached_only {
                return Err(ReadError::WouldBlock);
            }
        }
        let from = (position - self.buffered_at) as usize;
        let to = (from + n).min(self.buffer.len());
        Ok(&self.buffer[from..to])
    }
}
