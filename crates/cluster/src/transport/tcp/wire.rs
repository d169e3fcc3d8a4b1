//! Reading frames from a connection and writing them to it, and noticing that nobody is there any more.
//!
//! Either side sends a ping when it has had nothing else to send for [`PING_AFTER`]; it waits for no answer, since the
//! other side does the same. Where nothing at all arrives for [`SILENCE_MAX`], the other is paused, cut off or gone. A large
//! frame that is under way counts as being heard.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::frame::{Frame, FrameError, Kind, frame_bytes, head, take_frame};
use crate::transport::Line;

/// A side that has sent nothing for this long sends a ping.
pub(crate) const PING_AFTER: Duration = Duration::from_millis(500);

/// A connection is given up when nothing has arrived for this long.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(3);

/// It is given up as well when nothing that was written went out for this long, though the other is heard.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);

/// Room that is made when less than [`ROOM_BYTES_MIN`] is left for a read, in bytes.
const READ_BYTES_MIN: usize = 64 << 10;

/// Least room that a read finds, in bytes.
const ROOM_BYTES_MIN: usize = 8 << 10;

/// Most room that is made for a frame of which less has arrived yet, in bytes. Beyond it the room doubles.
const READ_BYTES_STEP: usize = 1 << 20;

/// Bytes that are gathered before they are written: one large frame may go beyond.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Chunks up to this long are copied behind each other, longer ones are written from where they are.
const COPIED_BYTES_MAX: usize = 8 << 10;

/// Chunks that are handed to the kernel at a time.
const SLICES_MAX: usize = 64;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the other side closed the connection")]
    Closed,
    #[error("nothing was heard for {SILENCE_MAX:?}")]
    Silence,
    #[error("nothing could be sent for {STALL_MAX:?}")]
    Stall,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a frame arrived that has no place here")]
    Unexpected,
}

/// Reads frames.
pub(crate) struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Goes on behind what was read already.
    pub(crate) fn new(from: R, buffer: BytesMut) -> FrameReader<R> {
        FrameReader { from, buffer }
    }

    /// The next frame that is no ping.
    pub(crate) async fn next(&mut self) -> Result<Frame, WireError> {
        loop {
            match take_frame(&mut self.buffer)? {
                Some(frame) if frame.kind == Kind::Ping => continue,
                Some(frame) => {
                    if frame.payload.len() > READ_BYTES_STEP {
                        // What was a large frame's memory is not kept for small ones.
                        self.buffer = BytesMut::from(&self.buffer[..]);
                    }
                    return Ok(frame);
                }
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), WireError> {
        let arrived = self.buffer.len();
        let missing = frame_bytes(&self.buffer)?.map_or(0, |bytes| bytes - arrived);
        let room = missing.clamp(ROOM_BYTES_MIN, arrived.max(READ_BYTES_STEP));
        if self.buffer.capacity() - arrived < room {
            self.buffer.reserve(room.max(READ_BYTES_MIN));
        }
        match timeout(SILENCE_MAX, self.from.read_buf(&mut self.buffer)).await {
            Ok(Ok(0)) => Err(WireError::Closed),
            Ok(read) => Ok(read.map(drop)?),
            Err(_) => Err(WireError::Silence),
        }
    }
}

/// Where frames to be sent come from.
pub(crate) trait Outgoing {
    /// Adds frames to the batch until it is full or there are none.
    fn fill(&self, batch: &mut Batch);

    /// The batch of before has been written.
    fn written(&self) {}

    /// Notified when there may be frames.
    fn ready(&self) -> &Notify;
}

/// Writes what there is, and pings where there is nothing, until that fails.
pub(crate) async fn write_frames<W: AsyncWrite + Unpin>(mut to: W, from: &impl Outgoing) -> WireError {
    let mut batch = Batch::default();
    loop {
        from.fill(&mut batch);
        if batch.is_empty() {
            if timeout(PING_AFTER, from.ready().notified()).await.is_ok() {
                continue;
            }
            batch.push(Kind::Ping, 0, Line::Service, Vec::new());
        }
        if let Err(error) = batch.write(&mut to).await {
            return error;
        }
        from.written();
    }
}

/// Frames to be written together.
#[derive(Default)]
pub(crate) struct Batch {
    chunks: VecDeque<Bytes>,
    /// What is copied together, not among the chunks yet.
    copied: BytesMut,
    bytes: usize,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= WRITE_BYTES_MAX
    }

    /// Adds a frame, of at most [`RPC_BYTES_MAX`](crate::RPC_BYTES_MAX).
    pub(crate) fn push(&mut self, kind: Kind, call: u64, line: Line, payload: Vec<Bytes>) {
        let head = head(kind, call, line, &payload);
        self.copied.extend_from_slice(&head);
        self.bytes += head.len();
        for chunk in payload {
            self.bytes += chunk.len();
            if chunk.len() <= COPIED_BYTES_MAX {
                self.copied.extend_from_slice(&chunk);
            } else {
                self.close_copied();
                self.chunks.push_back(chunk);
            }
        }
    }

    fn close_copied(&mut self) {
        if !self.copied.is_empty() {
            self.chunks.push_back(self.copied.split().freeze());
        }
    }

    /// Writes everything.
    pub(crate) async fn write<W: AsyncWrite + Unpin>(&mut self, to: &mut W) -> Result<(), WireError> {
        self.close_copied();
        while !self.chunks.is_empty() {
            let written = {
                let slices: Vec<IoSlice<'_>> =
                    self.chunks.iter().take(SLICES_MAX).map(|chunk| IoSlice::new(chunk)).collect();
                timeout(STALL_MAX, to.write_vectored(&slices)).await.map_err(|_| WireError::Stall)??
            };
            if written == 0 {
                return Err(WireError::Closed);
            }
            self.advance(written);
        }
        timeout(STALL_MAX, to.flush()).await.map_err(|_| WireError::Stall)??;
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes = self.bytes.saturating_sub(written);
        while let Some(chunk) = self.chunks.front_mut() {
            if chunk.len() > written {
                chunk.advance(written);
                return;
            }
            written -= chunk.len();
            self.chunks.pop_front();
        }
    }
}
