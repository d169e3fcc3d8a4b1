//! Protocols and addresses: what can be listened on, and what clients are told.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::ConfigError;
use super::error::nearest;

/// A protocol that this version serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Kafka's protocol.
    Kafka,
    /// The same over TLS.
    KafkaTls,
    /// AMQP 0-9-1.
    Amqp,
    /// The same over TLS.
    Amqps,
    /// RabbitMQ's management API.
    AmqpManagement,
    /// Admin API, metrics and health.
    Http,
    /// The same over TLS.
    Https,
    /// Node to node.
    Cluster,
}

impl Protocol {
    /// Its name in flags and in the `listening` lines.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Kafka => "kafka",
            Protocol::KafkaTls => "kafka+tls",
            Protocol::Amqp => "amqp",
            Protocol::Amqps => "amqps",
            Protocol::AmqpManagement => "amqp-management",
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Cluster => "cluster",
        }
    }

    /// Whether connections are over TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, Protocol::KafkaTls | Protocol::Amqps | Protocol::Https)
    }

    /// Whether clients have to authenticate however few users there are: there the default user may only come from the
    /// same machine.
    fn always_authenticates(self) -> bool {
        matches!(self, Protocol::Amqp | Protocol::Amqps | Protocol::AmqpManagement)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const SERVED: &[Protocol] = &[
    Protocol::Kafka,
    Protocol::KafkaTls,
    Protocol::Amqp,
    Protocol::Amqps,
    Protocol::AmqpManagement,
    Protocol::Http,
    Protocol::Https,
    Protocol::Cluster,
];

/// Names that are reserved for what later versions serve.
const NOT_YET_SERVED: &[&str] =
    &["rocketmq", "rocketmq-namesrv", "rocketmq-grpc", "openwire", "stomp", "mqtt"];

fn parse_protocol(name: &str) -> Result<Protocol, String> {
    if let Some(protocol) = SERVED.iter().find(|protocol| protocol.name() == name) {
        return Ok(*protocol);
    }
    let served = SERVED.iter().map(|protocol| protocol.name()).collect::<Vec<_>>().join(", ");
    if NOT_YET_SERVED.contains(&name) {
        return Err(format!("the protocol {name} is not served by this version; these are: {served}"));
    }
    let known = SERVED.iter().map(|protocol| protocol.name()).chain(NOT_YET_SERVED.iter().copied());
    match nearest(name, known) {
        Some(nearest) => Err(format!("there is no protocol '{name}'; did you mean {nearest}?")),
        None => Err(format!("there is no protocol '{name}'; {served} are served")),
    }
}

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// What to speak there.
    pub protocol: Protocol,
    /// Where; port 0 takes a free one.
    pub address: SocketAddr,
}

impl Listener {
    /// Reads `PROTOCOL=ADDRESS` and looks the address up.
    pub fn parse(text: &str) -> Result<Listener, ConfigError> {
        let refused = |why: String| ConfigError::refused(format!("listen '{text}': {why}"));
        let (protocol, address) = text
            .split_once('=')
            .ok_or_else(|| refused("write it as PROTOCOL=ADDRESS, as in kafka=127.0.0.1:9092".into()))?;
        let protocol = parse_protocol(protocol.trim()).map_err(refused)?;
        let endpoint = Endpoint::parse(address).map_err(refused)?;
        let address = endpoint.look_up().map_err(refused)?;
        Ok(Listener { protocol, address })
    }

    /// Refuses an address that other machines can reach where nobody has to authenticate.
    pub fn refuse_beyond_loopback(&self) -> Result<(), ConfigError> {
        if is_loopback(self.address.ip()) || self.protocol.always_authenticates() {
            return Ok(());
        }
        Err(ConfigError::refused(format!(
            "the listener {}={} can be reached by other machines and nobody has to authenticate there; \
             create a user first (`weir user create`), add --insecure if that is meant, or listen on 127.0.0.1",
            self.protocol, self.address
        )))
    }
}

pub(super) fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

/// A host and a port as somebody wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// Reads `HOST:PORT`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let text = text.trim();
        let wrong = || format!("'{text}' is not HOST:PORT, as in 127.0.0.1:9092");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(wrong)?,
            None if host.contains(':') => {
                return Err(format!("{}; put an IPv6 address in brackets", wrong()));
            }
            None => host,
        };
        let port = port.parse().map_err(|_| wrong())?;
        match host.is_empty() || host.contains(char::is_whitespace) {
            true => Err(wrong()),
            false => Ok(Endpoint { host: host.to_owned(), port }),
        }
    }

    /// The address to listen on. Of several that a name has, an IPv4 address is preferred: it is what
    /// most clients try first.
    fn look_up(&self) -> Result<SocketAddr, String> {
        let addresses: Vec<SocketAddr> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| format!("the host '{}' cannot be looked up: {error}", self.host))?
            .collect();
        addresses
            .iter()
            .find(|address| address.is_ipv4())
            .or(addresses.first())
            .copied()
            .ok_or_else(|| format!("the host '{}' has no address", self.host))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Reads `PROTOCOL=HOST:PORT` for protocols that are listened on and can tell their clients.
pub fn parse_advertised<'a>(
    texts: impl Iterator<Item = &'a str>,
    listeners: &[Listener],
) -> Result<BTreeMap<Protocol, Endpoint>, ConfigError> {
    let mut advertised = BTreeMap::new();
    for text in texts {
        let refused = |why: String| ConfigError::refused(format!("advertise '{text}': {why}"));
        let (protocol, endpoint) = text.split_once('=').ok_or_else(|| {
            refused("write it as PROTOCOL=HOST:PORT, as in kafka=broker.example:9092".into())
        })?;
        let protocol = parse_protocol(protocol.trim()).map_err(refused)?;
        if !matches!(protocol, Protocol::Kafka | Protocol::KafkaTls | Protocol::Cluster) {
            return Err(refused(format!("clients of {protocol} are not told where a node is; remove it")));
        }
        if !listeners.iter().any(|listener| listener.protocol == protocol) {
            return Err(refused(format!("there is no {protocol} listener; add one or remove it")));
        }
        let endpoint = Endpoint::parse(endpoint).map_err(refused)?;
        if endpoint.port == 0 {
            return Err(refused("clients cannot connect to port 0; name the real one".into()));
        }
        if advertised.insert(protocol, endpoint).is_some() {
            return Err(refused(format!("{protocol} is advertised already; keep one")));
        }
    }
    Ok(advertised)
}
