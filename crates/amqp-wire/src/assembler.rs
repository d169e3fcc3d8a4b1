//! Frames of one channel become commands: a method, with its content where it has some.
//!
//! ```text
//!              method without content              method frame
//!            ┌───────────────────────┐       ┌──────────────────────┐
//!            ▼                       │       │                      ▼
//!         (idle) ────────────────────┴───────┘          (header due) ──── header, empty body ───▶ (idle)
//!                                                            │ header
//!                                                            ▼
//!                          body frame, more to come ┌── (body due) ──── the last body frame ───▶ (idle)
//!                                                   └──▶     ▲
//! ```
//!
//! Nothing else may come between the frames of one command; frames of other channels may, so each channel has an
//! assembler. After an error it is of no further use.

use crate::body::Body;
use crate::content::{BasicProperties, ContentHeader};
use crate::error::AssemblyError;
use crate::frame::{Frame, FrameType};
use crate::method::{Method, MethodIds};
use bytes::Bytes;

/// A method and, if it has content, the content.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The method.
    pub method: Method,
    /// What came with it; there exactly if [`Method::has_content`].
    pub content: Option<Content>,
}

/// A message without its address.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// Its properties.
    pub properties: BasicProperties,
    /// Its body.
    pub body: Body,
}

/// Puts the frames of one channel together.
#[derive(Debug)]
pub struct Assembler {
    /// Longest body that is taken, in bytes.
    body_bytes_max: u64,
    due: Due,
    /// Ids of the method that the last frame belonged to.
    ids: MethodIds,
    /// The method whose content is due.
    method: Option<Method>,
    /// What has come of its content.
    content: Content,
    /// The length of its body, if that is more than is taken: nothing is kept of it.
    too_large: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Method,
    Header,
    /// So many bytes of a body, at least one.
    Body(u64),
}

impl Assembler {
    /// One that takes bodies of up to `body_bytes_max` bytes. A longer one is passed over, and refused when it has come
    /// as a whole, as RabbitMQ does: until then frames of another kind are the worse fault.
    pub fn new(body_bytes_max: u64) -> Self {
        Self {
            body_bytes_max,
            due: Due::Method,
            ids: (0, 0),
            method: None,
            content: Content::default(),
            too_large: None,
        }
    }

    /// Whether the frame to come begins a command.
    pub fn is_idle(&self) -> bool {
        matches!(self.due, Due::Method)
    }

    /// Ids of the method that the last frame belonged to, also of one that cannot be read, by which whoever is told of
    /// an error learns where it is. Zeros if it belonged to none.
    pub fn method_ids(&self) -> MethodIds {
        self.ids
    }

    /// Bytes that it keeps of a message of which not everything has come.
    pub fn held_bytes(&self) -> usize {
        self.content.body.len()
    }

    /// Takes the channel's next frame; gives the command that it completes.
    pub fn push(&mut self, frame: Frame) -> Result<Option<Command>, AssemblyError> {
        if self.is_idle() {
            self.ids = match frame.frame_type {
                FrameType::Method => Method::ids(&frame.payload),
                _ => (0, 0),
            };
        }
        match (self.due, frame.frame_type) {
            (Due::Method, FrameType::Method) => self.method(frame.payload),
            (Due::Header, FrameType::Header) => self.header(frame.payload),
            (Due::Body(left), FrameType::Body) => self.body(frame.payload, left),
            (Due::Method, came) => Err(AssemblyError::Unexpected { due: FrameType::Method, came }),
            (Due::Header, came) => Err(AssemblyError::Unexpected { due: FrameType::Header, came }),
            (Due::Body(_), came) => Err(AssemblyError::Unexpected { due: FrameType::Body, came }),
        }
    }

    fn method(&mut self, payload: Bytes) -> Result<Option<Command>, AssemblyError> {
        let method = Method::decode(payload)?;
        if !method.has_content() {
            return Ok(Some(Command { method, content: None }));
        }
        self.method = Some(method);
        self.due = Due::Header;
        Ok(None)
    }

    fn header(&mut self, payload: Bytes) -> Result<Option<Command>, AssemblyError> {
        let header = ContentHeader::decode(payload)?;
        self.too_large = (header.body_bytes > self.body_bytes_max).then_some(header.body_bytes);
        self.content.properties = header.properties;
        self.complete(header.body_bytes)
    }

    fn body(&mut self, piece: Bytes, left: u64) -> Result<Option<Command>, AssemblyError> {
        let bytes = piece.len() as u64;
        let Some(left) = left.checked_sub(bytes) else {
            return Err(AssemblyError::BodyOverrun { bytes, left });
        };
        if self.too_large.is_none() {
            self.content.body.push(piece);
        }
        self.complete(left)
    }

    /// The command, if nothing of its body is left to come.
    fn complete(&mut self, left: u64) -> Result<Option<Command>, AssemblyError> {
        if left > 0 {
            self.due = Due::Body(left);
            return Ok(None);
        }
        self.due = Due::Method;
        if let Some(bytes) = self.too_large.take() {
            return Err(AssemblyError::BodyTooLarge { bytes, bytes_max: self.body_bytes_max });
        }
        let content = std::mem::take(&mut self.content);
        Ok(self.method.take().map(|method| Command { method, content: Some(content) }))
    }
}
