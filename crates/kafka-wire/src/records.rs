//! A partition's record batches on their way through a message: never taken apart, never copied.

use bytes::{Bytes, BytesMut};
use std::fmt;

/// Record batches as a list of byte slices that follow each other on the wire.
///
/// Decoding gives one slice of the frame, without an allocation. A fetch response is built from as many slices
/// of the log as needed; encoding splices them into the frame as they are. Where the sender has no slice, it
/// leaves a [`Gap`], and fills it when the frame is sent.
#[derive(Clone, Default)]
pub struct Records {
    first: Bytes,
    rest: Vec<Bytes>,
    bytes: usize,
    /// Behind the slices.
    gap: Option<Gap>,
}

/// Bytes that belong at a place in a message and are not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// How many.
    pub bytes: usize,
    /// Whatever tells the sender which ones.
    pub key: usize,
}

impl Records {
    /// No records. On the wire this is an empty record set, which is not the same as an absent one.
    pub const fn new() -> Self {
        Self { first: Bytes::new(), rest: Vec::new(), bytes: 0, gap: None }
    }

    /// Appends batches behind those already there. Nothing follows a gap.
    pub fn push(&mut self, chunk: Bytes) {
        assert!(self.gap.is_none(), "nothing follows a gap");
        self.bytes += chunk.len();
        if self.first.is_empty() {
            self.first = chunk;
        } else if !chunk.is_empty() {
            self.rest.push(chunk);
        }
    }

    /// Leaves a place for batches that are not in memory behind those already there. Nothing may follow them.
    pub fn leave(&mut self, gap: Gap) {
        assert!(self.gap.is_none(), "there is one gap at most, and it comes last");
        self.bytes += gap.bytes;
        self.gap = (gap.bytes > 0).then_some(gap);
    }

    /// What is to follow behind the slices.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
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

    /// All bytes in one slice, except absent ones. This copies only if there is more than one chunk, so never
    /// after decoding.
    pub fn into_contiguous(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut all = BytesMut::with_capacity(self.chunks().map(Bytes::len).sum());
        for chunk in self.chunks() {
            all.extend_from_slice(chunk);
        }
        all.freeze()
    }
}

impl From<Bytes> for Records {
    fn from(first: Bytes) -> Self {
        Self { bytes: first.len(), first, rest: Vec::new(), gap: None }
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
        self.bytes == other.bytes
            && self.gap == other.gap
            && self.chunks().flatten().eq(other.chunks().flatten())
    }
}

impl Eq for Records {}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} bytes in {} chunks)", self.bytes, self.chunks().count())
    }
}
