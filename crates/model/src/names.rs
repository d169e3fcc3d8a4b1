//! What may be the name of a topic, a group or another named thing. Names never become paths.

use std::fmt;

/// Longest topic name, in bytes; Kafka's own limit, which its clients rely on.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Longest name of a group, member, or client, in bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 1024;

/// Longest name of a namespace, in bytes: as much as an AMQP short string holds.
pub const NAMESPACE_NAME_BYTES_MAX: usize = 255;

/// Longest name of a user, in bytes: as much as an AMQP short string holds, as which a message names
/// its sender.
pub const USER_NAME_BYTES_MAX: usize = 255;

/// Longest tag of a user or a namespace, in bytes.
pub const TAG_BYTES_MAX: usize = 255;

/// Why a name was refused, in words for the person who chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    /// What is wrong and how to mend it.
    pub why: String,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for InvalidName {}

/// Checks a topic name by Kafka's rules: 1 to 249 of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`.
pub fn check_topic_name(name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(InvalidName { why: "the topic name is empty; give it at least one character".into() });
    }
    if name == "." || name == ".." {
        return Err(InvalidName { why: format!("the topic name '{name}' is reserved; choose another") });
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(InvalidName {
            why: format!(
                "the topic name is {} characters long; at most {TOPIC_NAME_BYTES_MAX} are allowed",
                name.len()
            ),
        });
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(c) => Err(InvalidName {
            why: format!(
                "the topic name '{name}' contains {c:?}; only letters, digits, '.', '_' and '-' are allowed"
            ),
        }),
        None => Ok(()),
    }
}

/// Checks a group name: not empty, at most [`GROUP_NAME_BYTES_MAX`] bytes.
pub fn check_group_name(name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(InvalidName { why: "the group name is empty; give it at least one character".into() });
    }
    if name.len() > GROUP_NAME_BYTES_MAX {
        return Err(InvalidName {
            why: format!(
                "the group name is {} bytes long; at most {GROUP_NAME_BYTES_MAX} are allowed",
                name.len()
            ),
        });
    }
    Ok(())
}

/// Checks a namespace's name: 1 to [`NAMESPACE_NAME_BYTES_MAX`] bytes without control characters.
pub fn check_namespace_name(name: &str) -> Result<(), InvalidName> {
    check_short_string("namespace name", name, NAMESPACE_NAME_BYTES_MAX)
}

/// Checks a user's name: 1 to [`USER_NAME_BYTES_MAX`] bytes without control characters, of which SASL
/// PLAIN uses the zero byte to part the name from the password.
pub fn check_user_name(name: &str) -> Result<(), InvalidName> {
    check_short_string("user name", name, USER_NAME_BYTES_MAX)
}

/// Checks a tag: 1 to [`TAG_BYTES_MAX`] bytes without control characters, nor a comma, at which lists
/// of tags are parted.
pub fn check_tag(tag: &str) -> Result<(), InvalidName> {
    if tag.contains(',') {
        return Err(InvalidName {
            why: format!("the tag '{tag}' contains a comma; give several tags instead"),
        });
    }
    check_short_string("tag", tag, TAG_BYTES_MAX)
}

fn check_short_string(what: &str, name: &str, bytes_max: usize) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(InvalidName { why: format!("the {what} is empty; give it at least one character") });
    }
    if name.len() > bytes_max {
        return Err(InvalidName {
            why: format!("the {what} is {} bytes long; at most {bytes_max} are allowed", name.len()),
        });
    }
    match name.chars().find(|c| c.is_control()) {
        Some(c) => Err(InvalidName {
            why: format!("the {what} {name:?} contains the control character {c:?}; leave it out"),
        }),
        None => Ok(()),
    }
}
