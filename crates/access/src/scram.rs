//! What SCRAM (RFC 5802, RFC 7677) keeps of a password, which is also Weir's own form for new ones.
//!
//! One stored form so serves every front that is handed the password itself, and a front that speaks
//! SCRAM, where the password never crosses the wire. Behind it is PBKDF2, which costs time and no memory.
//! Functions that cost memory as well (Argon2, scrypt) resist guessing better, but a broker checks a
//! password for every connection, and after a network failure for all of them at once: ten thousand
//! checks at Argon2's recommended 19 MiB would be minutes of every core and gigabytes on the way.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
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

/// Bytes of the salt that somebody is shown who is not there.
const DECOY_SALT_BYTES: usize = 16;

/// The hash function in a mechanism's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramHash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

/// What the server's side of SCRAM needs to know of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// The hash function behind it.
    pub hash: ScramHash,
    /// Iterations of PBKDF2.
    pub iterations: u32,
    /// The salt.
    pub salt: Vec<u8>,
    /// `StoredKey`, against which a client's proof is checked.
    stored_key: Vec<u8>,
    /// `ServerKey`, with which the server proves itself.
    server_key: Vec<u8>,
}

impl ScramHash {
    /// Bytes of its keys.
    fn key_bytes(self) -> usize {
        match self {
            ScramHash::Sha256 => 32,
            ScramHash::Sha512 => 64,
        }
    }

    /// The hash function of a stored form, if that is one of SCRAM's.
    fn of(algorithm: PasswordAlgorithm) -> Option<ScramHash> {
        match algorithm {
            PasswordAlgorithm::ScramSha256 => Some(ScramHash::Sha256),
            PasswordAlgorithm::ScramSha512 => Some(ScramHash::Sha512),
            _ => None,
        }
    }

    fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            ScramHash::Sha256 => mac(Hmac::<Sha256>::new_from_slice(key), message),
            ScramHash::Sha512 => mac(Hmac::<Sha512>::new_from_slice(key), message),
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            ScramHash::Sha256 => Sha256::digest(bytes).to_vec(),
            ScramHash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.key_bytes()];
        match self {
            ScramHash::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
            ScramHash::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted),
        }
        salted
    }
}

/// HMAC takes keys of any length, so that there always is one.
fn mac<M: Mac, E: fmt::Debug>(keyed: Result<M, E>, message: &[u8]) -> Vec<u8> {
    keyed.expect("HMAC takes keys of any length").chain_update(message).finalize().into_bytes().to_vec()
}

impl ScramCredential {
    /// The credential in a stored password, if it is in such a form.
    pub fn of(hash: &PasswordHash) -> Option<ScramCredential> {
        ScramCredential::parse(ScramHash::of(hash.algorithm)?, &hash.bytes)
    }

    /// What somebody is shown who is not there, so that the exchange tells nobody who is: the same salt for the same
    /// name, by a secret of the caller's, and keys that no password has.
    pub fn decoy(hash: ScramHash, user: &str, secret: &[u8]) -> ScramCredential {
        let derived = |what: &str| hash.hmac(secret, format!("{what} {user}").as_bytes());
        let mut salt = derived("salt");
        salt.truncate(DECOY_SALT_BYTES);
        ScramCredential {
            hash,
            iterations: SCRAM_ITERATIONS,
            salt,
            stored_key: derived("stored key"),
            server_key: derived("server key"),
        }
    }

    /// Checks a client's proof over the messages of the exchange (RFC 5802's `AuthMessage`). The server's signature,
    /// by which the client knows the server; none if the proof is wrong.
    pub fn check_proof(&self, messages: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let signature = self.hash.hmac(&self.stored_key, messages);
        if proof.len() != signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(proof, signed)| proof ^ signed).collect();
        let right: bool = self.hash.digest(&client_key).as_slice().ct_eq(self.stored_key.as_slice()).into();
        right.then(|| self.hash.hmac(&self.server_key, messages))
    }

    /// Derives the credential from a password. Its bytes are taken as they are, without SASLprep, as
    /// Kafka does on both of its sides.
    pub(crate) fn derive(hash: ScramHash, password: &[u8], salt: &[u8], iterations: u32) -> ScramCredential {
        let salted = hash.pbkdf2(password, salt, iterations);
        ScramCredential {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: hash.digest(&hash.hmac(&salted, b"Client Key")),
            server_key: hash.hmac(&salted, b"Server Key"),
        }
    }

    /// Whether this is the password that the credential was derived from.
    pub(crate) fn opens_with(&self, password: &[u8]) -> bool {
        let derived = ScramCredential::derive(self.hash, password, &self.salt, self.iterations);
        derived.stored_key.as_slice().ct_eq(self.stored_key.as_slice()).into()
    }

    /// The stored form, as [`PasswordAlgorithm::ScramSha256`] lays it out.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.iterations.to_le_bytes()[..], &self.stored_key, &self.server_key, &self.salt].concat()
    }

    /// Reads what [`ScramCredential::to_bytes`] wrote.
    pub(crate) fn parse(hash: ScramHash, bytes: &[u8]) -> Option<ScramCredential> {
        let (iterations, rest) = bytes.split_first_chunk()?;
        let (stored_key, rest) = rest.split_at_checked(hash.key_bytes())?;
        let (server_key, salt) = rest.split_at_checked(hash.key_bytes())?;
        let iterations = u32::from_le_bytes(*iterations);
        let within =
            (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) && SALT_BYTES.contains(&salt.len());
        within.then(|| ScramCredential {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: stored_key.into(),
            server_key: server_key.into(),
        })
    }
}

impl fmt::Debug for ScramCredential {
    /// Leaves out the keys: whoever has the server key can pose as the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCredential")
            .field("hash", &self.hash)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}
