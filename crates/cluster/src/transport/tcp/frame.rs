//! What goes over a connection once both sides know each other, without I/O.
//!
//! ```text
//! frame = length u32, of all that follows
//!         crc u32, CRC-32C of all that follows
//!         kind u8 (1 call, 2 answer, 3 ping, 4 failure)
//!         call u64, the caller's number for it; 0 in a ping
//!         line u8 (0 service, 1 shard), shard u32; both 0 in all but calls
//!         payload, up to the length
//! ```
//!
//! Integers are little-endian. A length is what somebody else claims: it is held against the bound before anything
//! follows from it, and memory is taken only as bytes arrive.

use bytes::{Buf, Bytes, BytesMut};
use weir_model::ShardId;

use crate::transport::{Line, RPC_BYTES_MAX};

/// Bytes of the length in front.
const LENGTH_BYTES: usize = 4;

/// Bytes of a frame besides its payload.
pub(crate) const HEAD_BYTES: usize = LENGTH_BYTES + 4 + 1 + 8 + 1 + 4;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something is asked.
    Call = 1,
    /// The answer to a call.
    Answer = 2,
    /// Says only that somebody is there.
    Ping = 3,
    /// Why there is no answer to a call, in words.
    Failure = 4,
}

/// A frame as it arrived. The payload is a slice of what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: Kind,
    pub call: u64,
    pub line: Line,
    pub payload: Bytes,
}

/// Bytes that are no frame. The connection cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame announces {0} bytes, which no frame has")]
    Length(u32),
    #[error("a frame's checksum is {expected:08x}, but its bytes have {found:08x}")]
    Checksum { expected: u32, found: u32 },
    #[error("a frame says that it is of kind {0}, which is not known")]
    Kind(u8),
    #[error("a frame is for a line of kind {0}, which is not known")]
    Line(u8),
}

/// What stands in front of a payload. The caller has made sure that the payload is not longer than allowed.
pub(crate) fn head(kind: Kind, call: u64, line: Line, payload: &[Bytes]) -> [u8; HEAD_BYTES] {
    let payload_bytes: usize = payload.iter().map(Bytes::len).sum();
    let mut head = [0; HEAD_BYTES];
    let length = (HEAD_BYTES - LENGTH_BYTES + payload_bytes) as u32;
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[8] = kind as u8;
    head[9..17].copy_from_slice(&call.to_le_bytes());
    if let Line::Shard(shard) = line {
        head[17] = 1;
        head[18..22].copy_from_slice(&shard.0.to_le_bytes());
    }
    let crc = crc32c::crc32c(&head[8..]);
    let crc = payload.iter().fold(crc, |crc, chunk| crc32c::crc32c_append(crc, chunk));
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    head
}

/// How long the frame at the front is, its length included, as soon as that can be told.
pub(crate) fn frame_bytes(buffer: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(length) = buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length);
    let bytes = LENGTH_BYTES + length as usize;
    if !(HEAD_BYTES..=HEAD_BYTES + RPC_BYTES_MAX).contains(&bytes) {
        return Err(FrameError::Length(length));
    }
    Ok(Some(bytes))
}

/// Takes the frame at the front, if all of it is there.
pub(crate) fn take_frame(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let bytes = match frame_bytes(buffer)? {
        Some(bytes) if bytes <= buffer.len() => bytes,
        _ => return Ok(None),
    };
    let mut frame = buffer.split_to(bytes).freeze();
    frame.advance(LENGTH_BYTES);
    let expected = frame.get_u32_le();
    let found = crc32c::crc32c(&frame);
    if found != expected {
        return Err(FrameError::Checksum { expected, found });
    }
    let kind = match frame.get_u8() {
        1 => Kind::Call,
        2 => Kind::Answer,
        3 => Kind::Ping,
        4 => Kind::Failure,
        other => return Err(FrameError::Kind(other)),
    };
    let call = frame.get_u64_le();
    let (line, shard) = (frame.get_u8(), frame.get_u32_le());
    let line = match line {
        0 => Line::Service,
        1 => Line::Shard(ShardId(shard)),
        other => return Err(FrameError::Line(other)),
    };
    Ok(Some(Frame { kind, call, line, payload: frame }))
}
