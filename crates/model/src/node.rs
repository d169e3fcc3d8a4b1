//! Nodes as they say of themselves: what every node, and every client, is told of the others.

use std::collections::BTreeMap;
use std::fmt;

use crate::wire::{DecodeError, Reader, Writer};
use crate::{Incarnation, NodeId};

/// Nodes that are registered. All are in memory on every node, and in every answer about the cluster.
pub const NODES_MAX: usize = 1_024;

/// What one node may say of itself, in bytes of its encoding: a few names and addresses.
pub const NODE_BYTES_MAX: usize = 8 << 10;

/// The name under which nodes say where other nodes reach them, beside their listeners for clients.
pub const CLUSTER_LISTENER: &str = "cluster";

/// A host and port that clients are told to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port`, with the brackets of an IPv6 address or without.
    pub fn parse(text: &str) -> Option<HostPort> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| HostPort { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMeta {
    /// Which node it is.
    pub id: NodeId,
    /// What clients are told to connect to, by protocol name.
    pub advertised: BTreeMap<String, HostPort>,
    /// Where it stands: Kafka's `broker.rack`.
    pub zone: Option<String>,
    /// Version of its binary.
    pub version: String,
}

impl NodeMeta {
    /// Writes it, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.u64(self.id.0);
        out.u32(self.advertised.len() as u32);
        for (protocol, endpoint) in &self.advertised {
            out.str(protocol);
            out.str(&endpoint.host);
            out.u32(u32::from(endpoint.port));
        }
        out.opt_str(self.zone.as_deref());
        out.str(&self.version);
    }

    /// Reads what [`NodeMeta::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<NodeMeta, DecodeError> {
        let id = NodeId(r.u64()?);
        let listed = r.list(12, |r| Ok((r.str()?, HostPort { host: r.str()?, port: port(r)? })))?;
        let protocols = listed.len();
        let advertised: BTreeMap<String, HostPort> = listed.into_iter().collect();
        if advertised.len() != protocols {
            return Err(r.error("a protocol is there twice"));
        }
        Ok(NodeMeta { id, advertised, zone: r.opt_str()?, version: r.str()? })
    }

    /// Bytes of its encoding.
    pub fn encoded_bytes(&self) -> usize {
        let mut out = Writer::new();
        self.encode(&mut out);
        out.len()
    }
}

fn port(r: &mut Reader) -> Result<u16, DecodeError> {
    u16::try_from(r.u32()?).map_err(|_| r.error("a port is out of range"))
}

/// A node as the meta shard knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisteredNode {
    /// What it says of itself.
    pub meta: NodeMeta,
    /// Whether an operator wants it to lead nothing.
    pub draining: bool,
    /// Whether an operator wants it to be of the cluster no more.
    pub leaving: bool,
}

const DRAINING: u8 = 1;
const LEAVING: u8 = 2;

impl RegisteredNode {
    /// Writes it, for checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        out.u8(flag(self.draining, DRAINING) | flag(self.leaving, LEAVING));
        self.meta.encode(out);
    }

    /// Reads what [`RegisteredNode::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<RegisteredNode, DecodeError> {
        let flags = r.u8()?;
        if flags & !(DRAINING | LEAVING) != 0 {
            return Err(r.error("a node has flags that are not known"));
        }
        let meta = NodeMeta::decode(r)?;
        Ok(RegisteredNode { meta, draining: flags & DRAINING != 0, leaving: flags & LEAVING != 0 })
    }

    /// Whether it may lead something.
    pub fn may_lead(&self) -> bool {
        !self.draining && !self.leaving
    }
}

/// The incarnation of a node that counts, as the meta shard knows it. Of a founding node that never lost its data nothing is
/// kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenIncarnation {
    /// Which it is.
    pub incarnation: Incarnation,
    /// Who asked for it: the process that is to be this incarnation gets the same again, and any other the next. 0 where
    /// nobody did.
    pub token: u64,
}

impl GivenIncarnation {
    /// An incarnation that nobody ever is: that of a node that was removed from the cluster.
    pub fn of_nobody(incarnation: Incarnation) -> GivenIncarnation {
        GivenIncarnation { incarnation, token: 0 }
    }

    /// Whether nobody is it, because the node was removed.
    pub fn is_nobodys(&self) -> bool {
        self.token == 0
    }

    /// Writes it, for checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.u32(self.incarnation.0);
        out.u64(self.token);
    }

    /// Reads what [`GivenIncarnation::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<GivenIncarnation, DecodeError> {
        Ok(GivenIncarnation { incarnation: Incarnation(r.u32()?), token: r.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node() -> RegisteredNode {
        let endpoint = |host: &str, port| HostPort { host: host.into(), port };
        RegisteredNode {
            draining: true,
            leaving: true,
            meta: NodeMeta {
                id: NodeId(7),
                advertised: BTreeMap::from([
                    ("kafka".into(), endpoint("a.example", 9092)),
                    ("kafka+tls".into(), endpoint("::1", 65_535)),
                ]),
                zone: Some("east".into()),
                version: "0.1.0".into(),
            },
        }
    }

    fn encoded(node: &RegisteredNode) -> Vec<u8> {
        let mut out = Writer::new();
        node.encode(&mut out);
        out.finish().to_vec()
    }

    /// The bytes that `docs/formats.md` draws.
    #[test]
    fn a_node_is_written_as_ever_and_read_as_it_was_written() {
        let small = RegisteredNode {
            draining: false,
            leaving: false,
            meta: NodeMeta {
                id: NodeId(2),
                advertised: BTreeMap::from([("kafka".into(), HostPort { host: "h".into(), port: 258 })]),
                zone: None,
                version: "1".into(),
            },
        };
        let golden =
            b"\x00\x02\0\0\0\0\0\0\0\x01\0\0\0\x05\0\0\0kafka\x01\0\0\0h\x02\x01\0\0\x00\x01\0\0\x001";
        assert_eq!(encoded(&small), golden);
        for node in [small, node(), RegisteredNode::default()] {
            let mut reader = Reader::new("a node", encoded(&node).into());
            assert_eq!(RegisteredNode::decode(&mut reader), Ok(node));
            reader.finish().unwrap();
        }
    }

    #[test]
    fn an_address_of_the_sixth_version_stands_in_brackets() {
        let shown = node().meta.advertised.values().map(HostPort::to_string).collect::<Vec<_>>();
        assert_eq!(shown, ["a.example:9092", "[::1]:65535"]);
        let read: Vec<_> = shown.iter().map(|text| HostPort::parse(text)).collect();
        assert_eq!(read, node().meta.advertised.into_values().map(Some).collect::<Vec<_>>());
        for wrong in ["", "a", ":1", "a:", "a:65536"] {
            assert_eq!(HostPort::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_damage_is_an_error_or_another_node_and_never_a_panic(
            at in 0usize..120, byte in any::<u8>(), cut in 0usize..120,
        ) {
            let mut bytes = encoded(&node());
            if at < bytes.len() { bytes[at] = byte; }
            bytes.truncate(cut);
            let _ = RegisteredNode::decode(&mut Reader::new("a node", bytes.into()));
        }
    }
}
