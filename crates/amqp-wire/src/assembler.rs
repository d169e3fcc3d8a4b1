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
use crate::method::Method;
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
    /// The method whose content is due.
    method: Option<Method>,
    /// What has come of its content.
    content: Content,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Method,
    Header,
    /// So many bytes of a body, at least one.
    Body(u64),
}

impl Assembler {
    /// One that takes bodies of up to `body_bytes_max` bytes. A longer one is refused by its header; its body frames
    /// may still be on their way then, and are for the caller to pass over until the channel is closed.
    pub fn new(body_bytes_max: u64) -> Self {
        Self { body_bytes_max, due: Due::Method, method: None, content: Content::default() }
    }

    /// Whether the frame to come begins a command.
    pub fn is_idle(&self) -> bool {
        matches!(self.due, Due::Method)
    }

    /// Takes the channel's next frame; gives the command that it completes.
    pub fn push(&mut self, frame: Frame) -> Result<Option<Command>, AssemblyError> {
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
        if header.body_bytes > self.body_bytes_max {
            let bytes_max = self.body_bytes_max;
            return Err(AssemblyError::BodyTooLarge { bytes: header.body_bytes, bytes_max });
        }
        self.content.properties = header.properties;
        Ok(self.complete(header.body_bytes))
    }

    fn body(&mut self, piece: Bytes, left: u64) -> Result<Option<Command>, AssemblyError> {
        let bytes = piece.len() as u64;
        let Some(left) = left.checked_sub(bytes) else {
            return Err(AssemblyError::BodyOverrun { bytes, left });
        };
        self.content.body.push(piece);
        Ok(self.complete(left))
    }

    /// The command, if nothing of its body is left to come.
    fn complete(&mut self, left: u64) -> Option<Command> {
        if left > 0 {
            self.due = Due::Body(left);
            return None;
        }
        self.due = Due::Method;
        let method = self.method.take()?;
        Some(Command { method, content: Some(std::mem::take(&mut self.content)) })
    }
}
