//! What can be wrong with bytes that come in, and with a message that is to go out.
//!
//! Every error of the first kind proposes the reply code that RabbitMQ, or where it gives none the specification,
//! answers with. All of them end the connection, except a message that is too large, which ends its channel.

use crate::frame::FrameType;
use crate::reply_code::ReplyCode;
use std::fmt;

/// Bytes that are not a frame. Where the next frame begins is not known after this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A first octet that names no type of frame.
    #[error("there is no frame type {0}")]
    UnknownType(u8),
    /// A payload longer than was negotiated, tolerance included.
    #[error(
        "a frame has a payload of {payload_bytes} bytes, more than the negotiated frame_max of {frame_max}"
    )]
    TooLarge {
        /// Bytes of the payload that the frame announces.
        payload_bytes: u32,
        /// The limit that was negotiated, in bytes.
        frame_max: u32,
    },
    /// A last octet other than 0xCE.
    #[error("a frame ends with the octet {0:#04x} instead of 0xce")]
    BadEnd(u8),
    /// A heartbeat with a payload of this many bytes.
    #[error("a heartbeat has a payload of {0} bytes and may have none")]
    HeartbeatPayload(u32),
    /// A heartbeat on a channel other than 0.
    #[error("a heartbeat came on channel {0} and belongs on channel 0")]
    HeartbeatChannel(u16),
    /// A content header or body on channel 0.
    #[error("content came on channel 0, which has none")]
    ContentOnChannelZero,
}

impl FrameError {
    /// The code to close the connection with.
    pub fn reply_code(self) -> ReplyCode {
        match self {
            FrameError::HeartbeatChannel(_) | FrameError::ContentOnChannelZero => ReplyCode::UnexpectedFrame,
            _ => ReplyCode::FrameError,
        }
    }
}

/// A payload that is not the method, content header or table it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}: {why}")]
pub struct DecodeError {
    /// The method and field that were being read, such as `queue.declare.arguments`.
    pub what: &'static str,
    /// Byte position within what was given to the decoder.
    pub at: usize,
    /// What is wrong.
    pub why: Why,
}

impl DecodeError {
    /// The code to close the connection with.
    pub fn reply_code(&self) -> ReplyCode {
        match self.why {
            Why::Truncated { .. } | Why::Trailing(_) | Why::NotUtf8 => ReplyCode::FrameError,
            Why::UnknownTag(_) | Why::TooDeep | Why::TooManyEntries | Why::UnknownProperties(_) => {
                ReplyCode::SyntaxError
            }
            Why::UnknownMethod { .. } => ReplyCode::NotImplemented,
            Why::Class(_) | Why::Weight(_) => ReplyCode::UnexpectedFrame,
        }
    }

    /// The same error with the field it is about, unless it has one already.
    pub(crate) fn named(self, what: &'static str) -> Self {
        if self.what.is_empty() { Self { what, ..self } } else { self }
    }
}

/// What is wrong with the bytes at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The field needs more bytes than the payload, or the table around it, has.
    Truncated {
        /// Bytes the field needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// This many bytes behind the end.
    Trailing(usize),
    /// A name that is not UTF-8.
    NotUtf8,
    /// A tag that names no type of a table's values.
    UnknownTag(u8),
    /// Tables and arrays within each other beyond [`TABLE_DEPTH_MAX`](crate::TABLE_DEPTH_MAX).
    TooDeep,
    /// More fields and elements than [`TABLE_ENTRIES_MAX`](crate::TABLE_ENTRIES_MAX).
    TooManyEntries,
    /// A class and method id that name no method.
    UnknownMethod {
        /// Class id.
        class: u16,
        /// Method id.
        method: u16,
    },
    /// A content header of another class than basic, the only one with content.
    Class(u16),
    /// A content header whose weight is not 0.
    Weight(u16),
    /// Flags of properties that the basic class does not have.
    UnknownProperties(u16),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Why::Truncated { needed, left } => write!(f, "needs {needed} bytes but only {left} are left"),
            Why::Trailing(bytes) => write!(f, "{bytes} bytes follow the end"),
            Why::NotUtf8 => f.write_str("the name is not UTF-8"),
            Why::UnknownTag(tag) => write!(f, "no type of value has the tag '{}'", tag.escape_ascii()),
            Why::TooDeep => {
                write!(f, "tables and arrays lie more than {} deep in each other", crate::TABLE_DEPTH_MAX)
            }
            Why::TooManyEntries => {
                write!(f, "a table has more than {} fields and elements", crate::TABLE_ENTRIES_MAX)
            }
            Why::UnknownMethod { class, method } => write!(f, "class {class} has no method {method}"),
            Why::Class(class) => write!(f, "class {class} has no content, only class 60 has"),
            Why::Weight(weight) => write!(f, "the weight is {weight} and must be 0"),
            Why::UnknownProperties(flags) => write!(f, "the property flags {flags:#06x} are not known"),
        }
    }
}

/// Frames that do not make a command, each of them in order by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// A method or content header cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A frame of another kind was due.
    #[error("a {due} frame was due, and a {came} frame came")]
    Unexpected {
        /// The kind that was due.
        due: FrameType,
        /// The kind that came.
        came: FrameType,
    },
    /// The body was beyond the limit.
    #[error("message size {bytes} is larger than configured max size {bytes_max}")]
    BodyTooLarge {
        /// Bytes that it had.
        bytes: u64,
        /// Bytes allowed.
        bytes_max: u64,
    },
    /// A body frame holds more than what is left of the body.
    #[error("a body frame has {bytes} bytes, and only {left} of the body are left")]
    BodyOverrun {
        /// Bytes in the frame.
        bytes: u64,
        /// Bytes that were still due.
        left: u64,
    },
}

impl AssemblyError {
    /// The code to close the connection with; for [`AssemblyError::BodyTooLarge`], the channel.
    pub fn reply_code(&self) -> ReplyCode {
        match self {
            AssemblyError::Decode(error) => error.reply_code(),
            AssemblyError::Unexpected { .. } | AssemblyError::BodyOverrun { .. } => {
                ReplyCode::UnexpectedFrame
            }
            AssemblyError::BodyTooLarge { .. } => ReplyCode::PreconditionFailed,
        }
    }
}

/// A method or a content header that does not fit in a frame of the negotiated size; neither can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} takes {payload_bytes} bytes, and a frame holds at most {payload_bytes_max}")]
pub struct EncodeError {
    /// The method, or `content header`.
    pub what: &'static str,
    /// Bytes that its frame's payload would have.
    pub payload_bytes: usize,
    /// Bytes that a frame's payload may have.
    pub payload_bytes_max: usize,
}

/// Text longer than the 255 bytes of a short string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes do not fit in a short string, which holds 255")]
pub struct TooLong {
    /// Its length.
    pub bytes: usize,
}
