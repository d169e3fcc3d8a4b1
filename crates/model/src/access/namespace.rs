//! Namespaces: AMQP's virtual hosts. Names of exchanges, queues and topics are unique within one.

use super::{DEFAULT_NAMESPACE, decode_limit, decode_strings, encode_limit, encode_strings};
use crate::wire::{DecodeError, Reader, Writer};

/// A namespace as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceMeta {
    /// Name.
    pub name: String,
    /// What it is for, in the words of whoever made it.
    pub description: String,
    /// Free words for listings.
    pub tags: Vec<String>,
    /// The type of queues that are declared without one, such as `classic` or `quorum`; without it the
    /// front's own default holds.
    pub default_queue_type: Option<String>,
    /// What it may have at most.
    pub limits: NamespaceLimits,
}

/// What a namespace may have at most. None is without limit, 0 forbids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// Open connections, RabbitMQ's `max-connections`.
    pub connections_max: Option<u32>,
    /// Queues, RabbitMQ's `max-queues`.
    pub queues_max: Option<u32>,
}

impl NamespaceMeta {
    /// The default namespace as a new cluster has it.
    pub fn initial() -> NamespaceMeta {
        NamespaceMeta {
            name: DEFAULT_NAMESPACE.into(),
            description: "Default namespace".into(),
            ..NamespaceMeta::default()
        }
    }

    /// Writes the namespace, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.name);
        out.str(&self.description);
        encode_strings(&self.tags, out);
        out.opt_str(self.default_queue_type.as_deref());
        encode_limit(self.limits.connections_max, out);
        encode_limit(self.limits.queues_max, out);
    }

    /// Reads what [`NamespaceMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<NamespaceMeta, DecodeError> {
        Ok(NamespaceMeta {
            name: reader.str()?,
            description: reader.str()?,
            tags: decode_strings(reader)?,
            default_queue_type: reader.opt_str()?,
            limits: NamespaceLimits {
                connections_max: decode_limit(reader)?,
                queues_max: decode_limit(reader)?,
            },
        })
    }
}
