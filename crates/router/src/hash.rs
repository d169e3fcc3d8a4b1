//! The one hash of this crate: SipHash-1-3 under the key zero.
//!
//! It decides which queue of a consistent-hash or modulus-hash exchange a message goes to, on every node
//! and after every upgrade the same, so it must never be another one. The shared maps use it as well:
//! names and keys are chosen by clients, and unlike faster hashes this one gives no cheap way to find
//! many that collide.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// The hash of bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    SipHasher13::new().hash(bytes)
}

/// The hash of several fields. Each goes in behind its length, so that no two lists of fields are the
/// same bytes.
pub(crate) struct Fields(SipHasher13);

impl Fields {
    pub(crate) fn new() -> Fields {
        Fields(SipHasher13::new())
    }

    pub(crate) fn field(mut self, bytes: &[u8]) -> Fields {
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
        self
    }

    pub(crate) fn finish(self) -> u64 {
        self.0.finish()
    }
}

/// A number that has nothing to do with the one before, for a caller that has only one random number
/// and needs several: the output function of SplitMix64.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hash_of_the_paper() {
        // From the reference implementation, github.com/veorq/SipHash, with 1 and 3 rounds.
        assert_eq!(of_bytes(b""), 0xd1fb_a762_150c_532c);
        assert_eq!(of_bytes(b"\0"), 0x68a9_1412_8e01_e473);
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let hash = |fields: &[&[u8]]| fields.iter().fold(Fields::new(), |all, one| all.field(one)).finish();
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"ab"]), hash(&[b"ab", b""]));
    }
}
