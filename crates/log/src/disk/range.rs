//! Bytes that stay in their file until they are sent.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use super::File;

/// A part of an open file. Whoever holds it may send it to a socket without ever having its bytes in memory
/// of their own. The file stays open meanwhile, whatever becomes of its name.
#[derive(Clone)]
pub struct FileRange {
    file: Arc<dyn File>,
    position: u64,
    len: usize,
}

impl FileRange {
    pub(crate) fn new(file: Arc<dyn File>, position: u64, len: usize) -> FileRange {
        FileRange { file, position, len }
    }

    /// Bytes of it that are left.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Leaves out the first bytes, at most all of them.
    pub fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len);
        self.position += bytes as u64;
        self.len -= bytes;
    }

    /// Sends as much as a socket takes without waiting, and leaves that out from then on. A file that
    /// has become shorter meanwhile is an error: what was promised of it is not there.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        match self.file.send(socket, self.position, self.len)? {
            0 if self.len > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            sent => {
                self.advance(sent);
                Ok(sent)
            }
        }
    }

    /// Reads its first bytes, up to so many, for a peer that is no socket. May wait for the disk.
    pub fn first(&self, bytes: usize) -> io::Result<Bytes> {
        let wanted = bytes.min(self.len);
        let bytes = self.file.read_vec(wanted, self.position).map_err(io::Error::other)?;
        if bytes.len() < wanted { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes.into()) }
    }
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileRange({} bytes at {})", self.len, self.position)
    }
}
