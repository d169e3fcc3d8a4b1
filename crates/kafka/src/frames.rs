//! Cuts what arrives on a connection into frames, without I/O.
//!
//! A frame is a length of four bytes and as many bytes as it says. The length is what a stranger
//! claims, so no memory follows from it: room is made as bytes really arrive, at most doubling, or up
//! to the size of the frames that this very connection has sent whole before.
//!
//! Every frame comes out as one [`Bytes`], and a produce request's batches are slices of it: the
//! bytes that the socket delivered are the bytes that the journal and the readers get. That is why a
//! large frame is read into memory of its own, exactly up to its end, and only small ones share some.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length in front of a frame.
const LENGTH_BYTES: usize = 4;
/// Least room made for a read, so that a frame that trickles in does not cost a read per byte.
const ROOM_BYTES_MIN: usize = 8 << 10;
/// Most that the size of earlier frames lets the buffer grow at once. Beyond it the buffer doubles.
const LEARNED_BYTES_MAX: usize = 4 << 20;

/// A length that no frame may have. The connection cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is below zero.
    #[error(
        "a frame announces a length of {0} bytes; this is not the Kafka protocol, or the stream is damaged"
    )]
    Negative(i32),
    /// The length is above the limit.
    #[error(
        "a frame announces {announced} bytes, more than the {limit} that socket.request.max.bytes allows"
    )]
    TooLarge {
        /// What the frame's length says.
        announced: usize,
        /// The limit.
        limit: usize,
    },
}

/// The bytes of a connection that are not yet a whole frame.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: BytesMut,
    frame_bytes_max: usize,
    /// Size of the last frame that arrived whole: what the next one may be given room for at once.
    learned_bytes: usize,
}

impl FrameBuffer {
    /// An empty buffer that refuses frames above `frame_bytes_max` bytes. It takes no memory.
    pub fn new(frame_bytes_max: usize) -> FrameBuffer {
        FrameBuffer { bytes: BytesMut::new(), frame_bytes_max, learned_bytes: 0 }
    }

    /// Adds bytes by copying them: right for the first few of a frame, when it is not known yet how
    /// many follow.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are buffered.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Gives the memory of an empty buffer back: a connection that waits shall cost next to nothing.
    pub fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// The buffer to read into, and how many bytes at most: up to the end of the frame that has
    /// begun, so that the next one starts in memory of its own.
    pub fn room(&mut self) -> (&mut BytesMut, usize) {
        let have = self.bytes.len();
        let missing = match self.announced() {
            Some(length) => (LENGTH_BYTES + usize::try_from(length).unwrap_or(0)).saturating_sub(have),
            None => LENGTH_BYTES - have,
        };
        // A whole frame is buffered already, or its end is near: read what comes.
        let wanted = missing.max(1);
        let room = have.max(self.learned_bytes.min(LEARNED_BYTES_MAX)).max(ROOM_BYTES_MIN).min(wanted);
        self.bytes.reserve(room);
        (&mut self.bytes, room)
    }

    /// Whether a whole frame is buffered, or a length that is an error.
    pub fn has_frame(&self) -> bool {
        match self.announced() {
            None => false,
            Some(length) => match self.checked(length) {
                Err(_) => true,
                Ok(length) => self.bytes.len() >= LENGTH_BYTES + length,
            },
        }
    }

    /// The next whole frame, without its length.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.announced() else { return Ok(None) };
        let length = self.checked(length)?;
        if self.bytes.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.bytes.advance(LENGTH_BYTES);
        self.learned_bytes = length;
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    fn announced(&self) -> Option<i32> {
        self.bytes.first_chunk::<LENGTH_BYTES>().map(|&length| i32::from_be_bytes(length))
    }

    fn checked(&self, length: i32) -> Result<usize, FrameError> {
        let announced = usize::try_from(length).map_err(|_| FrameError::Negative(length))?;
        if announced > self.frame_bytes_max {
            return Err(FrameError::TooLarge { announced, limit: self.frame_bytes_max });
        }
        Ok(announced)
    }
}

#[cfg(test)]
mod tests;
