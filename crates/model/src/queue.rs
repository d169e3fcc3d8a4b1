//! Queues as they are stored and carried in commands: topics whose records are handed out one by one.

use std::fmt;

use crate::NodeId;
use crate::routing::{Arguments, decode_arguments, encode_arguments};
use crate::wire::{DecodeError, Reader, Writer};

/// The namespace (AMQP's virtual host) that protocols without the notion see.
pub const DEFAULT_NAMESPACE: &str = "/";

/// Parts the namespace from the name of a topic in any other namespace than the default one.
const NAMESPACE_END: char = '\0';

/// The name by which the catalog knows a topic: its own in the default namespace.
pub fn full_name(namespace: &str, name: &str) -> String {
    if namespace == DEFAULT_NAMESPACE { name.to_owned() } else { format!("{namespace}{NAMESPACE_END}{name}") }
}

/// Namespace and name of a topic, by the name in the catalog.
pub fn split_name(full: &str) -> (&str, &str) {
    full.split_once(NAMESPACE_END).unwrap_or((DEFAULT_NAMESPACE, full))
}

/// The namespace of the broker's own topics. No client can name it, so that none reads them or writes to them.
pub const HIDDEN_NAMESPACE: &str = "";

/// Whether a topic, by its name in the catalog, is the broker's own.
pub fn is_hidden(full: &str) -> bool {
    full.starts_with(NAMESPACE_END)
}

/// Longest name of a queue, in bytes: AMQP's short string.
pub const QUEUE_NAME_BYTES_MAX: usize = 255;

/// What a queue was declared as. All of them are kept the same way; the kind selects the rules of the kind that
/// clients know from RabbitMQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKind {
    /// What comes back has its original position.
    #[default]
    Classic,
    /// What comes back is handed out before everything else, and not for ever.
    Quorum,
    /// Read by offset; nothing is settled.
    Stream,
}

impl QueueKind {
    /// The name by which clients declare it (`x-queue-type`).
    pub fn name(self) -> &'static str {
        match self {
            QueueKind::Classic => "classic",
            QueueKind::Quorum => "quorum",
            QueueKind::Stream => "stream",
        }
    }

    /// The kind of this name.
    pub fn by_name(name: &str) -> Option<QueueKind> {
        [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What makes a topic a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueMeta {
    /// What it was declared as.
    pub kind: QueueKind,
    /// Whether it outlives a restart of everything.
    pub durable: bool,
    /// Whether it goes with its last consumer. One that never had any stays.
    pub auto_delete: bool,
    /// Whether it belongs to the connection that declared it.
    pub exclusive: bool,
    /// The node with which it falls; none if it belongs to the cluster.
    pub owner: Option<NodeId>,
    /// The priority of each of its partitions, by partition index.
    pub lanes: Vec<u8>,
    /// What it was declared with.
    pub arguments: Arguments,
}

impl QueueMeta {
    /// Whether it falls with the node that it is on: one that belongs to a connection, and one that was declared not to
    /// outlive a restart.
    pub fn is_temporary(&self) -> bool {
        self.exclusive || !self.durable
    }

    /// Writes it, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(self.kind.name());
        for flag in [self.durable, self.auto_delete, self.exclusive, self.owner.is_some()] {
            out.u8(u8::from(flag));
        }
        out.u64(self.owner.unwrap_or_default().0);
        out.bytes(&self.lanes);
        encode_arguments(&self.arguments, out);
    }

    /// Reads what [`QueueMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<QueueMeta, DecodeError> {
        let Some(kind) = QueueKind::by_name(&reader.str()?) else {
            return Err(reader.error("a kind of queue is not known to this binary"));
        };
        let (durable, auto_delete, exclusive) = (reader.bool()?, reader.bool()?, reader.bool()?);
        let owned = reader.bool()?;
        let owner = NodeId(reader.u64()?);
        Ok(QueueMeta {
            kind,
            durable,
            auto_delete,
            exclusive,
            owner: owned.then_some(owner),
            lanes: reader.bytes()?.to_vec(),
            arguments: decode_arguments(reader)?,
        })
    }
}
