//! What a user may do in a namespace, as patterns that names must match.

use crate::wire::{DecodeError, Reader, Writer};

/// What a user may do in a namespace. Without one it cannot be entered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermissionMeta {
    /// Whose.
    pub user: String,
    /// Where.
    pub namespace: String,
    /// Regular expression over the names of what may be created, changed and deleted.
    pub configure: String,
    /// Regular expression over the names of what messages may be put into.
    pub write: String,
    /// Regular expression over the names of what messages may be taken from.
    pub read: String,
}

/// Which routing keys a user may use with a topic exchange. Without one all are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPermissionMeta {
    /// Whose.
    pub user: String,
    /// Where.
    pub namespace: String,
    /// Of which exchange.
    pub exchange: String,
    /// Regular expression over the routing keys of messages published. In this and in `read`,
    /// `{username}` and `{vhost}` stand for the names of the user and the namespace.
    pub write: String,
    /// Regular expression over the routing keys of bindings.
    pub read: String,
}

impl PermissionMeta {
    /// Leave to do everything in a namespace.
    pub fn everything(user: &str, namespace: &str) -> PermissionMeta {
        PermissionMeta {
            user: user.into(),
            namespace: namespace.into(),
            configure: ".*".into(),
            write: ".*".into(),
            read: ".*".into(),
        }
    }

    /// Writes the permission, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.user);
        out.str(&self.namespace);
        out.str(&self.configure);
        out.str(&self.write);
        out.str(&self.read);
    }

    /// Reads what [`PermissionMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<PermissionMeta, DecodeError> {
        Ok(PermissionMeta {
            user: reader.str()?,
            namespace: reader.str()?,
            configure: reader.str()?,
            write: reader.str()?,
            read: reader.str()?,
        })
    }
}

impl TopicPermissionMeta {
    /// Writes the permission, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.user);
        out.str(&self.namespace);
        out.str(&self.exchange);
        out.str(&self.write);
        out.str(&self.read);
    }

    /// Reads what [`TopicPermissionMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<TopicPermissionMeta, DecodeError> {
        Ok(TopicPermissionMeta {
            user: reader.str()?,
            namespace: reader.str()?,
            exchange: reader.str()?,
            write: reader.str()?,
            read: reader.str()?,
        })
    }
}
