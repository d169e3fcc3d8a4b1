//! Who may do what, as the meta shard keeps it and commands carry it: namespaces, users, and what
//! each user may do in each namespace. Plain data, in RabbitMQ's terms, so that its definitions can be
//! taken over; what follows from it is for the crate `weir-access` to say.
//!
//! ```text
//! limit             = i64, -1 for none
//! namespace         = name str, description str, tags list<str>, default queue type opt_str,
//!                     connections limit, queues limit
//! user              = name str, passwords list<(algorithm u8, hash bytes)>, tags list<str>,
//!                     connections limit, channels limit
//! permission        = user str, namespace str, configure str, write str, read str
//! topic permission  = user str, namespace str, exchange str, write str, read str
//! ```

mod change;
mod namespace;
mod permission;
#[cfg(test)]
mod tests;
mod user;

use std::sync::Arc;

pub use change::AccessChange;
pub use namespace::{NamespaceLimits, NamespaceMeta};
pub use permission::{PermissionMeta, TopicPermissionMeta};
pub use user::{PasswordAlgorithm, PasswordHash, UserLimits, UserMeta};

use crate::wire::{DecodeError, Reader, Writer};

/// The namespace that is there at the beginning, and the one that protocols without namespaces see.
pub const DEFAULT_NAMESPACE: &str = "/";

/// The user who is there at the beginning, with this word as password too.
pub const DEFAULT_USER: &str = "guest";

/// Namespaces in the cluster. Each has a handful of exchanges from the beginning, on every node.
pub const NAMESPACES_MAX: usize = 10_000;

/// Users in the cluster; every node has them all in memory.
pub const USERS_MAX: usize = 50_000;

/// Permissions in the cluster: pairs of user and namespace.
pub const PERMISSIONS_MAX: usize = 100_000;

/// Topic permissions in the cluster: triples of user, namespace and exchange.
pub const TOPIC_PERMISSIONS_MAX: usize = 100_000;

/// Longest pattern of a permission, in bytes. Enough for a list of some dozen names.
pub const PATTERN_BYTES_MAX: usize = 1_024;

/// Tags of one user or one namespace.
pub const TAGS_MAX: usize = 32;

/// Longest description of a namespace, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// Longest name of a queue type, in bytes.
pub const QUEUE_TYPE_BYTES_MAX: usize = 255;

/// Forms in which one user's password is kept: each protocol may need another.
pub const PASSWORD_FORMS_MAX: usize = 4;

/// Longest stored form of a password, in bytes; the longest that is known takes 196.
pub const PASSWORD_HASH_BYTES_MAX: usize = 256;

/// Everything that is stored about access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRecords {
    /// Namespaces, each name once.
    pub namespaces: Vec<Arc<NamespaceMeta>>,
    /// Users, each name once.
    pub users: Vec<Arc<UserMeta>>,
    /// At most one for a user and a namespace.
    pub permissions: Vec<Arc<PermissionMeta>>,
    /// At most one for a user, a namespace and an exchange.
    pub topic_permissions: Vec<Arc<TopicPermissionMeta>>,
}

impl AccessRecords {
    /// What a new cluster begins with: the default namespace, and the default user, who may do
    /// everything in it.
    pub fn initial() -> AccessRecords {
        AccessRecords {
            namespaces: vec![Arc::new(NamespaceMeta::initial())],
            users: vec![Arc::new(UserMeta::initial())],
            permissions: vec![Arc::new(PermissionMeta::everything(DEFAULT_USER, DEFAULT_NAMESPACE))],
            topic_permissions: Vec::new(),
        }
    }
}

fn encode_strings(strings: &[String], out: &mut Writer) {
    out.list(strings, |out, string| out.str(string));
}

fn decode_strings(reader: &mut Reader) -> Result<Vec<String>, DecodeError> {
    reader.list(4, Reader::str)
}

fn encode_limit(limit: Option<u32>, out: &mut Writer) {
    out.i64(limit.map_or(-1, i64::from));
}

fn decode_limit(reader: &mut Reader) -> Result<Option<u32>, DecodeError> {
    match reader.i64()? {
        -1 => Ok(None),
        limit => u32::try_from(limit).map(Some).map_err(|_| reader.error("a limit is out of range")),
    }
}
