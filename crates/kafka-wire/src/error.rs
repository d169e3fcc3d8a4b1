//! What can be wrong with bytes that come in, and with a message that is to go out.

use std::fmt;

/// Bytes that are not the message they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}: {why}")]
pub struct DecodeError {
    /// The message and field that were being read, such as `FetchRequest.topics`.
    pub what: &'static str,
    /// Byte position within what was given to the decoder.
    pub at: usize,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with the bytes at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The field needs more bytes than there are.
    Truncated {
        /// Bytes the field needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A length below zero that does not mean null.
    NegativeLength(i64),
    /// Null where this version of the message does not allow it.
    Null,
    /// A string longer than the protocol allows.
    StringTooLong(usize),
    /// A string that is not UTF-8.
    NotUtf8,
    /// More elements than the limit, or than the bytes that are left could hold.
    TooManyElements {
        /// Elements announced.
        count: usize,
        /// Elements allowed or possible here.
        most: usize,
    },
    /// More tagged fields than the limit, or than the bytes that are left could hold.
    TooManyTags(usize),
    /// A variable-length number that does not end within five bytes or exceeds 32 bits.
    BadVarint,
    /// A tagged field shorter or longer than its content.
    TagSize {
        /// The field's tag.
        tag: u32,
        /// Bytes of the tagged field that its content left over.
        left: usize,
    },
    /// Bytes behind the end of the message.
    Trailing(usize),
    /// An API key that this crate does not know.
    UnknownApi(i16),
    /// A version of a known API that this crate does not know.
    UnsupportedVersion(i16),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Why::Truncated { needed, left } => write!(f, "needs {needed} bytes but only {left} are left"),
            Why::NegativeLength(length) => write!(f, "length {length} is negative and does not mean null"),
            Why::Null => f.write_str("null is not allowed in this version"),
            Why::StringTooLong(length) => {
                write!(f, "a string of {length} bytes exceeds the protocol's limit")
            }
            Why::NotUtf8 => f.write_str("the string is not UTF-8"),
            Why::TooManyElements { count, most } => {
                write!(f, "{count} elements are announced but at most {most} are possible here")
            }
            Why::TooManyTags(count) => write!(f, "{count} tagged fields are more than are possible here"),
            Why::BadVarint => f.write_str("a variable-length number exceeds 32 bits"),
            Why::TagSize { tag, left } => {
                write!(f, "the content of tagged field {tag} leaves {left} of its bytes over")
            }
            Why::Trailing(bytes) => write!(f, "{bytes} bytes follow the end of the message"),
            Why::UnknownApi(key) => write!(f, "API key {key} is not known"),
            Why::UnsupportedVersion(version) => write!(f, "version {version} is not supported"),
        }
    }
}

/// A message that cannot be written in the version asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The version is outside the API's range.
    #[error("{api} has no version {version}")]
    UnsupportedVersion {
        /// Name of the API.
        api: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A list is null where this version of the message has no null.
    #[error("{what} is null, which this version cannot express")]
    Null {
        /// The message and field.
        what: &'static str,
    },
    /// Text or bytes longer than their length field can say, or a frame beyond 2 GiB.
    #[error("{what} has {bytes} bytes, more than the protocol can carry")]
    TooLong {
        /// The message and field.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
}
