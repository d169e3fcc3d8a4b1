//! Passwords in the forms in which they are stored.
//!
//! RabbitMQ's forms are read and written exactly, so that users come over from its definitions with
//! their passwords and can go back:
//!
//! ```text
//! password_hash = base64(salt, hash(salt, password))    4 bytes of salt; SHA-256, SHA-512 or MD5
//! ```
//!
//! A single round of a fast hash is soon guessed when it is stolen. Weir's own form, which [`crate::scram`]
//! describes, is not, and RabbitMQ cannot read it: a user who is to be exported to RabbitMQ needs one of
//! its forms as well, and a user may have several.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;
use weir_model::access::{PASSWORD_HASH_BYTES_MAX, PasswordAlgorithm, PasswordHash};

use crate::scram::{SCRAM_ITERATIONS, ScramCredential, ScramHash};

/// The form for a new password, unless the user is to be exported to RabbitMQ.
pub const NEW_PASSWORD_ALGORITHM: PasswordAlgorithm = PasswordAlgorithm::ScramSha256;

/// The forms in which a new password is kept: clients may speak either of SCRAM's two.
pub const NEW_PASSWORD_FORMS: [PasswordAlgorithm; 2] =
    [NEW_PASSWORD_ALGORITHM, PasswordAlgorithm::ScramSha512];

/// Longest password, in bytes: bounds what one log-in can cost.
pub const PASSWORD_BYTES_MAX: usize = 4_096;

/// Bytes of salt that a caller draws for a new password.
pub const SALT_BYTES: usize = 16;

/// Bytes of salt in RabbitMQ's forms.
const RABBIT_SALT_BYTES: usize = 4;

/// A password cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// There is nothing to guess.
    #[error("the password is blank; give it at least one character")]
    Blank,
    /// It is longer than any log-in may send.
    #[error("the password is {bytes} bytes long; at most {max} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The form is only for passwords that came from elsewhere.
    #[error("passwords are not stored as {} any more; use {}", .0.name(), NEW_PASSWORD_ALGORITHM.name())]
    Outdated(PasswordAlgorithm),
    /// The form is not known, such as that of a plugin.
    #[error("the hashing algorithm '{0}' is not known; set the user's password anew")]
    UnknownAlgorithm(String),
    /// The stored form is not base64.
    #[error("the password hash is not base64")]
    NotBase64,
    /// The stored form is not what its algorithm makes.
    #[error("the password hash is not one of {}", .0.name())]
    Malformed(PasswordAlgorithm),
}

/// Makes the stored form of a password. `salt` is drawn anew for each by the caller; RabbitMQ's forms use
/// the first four bytes of it.
pub fn hash_password(
    algorithm: PasswordAlgorithm,
    password: &[u8],
    salt: &[u8; SALT_BYTES],
) -> Result<PasswordHash, PasswordError> {
    if password.is_empty() {
        return Err(PasswordError::Blank);
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(PasswordError::TooLong { bytes: password.len(), max: PASSWORD_BYTES_MAX });
    }
    let bytes = match algorithm {
        PasswordAlgorithm::RabbitSha256 => salted::<Sha256>(&salt[..RABBIT_SALT_BYTES], password),
        PasswordAlgorithm::RabbitSha512 => salted::<Sha512>(&salt[..RABBIT_SALT_BYTES], password),
        PasswordAlgorithm::RabbitMd5 => return Err(PasswordError::Outdated(algorithm)),
        PasswordAlgorithm::ScramSha256 => {
            ScramCredential::derive(ScramHash::Sha256, password, salt, SCRAM_ITERATIONS).to_bytes()
        }
        PasswordAlgorithm::ScramSha512 => {
            ScramCredential::derive(ScramHash::Sha512, password, salt, SCRAM_ITERATIONS).to_bytes()
        }
    };
    Ok(PasswordHash { algorithm, bytes })
}

/// Whether this is the password. A blank one never is, and a stored form that makes no sense has none.
///
/// Weir's own form takes some milliseconds; see [`SCRAM_ITERATIONS`].
pub fn verify_password(stored: &PasswordHash, password: &[u8]) -> bool {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return false;
    }
    match stored.algorithm {
        PasswordAlgorithm::RabbitSha256 => verify_salted::<Sha256>(&stored.bytes, password),
        PasswordAlgorithm::RabbitSha512 => verify_salted::<Sha512>(&stored.bytes, password),
        PasswordAlgorithm::RabbitMd5 => verify_salted::<Md5>(&stored.bytes, password),
        PasswordAlgorithm::ScramSha256 | PasswordAlgorithm::ScramSha512 => {
            ScramCredential::of(stored).is_some_and(|credential| credential.opens_with(password))
        }
    }
}

/// Takes as long as checking a wrong password in the forms that a new one is kept in, so that an answer's delay does not tell
/// whether there is such a user.
pub(crate) fn pretend_to_verify(password: &[u8]) {
    let password = &password[..password.len().min(PASSWORD_BYTES_MAX)];
    for hash in [ScramHash::Sha256, ScramHash::Sha512] {
        std::hint::black_box(ScramCredential::derive(hash, password, b"no such user", SCRAM_ITERATIONS));
    }
}

/// Reads `hashing_algorithm` and `password_hash` of a definition. An empty hash is that of a user who
/// cannot log in by password.
///
/// A hash in one of RabbitMQ's forms is taken whatever its length, as RabbitMQ does: one that the
/// algorithm cannot have made is a password that nobody has.
pub fn import_password(algorithm: &str, password_hash: &str) -> Result<Option<PasswordHash>, PasswordError> {
    if password_hash.is_empty() {
        return Ok(None);
    }
    let algorithm = PasswordAlgorithm::from_name(algorithm)
        .ok_or_else(|| PasswordError::UnknownAlgorithm(algorithm.to_owned()))?;
    let bytes = STANDARD.decode(password_hash).map_err(|_| PasswordError::NotBase64)?;
    let hash = PasswordHash { algorithm, bytes };
    check_hash(&hash)?;
    Ok(Some(hash))
}

/// The `password_hash` of a definition; its `hashing_algorithm` is the algorithm's name.
pub fn export_password(hash: &PasswordHash) -> String {
    STANDARD.encode(&hash.bytes)
}

/// The one of a password's forms for a definition, which has room for one: one that RabbitMQ can read,
/// or else the first.
pub fn portable_form(forms: &[PasswordHash]) -> Option<&PasswordHash> {
    let weirs_own = [PasswordAlgorithm::ScramSha256, PasswordAlgorithm::ScramSha512];
    forms.iter().find(|form| !weirs_own.contains(&form.algorithm)).or(forms.first())
}

/// Checks a stored form that came from elsewhere.
pub(crate) fn check_hash(hash: &PasswordHash) -> Result<(), PasswordError> {
    let sound = match hash.algorithm {
        PasswordAlgorithm::ScramSha256 | PasswordAlgorithm::ScramSha512 => {
            ScramCredential::of(hash).is_some()
        }
        _ => hash.bytes.len() <= PASSWORD_HASH_BYTES_MAX,
    };
    if sound { Ok(()) } else { Err(PasswordError::Malformed(hash.algorithm)) }
}

fn salted<D: Digest>(salt: &[u8], password: &[u8]) -> Vec<u8> {
    let hash = D::new().chain_update(salt).chain_update(password).finalize();
    [salt, hash.as_slice()].concat()
}

fn verify_salted<D: Digest>(stored: &[u8], password: &[u8]) -> bool {
    match stored.split_at_checked(RABBIT_SALT_BYTES) {
        Some((salt, _)) => salted::<D>(salt, password).as_slice().ct_eq(stored).into(),
        None => false,
    }
}
