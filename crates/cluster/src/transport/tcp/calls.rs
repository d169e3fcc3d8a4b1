//! The calls of one connection, from the caller's side: those that are to be sent, and those that wait for an answer.
//!
//! A call is numbered as it is made, and the calls of a line are sent by their numbers, so that none overtakes another.
//! Lines take turns, a call each: a shard whose follower has much to catch up with must not hold up the heartbeats of all
//! others. A call that is to be sent costs no memory that its caller does not hold anyway. Whoever drops a call's future
//! takes it back, if it is not sent yet; if it is, its answer finds nobody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};
use weir_model::NodeId;

use super::frame::{Frame, Kind};
use super::wire::{Batch, FrameReader, Outgoing, WireError, write_frames};
use crate::transport::{Line, RPC_BYTES_MAX, TransportError};

/// Calls that are sent and not answered. The others wait their turn.
const SENT_MAX: usize = 4096;

/// Calls that wait to be sent; beyond it a call fails at once.
const UNSENT_MAX: usize = 16 << 10;

/// Their bytes, with the same consequence; a call finds room in any case where nothing waits.
const UNSENT_BYTES_MAX: usize = 4 * RPC_BYTES_MAX;

/// The calls of one connection, which may not be there yet.
pub(crate) struct Calls {
    to: NodeId,
    table: Mutex<Table>,
    ready: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    unsent: BTreeMap<u64, Unsent>,
    unsent_bytes: usize,
    /// The numbers of those, for each line that has its turn coming; all may have been taken back.
    lines: BTreeMap<Line, BTreeSet<u64>>,
    turns: VecDeque<Line>,
    /// All that have no answer, sent or not.
    unanswered: BTreeMap<u64, oneshot::Sender<Result<Bytes, TransportError>>>,
    ended: Option<TransportError>,
}

struct Unsent {
    line: Line,
    request: Vec<Bytes>,
    bytes: usize,
}

impl Table {
    fn add(&mut self, call: u64, unsent: Unsent) {
        if !self.lines.contains_key(&unsent.line) {
            self.turns.push_back(unsent.line);
        }
        self.lines.entry(unsent.line).or_default().insert(call);
        self.unsent_bytes += unsent.bytes;
        self.unsent.insert(call, unsent);
    }

    /// The next to be sent.
    fn take(&mut self) -> Option<(u64, Unsent)> {
        loop {
            let line = self.turns.pop_front()?;
            let calls = self.lines.get_mut(&line)?;
            let call = calls.pop_first();
            if calls.is_empty() {
                self.lines.remove(&line);
            } else {
                self.turns.push_back(line);
            }
            if let Some(call) = call {
                return Some((call, self.remove(call)?));
            }
        }
    }

    fn take_back(&mut self, call: u64) {
        if let Some(unsent) = self.remove(call)
            && let Some(calls) = self.lines.get_mut(&unsent.line)
        {
            calls.remove(&call);
        }
    }

    fn remove(&mut self, call: u64) -> Option<Unsent> {
        let unsent = self.unsent.remove(&call)?;
        self.unsent_bytes -= unsent.bytes;
        Some(unsent)
    }
}

impl Calls {
    pub(crate) fn new(to: NodeId) -> Arc<Calls> {
        Arc::new(Calls { to, table: Mutex::default(), ready: Notify::new() })
    }

    /// Makes a call. It has its place when this has been polled once.
    pub(crate) async fn call(&self, line: Line, request: Vec<Bytes>) -> Result<Bytes, TransportError> {
        let (call, answer) = self.begin(line, request)?;
        let _forgotten = Forgotten { calls: self, call };
        answer.await.unwrap_or_else(|_| Err(self.failed("the connection ended")))
    }

    fn failed(&self, why: impl ToString) -> TransportError {
        TransportError::Failed { to: self.to, why: why.to_string() }
    }

    fn begin(
        &self,
        line: Line,
        request: Vec<Bytes>,
    ) -> Result<(u64, oneshot::Receiver<Result<Bytes, TransportError>>), TransportError> {
        let bytes: usize = request.iter().map(Bytes::len).sum();
        if bytes > RPC_BYTES_MAX {
            return Err(self.failed(format!("it has {bytes} bytes, more than the {RPC_BYTES_MAX} allowed")));
        }
        let (answered, answer) = oneshot::channel();
        let mut table = self.table.lock();
        if let Some(ended) = &table.ended {
            return Err(ended.clone());
        }
        let is_too_much = table.unsent.len() >= UNSENT_MAX
            || (!table.unsent.is_empty() && table.unsent_bytes + bytes > UNSENT_BYTES_MAX);
        if is_too_much {
            return Err(self.failed("too many calls wait to be sent"));
        }
        let call = table.next;
        table.next += 1;
        table.add(call, Unsent { line, request, bytes });
        table.unanswered.insert(call, answered);
        drop(table);
        self.ready.notify_one();
        Ok((call, answer))
    }

    /// All calls fail, and those made from here on as well.
    pub(crate) fn end(&self, why: TransportError) {
        let unanswered = {
            let mut table = self.table.lock();
            table.ended.get_or_insert_with(|| why.clone());
            table.unsent.clear();
            table.unsent_bytes = 0;
            table.lines.clear();
            table.turns.clear();
            std::mem::take(&mut table.unanswered)
        };
        for answered in unanswered.into_values() {
            let _ = answered.send(Err(why.clone()));
        }
    }

    fn answer(&self, frame: Frame) -> Result<(), WireError> {
        let answer = match frame.kind {
            Kind::Answer => Ok(frame.payload),
            Kind::Failure => Err(self.failed(String::from_utf8_lossy(&frame.payload))),
            Kind::Call | Kind::Ping => return Err(WireError::Unexpected),
        };
        let mut table = self.table.lock();
        if frame.call >= table.next || table.unsent.contains_key(&frame.call) {
            return Err(WireError::Unexpected);
        }
        let answered = table.unanswered.remove(&frame.call);
        drop(table);
        // There may be room for another now.
        self.ready.notify_one();
        if let Some(answered) = answered {
            let _ = answered.send(answer);
        }
        Ok(())
    }

    /// Carries calls over a connection until it ends, and returns why it did. `reader` and `writer` are its two halves.
    pub(crate) async fn carry<R, W>(&self, mut reader: FrameReader<R>, writer: W) -> WireError
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let read = async {
            loop {
                let taken = reader.next().await.and_then(|frame| self.answer(frame));
                if let Err(error) = taken {
                    return error;
                }
            }
        };
        tokio::select! {
            error = read => error,
            error = write_frames(writer, self) => error,
        }
    }
}

impl Outgoing for Calls {
    fn fill(&self, batch: &mut Batch) {
        while !batch.is_full() {
            let mut table = self.table.lock();
            if table.unanswered.len() - table.unsent.len() >= SENT_MAX {
                return;
            }
            let Some((call, unsent)) = table.take() else { return };
            drop(table);
            batch.push(Kind::Call, call, unsent.line, unsent.request);
        }
    }

    fn ready(&self) -> &Notify {
        &self.ready
    }
}

/// Takes a call out of the table when its caller is gone.
struct Forgotten<'a> {
    calls: &'a Calls,
    call: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        let mut table = self.calls.table.lock();
        table.take_back(self.call);
        let was_unanswered = table.unanswered.remove(&self.call).is_some();
        drop(table);
        if was_unanswered {
            self.calls.ready.notify_one();
        }
    }
}
