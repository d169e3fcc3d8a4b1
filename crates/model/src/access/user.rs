//! Users, and their passwords in the forms in which they are stored.

use std::fmt;

use super::{DEFAULT_USER, decode_limit, decode_strings, encode_limit, encode_strings};
use crate::wire::{DecodeError, Reader, Writer};

/// What the default user's password hashes to: RabbitMQ's SHA-256 of `guest` behind the salt `weir`.
/// The salt is no secret and no chance, because the password is none either and every replica must
/// begin alike.
const INITIAL_PASSWORD_HASH: [u8; 36] = [
    0x77, 0x65, 0x69, 0x72, 0xb4, 0x4c, 0xa1, 0xdb, 0xfa, 0xc1, 0xa8, 0x73, 0xf3, 0x9c, 0xe8, 0xf1, 0x29,
    0x8e, 0xb7, 0x85, 0x97, 0xd0, 0x86, 0x01, 0x0b, 0xf6, 0x7b, 0x37, 0xce, 0xd7, 0x58, 0x2a, 0x06, 0x08,
    0x60, 0xac,
];

/// A user as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMeta {
    /// Name.
    pub name: String,
    /// The password in as many forms as protocols need of it. Any of them opens; without one the user
    /// cannot log in by password.
    pub passwords: Vec<PasswordHash>,
    /// Roles beside the permissions: `administrator`, `monitoring`, `policymaker`, `management`,
    /// `impersonator`. Others are kept and mean nothing.
    pub tags: Vec<String>,
    /// What the user may have at most.
    pub limits: UserLimits,
}

/// What a user may have at most. None is without limit, 0 forbids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Open connections, RabbitMQ's `max-connections`.
    pub connections_max: Option<u32>,
    /// Open channels over all connections, RabbitMQ's `max-channels`.
    pub channels_max: Option<u32>,
}

/// A password in a form from which it can be checked and not be read.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    /// How it was made.
    pub algorithm: PasswordAlgorithm,
    /// What came out, with its salt; the layout is the algorithm's.
    pub bytes: Vec<u8>,
}

/// How a stored password was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordAlgorithm {
    /// RabbitMQ's default since 3.6: 4 bytes of salt, then SHA-256 of salt and password.
    RabbitSha256,
    /// RabbitMQ's alternative: 4 bytes of salt, then SHA-512 of salt and password.
    RabbitSha512,
    /// RabbitMQ's before 3.6: 4 bytes of salt, then MD5 of salt and password.
    RabbitMd5,
    /// What SCRAM-SHA-256 keeps (RFC 5802, RFC 7677): iterations as a little-endian u32, 32 bytes of
    /// stored key, 32 bytes of server key, then the salt.
    ScramSha256,
    /// What SCRAM-SHA-512 keeps, laid out alike with keys of 64 bytes.
    ScramSha512,
}

impl UserMeta {
    /// The default user as a new cluster has it.
    pub fn initial() -> UserMeta {
        UserMeta {
            name: DEFAULT_USER.into(),
            passwords: vec![PasswordHash {
                algorithm: PasswordAlgorithm::RabbitSha256,
                bytes: INITIAL_PASSWORD_HASH.into(),
            }],
            tags: vec!["administrator".into()],
            limits: UserLimits::default(),
        }
    }

    /// Writes the user, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.name);
        out.list(&self.passwords, |out, password| password.encode(out));
        encode_strings(&self.tags, out);
        encode_limit(self.limits.connections_max, out);
        encode_limit(self.limits.channels_max, out);
    }

    /// Reads what [`UserMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<UserMeta, DecodeError> {
        Ok(UserMeta {
            name: reader.str()?,
            passwords: reader.list(5, PasswordHash::decode)?,
            tags: decode_strings(reader)?,
            limits: UserLimits {
                connections_max: decode_limit(reader)?,
                channels_max: decode_limit(reader)?,
            },
        })
    }
}

impl PasswordHash {
    /// Writes the hash, as part of its user.
    pub fn encode(&self, out: &mut Writer) {
        out.u8(self.algorithm.code());
        out.bytes(&self.bytes);
    }

    /// Reads what [`PasswordHash::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<PasswordHash, DecodeError> {
        let code = reader.u8()?;
        let algorithm = PasswordAlgorithm::ALL.into_iter().find(|algorithm| algorithm.code() == code);
        Ok(PasswordHash {
            algorithm: algorithm
                .ok_or_else(|| reader.error("a password's algorithm is not known to this binary"))?,
            bytes: reader.bytes()?.to_vec(),
        })
    }
}

impl fmt::Debug for PasswordHash {
    /// Leaves out the hash: what is logged is read by more people than may try passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl PasswordAlgorithm {
    /// Every algorithm.
    pub const ALL: [PasswordAlgorithm; 5] = [
        PasswordAlgorithm::RabbitSha256,
        PasswordAlgorithm::RabbitSha512,
        PasswordAlgorithm::RabbitMd5,
        PasswordAlgorithm::ScramSha256,
        PasswordAlgorithm::ScramSha512,
    ];

    /// Its name in definitions: RabbitMQ's `hashing_algorithm` where RabbitMQ has it.
    pub fn name(self) -> &'static str {
        match self {
            PasswordAlgorithm::RabbitSha256 => "rabbit_password_hashing_sha256",
            PasswordAlgorithm::RabbitSha512 => "rabbit_password_hashing_sha512",
            PasswordAlgorithm::RabbitMd5 => "rabbit_password_hashing_md5",
            PasswordAlgorithm::ScramSha256 => "weir_password_hashing_scram_sha256",
            PasswordAlgorithm::ScramSha512 => "weir_password_hashing_scram_sha512",
        }
    }

    /// The algorithm of this name.
    pub fn from_name(name: &str) -> Option<PasswordAlgorithm> {
        PasswordAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its number in the encoding; never reused for another.
    fn code(self) -> u8 {
        match self {
            PasswordAlgorithm::RabbitSha256 => 1,
            PasswordAlgorithm::RabbitSha512 => 2,
            PasswordAlgorithm::RabbitMd5 => 3,
            PasswordAlgorithm::ScramSha256 => 16,
            PasswordAlgorithm::ScramSha512 => 17,
        }
    }
}
