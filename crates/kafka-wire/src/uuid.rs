//! Topic ids and directory ids: sixteen bytes, which the protocol never looks into.

use std::fmt;

/// Sixteen bytes in network order. All zeros stands for "none".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The value that stands for "no id".
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// Whether this is [`Uuid::ZERO`].
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl From<u128> for Uuid {
    fn from(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

impl From<Uuid> for u128 {
    fn from(id: Uuid) -> Self {
        u128::from_be_bytes(id.0)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Uuid {
    /// Kafka's own tools print ids as 22 characters of URL-safe base64, so we do too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let number = u128::from(*self);
        // 21 characters of six bits, then the two bits that remain, padded with zeros on the right.
        for index in 0..22u32 {
            let six = if index < 21 { number >> (122 - 6 * index) } else { number << 4 };
            f.write_str(char::from(ALPHABET[(six & 63) as usize]).encode_utf8(&mut [0; 4]))?;
        }
        Ok(())
    }
}
