//! A partition's record batches on their way through a message: never taken apart, never copied.

use bytes::{Bytes, BytesMut};
use std::fmt;

/// Record batches as a list of byte slices that follow each other on the wire.
///
/// Decoding gives one slice of the frame, without an allocation. A fetch response is built from as many slices
/// of the log as needed; encoding splices them into the frame as they are.
#[derive(Clone, Default)]
pub struct Records {
    first: Bytes,
    rest: Vec<Bytes>,
    bytes: usize,
}

impl Records {
    /// No records. On the wire this is an empty record set, which is not the same as an absent one.
    pub const fn new() -> Self {
        Self { first: Bytes::new(), rest: Vec::new(), bytes: 0 }
    }

    /// Appends batches behind those already there.
    pub fn push(&mut self, chunk: Bytes) {
        self.bytes += chunk.len();
        if self.first.is_empty() {
            self.first = chunk;
        } else if !chunk.is_empty() {
            self.rest.push(chunk);
        }
    }

    /// Bytes in total.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is not a single byte.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The slices in order, none of them empty.
    pub fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).filter(|chunk| !chunk.is_empty()).chain(&self.rest)
    }

    /// All bytes in one slice. This copies only if there is more than one chunk, so never after decoding.
    pub fn into_contiguous(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut all = BytesMut::with_capacity(self.bytes);
        for chunk in self.chunks() {
            all.extend_from_slice(chunk);
        }
        all.freeze()
    }
}

impl From<Bytes> for Records {
    fn from(first: Bytes) -> Self {
        Self { bytes: first.len(), first, rest: Vec::new() }
    }
}

impl FromIterator<Bytes> for Records {
    fn from_iter<I: IntoIterator<Item = Bytes>>(chunks: I) -> Self {
        let mut records = Self::new();
        records.extend(chunks);
        records
    }
}

impl Extend<Bytes> for Records {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, chunks: I) {
        for chunk in chunks {
            self.push(chunk);
        }
    }
}

/// Equal when the bytes are, however they are cut into chunks.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.chunks().flatten().eq(other.chunks().flatten())
    }
}

impl Eq for Records {}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} bytes in {} chunks)", self.bytes, self.chunks().count())
    }
}
