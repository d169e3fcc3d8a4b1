//! Short strings: up to 255 bytes, shared with the frame they came in.
//!
//! RabbitMQ carries them as bytes. It insists on UTF-8 in methods without content, where they name things, but a
//! routing key or a property of a message may be anything, and comes out as it went in. So this type holds bytes;
//! decoding checks UTF-8 where RabbitMQ does, and whoever needs text asks for it.

use crate::error::TooLong;
use bytes::Bytes;
use std::borrow::{Borrow, Cow};
use std::fmt;

/// Longest short string in bytes: its length is one octet (AMQP 0-9-1, section 4.2.5.3).
pub const SHORT_STR_BYTES_MAX: usize = u8::MAX as usize;
/// Ends a text that was cut.
const ELLIPSIS: &str = "...";

/// A short string. Cloning it costs one reference count.
///
/// Whoever keeps one for long keeps the buffer of the whole frame in memory; [`ShortStr::detached`] gives a copy of
/// its own.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortStr {
    /// At most [`SHORT_STR_BYTES_MAX`]: every constructor sees to it.
    bytes: Bytes,
}

impl ShortStr {
    /// The empty string.
    pub const fn new() -> Self {
        Self { bytes: Bytes::new() }
    }

    /// A literal of the program itself, without a copy.
    ///
    /// # Panics
    ///
    /// If it is longer than 255 bytes; in a constant that is an error of compilation.
    pub const fn from_static(text: &'static str) -> Self {
        assert!(text.len() <= SHORT_STR_BYTES_MAX, "a short string holds 255 bytes");
        Self { bytes: Bytes::from_static(text.as_bytes()) }
    }

    /// Takes bytes, without a copy; fails beyond 255 bytes.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, TooLong> {
        if bytes.len() > SHORT_STR_BYTES_MAX {
            return Err(TooLong { bytes: bytes.len() });
        }
        Ok(Self { bytes })
    }

    /// A copy of the text, or of as much of it as fits, which then ends with `...`.
    pub fn truncated(text: &str) -> Self {
        if text.len() <= SHORT_STR_BYTES_MAX {
            return Self { bytes: Bytes::copy_from_slice(text.as_bytes()) };
        }
        let mut end = SHORT_STR_BYTES_MAX - ELLIPSIS.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self { bytes: Bytes::from([&text[..end], ELLIPSIS].concat()) }
    }

    /// The bytes, sharing the buffer.
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes, sharing the buffer.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The text; `None` if it is not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// The text for people to read, with U+FFFD in place of what is not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A copy in a buffer of its own, for a string that outlives its frame.
    pub fn detached(&self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes) }
    }
}

impl TryFrom<&str> for ShortStr {
    type Error = TooLong;

    fn try_from(text: &str) -> Result<Self, TooLong> {
        Self::from_bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl TryFrom<String> for ShortStr {
    type Error = TooLong;

    fn try_from(text: String) -> Result<Self, TooLong> {
        Self::from_bytes(Bytes::from(text.into_bytes()))
    }
}

// Equality, order and hash are those of the bytes, as `Borrow` demands.
impl Borrow<[u8]> for ShortStr {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for ShortStr {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq<str> for ShortStr {
    fn eq(&self, other: &str) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl PartialEq<&str> for ShortStr {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl fmt::Debug for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(text) => fmt::Debug::fmt(text, f),
            None => write!(f, "b\"{}\"", self.bytes.escape_ascii()),
        }
    }
}

impl fmt::Display for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_string_lossy(), f)
    }
}
