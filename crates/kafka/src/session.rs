//! One connection's requests: each is read as far as its header and sent where the table says.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use weir_broker::{FileRange, Identity, Piece};
use weir_kafka_wire::{ApiKey, Frame, KafkaStr, Message, Part, Reader, RequestHeader, RequestMessage};

use crate::apis::gaps::Gaps;
use crate::apis::{self, Api};
use crate::budget::Held;
use crate::connection::Protocol;
use crate::front::Front;
use crate::pipeline::{Answer, Begun, Lane};
use crate::sasl::{self, Gone, Login};

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// The address that the client connected to.
    pub(crate) local: SocketAddr,
    /// The client's address.
    pub(crate) peer: SocketAddr,
}

/// The protocol's side of one connection.
#[derive(Debug)]
pub(crate) struct Session {
    front: Arc<Front>,
    caller: Caller,
    login: Arc<Login>,
    gaps: Arc<Gaps>,
}

/// One request's surroundings.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) front: Arc<Front>,
    pub(crate) caller: Caller,
    /// The connection's log-in.
    pub(crate) login: Arc<Login>,
    /// What producers on the connection lack.
    pub(crate) gaps: Arc<Gaps>,
    /// Who the client is; none if it has not said so, and has to.
    pub(crate) who: Option<Identity>,
    /// Place of the API in the table.
    pub(crate) api: usize,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<KafkaStr>,
    /// When the frame was read.
    pub(crate) arrived: tokio::time::Instant,
}

impl Session {
    pub(crate) fn new(front: Arc<Front>, caller: Caller) -> Session {
        Session { front, caller, login: Arc::default(), gaps: Arc::default() }
    }

    /// A message of the mechanism by which the client authenticates, counted as the request that later clients put it in.
    fn begin_bare(&self, frame: Bytes) -> Begun {
        let Some((api, _)) = apis::find(ApiKey::SaslAuthenticate as i16) else {
            return close("authentication is not served".into());
        };
        self.front.metrics.begun(api, frame.len());
        let call = Call {
            front: self.front.clone(),
            caller: self.caller,
            login: self.login.clone(),
            gaps: self.gaps.clone(),
            who: None,
            api,
            version: 0,
            correlation_id: 0,
            client_id: None,
            arrived: tokio::time::Instant::now(),
        };
        sasl::bare(call, frame)
    }
}

impl Protocol for Session {
    fn lane(&self, frame: &Bytes) -> Lane {
        if self.login.expects_bare() {
            return Lane::Alone;
        }
        let api = frame.first_chunk::<2>().and_then(|&key| apis::find(i16::from_be_bytes(key)));
        api.map_or(Lane::Alone, |(_, api)| api.lane)
    }

    fn begin(&mut self, mut frame: Bytes) -> Begun {
        let frame_bytes = frame.len();
        if self.login.expects_bare() {
            return self.begin_bare(frame);
        }
        let header = match RequestHeader::decode(&mut frame) {
            Ok(header) => header,
            Err(error) => return close(format!("a request's header cannot be read: {error}")),
        };
        let Some((index, api)) = apis::find(header.api_key) else {
            return close(format!("API key {} is not served", header.api_key));
        };
        self.front.metrics.begun(index, frame_bytes);
        let who = match self.login.who(&self.front.broker) {
            Ok(who) => who,
            Err(Gone(user)) => return close(format!("the user '{user}' of the connection is deleted")),
        };
        if who.is_none() && !api.for_anybody {
            self.front.note_unknown(self.caller.peer);
        }
        let call = Call {
            front: self.front.clone(),
            caller: self.caller,
            login: self.login.clone(),
            gaps: self.gaps.clone(),
            who,
            api: index,
            version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            arrived: tokio::time::Instant::now(),
        };
        if api.key.has_version(header.api_version) {
            (api.begin)(call, frame)
        } else {
            refuse_version(api, call, frame)
        }
    }
}

fn close(why: String) -> Begun {
    Begun::Done(Answer::Close(why))
}

/// A version outside the advertised range. Kafka closes the connection, except where an answer can be
/// read by every client.
fn refuse_version(api: &Api, call: Call, body: Bytes) -> Begun {
    if let Some(refuse) = api.refuse_version
        && let Some(answer) = refuse(&call, body)
    {
        return Begun::Done(answer);
    }
    close(format!("{} has no version {} here", api.key, call.version))
}

impl Call {
    /// Writes an answer and counts it.
    pub(crate) fn answer<M: Message>(&self, response: &M) -> Answer {
        self.answer_with(response, Vec::new(), None)
    }

    /// As [`Call::answer`], with the ranges whose places are left in it, by their gaps' keys, and what is held until
    /// the answer is sent.
    pub(crate) fn answer_with<M: Message>(
        &self,
        response: &M,
        ranges: Vec<FileRange>,
        held: Option<Held>,
    ) -> Answer {
        match response.encode_response(self.version, self.correlation_id) {
            Ok(frame) => {
                self.answered(frame.len());
                answer_of(frame, ranges, held)
            }
            Err(error) => Answer::Close(format!("an answer could not be written: {error}")),
        }
    }

    /// Counts an answer of so many bytes.
    pub(crate) fn answered(&self, bytes: usize) {
        self.front.metrics.answered(self.api, bytes, self.arrived.elapsed());
    }

    /// Counts an error that the client is told.
    pub(crate) fn count_error(&self) {
        self.front.metrics.refused(self.api);
    }

    /// Waits for `work`, but not longer than the front serves: then there is none.
    pub(crate) async fn unless_draining<F: Future>(&self, work: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.front.draining.cancelled() => None,
        }
    }
}

/// A frame as it is sent, with what was left out of it in its place.
pub(crate) fn answer_of(frame: Frame, ranges: Vec<FileRange>, held: Option<Held>) -> Answer {
    if !frame.has_gaps() {
        return Answer::Frame(frame.into_chunks().into_iter().map(Piece::Memory).collect(), held);
    }
    let mut ranges: Vec<_> = ranges.into_iter().map(Some).collect();
    let piece = |part| match part {
        Part::Bytes(bytes) => Some(Piece::Memory(bytes)),
        Part::Gap(gap) => {
            let range = ranges.get_mut(gap.key).and_then(Option::take);
            range.filter(|range| range.len() == gap.bytes).map(Piece::Stored)
        }
    };
    match frame.into_parts().into_iter().map(piece).collect() {
        Some(pieces) => Answer::Frame(pieces, held),
        // It would put the stream out of step, and the client could not tell.
        None => Answer::Close("a part of an answer has not the length that was said".into()),
    }
}

/// Reads a request's body. One that cannot be read ends the connection.
///
/// Bytes behind the request are passed over, as Kafka does: librdkafka's request for the metadata of all
/// topics has three too many from version 9 on.
pub(crate) fn read<R: RequestMessage>(call: &Call, body: Bytes) -> Result<R, Begun> {
    R::decode_from(call.version, &mut Reader::new(body))
        .map_err(|error| close(format!("{} version {}: {error}", R::API, call.version)))
}

/// Runs a handler for a request of one message type.
pub(crate) fn run<R, F, Fut>(call: Call, body: Bytes, handler: F) -> Begun
where
    R: RequestMessage,
    F: FnOnce(Call, R) -> Fut,
    Fut: Future<Output = R::Response> + Send + 'static,
{
    let request = match read::<R>(&call, body) {
        Ok(request) => request,
        Err(closing) => return closing,
    };
    let response = handler(call.clone(), request);
    Begun::Running(Box::pin(async move { call.answer(&response.await) }))
}
