//! How a connection begins, from either side: the handshake over a socket, with its deadlines.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir_model::NodeId;

use super::handshake::{Hello, MessageError, Purpose, Reason, Refusal, Reply, judge, take_message};
use super::tls::PeerTls;
use super::told::Told;
use crate::identity::Identity;

/// How long whoever connects may take to say who he is, TLS included.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// How long it may take from looking up an address to the other's reply.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How long one of several addresses of a name may take to be connected to.
const ADDRESS_MAX: Duration = Duration::from_secs(1);

/// Room for what is read before it is known who is there, in bytes.
const ROOM_BYTES: usize = 1024;

/// A connection, over TCP or over TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the other side closed the connection before it said who it is")]
    Closed,
    #[error("it did not answer within {CONNECT_MAX:?}")]
    TooLong,
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("it refuses: {}", .0.words)]
    Refused(Refusal),
    #[error("its answer is not one to what was asked")]
    Answer,
}

/// A connection on which the other side has accepted.
pub(crate) struct Greeted {
    pub socket: Box<dyn Socket>,
    /// What was read behind the reply.
    pub buffer: BytesMut,
    /// The other's identity, if it was asked for.
    pub identity: Option<Identity>,
    /// Where other nodes are, as the other says.
    pub peers: BTreeMap<NodeId, String>,
}

/// Connects to a node and says hello.
pub(crate) async fn connect(
    address: &str,
    tls: Option<&PeerTls>,
    hello: &Hello,
) -> Result<Greeted, ConnectError> {
    let connecting = async {
        let socket = dial(address, tls).await?;
        greet(socket, hello).await
    };
    timeout(CONNECT_MAX, connecting).await.unwrap_or(Err(ConnectError::TooLong))
}

async fn dial(address: &str, tls: Option<&PeerTls>) -> io::Result<Box<dyn Socket>> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for socket_address in tokio::net::lookup_host(address).await? {
        let stream = match timeout(ADDRESS_MAX, TcpStream::connect(socket_address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                failed = error;
                continue;
            }
            Err(_) => {
                failed = io::Error::from(io::ErrorKind::TimedOut);
                continue;
            }
        };
        // Frames are gathered already.
        stream.set_nodelay(true)?;
        return Ok(match tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.client.connect(host(address), stream).await?),
        });
    }
    Err(failed)
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

async fn greet(mut socket: Box<dyn Socket>, hello: &Hello) -> Result<Greeted, ConnectError> {
    socket.write_all(&hello.encode()).await?;
    socket.flush().await?;
    let mut buffer = BytesMut::new();
    let Some(reply) = read_message(&mut socket, &mut buffer).await? else {
        return Err(ConnectError::Closed);
    };
    match Reply::decode(reply)? {
        Reply::Refuse(refusal) => Err(ConnectError::Refused(refusal)),
        Reply::Accept { version, .. } if version < hello.oldest || version > hello.newest => {
            Err(ConnectError::Answer)
        }
        Reply::Accept { identity, peers, .. } => Ok(Greeted { socket, buffer, identity, peers }),
    }
}

async fn read_message<S: AsyncRead + Unpin>(
    socket: &mut S,
    buffer: &mut BytesMut,
) -> Result<Option<Bytes>, ConnectError> {
    loop {
        if let Some(body) = take_message(buffer)? {
            return Ok(Some(body));
        }
        buffer.reserve(ROOM_BYTES);
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// What was logged of those that connected: whence, and as which node.
pub(crate) type ToldPeers = Mutex<Told<(IpAddr, Option<NodeId>)>>;

/// How a hello is answered.
pub(crate) struct Verdict {
    /// The version by which the connection goes on, or why it does not.
    pub version: Result<u16, Refusal>,
    /// What was asked for, where the answer is all there is.
    pub identity: Option<Identity>,
    /// Where other nodes are, for one that asks.
    pub peers: BTreeMap<NodeId, String>,
}

impl Verdict {
    /// That of a node, which knows the other or does not.
    pub(crate) fn of(hello: &Hello, own: &Identity, is_known: bool) -> Verdict {
        let version = judge(hello, own, is_known);
        let is_asked = hello.purpose == Purpose::Formation && version.is_ok();
        Verdict { version, identity: is_asked.then(|| own.clone()), peers: BTreeMap::new() }
    }

    pub(crate) fn refused(reason: Reason, words: String) -> Verdict {
        Verdict::refuse(Refusal { reason, words })
    }

    pub(crate) fn refuse(refusal: Refusal) -> Verdict {
        Verdict { version: Err(refusal), identity: None, peers: BTreeMap::new() }
    }
}

/// Reads a hello and answers it; `judge` says how. Returns what was said and what was read behind it, if the connection
/// goes on.
pub(crate) async fn receive<S, V>(
    socket: &mut S,
    peer: SocketAddr,
    judge: impl FnOnce(Hello) -> V,
    told: &ToldPeers,
) -> Option<(Hello, BytesMut)>
where
    S: AsyncRead + AsyncWrite + Unpin,
    V: Future<Output = Verdict>,
{
    let receiving = async {
        let mut buffer = BytesMut::new();
        let Some(body) = read_message(socket, &mut buffer).await? else {
            return Ok(None);
        };
        let hello = Hello::decode(body)?;
        let Verdict { version, identity, peers } = judge(hello.clone()).await;
        let reply = match &version {
            Ok(version) => Reply::Accept { version: *version, identity, peers },
            Err(refusal) => Reply::Refuse(refusal.clone()),
        };
        socket.write_all(&reply.encode()).await?;
        socket.flush().await?;
        match version {
            Ok(_) if !hello.purpose.goes_on() => {
                socket.shutdown().await?;
                Ok(None)
            }
            Ok(_) => Ok(Some((hello, buffer))),
            Err(refusal) => {
                socket.shutdown().await?;
                if told.lock().is_new((peer.ip(), Some(hello.from)), &refusal.words) {
                    tracing::warn!(%peer, node = %hello.from, why = refusal.words, "a node is refused");
                }
                Ok(None)
            }
        }
    };
    let why = match timeout(HELLO_MAX, receiving).await {
        Ok(Ok(received)) => return received,
        Ok(Err(error @ ConnectError::Message(_))) => error.to_string(),
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "a connection ended before it was known whose it is");
            return None;
        }
        Err(_) => format!("nobody said within {HELLO_MAX:?} who is there"),
    };
    if told.lock().is_new((peer.ip(), None), &why) {
        tracing::warn!(%peer, why, "a connection to the port for nodes is ended");
    }
    None
}
