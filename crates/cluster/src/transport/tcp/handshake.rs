//! What both sides say before anything else, without I/O.
//!
//! ```text
//! message = magic "weirpeer", length u32 of the body, crc u32 (CRC-32C of the body), body
//! hello   = oldest u16, newest u16, purpose u8 (1 shards, 2 service, 3 formation, 4 incarnation, 5 admission),
//!           from u64, to u64 (0 whoever is there), cluster string, and if one of these is not 0 or empty:
//!           incarnation u32, incarnation of the other u32, token u64, and the same with
//!           address string
//! reply   = 0 u8, version u16, flags u8 (1 identity, 2 peers), identity if there is one (see `identity.rs`),
//!           peers (count u32, (node u64, address string)*) if there are any
//!         | 1 u8, reason u8, words string
//! ```
//!
//! The one that connects says hello, the other replies. Integers are little-endian. The layout of both stays what it is
//! in every version, so that nodes of any two can tell each other what they speak; what a later one adds stands behind.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Incarnation, NodeId};

use crate::identity::{CLUSTER_ID_BYTES_MAX, Identity, Phase};

/// The oldest version of the protocol between nodes that this code speaks.
pub(crate) const VERSION_OLDEST: u16 = 1;

/// The newest.
pub(crate) const VERSION_NEWEST: u16 = 1;

const HAS_IDENTITY: u8 = 1;
const HAS_PEERS: u8 = 2;

/// A node and an address without a byte.
const PEER_BYTES_MIN: usize = 12;

const MAGIC: &[u8; 8] = b"weirpeer";

/// Bytes in front of a body.
const HEAD_BYTES: usize = 16;

/// Longest body, in bytes: an identity with as many founders as there may be takes some 600, and peers
/// [`PEERS_BYTES_MAX`].
pub(crate) const BODY_BYTES_MAX: usize = PEERS_BYTES_MAX + 2048;

/// Most bytes that a reply takes to say where other nodes are. Beyond that it names only some; they know the others.
pub(crate) const PEERS_BYTES_MAX: usize = 16 << 10;

/// Longest address of a node, in bytes: a name of 253 and a port.
pub(crate) const ADDRESS_BYTES_MAX: usize = 260;

/// Whom one means that knows an address, and not whose it is.
pub(crate) const WHOEVER_IS_THERE: NodeId = NodeId(0);

/// Longest words that a refusal is given, in bytes.
const WORDS_BYTES_MAX: usize = 512;

/// What a connection is for. Each has its own, so that a large append holds up no call to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Calls on the lines of shards.
    Shards = 1,
    /// Calls to the service.
    Service = 2,
    /// Asks who the other is and where its peers are; the reply is all there is.
    Formation = 3,
    /// Asks what a member that lost its data is from here on; the reply is all there is.
    Incarnation = 4,
    /// Asks to be taken into the cluster; the reply is all there is.
    Admission = 5,
}

impl Purpose {
    /// Whether anything follows on the handshake.
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, Purpose::Shards | Purpose::Service)
    }
}

/// What the one that connects says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub oldest: u16,
    pub newest: u16,
    pub purpose: Purpose,
    pub from: NodeId,
    /// Who the other is believed to be.
    pub to: NodeId,
    /// Empty where there is none yet.
    pub cluster: String,
    /// Which incarnation this one is.
    pub incarnation: Incarnation,
    /// The one that counts of the other, as far as this one knows.
    pub to_incarnation: Incarnation,
    /// With [`Purpose::Incarnation`] and [`Purpose::Admission`]: what tells the process that asks from all others.
    pub token: u64,
    /// With [`Purpose::Admission`]: where the others are to reach the node, as `host:port`.
    pub address: String,
}

/// What the other says to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It goes on by this version. The identity is the answer to [`Purpose::Formation`], with where other nodes are; to
    /// [`Purpose::Incarnation`] and [`Purpose::Admission`] it is that of the one who asks.
    Accept { version: u16, identity: Option<Identity>, peers: BTreeMap<NodeId, String> },
    /// The connection ends here.
    Refuse(Refusal),
}

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub reason: Reason,
    pub words: String,
}

/// Why a connection is refused, for code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    OtherCluster,
    OtherNode,
    UnknownNode,
    NoCommonVersion,
    NotFormed,
    /// An incarnation that does not count any more.
    Replaced,
    /// It cannot be told which incarnation the other is.
    NoIncarnation,
    /// The one that was asked is not what is meant, but what was replaced.
    Outdated,
    /// The other cannot be taken in.
    NotAdmitted,
    /// One that a later version has.
    Other(u8),
}

/// Bytes that are no message. The connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("this is not the protocol between nodes of Weir")]
    Magic,
    #[error("a message of the handshake announces {0} bytes, more than the {BODY_BYTES_MAX} allowed")]
    Length(u32),
    #[error("a message of the handshake has a wrong checksum")]
    Checksum,
    #[error(transparent)]
    Content(#[from] DecodeError),
}

/// Takes the body of the message at the front, if all of it is there. What can be none is told by the first wrong byte.
pub(crate) fn take_message(buffer: &mut BytesMut) -> Result<Option<Bytes>, MessageError> {
    let magic = buffer.len().min(MAGIC.len());
    if buffer[..magic] != MAGIC[..magic] {
        return Err(MessageError::Magic);
    }
    if buffer.len() < HEAD_BYTES {
        return Ok(None);
    }
    let mut head = &buffer[MAGIC.len()..HEAD_BYTES];
    let (length, crc) = (head.get_u32_le(), head.get_u32_le());
    if length as usize > BODY_BYTES_MAX {
        return Err(MessageError::Length(length));
    }
    if buffer.len() < HEAD_BYTES + length as usize {
        return Ok(None);
    }
    let body = buffer.split_to(HEAD_BYTES + length as usize).freeze().slice(HEAD_BYTES..);
    if crc32c::crc32c(&body) != crc {
        return Err(MessageError::Checksum);
    }
    Ok(Some(body))
}

fn message(body: &[u8]) -> Bytes {
    let mut out = Writer::new();
    out.raw(MAGIC);
    out.u32(body.len() as u32);
    out.u32(crc32c::crc32c(body));
    out.raw(body);
    out.finish()
}

fn read_u16(r: &mut Reader) -> Result<u16, DecodeError> {
    r.array().map(u16::from_le_bytes)
}

impl Hello {
    /// What this code says.
    pub(crate) fn new(from: &Identity, to: NodeId, purpose: Purpose) -> Hello {
        let (oldest, newest) = (VERSION_OLDEST, VERSION_NEWEST);
        Hello {
            oldest,
            newest,
            purpose,
            from: from.node,
            to,
            cluster: from.cluster.clone(),
            incarnation: from.incarnation,
            to_incarnation: Incarnation::FIRST,
            token: 0,
            address: String::new(),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        out.raw(&self.oldest.to_le_bytes());
        out.raw(&self.newest.to_le_bytes());
        out.u8(self.purpose as u8);
        out.u64(self.from.0);
        out.u64(self.to.0);
        out.str(&self.cluster);
        let is_first = (self.incarnation, self.to_incarnation) == (Incarnation::FIRST, Incarnation::FIRST);
        if !is_first || self.token != 0 || !self.address.is_empty() {
            out.u32(self.incarnation.0);
            out.u32(self.to_incarnation.0);
            out.u64(self.token);
        }
        if !self.address.is_empty() {
            out.str(&self.address);
        }
        message(&out.finish())
    }

    pub(crate) fn decode(body: Bytes) -> Result<Hello, MessageError> {
        let mut r = Reader::new("a hello", body);
        let (oldest, newest) = (read_u16(&mut r)?, read_u16(&mut r)?);
        let purpose = match r.u8()? {
            1 => Purpose::Shards,
            2 => Purpose::Service,
            3 => Purpose::Formation,
            4 => Purpose::Incarnation,
            5 => Purpose::Admission,
            _ => return Err(r.error("its purpose is not known").into()),
        };
        let (from, to) = (NodeId(r.u64()?), NodeId(r.u64()?));
        let cluster = r.str()?;
        if cluster.len() > CLUSTER_ID_BYTES_MAX {
            return Err(r.error("the cluster's id is too long").into());
        }
        let (mut incarnation, mut to_incarnation, mut token) = (Incarnation::FIRST, Incarnation::FIRST, 0);
        if r.remaining() > 0 {
            (incarnation, to_incarnation, token) = (Incarnation(r.u32()?), Incarnation(r.u32()?), r.u64()?);
        }
        let address = if r.remaining() > 0 { r.str()? } else { String::new() };
        if address.len() > ADDRESS_BYTES_MAX {
            return Err(r.error("the address is too long").into());
        }
        Ok(Hello { oldest, newest, purpose, from, to, cluster, incarnation, to_incarnation, token, address })
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        match self {
            Reply::Accept { version, identity, peers } => {
                out.u8(0);
                out.raw(&version.to_le_bytes());
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                out.u8(flag(identity.is_some(), HAS_IDENTITY) | flag(!peers.is_empty(), HAS_PEERS));
                if let Some(identity) = identity {
                    identity.encode(&mut out);
                }
                if !peers.is_empty() {
                    let mut room = PEERS_BYTES_MAX;
                    let fits = |(_, address): &(&NodeId, &String)| {
                        let left = room.checked_sub(PEER_BYTES_MIN + address.len());
                        room = left.unwrap_or_default();
                        left.is_some()
                    };
                    let peers: Vec<(&NodeId, &String)> = peers.iter().take_while(fits).collect();
                    out.list(&peers, |out, (node, address)| {
                        out.u64(node.0);
                        out.str(address);
                    });
                }
            }
            Reply::Refuse(refusal) => {
                out.u8(1);
                out.u8(refusal.reason.code());
                out.str(shorten(&refusal.words));
            }
        }
        message(&out.finish())
    }

    pub(crate) fn decode(body: Bytes) -> Result<Reply, MessageError> {
        let mut r = Reader::new("the reply to a hello", body);
        match r.u8()? {
            0 => {
                let version = read_u16(&mut r)?;
                let flags = r.u8()?;
                if flags & !(HAS_IDENTITY | HAS_PEERS) != 0 {
                    return Err(r.error("it has flags that are not known").into());
                }
                let identity = if flags & HAS_IDENTITY != 0 { Some(Identity::decode(&mut r)?) } else { None };
                let peers = if flags & HAS_PEERS != 0 {
                    r.list(PEER_BYTES_MIN, |r| Ok((NodeId(r.u64()?), r.str()?)))?
                } else {
                    Vec::new()
                };
                let bytes: usize = peers.iter().map(|(_, address)| PEER_BYTES_MIN + address.len()).sum();
                if bytes > PEERS_BYTES_MAX {
                    return Err(r.error("it names too many peers").into());
                }
                Ok(Reply::Accept { version, identity, peers: peers.into_iter().collect() })
            }
            1 => {
                let reason = Reason::from_code(r.u8()?);
                let words = shorten(&r.str()?).to_owned();
                Ok(Reply::Refuse(Refusal { reason, words }))
            }
            _ => Err(r.error("it neither accepts nor refuses").into()),
        }
    }
}

impl Reason {
    fn code(self) -> u8 {
        match self {
            Reason::OtherCluster => 1,
            Reason::OtherNode => 2,
            Reason::UnknownNode => 3,
            Reason::NoCommonVersion => 4,
            Reason::NotFormed => 5,
            Reason::Replaced => 6,
            Reason::NoIncarnation => 7,
            Reason::Outdated => 8,
            Reason::NotAdmitted => 9,
            Reason::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Reason {
        match code {
            1 => Reason::OtherCluster,
            2 => Reason::OtherNode,
            3 => Reason::UnknownNode,
            4 => Reason::NoCommonVersion,
            5 => Reason::NotFormed,
            6 => Reason::Replaced,
            7 => Reason::NoIncarnation,
            8 => Reason::Outdated,
            9 => Reason::NotAdmitted,
            other => Reason::Other(other),
        }
    }
}

fn shorten(words: &str) -> &str {
    &words[..words.floor_char_boundary(WORDS_BYTES_MAX)]
}

/// Whether this node takes the connection, and by which version; `is_known` says whether the other is a peer of it.
pub(crate) fn judge(hello: &Hello, own: &Identity, is_known: bool) -> Result<u16, Refusal> {
    let refuse = |reason, words: String| Err(Refusal { reason, words });
    let (from, node) = (hello.from, own.node);
    let version = hello.newest.min(VERSION_NEWEST);
    if version < hello.oldest.max(VERSION_OLDEST) {
        return refuse(
            Reason::NoCommonVersion,
            format!(
                "node {from} speaks versions {} to {} of the protocol between nodes, and node {node} versions \
                 {VERSION_OLDEST} to {VERSION_NEWEST}",
                hello.oldest, hello.newest
            ),
        );
    }
    let asks = matches!(hello.purpose, Purpose::Formation | Purpose::Admission);
    let means_whoever = asks && hello.to == WHOEVER_IS_THERE;
    if means_whoever && from == node {
        let words = format!("this is node {node}, and every node has a number of its own; look at --node-id");
        return refuse(Reason::OtherNode, words);
    }
    if !means_whoever && (hello.to != node || from == node) {
        let words = format!("this is node {node}, and node {from} meant node {}; look at --peers", hello.to);
        return refuse(Reason::OtherNode, words);
    }
    if hello.purpose == Purpose::Formation {
        // Whoever asks may have been given other peers; the answer tells him.
        return Ok(version);
    }
    if own.phase != Phase::Formed {
        return refuse(Reason::NotFormed, format!("node {node} is still forming its cluster"));
    }
    // One that asks which incarnation it is does not know the cluster any more, and one that joins not yet.
    let may_not_know = matches!(hello.purpose, Purpose::Incarnation | Purpose::Admission);
    if hello.cluster != own.cluster && !(may_not_know && hello.cluster.is_empty()) {
        let words =
            format!("node {from} is of the cluster {}, and node {node} of {}", hello.cluster, own.cluster);
        return refuse(Reason::OtherCluster, words);
    }
    if !is_known && hello.purpose != Purpose::Admission {
        return refuse(Reason::UnknownNode, format!("node {from} is not among the peers of node {node}"));
    }
    if hello.to_incarnation > own.incarnation {
        let words = replaced(node, own.incarnation, hello.to_incarnation);
        return refuse(Reason::Outdated, words);
    }
    Ok(version)
}

/// Refuses one whose incarnation does not count any more; `counts` is the one that does, as far as this node knows.
pub(crate) fn judge_incarnation(hello: &Hello, counts: Incarnation) -> Result<(), Refusal> {
    match hello.incarnation < counts {
        true => {
            let words = replaced(hello.from, hello.incarnation, counts);
            Err(Refusal { reason: Reason::Replaced, words })
        }
        false => Ok(()),
    }
}

/// Refuses a node that was removed from the cluster.
pub(crate) fn removed(node: NodeId) -> Refusal {
    let words = format!(
        "node {node} was removed from the cluster: this data directory of it is of no use any more. To join again it needs \
         an empty one"
    );
    Refusal { reason: Reason::Replaced, words }
}

fn replaced(node: NodeId, incarnation: Incarnation, by: Incarnation) -> String {
    format!(
        "this data directory of node {node} is that of its incarnation {incarnation}, which was replaced by incarnation \
         {by}: it is of no use any more, and must be taken away before the node is started"
    )
}
