//! Bindings: which messages of an exchange go on to a queue or to another exchange.

use std::fmt;

use bytes::Bytes;

use super::arguments::{Arguments, decode_arguments, encode_arguments};
use crate::wire::{DecodeError, Reader, Writer};

/// Longest routing key of a message or a binding, in bytes: AMQP's short string.
pub const ROUTING_KEY_BYTES_MAX: usize = 255;

/// Where a binding leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// The queue of this name.
    Queue(String),
    /// The exchange of this name.
    Exchange(String),
}

impl Destination {
    /// The name, of whichever kind.
    pub fn name(&self) -> &str {
        match self {
            Destination::Queue(name) | Destination::Exchange(name) => name,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Queue(name) => write!(f, "queue '{name}'"),
            Destination::Exchange(name) => write!(f, "exchange '{name}'"),
        }
    }
}

/// A binding. It has no name: two with the same content are the same binding, and binding twice changes
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingMeta {
    /// The namespace (AMQP's virtual host) of source and destination.
    pub namespace: String,
    /// The exchange that it leads from; never the default exchange.
    pub source: String,
    /// Where it leads.
    pub destination: Destination,
    /// The binding key. What it means depends on the kind of the exchange: a key, a pattern, a weight.
    pub key: Bytes,
    /// Arguments by name, see [`BindingMeta::new`].
    pub arguments: Arguments,
}

impl BindingMeta {
    /// A binding. Its arguments are put in the order of their names, as RabbitMQ does before it compares:
    /// the same arguments given in another order are the same binding.
    pub fn new(
        namespace: String,
        source: String,
        destination: Destination,
        key: Bytes,
        mut arguments: Arguments,
    ) -> BindingMeta {
        arguments.sort_by(|(a, _), (b, _)| a.cmp(b));
        BindingMeta { namespace, source, destination, key, arguments }
    }

    /// Writes the binding, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.namespace);
        out.str(&self.source);
        out.u8(u8::from(matches!(self.destination, Destination::Exchange(_))));
        out.str(self.destination.name());
        out.bytes(&self.key);
        encode_arguments(&self.arguments, out);
    }

    /// Reads what [`BindingMeta::encode`] wrote. Nothing is shared with the bytes read.
    pub fn decode(reader: &mut Reader) -> Result<BindingMeta, DecodeError> {
        let (namespace, source) = (reader.str()?, reader.str()?);
        let destination = if reader.bool()? {
            Destination::Exchange(reader.str()?)
        } else {
            Destination::Queue(reader.str()?)
        };
        let key = Bytes::copy_from_slice(&reader.bytes()?);
        Ok(BindingMeta::new(namespace, source, destination, key, decode_arguments(reader)?))
    }
}
