//! Exchanges: their kinds, and what is stored of each.

use std::fmt;

use super::arguments::{ArgumentValue, Arguments, argument, decode_arguments, encode_arguments};
use crate::NodeId;
use crate::wire::{DecodeError, Reader, Writer};

/// Longest name of an exchange, in bytes: AMQP's short string.
pub const EXCHANGE_NAME_BYTES_MAX: usize = 255;

/// The argument that names the exchange for messages that would go nowhere.
const ALTERNATE_EXCHANGE: &str = "alternate-exchange";

/// How an exchange chooses among its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoutingKind {
    /// Every binding whose key is the message's.
    Direct,
    /// Every binding.
    Fanout,
    /// Every binding whose key, as a pattern of words, fits the message's.
    Topic,
    /// Every binding whose arguments fit the message's headers.
    Headers,
    /// One binding, by a hash that moves few messages when bindings come and go; keys are weights.
    ConsistentHash,
    /// One binding, by a hash modulo their number.
    ModulusHash,
    /// One binding at random.
    Random,
    /// One binding at random among those that lead to queues of this node.
    LocalRandom,
}

impl RoutingKind {
    /// Every kind.
    pub const ALL: [RoutingKind; 8] = [
        RoutingKind::Direct,
        RoutingKind::Fanout,
        RoutingKind::Topic,
        RoutingKind::Headers,
        RoutingKind::ConsistentHash,
        RoutingKind::ModulusHash,
        RoutingKind::Random,
        RoutingKind::LocalRandom,
    ];

    /// The name by which clients declare it.
    pub fn name(self) -> &'static str {
        match self {
            RoutingKind::Direct => "direct",
            RoutingKind::Fanout => "fanout",
            RoutingKind::Topic => "topic",
            RoutingKind::Headers => "headers",
            RoutingKind::ConsistentHash => "x-consistent-hash",
            RoutingKind::ModulusHash => "x-modulus-hash",
            RoutingKind::Random => "x-random",
            RoutingKind::LocalRandom => "x-local-random",
        }
    }

    /// The kind of this name.
    pub fn by_name(name: &str) -> Option<RoutingKind> {
        RoutingKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind in the encoding; never reused for another.
    fn code(self) -> u8 {
        match self {
            RoutingKind::Direct => 0,
            RoutingKind::Fanout => 1,
            RoutingKind::Topic => 2,
            RoutingKind::Headers => 3,
            RoutingKind::ConsistentHash => 4,
            RoutingKind::ModulusHash => 5,
            RoutingKind::Random => 6,
            RoutingKind::LocalRandom => 7,
        }
    }
}

/// The kind of an exchange: how it routes, and whether it may keep messages back first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExchangeKind {
    /// Routes at once.
    Plain(RoutingKind),
    /// Routes when the delay that the message asks for has passed (`x-delayed-message`). That such an
    /// exchange cannot lie within another is why there are two types here.
    Delayed(RoutingKind),
}

impl ExchangeKind {
    /// The name by which clients declare an exchange that delays.
    pub const DELAYED: &'static str = "x-delayed-message";

    /// The argument that names how an exchange that delays routes.
    pub const DELAYED_TYPE: &'static str = "x-delayed-type";

    /// The kind that a client declares by a name and arguments.
    pub fn declared(
        name: &str,
        arguments: &[(String, ArgumentValue)],
    ) -> Result<ExchangeKind, InvalidExchange> {
        if name != ExchangeKind::DELAYED {
            let kind = RoutingKind::by_name(name).ok_or_else(|| InvalidExchange::UnknownKind(name.into()))?;
            return Ok(ExchangeKind::Plain(kind));
        }
        let inner = argument(arguments, ExchangeKind::DELAYED_TYPE);
        let inner = inner.and_then(|value| value.as_text()).and_then(RoutingKind::by_name);
        Ok(ExchangeKind::Delayed(inner.ok_or(InvalidExchange::DelayedKind)?))
    }

    /// The name by which clients declare it.
    pub fn name(self) -> &'static str {
        match self {
            ExchangeKind::Plain(kind) => kind.name(),
            ExchangeKind::Delayed(_) => ExchangeKind::DELAYED,
        }
    }

    /// How it chooses among its bindings.
    pub fn routing(self) -> RoutingKind {
        match self {
            ExchangeKind::Plain(kind) | ExchangeKind::Delayed(kind) => kind,
        }
    }

    /// Whether it keeps back messages that ask for a delay.
    pub fn is_delayed(self) -> bool {
        matches!(self, ExchangeKind::Delayed(_))
    }
}

impl fmt::Display for ExchangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeKind::Plain(kind) => f.write_str(kind.name()),
            ExchangeKind::Delayed(kind) => write!(f, "{} of type {}", ExchangeKind::DELAYED, kind.name()),
        }
    }
}

/// What a consistent-hash exchange takes the hash of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashSource {
    /// The routing key.
    #[default]
    RoutingKey,
    /// The header of this name (`hash-header`).
    Header(String),
    /// The property `message_id` (`hash-property`).
    MessageId,
    /// The property `correlation_id`.
    CorrelationId,
    /// The property `timestamp`.
    Timestamp,
}

impl HashSource {
    /// What the arguments of a consistent-hash exchange ask for.
    pub fn declared(arguments: &[(String, ArgumentValue)]) -> Result<HashSource, InvalidExchange> {
        let text = |name: &'static str| match argument(arguments, name) {
            None => Ok(None),
            Some(value) => value.as_text().map(Some).ok_or(InvalidExchange::NotText(name)),
        };
        match (text("hash-header")?, text("hash-property")?) {
            (None, None) => Ok(HashSource::RoutingKey),
            (Some(header), None) => Ok(HashSource::Header(header.into())),
            (None, Some("message_id")) => Ok(HashSource::MessageId),
            (None, Some("correlation_id")) => Ok(HashSource::CorrelationId),
            (None, Some("timestamp")) => Ok(HashSource::Timestamp),
            (None, Some(other)) => Err(InvalidExchange::HashProperty(other.into())),
            (Some(_), Some(_)) => Err(InvalidExchange::TwoHashSources),
        }
    }

    fn encode(&self, out: &mut Writer) {
        match self {
            HashSource::RoutingKey => out.u8(0),
            HashSource::Header(name) => {
                out.u8(1);
                out.str(name);
            }
            HashSource::MessageId => out.u8(2),
            HashSource::CorrelationId => out.u8(3),
            HashSource::Timestamp => out.u8(4),
        }
    }

    fn decode(reader: &mut Reader) -> Result<HashSource, DecodeError> {
        Ok(match reader.u8()? {
            0 => HashSource::RoutingKey,
            1 => HashSource::Header(reader.str()?),
            2 => HashSource::MessageId,
            3 => HashSource::CorrelationId,
            4 => HashSource::Timestamp,
            _ => return Err(reader.error("what an exchange hashes is not known to this binary")),
        })
    }
}

/// Why an exchange cannot be declared like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExchange {
    /// The name is too long.
    #[error("the exchange's name is {0} bytes long; at most {max} are allowed", max = EXCHANGE_NAME_BYTES_MAX)]
    LongName(usize),
    /// There is no such kind.
    #[error(
        "there is no exchange type '{0}'; use direct, fanout, topic, headers, x-consistent-hash, \
         x-modulus-hash, x-random, x-local-random or x-delayed-message"
    )]
    UnknownKind(String),
    /// An exchange that delays does not say how it routes.
    #[error("an x-delayed-message exchange needs the argument x-delayed-type, the name of another type")]
    DelayedKind,
    /// An argument must be a string.
    #[error("the argument '{0}' must be a string")]
    NotText(&'static str),
    /// There is no such property.
    #[error("'{0}' cannot be hashed; hash-property is message_id, correlation_id or timestamp")]
    HashProperty(String),
    /// A header and a property are to be hashed.
    #[error("hash-header and hash-property exclude each other; give one of them")]
    TwoHashSources,
}

/// An exchange as the meta shard knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeMeta {
    /// Its namespace: AMQP's virtual host.
    pub namespace: String,
    /// Its name, unique in the namespace; empty for the default exchange, which is never stored.
    pub name: String,
    /// How it routes.
    pub kind: ExchangeKind,
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Whether it goes with the last of the bindings that lead from it. One that never had any stays.
    pub auto_delete: bool,
    /// Whether only bindings may lead to it, and clients may not publish to it.
    pub internal: bool,
    /// Where messages go that would go nowhere: its argument's, or a policy's.
    pub alternate_exchange: Option<String>,
    /// What it was declared with.
    pub arguments: Arguments,
    /// What it takes the hash of; without meaning for other kinds than a consistent hash.
    pub hash_source: HashSource,
    /// The node with which it falls; none if it belongs to the cluster.
    pub owner: Option<NodeId>,
}

impl ExchangeMeta {
    /// An exchange as a client declares it, with what its arguments say. It is durable, neither
    /// auto-delete nor internal, and belongs to the cluster.
    pub fn declared(
        namespace: String,
        name: String,
        kind: &str,
        arguments: Arguments,
    ) -> Result<ExchangeMeta, InvalidExchange> {
        if name.len() > EXCHANGE_NAME_BYTES_MAX {
            return Err(InvalidExchange::LongName(name.len()));
        }
        let kind = ExchangeKind::declared(kind, &arguments)?;
        let hash_source = match kind.routing() {
            RoutingKind::ConsistentHash => HashSource::declared(&arguments)?,
            _ => HashSource::RoutingKey,
        };
        let alternate_exchange = match argument(&arguments, ALTERNATE_EXCHANGE) {
            None => None,
            Some(value) => {
                Some(value.as_text().ok_or(InvalidExchange::NotText(ALTERNATE_EXCHANGE))?.to_owned())
            }
        };
        Ok(ExchangeMeta {
            namespace,
            name,
            kind,
            durable: true,
            auto_delete: false,
            internal: false,
            alternate_exchange,
            arguments,
            hash_source,
            owner: None,
        })
    }

    /// The first thing in which `other`, a declaration of the same name, is not equivalent; none if a
    /// client that declares it may use this one. As in RabbitMQ, of the arguments only the alternate
    /// exchange counts, and what a delayed exchange delays.
    pub fn inequivalence(&self, other: &ExchangeMeta) -> Option<Inequivalence> {
        let differ = |field: &'static str, current: Option<String>, received: Option<String>| {
            (current != received).then_some(Inequivalence { field, current, received })
        };
        let flag = |field: &'static str, current: bool, received: bool| {
            differ(field, Some(current.to_string()), Some(received.to_string()))
        };
        let text = |meta: &ExchangeMeta, name: &str| {
            argument(&meta.arguments, name).and_then(|value| value.as_text()).map(str::to_owned)
        };
        let by_argument = |name: &'static str| differ(name, text(self, name), text(other, name));
        let kind = |meta: &ExchangeMeta| Some(meta.kind.name().to_owned());
        differ("type", kind(self), kind(other))
            .or_else(|| flag("durable", self.durable, other.durable))
            .or_else(|| flag("auto_delete", self.auto_delete, other.auto_delete))
            .or_else(|| flag("internal", self.internal, other.internal))
            .or_else(|| by_argument(ALTERNATE_EXCHANGE))
            .or_else(|| if self.kind.is_delayed() { by_argument(ExchangeKind::DELAYED_TYPE) } else { None })
    }

    /// Writes the exchange, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.namespace);
        out.str(&self.name);
        out.u8(self.kind.routing().code());
        for flag in [self.kind.is_delayed(), self.durable, self.auto_delete, self.internal] {
            out.u8(u8::from(flag));
        }
        out.opt_str(self.alternate_exchange.as_deref());
        encode_arguments(&self.arguments, out);
        self.hash_source.encode(out);
        out.u8(u8::from(self.owner.is_some()));
        if let Some(node) = self.owner {
            out.u64(node.0);
        }
    }

    /// Reads what [`ExchangeMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<ExchangeMeta, DecodeError> {
        let (namespace, name) = (reader.str()?, reader.str()?);
        let code = reader.u8()?;
        let routing = RoutingKind::ALL
            .into_iter()
            .find(|kind| kind.code() == code)
            .ok_or_else(|| reader.error("an exchange's type is not known to this binary"))?;
        let delayed = reader.bool()?;
        Ok(ExchangeMeta {
            namespace,
            name,
            kind: if delayed { ExchangeKind::Delayed(routing) } else { ExchangeKind::Plain(routing) },
            durable: reader.bool()?,
            auto_delete: reader.bool()?,
            internal: reader.bool()?,
            alternate_exchange: reader.opt_str()?,
            arguments: decode_arguments(reader)?,
            hash_source: HashSource::decode(reader)?,
            owner: if reader.bool()? { Some(NodeId(reader.u64()?)) } else { None },
        })
    }
}

/// In what a declaration differs from the exchange that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inequivalence {
    /// The field or argument, by RabbitMQ's name.
    pub field: &'static str,
    /// What the exchange has; none if the argument was not given.
    pub current: Option<String>,
    /// What was asked for; none if the argument was not given.
    pub received: Option<String>,
}

impl fmt::Display for Inequivalence {
    /// In RabbitMQ's words, which its clients' tests look for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |value: &Option<String>| match value {
            Some(value) => format!("'{value}'"),
            None => "none".to_owned(),
        };
        let (received, current) = (quoted(&self.received), quoted(&self.current));
        write!(f, "inequivalent arg '{}': received {received} but current is {current}", self.field)
    }
}
