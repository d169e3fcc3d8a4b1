//! One TCP connection to one node: requests go out in the order in which they are handed over, answers
//! come back in that order, and each finds the caller that waits for it.
//!
//! Two tasks own the socket's halves. When either ends, everybody who waits is told why, and the
//! connection is done for; whoever needs another one opens it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use weir_kafka_wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, ErrorCode, Frame, KafkaStr, RequestMessage,
    peek_correlation_id,
};

use crate::error::ClientError;
use crate::options::{Address, ClientOptions};
use crate::sasl;

/// Requests that may be handed over before the first of them is written.
const OUTGOING_MAX: usize = 64;

/// Largest answer that is read: more than any fetch asks for.
const ANSWER_BYTES_MAX: usize = 160 << 20;

/// Room that is made at once for an answer that is still coming in.
const READ_STEP_BYTES: usize = 256 << 10;

/// Buffer in front of the socket: small requests leave together.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// Newest version of an API that this client uses, where it is not the newest that can be written: from
/// the next one on topics are named by id, or several groups are asked about at once.
fn newest_used(api: ApiKey) -> i16 {
    match api {
        ApiKey::Produce | ApiKey::Fetch => 12,
        ApiKey::OffsetCommit => 9,
        ApiKey::OffsetFetch => 7,
        ApiKey::FindCoordinator => 3,
        _ => i16::MAX,
    }
}

/// A connection. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    address: Address,
    client_id: KafkaStr,
    request_timeout: Duration,
    outgoing: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
    versions: BTreeMap<i16, RangeInclusive<i16>>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct Outgoing {
    frame: Frame,
    answer: Option<oneshot::Sender<Bytes>>,
    correlation_id: i32,
}

/// What the two tasks and the callers share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whoever waits, in the order of their requests.
    waiting: VecDeque<(i32, oneshot::Sender<Bytes>)>,
    last_correlation_id: i32,
    /// Why the connection has ended, if it has.
    ended: Option<Arc<str>>,
}

impl Shared {
    /// Tells everybody who waits that nothing more will come. The first reason stays.
    fn end(&self, why: impl Into<Arc<str>>) {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| why.into());
        state.waiting.clear();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// An answer that is on its way.
#[derive(Debug)]
pub(crate) struct Answer<R> {
    frame: oneshot::Receiver<Bytes>,
    version: i16,
    connection: Arc<Connection>,
    request: std::marker::PhantomData<fn() -> R>,
}

impl<R: RequestMessage> Answer<R> {
    /// Waits for it, at most this long.
    pub(crate) async fn wait(self, at_most: Duration) -> Result<R::Response, ClientError> {
        let frame = match tokio::time::timeout(at_most, self.frame).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(_)) => return Err(self.connection.disconnected()),
            Err(_) => {
                // What comes later would be an answer nobody waits for, and an unresponsive node is not
                // worth keeping a connection to.
                let what = format!("{} to {}", R::API, self.connection.address);
                self.connection.shared.end("an answer did not come in time");
                return Err(ClientError::TimedOut { what, after: at_most });
            }
        };
        let address = self.connection.address.to_string();
        R::decode_response(self.version, frame)
            .map(|(_, response)| response)
            .map_err(|why| ClientError::Malformed { address, why })
    }
}

impl Connection {
    /// Connects, and asks the other end what it speaks.
    pub(crate) async fn open(
        address: &Address,
        options: &ClientOptions,
    ) -> Result<Arc<Connection>, ClientError> {
        let unreachable =
            |why: String| ClientError::Unreachable { address: address.to_string(), why: why.into() };
        let connecting = TcpStream::connect((address.host.as_str(), address.port));
        let stream = match tokio::time::timeout(options.connect_timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(_) => return Err(unreachable(format!("no answer within {:?}", options.connect_timeout))),
        };
        // Requests are whole when they are written; waiting to fill packets only delays them.
        stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        let (reading, writing) = stream.into_split();
        let shared = Arc::new(Shared::default());
        let (outgoing, to_write) = mpsc::channel(OUTGOING_MAX);
        let writer = tokio::spawn(write(writing, to_write, shared.clone())).abort_handle();
        let reader = tokio::spawn(read(reading, shared.clone())).abort_handle();
        let mut connection = Connection {
            address: address.clone(),
            client_id: KafkaStr::from(&options.client_id),
            request_timeout: options.request_timeout,
            outgoing,
            shared,
            versions: BTreeMap::new(),
            tasks: [writer, reader],
        };
        connection.versions = connection.ask_versions().await?;
        let connection = Arc::new(connection);
        if let Some(credentials) = &options.credentials {
            sasl::authenticate(&connection, credentials).await?;
        }
        tracing::debug!(%address, "connected");
        Ok(connection)
    }

    /// Where it leads.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.state.lock().ended.is_some()
    }

    /// Asks and waits for the answer.
    pub(crate) async fn call<R: RequestMessage>(
        self: &Arc<Self>,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        self.send(request).await?.wait(self.request_timeout).await
    }

    /// Asks. Requests leave in the order in which this returns.
    pub(crate) async fn send<R: RequestMessage>(
        self: &Arc<Self>,
        request: &R,
    ) -> Result<Answer<R>, ClientError> {
        let version = self.version(R::API)?;
        let (answer, frame) = oneshot::channel();
        self.hand_over(request, version, Some(answer)).await?;
        let connection = self.clone();
        Ok(Answer { frame, version, connection, request: std::marker::PhantomData })
    }

    /// Sends a request that the other end does not answer (a produce request with acks 0).
    pub(crate) async fn send_unanswered<R: RequestMessage>(&self, request: &R) -> Result<(), ClientError> {
        let version = self.version(R::API)?;
        self.hand_over(request, version, None).await
    }

    /// The newest version of an API that both ends speak.
    pub(crate) fn version(&self, api: ApiKey) -> Result<i16, ClientError> {
        let here = api.versions();
        let there = self.versions.get(&(api as i16));
        there
            .map(|there| (*there.end()).min(*here.end()).min(newest_used(api)))
            .filter(|version| here.contains(version) && there.is_some_and(|there| there.contains(version)))
            .ok_or_else(|| ClientError::Version { address: self.address.to_string(), api: api.name() })
    }

    async fn hand_over<R: RequestMessage>(
        &self,
        request: &R,
        version: i16,
        answer: Option<oneshot::Sender<Bytes>>,
    ) -> Result<(), ClientError> {
        let place = self.outgoing.reserve().await.map_err(|_| self.disconnected())?;
        let correlation_id = {
            let mut state = self.shared.state.lock();
            state.last_correlation_id = state.last_correlation_id.wrapping_add(1);
            state.last_correlation_id
        };
        let frame = request.encode_request(version, correlation_id, Some(&self.client_id))?;
        place.send(Outgoing { frame, answer, correlation_id });
        Ok(())
    }

    /// Why nothing more comes over this connection.
    fn disconnected(&self) -> ClientError {
        let why = self.shared.state.lock().ended.clone().unwrap_or_else(|| "it was closed".into());
        ClientError::Disconnected { address: self.address.to_string(), why }
    }

    /// Asks for the versions, in a newer layout of the question first. A node that does not know it answers
    /// in the oldest layout, with error 35, and is asked again in that.
    async fn ask_versions(&self) -> Result<BTreeMap<i16, RangeInclusive<i16>>, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "weir".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        for version in [3, 0] {
            let (sender, frame) = oneshot::channel();
            self.hand_over(&request, version, Some(sender)).await?;
            let after = self.request_timeout;
            let frame = match tokio::time::timeout(after, frame).await {
                Ok(Ok(frame)) => frame,
                Ok(Err(_)) => return Err(self.disconnected()),
                Err(_) => {
                    let what = format!("asking {} for its versions", self.address);
                    return Err(ClientError::TimedOut { what, after });
                }
            };
            let decode = |version| ApiVersionsRequest::decode_response(version, frame.clone());
            let answer: ApiVersionsResponse = match decode(version).or_else(|_| decode(0)) {
                Ok((_, answer)) => answer,
                Err(why) => return Err(ClientError::Malformed { address: self.address.to_string(), why }),
            };
            if answer.error_code == ErrorCode::UNSUPPORTED_VERSION && version > 0 {
                continue;
            }
            ClientError::check(answer.error_code, || format!("asking {} for its versions", self.address))?;
            let versions = answer.api_keys.iter().map(|api| (api.api_key, api.min_version..=api.max_version));
            return Ok(versions.collect());
        }
        Err(ClientError::Version { address: self.address.to_string(), api: ApiKey::ApiVersions.name() })
    }
}

async fn write(socket: OwnedWriteHalf, mut to_write: mpsc::Receiver<Outgoing>, shared: Arc<Shared>) {
    let mut socket = BufWriter::with_capacity(WRITE_BUFFER_BYTES, socket);
    while let Some(first) = to_write.recv().await {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            if let Err(error) = write_one(&mut socket, outgoing, &shared).await {
                return shared.end(error.to_string());
            }
            next = to_write.try_recv().ok();
        }
        if let Err(error) = socket.flush().await {
            return shared.end(error.to_string());
        }
    }
    shared.end("it was closed");
}

async fn write_one(
    socket: &mut BufWriter<OwnedWriteHalf>,
    outgoing: Outgoing,
    shared: &Shared,
) -> std::io::Result<()> {
    if let Some(answer) = outgoing.answer {
        let mut state = shared.state.lock();
        if state.ended.is_some() {
            return Err(std::io::ErrorKind::NotConnected.into());
        }
        state.waiting.push_back((outgoing.correlation_id, answer));
    }
    for chunk in outgoing.frame.chunks() {
        socket.write_all(chunk).await?;
    }
    Ok(())
}

async fn read(mut socket: OwnedReadHalf, shared: Arc<Shared>) {
    let mut buffer = BytesMut::new();
    loop {
        match take_frame(&mut buffer) {
            Ok(Some(frame)) => {
                if let Err(why) = deliver(frame, &shared) {
                    return shared.end(why);
                }
                continue;
            }
            Ok(None) => {}
            Err(why) => return shared.end(why),
        }
        buffer.reserve(READ_STEP_BYTES);
        match socket.read_buf(&mut buffer).await {
            Ok(0) => return shared.end("the other end closed it"),
            Ok(_) => {}
            Err(error) => return shared.end(error.to_string()),
        }
    }
}

/// The next whole frame without its length, if it is there.
fn take_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some((length, _)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length))
        .ok()
        .filter(|length| *length <= ANSWER_BYTES_MAX)
        .ok_or("an answer has an impossible length; is this a Kafka port?")?;
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

fn deliver(frame: Bytes, shared: &Shared) -> Result<(), String> {
    let correlation_id = peek_correlation_id(&frame).map_err(|error| error.to_string())?;
    let mut state = shared.state.lock();
    let Some((expected, waiting)) = state.waiting.pop_front() else {
        return Err("an answer came that nobody asked for".into());
    };
    if expected != correlation_id {
        return Err(format!("answer {correlation_id} came where {expected} was due"));
    }
    // Whoever waited may have given up; then nobody needs it.
    let _ = waiting.send(frame);
    Ok(())
}
