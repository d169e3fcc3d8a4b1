//! Credentials on their way through a method, which must not end up in a log.

use bytes::Bytes;
use std::fmt;

/// A long string that is a password or a token, or holds one. Printing it shows its length only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    bytes: Bytes,
}

impl Secret {
    /// The secret itself.
    pub fn expose(&self) -> &Bytes {
        &self.bytes
    }
}

impl From<Bytes> for Secret {
    fn from(bytes: Bytes) -> Self {
        Self { bytes }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.bytes.len())
    }
}
