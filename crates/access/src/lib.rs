//! Who may do what: logging in, entering a namespace, and every operation within it.
//!
//! * [`Access`] is a snapshot of all users and permissions, compiled from what the meta shard stores.
//!   A front asks it who its client is.
//! * [`Identity`] is somebody who has logged in: roles, and what may be done in any namespace.
//! * [`Pass`] is an identity within one namespace, as a connection or a channel holds it.
//! * [`Operation`] is the table of what each AMQP operation needs, so that a front only names it.
//! * [`hash_password`] and its neighbours make and check passwords in the forms that are stored.
//! * [`ScramCredential`] checks the proof of a client that does not send its password.
//! * [`Logins`] remembers what was checked, for protocols that send the password again and again.
//! * [`check_user`] and its neighbours say what may be stored at all.
//!
//! What is decided, and in which words it is refused, is RabbitMQ's, so that its definitions mean the
//! same here. Deliberately different are these:
//!
//! * Patterns are matched by an automaton in linear time. What only backtracking can do is refused when
//!   a permission is set: look-ahead and look-behind, back references, possessive quantifiers, atomic
//!   groups, recursion. So is what the two dialects read differently.
//! * `$` is the end of a name, not also the place before a line feed that ends it.
//! * In topic permissions the names that `{username}` and `{vhost}` stand for are taken literally, and
//!   not as patterns; RabbitMQ's further variable `{client_id}` stands for itself.
//!
//! What is deliberately absent: I/O, a clock, randomness (salts are handed in), asynchronous code, and
//! the exchanges of SASL, which are the fronts'.

mod access;
mod check;
mod errors;
mod identity;
mod logins;
mod management;
mod operation;
mod pass;
mod password;
mod pattern;
mod rules;
mod scram;
#[cfg(test)]
mod tests;

pub use access::{Access, AccessOptions, Peer};
pub use check::{Unacceptable, check_namespace, check_permission, check_topic_permission, check_user};
pub use errors::{Denied, Forbidden};
pub use identity::Identity;
pub use logins::Logins;
pub use management::Management;
pub use operation::{Action, Need, Operation, Parties, Party, Requirement, ResourceKind, Sufficient};
pub use pass::Pass;
pub use password::{
    NEW_PASSWORD_ALGORITHM, NEW_PASSWORD_FORMS, PASSWORD_BYTES_MAX, PasswordError, SALT_BYTES,
    export_password, hash_password, import_password, portable_form, verify_password,
};
pub use pattern::{NamePattern, PatternError};
pub use scram::{SCRAM_ITERATIONS, ScramCredential, ScramHash};
