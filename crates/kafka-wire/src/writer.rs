//! Collects an outgoing frame as a sequence of chunks, so that records go out from where they lie.

use crate::error::EncodeError;
use crate::reader::STRING_BYTES_MAX;
use crate::records::Gap;
use crate::wire::{Version, Wire};
use bytes::{BufMut, Bytes, BytesMut};

/// Slices shorter than this are copied: a chunk of its own would cost more than the copy.
const SPLICE_BYTES_MIN: usize = 512;
/// Bytes of the length in front of every frame.
const LENGTH_BYTES: usize = 4;

/// Writes fields one after the other. The first error sticks and is reported by [`Writer::finish`].
#[derive(Debug, Default)]
pub struct Writer {
    /// The first chunk, once a second one exists; it stays open because the frame's length is written into it.
    front: BytesMut,
    /// Finished chunks behind `front`.
    chunks: Vec<Bytes>,
    /// Bytes of the chunks and the gaps.
    chunk_bytes: usize,
    /// What is left out, and in front of which of `chunks`.
    gaps: Vec<(usize, Gap)>,
    /// What is being written now.
    tail: BytesMut,
    error: Option<EncodeError>,
}

impl Writer {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one with room for `bytes` bytes beside spliced slices.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { tail: BytesMut::with_capacity(bytes), ..Self::default() }
    }

    /// A frame: its length in front, filled in by [`Writer::finish_frame`].
    pub(crate) fn frame(bytes: usize) -> Self {
        let mut writer = Self::with_capacity(LENGTH_BYTES + bytes);
        writer.put(&[0; LENGTH_BYTES]);
        writer
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.front.len() + self.chunk_bytes + self.tail.len()
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that the message cannot be written.
    pub fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// Writes bytes by copying them.
    pub fn put(&mut self, bytes: &[u8]) {
        self.tail.put_slice(bytes);
    }

    /// Writes bytes without copying them, unless they are few.
    pub fn splice(&mut self, bytes: &Bytes) {
        if bytes.len() < SPLICE_BYTES_MIN {
            return self.put(bytes);
        }
        self.close_chunk();
        self.push_chunk(bytes.clone());
    }

    /// Leaves out bytes that whoever sends the frame has elsewhere.
    pub(crate) fn leave(&mut self, gap: Gap) {
        self.close_chunk();
        self.chunk_bytes += gap.bytes;
        self.gaps.push((self.chunks.len(), gap));
    }

    fn close_chunk(&mut self) {
        if self.front.is_empty() && self.chunks.is_empty() {
            self.front = self.tail.split();
        } else if !self.tail.is_empty() {
            let chunk = self.tail.split().freeze();
            self.push_chunk(chunk);
        }
    }

    fn push_chunk(&mut self, chunk: Bytes) {
        self.chunk_bytes += chunk.len();
        self.chunks.push(chunk);
    }

    /// A number in seven bits to the byte, the least significant first.
    pub fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.tail.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.tail.put_u8(value as u8);
    }

    /// A length as [`crate::Reader`] reads it; `None` is null.
    pub(crate) fn length(&mut self, length: Option<usize>, version: Version, short: bool) {
        let bytes = length.unwrap_or(0);
        let most = if short { STRING_BYTES_MAX } else { i32::MAX as usize };
        if bytes > most {
            self.fail(EncodeError::TooLong { what: "", bytes });
        }
        if version.flexible {
            self.unsigned_varint(length.map_or(0, |length| (length as u32).wrapping_add(1)));
        } else if short {
            self.tail.put_i16(length.map_or(-1, |length| length as i16));
        } else {
            self.tail.put_i32(length.map_or(-1, |length| length as i32));
        }
    }

    /// One field of a struct.
    pub(crate) fn field<T: Wire>(&mut self, value: &T, what: &'static str, version: Version, nullable: bool) {
        let was_well = self.error.is_none();
        if nullable {
            value.write(self, version);
        } else {
            value.write_not_null(self, version);
        }
        if was_well && let Some(error) = &mut self.error {
            match error {
                EncodeError::Null { what: name } | EncodeError::TooLong { what: name, .. }
                    if name.is_empty() =>
                {
                    *name = what;
                }
                _ => {}
            }
        }
    }

    /// The tagged fields at the end of a struct. Their sizes stand in front, so each was written apart.
    pub(crate) fn tags(&mut self, mut tags: Vec<(u32, Writer)>) {
        tags.sort_by_key(|&(tag, _)| tag);
        self.unsigned_varint(tags.len() as u32);
        for (tag, content) in tags {
            self.unsigned_varint(tag);
            match content.finish() {
                Ok(chunks) => {
                    self.unsigned_varint(chunks.iter().map(Bytes::len).sum::<usize>() as u32);
                    for chunk in &chunks {
                        self.splice(chunk);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// Everything written, in order. Nothing may have been left out.
    pub fn finish(self) -> Result<Vec<Bytes>, EncodeError> {
        assert!(self.gaps.is_empty(), "only a whole frame can have gaps");
        self.finish_chunks()
    }

    fn finish_chunks(mut self) -> Result<Vec<Bytes>, EncodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.close_chunk();
        let mut chunks = Vec::with_capacity(self.chunks.len() + 1);
        if !self.front.is_empty() {
            chunks.push(self.front.freeze());
        }
        chunks.append(&mut self.chunks);
        Ok(chunks)
    }

    /// Everything written, with the frame's length filled in.
    pub(crate) fn finish_frame(mut self) -> Result<Frame, EncodeError> {
        let bytes = self.len();
        let length = i32::try_from(bytes - LENGTH_BYTES);
        let length = length.map_err(|_| EncodeError::TooLong { what: "frame", bytes })?;
        self.close_chunk();
        self.front[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        // The chunk with the length comes before all of them.
        let gaps = std::mem::take(&mut self.gaps).into_iter().map(|(index, gap)| (index + 1, gap)).collect();
        Ok(Frame { chunks: self.finish_chunks()?, gaps, bytes })
    }
}

/// A whole frame ready for a socket: its length, the header and the body, in chunks that follow each other.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    chunks: Vec<Bytes>,
    gaps: Vec<(usize, Gap)>,
    bytes: usize,
}

/// A part of a frame that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These bytes.
    Bytes(Bytes),
    /// What the sender has elsewhere.
    Gap(Gap),
}

impl Frame {
    /// Bytes in total, the four of the length included.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never true for a frame made by this crate.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether something was left out that must be sent in its place.
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Chunks and gaps in order, none of them empty.
    pub fn into_parts(self) -> Vec<Part> {
        let mut parts = Vec::with_capacity(self.chunks.len() + self.gaps.len());
        let mut gaps = self.gaps.into_iter().peekable();
        for (index, chunk) in self.chunks.into_iter().enumerate() {
            while let Some((_, gap)) = gaps.next_if(|(before, _)| *before <= index) {
                parts.push(Part::Gap(gap));
            }
            parts.push(Part::Bytes(chunk));
        }
        parts.extend(gaps.map(|(_, gap)| Part::Gap(gap)));
        parts
    }

    /// The chunks in order, none of them empty; what was left out is not among them.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// As [`Frame::chunks`].
    pub fn into_chunks(self) -> Vec<Bytes> {
        self.chunks
    }

    /// The whole frame in one slice, except gaps; copies unless there is only one chunk.
    pub fn into_contiguous(mut self) -> Bytes {
        if self.chunks.len() == 1
            && let Some(only) = self.chunks.pop()
        {
            return only;
        }
        let mut all = BytesMut::with_capacity(self.bytes);
        for chunk in &self.chunks {
            all.extend_from_slice(chunk);
        }
        all.freeze()
    }
}
