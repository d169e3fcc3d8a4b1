//! What SCRAM-SHA-256 (RFC 5802, RFC 7677) keeps of a password, which is also Weir's own form for new
//! ones.
//!
//! One stored form so serves every front that is handed the password itself, and a front that speaks
//! SCRAM, where the password never crosses the wire. Behind it is PBKDF2, which costs time and no memory.
//! Functions that cost memory as well (Argon2, scrypt) resist guessing better, but a broker checks a
//! password for every connection, and after a network failure for all of them at once: ten thousand
//! checks at Argon2's recommended 19 MiB would be minutes of every core and gigabytes on the way.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weir_model::access::{PasswordAlgorithm, PasswordHash};

/// Iterations of PBKDF2 for a new password: four times the least that RFC 7677 allows.
pub const SCRAM_ITERATIONS: u32 = 16_384;

/// Fewest iterations in a stored form (RFC 7677, section 4); clients refuse to do with less.
const ITERATIONS_MIN: u32 = 4_096;

/// Most iterations in a stored form: bounds what one log-in can cost.
const ITERATIONS_MAX: u32 = 65_536;

/// Bytes of salt in a stored form.
const SALT_BYTES: std::ops::RangeInclusive<usize> = 8..=64;

const KEY_BYTES: usize = 32;

/// What the server's side of SCRAM-SHA-256 needs to know of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// Iterations of PBKDF2.
    pub iterations: u32,
    /// `StoredKey`, against which a client's proof is checked.
    pub stored_key: [u8; KEY_BYTES],
    /// `ServerKey`, with which the server proves itself.
    pub server_key: [u8; KEY_BYTES],
    /// The salt.
    pub salt: Vec<u8>,
}

impl ScramCredential {
    /// The credential in a stored password, if it is in this form.
    pub fn of(hash: &PasswordHash) -> Option<ScramCredential> {
        match hash.algorithm {
            PasswordAlgorithm::ScramSha256 => ScramCredential::parse(&hash.bytes),
            _ => None,
        }
    }

    /// Derives the credential from a password. Its bytes are taken as they are, without SASLprep, as
    /// Kafka does on both of its sides.
    pub(crate) fn derive(password: &[u8], salt: &[u8], iterations: u32) -> ScramCredential {
        let mut salted = [0; KEY_BYTES];
        pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted);
        ScramCredential {
            iterations,
            stored_key: Sha256::digest(hmac_sha256(&salted, b"Client Key")).into(),
            server_key: hmac_sha256(&salted, b"Server Key"),
            salt: salt.into(),
        }
    }

    /// Whether this is the password that the credential was derived from.
    pub(crate) fn opens_with(&self, password: &[u8]) -> bool {
        let derived = ScramCredential::derive(password, &self.salt, self.iterations);
        derived.stored_key.as_slice().ct_eq(self.stored_key.as_slice()).into()
    }

    /// The stored form, as [`PasswordAlgorithm::ScramSha256`] lays it out.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.iterations.to_le_bytes()[..], &self.stored_key[..], &self.server_key[..], &self.salt[..]]
            .concat()
    }

    /// Reads what [`ScramCredential::to_bytes`] wrote.
    pub(crate) fn parse(bytes: &[u8]) -> Option<ScramCredential> {
        let (iterations, rest) = bytes.split_first_chunk()?;
        let (stored_key, rest) = rest.split_first_chunk()?;
        let (server_key, salt) = rest.split_first_chunk()?;
        let iterations = u32::from_le_bytes(*iterations);
        let within =
            (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) && SALT_BYTES.contains(&salt.len());
        within.then(|| ScramCredential {
            iterations,
            stored_key: *stored_key,
            server_key: *server_key,
            salt: salt.into(),
        })
    }
}

impl fmt::Debug for ScramCredential {
    /// Leaves out the keys: whoever has the server key can pose as the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCredential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

pub(crate) fn hmac_sha256(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; KEY_BYTES] {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update(message).finalize().into_bytes().into()
}
