//! Frames: seven octets of head, the payload, and the octet 0xCE.
//!
//! ```text
//! | type u8 | channel u16 | payload bytes u32 | payload ... | 0xCE |
//! ```
//!
//! A type is refused as soon as its octet is there and a length as soon as its four are, so nobody waits for, or
//! makes room for, a payload that will not be taken.

use crate::error::FrameError;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;

/// Octets in front of a payload.
pub(crate) const FRAME_HEAD_BYTES: usize = 7;
/// Octets of a frame beside its payload.
pub const FRAME_OVERHEAD_BYTES: usize = FRAME_HEAD_BYTES + 1;
/// The last octet of every frame.
pub(crate) const FRAME_END: u8 = 0xce;
/// The smallest `frame_max` that may be negotiated, in bytes; before the negotiation it is also the largest frame
/// that a peer has to take (AMQP 0-9-1, section 4.2.3).
pub const FRAME_MAX_MIN: u32 = 4096;

/// What a frame carries (AMQP 0-9-1, section 4.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameType {
    /// A method.
    Method = 1,
    /// A content header.
    Header = 2,
    /// A piece of a body.
    Body = 3,
    /// Nothing: a sign of life.
    Heartbeat = 8,
}

impl FrameType {
    fn from_octet(octet: u8) -> Result<Self, FrameError> {
        match octet {
            1 => Ok(FrameType::Method),
            2 => Ok(FrameType::Header),
            3 => Ok(FrameType::Body),
            8 => Ok(FrameType::Heartbeat),
            other => Err(FrameError::UnknownType(other)),
        }
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameType::Method => "method",
            FrameType::Header => "content header",
            FrameType::Body => "body",
            FrameType::Heartbeat => "heartbeat",
        })
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub frame_type: FrameType,
    /// The channel; 0 is the connection itself.
    pub channel: u16,
    /// The payload, sharing the buffer that the frame was read from.
    pub payload: Bytes,
}

/// What there is at the beginning of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// A frame, which is no longer in the buffer.
    Frame(Frame),
    /// Only a part of one, left as it is: at least this many more bytes have to come.
    Missing(usize),
}

impl Frame {
    /// Takes the first frame out of `buffer`.
    ///
    /// `frame_max` is the largest frame in bytes that was negotiated, 0 for no limit. Like RabbitMQ this lets frames
    /// pass that are up to 8 bytes larger, because clients are known that forget the octets around the payload.
    pub fn parse<B: FrameBuffer>(buffer: &mut B, frame_max: u32) -> Result<Parsed, FrameError> {
        let received: &[u8] = (*buffer).as_ref();
        let Some(&first) = received.first() else { return Ok(Parsed::Missing(FRAME_OVERHEAD_BYTES)) };
        let frame_type = FrameType::from_octet(first)?;
        let Some(&[_, c0, c1, p0, p1, p2, p3]) = received.first_chunk::<FRAME_HEAD_BYTES>() else {
            return Ok(Parsed::Missing(FRAME_OVERHEAD_BYTES - received.len()));
        };
        let channel = u16::from_be_bytes([c0, c1]);
        let payload_bytes = u32::from_be_bytes([p0, p1, p2, p3]);
        check_head(frame_type, channel, payload_bytes, frame_max)?;

        let payload_end = FRAME_HEAD_BYTES + payload_bytes as usize;
        match received.get(payload_end).copied() {
            None => Ok(Parsed::Missing(payload_end + 1 - received.len())),
            Some(FRAME_END) => {
                let mut payload = buffer.split_front(payload_end + 1);
                payload.advance(FRAME_HEAD_BYTES);
                payload.truncate(payload_bytes as usize);
                Ok(Parsed::Frame(Frame { frame_type, channel, payload }))
            }
            Some(end) => Err(FrameError::BadEnd(end)),
        }
    }
}

fn check_head(
    frame_type: FrameType,
    channel: u16,
    payload_bytes: u32,
    frame_max: u32,
) -> Result<(), FrameError> {
    // The limit counts the octets around the payload and the tolerance is as large as these.
    if frame_max != 0 && payload_bytes > frame_max {
        return Err(FrameError::TooLarge { payload_bytes, frame_max });
    }
    match frame_type {
        FrameType::Heartbeat if payload_bytes > 0 => Err(FrameError::HeartbeatPayload(payload_bytes)),
        FrameType::Heartbeat if channel != 0 => Err(FrameError::HeartbeatChannel(channel)),
        FrameType::Header | FrameType::Body if channel == 0 => Err(FrameError::ContentOnChannelZero),
        _ => Ok(()),
    }
}

/// A buffer that frames are taken from: [`Bytes`], or [`BytesMut`] that a socket is read into.
pub trait FrameBuffer: AsRef<[u8]> + sealed::Sealed {
    /// Takes out the first `bytes` bytes, without copying them.
    #[doc(hidden)]
    fn split_front(&mut self, bytes: usize) -> Bytes;
}

impl FrameBuffer for Bytes {
    fn split_front(&mut self, bytes: usize) -> Bytes {
        self.split_to(bytes)
    }
}

impl FrameBuffer for BytesMut {
    fn split_front(&mut self, bytes: usize) -> Bytes {
        self.split_to(bytes).freeze()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for bytes::Bytes {}
    impl Sealed for bytes::BytesMut {}
}
