//! Collects outgoing frames as a sequence of chunks, so that large bodies go out from where they lie.
//!
//! Methods, headers and small bodies are written into one buffer; a large body is a chunk of its own between two
//! pieces of it. A frame that cannot be sent leaves no trace.

use crate::content::BasicProperties;
use crate::error::EncodeError;
use crate::frame::{FRAME_END, FRAME_HEAD_BYTES, FRAME_MAX_MIN, FRAME_OVERHEAD_BYTES, FrameType};
use crate::method::{ContentMethod, Method, MethodFields};
use bytes::{BufMut, Bytes, BytesMut};

/// Pieces of bodies shorter than this are copied: a chunk of its own would cost more than the copy, the write to the
/// socket included.
pub const SPLICE_BYTES_MIN: usize = 2 * 1024;
/// The buffer is enlarged by this much at a time.
const BUFFER_BYTES: usize = 4 * 1024;
/// Room that a method and a header usually need.
const FRAMES_BYTES_EXPECTED: usize = 256;
/// Bytes of the length in front of a long string, a table or an array.
const LENGTH_BYTES: usize = 4;

/// Writes frames one after the other.
#[derive(Debug, Default)]
pub struct Writer {
    /// The largest frame in bytes; 0 for no limit.
    frame_max: u32,
    /// Finished chunks.
    chunks: Vec<Bytes>,
    chunk_bytes: usize,
    /// What is being written now.
    tail: BytesMut,
    /// The flag in the last octet that is next; 0 if the next flag begins an octet.
    next_flag: u8,
}

impl Writer {
    /// An empty one for a connection with this `frame_max` in bytes, 0 for no limit. What every peer must take,
    /// [`FRAME_MAX_MIN`], is used in any case.
    pub fn new(frame_max: u32) -> Self {
        Self { frame_max, ..Self::default() }
    }

    /// Changes the limit, once it has been negotiated.
    pub fn set_frame_max(&mut self, frame_max: u32) {
        self.frame_max = frame_max;
    }

    /// Bytes written and not yet taken.
    pub fn len(&self) -> usize {
        self.chunk_bytes + self.tail.len()
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything written so far, in order, in chunks of which none is empty.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.close_chunk();
        self.chunk_bytes = 0;
        std::mem::take(&mut self.chunks)
    }

    /// Everything written, in one slice; copies unless there is only one chunk.
    pub fn into_contiguous(mut self) -> Bytes {
        if self.chunks.is_empty() {
            return self.tail.freeze();
        }
        self.take().concat().into()
    }

    /// The octets with which a client begins, or a broker refuses one: see
    /// [`ProtocolHeader::SUPPORTED`](crate::ProtocolHeader::SUPPORTED).
    pub fn protocol_header(&mut self, header: [u8; crate::PROTOCOL_HEADER_BYTES]) {
        self.tail.put_slice(&header);
    }

    /// A heartbeat.
    pub fn heartbeat(&mut self) {
        self.frame_head(FrameType::Heartbeat, 0, 0);
        self.tail.put_u8(FRAME_END);
    }

    /// The frame of a method. One with content needs [`Writer::content`] instead, or its content behind it.
    pub fn method(&mut self, channel: u16, method: impl Into<Method>) -> Result<(), EncodeError> {
        let method = method.into();
        self.frame(FrameType::Method, channel, method.name(), |writer| method.write(writer))
    }

    /// The frames of a method with its content: method, content header, and as many body frames as the body needs,
    /// none if it is empty. Nothing is written if the first two do not fit in frames.
    pub fn content<M: ContentMethod>(
        &mut self,
        channel: u16,
        method: &M,
        properties: &BasicProperties,
        body: &Bytes,
    ) -> Result<(), EncodeError> {
        let start = self.tail.len();
        self.frame(FrameType::Method, channel, M::NAME, |writer| write_method(method, writer))?;
        let header = self.frame(FrameType::Header, channel, "content header", |writer| {
            properties.write_header(body.len() as u64, writer);
        });
        if header.is_err() {
            self.tail.truncate(start);
            return header;
        }
        self.body(channel, body);
        Ok(())
    }

    /// A body in frames of at most the negotiated size.
    fn body(&mut self, channel: u16, body: &Bytes) {
        for piece in body.chunks(self.payload_bytes_max()) {
            self.frame_head(FrameType::Body, channel, piece.len());
            if piece.len() < SPLICE_BYTES_MIN {
                self.tail.put_slice(piece);
            } else {
                self.close_chunk();
                self.push_chunk(body.slice_ref(piece));
            }
            self.tail.put_u8(FRAME_END);
        }
    }

    /// Bytes that a frame's payload may have.
    fn payload_bytes_max(&self) -> usize {
        match self.frame_max {
            0 => u32::MAX as usize,
            limit => limit.max(FRAME_MAX_MIN) as usize - FRAME_OVERHEAD_BYTES,
        }
    }

    /// A frame whose payload's length is known only when it is written.
    fn frame(
        &mut self,
        frame_type: FrameType,
        channel: u16,
        what: &'static str,
        write_payload: impl FnOnce(&mut Self),
    ) -> Result<(), EncodeError> {
        if self.tail.capacity() - self.tail.len() < FRAMES_BYTES_EXPECTED {
            self.tail.reserve(BUFFER_BYTES);
        }
        let start = self.tail.len();
        self.frame_head(frame_type, channel, 0);
        write_payload(self);
        self.next_flag = 0;
        let head_end = start + FRAME_HEAD_BYTES;
        let payload_bytes = self.tail.len() - head_end;
        let payload_bytes_max = self.payload_bytes_max();
        if payload_bytes > payload_bytes_max {
            self.tail.truncate(start);
            return Err(EncodeError { what, payload_bytes, payload_bytes_max });
        }
        self.tail[head_end - LENGTH_BYTES..head_end].copy_from_slice(&(payload_bytes as u32).to_be_bytes());
        self.tail.put_u8(FRAME_END);
        Ok(())
    }

    fn frame_head(&mut self, frame_type: FrameType, channel: u16, payload_bytes: usize) {
        let mut head = [0; FRAME_HEAD_BYTES];
        head[0] = frame_type as u8;
        head[1..3].copy_from_slice(&channel.to_be_bytes());
        head[3..].copy_from_slice(&(payload_bytes as u32).to_be_bytes());
        self.tail.put_slice(&head);
    }

    fn close_chunk(&mut self) {
        if !self.tail.is_empty() {
            let chunk = self.tail.split().freeze();
            self.push_chunk(chunk);
        }
    }

    fn push_chunk(&mut self, chunk: Bytes) {
        self.chunk_bytes += chunk.len();
        self.chunks.push(chunk);
    }

    /// Writes bytes by copying them.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.next_flag = 0;
        self.tail.put_slice(bytes);
    }

    /// One flag. Flags that follow each other share octets, the first in the lowest bit.
    pub(crate) fn flag(&mut self, is_set: bool) {
        if self.next_flag == 0 {
            self.tail.put_u8(0);
            self.next_flag = 1;
        }
        if is_set && let Some(octet) = self.tail.last_mut() {
            *octet |= self.next_flag;
        }
        self.next_flag <<= 1;
    }

    /// What `write` writes, behind its length. A length beyond 32 bits makes the frame too large as a whole, which
    /// is where it is refused.
    pub(crate) fn with_length(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.tail.len();
        self.put(&[0; LENGTH_BYTES]);
        write(self);
        let content = start + LENGTH_BYTES;
        let length = (self.tail.len() - content) as u32;
        self.tail[start..content].copy_from_slice(&length.to_be_bytes());
        self.next_flag = 0;
    }
}

/// The payload of a method frame.
pub(crate) fn write_method<M: MethodFields>(method: &M, writer: &mut Writer) {
    writer.put(&M::CLASS_ID.to_be_bytes());
    writer.put(&M::METHOD_ID.to_be_bytes());
    method.write_fields(writer);
}
