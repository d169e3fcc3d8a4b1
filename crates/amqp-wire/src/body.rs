//! A message's body in the pieces in which it came: never copied, unless they are tiny.

use bytes::{Bytes, BytesMut};
use std::fmt;

/// Pieces shorter than this are gathered in one buffer, once there are several: kept by themselves they would take
/// more memory than they hold, down to bodies cut into single bytes.
const PIECE_BYTES_MIN: usize = 1024;

/// A body as a list of slices of the frames that brought it. One frame gives one slice, without an allocation.
#[derive(Clone, Default)]
pub struct Body {
    first: Bytes,
    rest: Vec<Bytes>,
    /// Tiny pieces that follow the others and are not finished yet.
    gathered: BytesMut,
    bytes: usize,
}

impl Body {
    /// A body without a byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if self.bytes == 0 {
            self.bytes = piece.len();
            self.first = piece;
            return;
        }
        self.bytes += piece.len();
        if piece.len() < PIECE_BYTES_MIN {
            self.gathered.extend_from_slice(&piece);
        } else {
            self.close_gathered();
            self.rest.push(piece);
        }
    }

    fn close_gathered(&mut self) {
        if !self.gathered.is_empty() {
            self.rest.push(self.gathered.split().freeze());
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

    /// The pieces in order, none of them empty.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let rest = self.rest.iter().map(|piece| &piece[..]);
        std::iter::once(&self.first[..])
            .chain(rest)
            .chain([&self.gathered[..]])
            .filter(|piece| !piece.is_empty())
    }

    /// The whole in one slice; copies only if there is more than one piece, so never what came in one frame.
    pub fn into_contiguous(mut self) -> Bytes {
        if self.first.len() == self.bytes {
            return self.first;
        }
        self.close_gathered();
        let mut whole = BytesMut::with_capacity(self.bytes);
        for piece in self.pieces() {
            whole.extend_from_slice(piece);
        }
        whole.freeze()
    }
}

impl From<Bytes> for Body {
    fn from(first: Bytes) -> Self {
        Self { bytes: first.len(), first, ..Self::default() }
    }
}

/// Equal when the bytes are, however they are cut.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.pieces().flatten().eq(other.pieces().flatten())
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes in {} pieces)", self.bytes, self.pieces().count())
    }
}
