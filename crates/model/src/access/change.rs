//! Changes of what is stored about access, as one command of the meta shard carries them.
//!
//! ```text
//! change = kind u8, then
//!   1 put namespace            namespace, new flag
//!   2 delete namespace         name str
//!   3 put user                 user, new flag
//!   4 delete user              name str
//!   5 put permission           permission
//!   6 delete permission        user str, namespace str
//!   7 put topic permission     topic permission
//!   8 delete topic permission  user str, namespace str, exchange opt_str
//! ```

use super::{NamespaceMeta, PermissionMeta, TopicPermissionMeta, UserMeta};
use crate::wire::{DecodeError, Reader, Writer};

/// One change. Whoever proposes it has checked names, patterns and passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Stores a namespace.
    PutNamespace {
        /// As it is to be.
        namespace: NamespaceMeta,
        /// Refused if there is one of this name.
        new: bool,
    },
    /// Deletes a namespace with its exchanges, bindings and permissions. Refused while there are queues in it, and
    /// for the default one, which protocols without namespaces see.
    DeleteNamespace {
        /// Which.
        name: String,
    },
    /// Stores a user. What the user may do stays as it is.
    PutUser {
        /// As it is to be.
        user: UserMeta,
        /// Refused if there is one of this name.
        new: bool,
    },
    /// Deletes a user with all permissions. Refused for the last administrator, behind whom nobody could change
    /// anything of this any more.
    DeleteUser {
        /// Which.
        name: String,
    },
    /// Sets what a user may do in a namespace.
    PutPermission {
        /// As it is to be.
        permission: PermissionMeta,
    },
    /// Takes a user's permission in a namespace back, with the topic permissions there. A repeat changes nothing.
    DeletePermission {
        /// Whose.
        user: String,
        /// Where.
        namespace: String,
    },
    /// Sets which routing keys a user may use with an exchange.
    PutTopicPermission {
        /// As it is to be.
        permission: TopicPermissionMeta,
    },
    /// Takes topic permissions back. A repeat changes nothing.
    DeleteTopicPermission {
        /// Whose.
        user: String,
        /// Where.
        namespace: String,
        /// Of which exchange; of all if none is named.
        exchange: Option<String>,
    },
}

impl AccessChange {
    /// Writes the change, for its command.
    pub fn encode(&self, out: &mut Writer) {
        match self {
            AccessChange::PutNamespace { namespace, new } => {
                out.u8(1);
                namespace.encode(out);
                out.u8(u8::from(*new));
            }
            AccessChange::DeleteNamespace { name } => {
                out.u8(2);
                out.str(name);
            }
            AccessChange::PutUser { user, new } => {
                out.u8(3);
                user.encode(out);
                out.u8(u8::from(*new));
            }
            AccessChange::DeleteUser { name } => {
                out.u8(4);
                out.str(name);
            }
            AccessChange::PutPermission { permission } => {
                out.u8(5);
                permission.encode(out);
            }
            AccessChange::DeletePermission { user, namespace } => {
                out.u8(6);
                out.str(user);
                out.str(namespace);
            }
            AccessChange::PutTopicPermission { permission } => {
                out.u8(7);
                permission.encode(out);
            }
            AccessChange::DeleteTopicPermission { user, namespace, exchange } => {
                out.u8(8);
                out.str(user);
                out.str(namespace);
                out.opt_str(exchange.as_deref());
            }
        }
    }

    /// Reads what [`AccessChange::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<AccessChange, DecodeError> {
        Ok(match r.u8()? {
            1 => AccessChange::PutNamespace { namespace: NamespaceMeta::decode(r)?, new: r.bool()? },
            2 => AccessChange::DeleteNamespace { name: r.str()? },
            3 => AccessChange::PutUser { user: UserMeta::decode(r)?, new: r.bool()? },
            4 => AccessChange::DeleteUser { name: r.str()? },
            5 => AccessChange::PutPermission { permission: PermissionMeta::decode(r)? },
            6 => AccessChange::DeletePermission { user: r.str()?, namespace: r.str()? },
            7 => AccessChange::PutTopicPermission { permission: TopicPermissionMeta::decode(r)? },
            8 => AccessChange::DeleteTopicPermission {
                user: r.str()?,
                namespace: r.str()?,
                exchange: r.opt_str()?,
            },
            _ => return Err(r.error("a change of access is not known to this binary")),
        })
    }
}
