//! Text as it lies in a frame: validated once, then shared without copying.
//!
//! This is the only module of the crate with unsafe code. Without it, every use of a string would have to
//! validate its UTF-8 again, or every string of every request would have to be copied into a `String`.
#![allow(unsafe_code)]

use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::Utf8Error;

/// A string that shares the buffer it was read from. Cloning it costs one reference count.
///
/// Whoever keeps one for long keeps the whole frame in memory; [`KafkaStr::detached`] gives a copy of its own.
#[derive(Clone, Default)]
pub struct KafkaStr {
    /// Always valid UTF-8: every constructor either checks it or takes a `str`.
    utf8: Bytes,
}

impl KafkaStr {
    /// The empty string.
    pub const fn new() -> Self {
        Self { utf8: Bytes::new() }
    }

    /// A string of the program itself, without a copy.
    pub const fn from_static(text: &'static str) -> Self {
        Self { utf8: Bytes::from_static(text.as_bytes()) }
    }

    /// Takes bytes from outside; fails if they are not UTF-8.
    pub fn from_utf8(utf8: Bytes) -> Result<Self, Utf8Error> {
        std::str::from_utf8(&utf8)?;
        Ok(Self { utf8 })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // SAFETY: `utf8` is private, never changed, and valid UTF-8 by every constructor.
        unsafe { std::str::from_utf8_unchecked(&self.utf8) }
    }

    /// The text's bytes, sharing the buffer.
    pub fn as_bytes(&self) -> &Bytes {
        &self.utf8
    }

    /// The text's bytes, sharing the buffer.
    pub fn into_bytes(self) -> Bytes {
        self.utf8
    }

    /// A copy in a buffer of its own, for text that outlives its frame.
    pub fn detached(&self) -> Self {
        Self { utf8: Bytes::copy_from_slice(&self.utf8) }
    }
}

impl Deref for KafkaStr {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for KafkaStr {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for KafkaStr {
    fn borrow(&self) -> &str {
        self
    }
}

impl From<&str> for KafkaStr {
    fn from(text: &str) -> Self {
        Self { utf8: Bytes::copy_from_slice(text.as_bytes()) }
    }
}

impl From<String> for KafkaStr {
    fn from(text: String) -> Self {
        Self { utf8: Bytes::from(text.into_bytes()) }
    }
}

impl From<&String> for KafkaStr {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<KafkaStr> for String {
    fn from(text: KafkaStr) -> Self {
        text.as_str().to_owned()
    }
}

// Equality, order and hash are those of `str`, as `Borrow<str>` demands.
impl PartialEq for KafkaStr {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for KafkaStr {}

impl PartialEq<str> for KafkaStr {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for KafkaStr {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for KafkaStr {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KafkaStr {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for KafkaStr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for KafkaStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for KafkaStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}
