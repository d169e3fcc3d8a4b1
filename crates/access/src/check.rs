//! What may be stored: asked before a command is proposed.

use weir_model::access::{
    DESCRIPTION_BYTES_MAX, NamespaceMeta, PASSWORD_FORMS_MAX, PermissionMeta, QUEUE_TYPE_BYTES_MAX, TAGS_MAX,
    TopicPermissionMeta, UserMeta,
};
use weir_model::names::{InvalidName, check_namespace_name, check_tag, check_user_name};

use crate::password::{PasswordError, check_hash};
use crate::pattern::{PatternError, check_pattern, check_topic_pattern};

/// Longest name of an exchange in a topic permission, in bytes: as much as an AMQP short string holds.
const EXCHANGE_NAME_BYTES_MAX: usize = 255;

/// Something that may not be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// A name is not allowed.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A pattern cannot be used.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A stored password makes no sense.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// There are too many of something, or something is too long.
    #[error("{actual} {what} are too many; at most {max} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        actual: usize,
        /// The bound.
        max: usize,
    },
}

/// Checks a namespace: its name and the bounds of the rest.
pub fn check_namespace(namespace: &NamespaceMeta) -> Result<(), Unacceptable> {
    check_namespace_name(&namespace.name)?;
    check_count("bytes of description", namespace.description.len(), DESCRIPTION_BYTES_MAX)?;
    let queue_type = namespace.default_queue_type.as_deref().unwrap_or_default();
    check_count("bytes of queue type", queue_type.len(), QUEUE_TYPE_BYTES_MAX)?;
    check_tags(&namespace.tags)
}

/// Checks a user: the name, the stored passwords and the tags.
pub fn check_user(user: &UserMeta) -> Result<(), Unacceptable> {
    check_user_name(&user.name)?;
    check_count("forms of the password", user.passwords.len(), PASSWORD_FORMS_MAX)?;
    user.passwords.iter().try_for_each(check_hash)?;
    check_tags(&user.tags)
}

/// Checks a permission: the names, and that the patterns can be used.
pub fn check_permission(permission: &PermissionMeta) -> Result<(), Unacceptable> {
    check_user_name(&permission.user)?;
    check_namespace_name(&permission.namespace)?;
    for pattern in [&permission.configure, &permission.write, &permission.read] {
        check_pattern(pattern)?;
    }
    Ok(())
}

/// Checks a topic permission: the names, and that the patterns can be used with the names in them.
pub fn check_topic_permission(permission: &TopicPermissionMeta) -> Result<(), Unacceptable> {
    check_user_name(&permission.user)?;
    check_namespace_name(&permission.namespace)?;
    check_count("bytes of exchange name", permission.exchange.len(), EXCHANGE_NAME_BYTES_MAX)?;
    for pattern in [&permission.write, &permission.read] {
        check_topic_pattern(pattern, &permission.user, &permission.namespace)?;
    }
    Ok(())
}

fn check_tags(tags: &[String]) -> Result<(), Unacceptable> {
    check_count("tags", tags.len(), TAGS_MAX)?;
    Ok(tags.iter().try_for_each(|tag| check_tag(tag))?)
}

fn check_count(what: &'static str, actual: usize, max: usize) -> Result<(), Unacceptable> {
    if actual > max { Err(Unacceptable::TooMany { what, actual, max }) } else { Ok(()) }
}
