//! A cursor over a frame. Everything it hands out is checked against the bytes that are really there.

use crate::error::{DecodeError, Why};
use crate::wire::{Version, Wire};
use bytes::Bytes;

/// Most elements of one array, Kafka's own limit; and, beyond Kafka, of all arrays of a message together, numbers
/// not counted. In memory an element takes up to some 250 bytes and on the wire perhaps two, so that without a
/// total a frame of 100 MiB could ask for gigabytes.
pub const ARRAY_ELEMENTS_MAX: usize = 1_000_000;
/// Most tagged fields of one struct, Kafka's own limit.
pub const TAGGED_FIELDS_MAX: usize = 10_000;
/// Longest string in bytes: the old layout's length is a signed 16-bit number, and the newer keeps its limit.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;
/// Elements for which room is made before the first is read; beyond that a list grows as elements arrive.
const ARRAY_RESERVE_MAX: usize = 1_000;

/// Reads fields one after the other from a shared buffer.
#[derive(Debug)]
pub struct Reader {
    data: Bytes,
    position: usize,
    /// Where `data` begins within the outermost buffer, so that errors name positions in that one.
    base: usize,
    /// Elements that the message may still have.
    elements_left: usize,
}

impl Reader {
    /// Starts at the beginning of `data`.
    pub fn new(data: Bytes) -> Self {
        Self { data, position: 0, base: 0, elements_left: ARRAY_ELEMENTS_MAX }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.data.len() - self.position
    }

    /// What is left, sharing the buffer.
    pub fn into_rest(mut self) -> Bytes {
        self.data.split_off(self.position)
    }

    /// An error about the field that starts here. The field's name is added by the struct it belongs to.
    pub fn error(&self, why: Why) -> DecodeError {
        DecodeError { what: "", at: self.base + self.position, why }
    }

    /// Fails if anything is left.
    pub fn end(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError { what, ..self.error(Why::Trailing(left)) }),
        }
    }

    /// A fixed number of bytes, copied out.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.data[self.position..].first_chunk::<N>() {
            Some(&bytes) => {
                self.position += N;
                Ok(bytes)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// The next `length` bytes, sharing the buffer.
    pub fn slice(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.remaining() {
            return Err(self.truncated(length));
        }
        let start = self.position;
        self.position += length;
        Ok(self.data.slice(start..self.position))
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        self.error(Why::Truncated { needed, left: self.remaining() })
    }

    /// An unsigned number of up to 32 bits, seven to the byte, the least significant first.
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let start = self.error(Why::BadVarint);
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                return Err(start);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(start)
    }

    /// The length of a string, byte array or list; `None` is null. In flexible versions it is a varint of the
    /// length plus one, otherwise a signed number of 16 (`short`) or 32 bits.
    pub(crate) fn length(&mut self, version: Version, short: bool) -> Result<Option<usize>, DecodeError> {
        if version.flexible {
            return Ok((self.unsigned_varint()? as usize).checked_sub(1));
        }
        let start = self.error(Why::Null);
        let length = if short {
            i64::from(i16::from_be_bytes(self.array()?))
        } else {
            i64::from(i32::from_be_bytes(self.array()?))
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(DecodeError { why: Why::NegativeLength(length), ..start }),
        }
    }

    /// The elements of a list; `None` is null.
    pub(crate) fn list<T: Wire>(&mut self, version: Version) -> Result<Option<Vec<T>>, DecodeError> {
        let start = self.error(Why::Null);
        let Some(count) = self.length(version, false)? else { return Ok(None) };
        // Numbers take no more memory than they took bytes.
        let counted = size_of::<T>() > size_of::<i64>();
        let allowed = if counted { self.elements_left } else { ARRAY_ELEMENTS_MAX };
        let most = (self.remaining() / T::min_size(version).max(1)).min(allowed);
        if count > most {
            return Err(DecodeError { why: Why::TooManyElements { count, most }, ..start });
        }
        if counted {
            self.elements_left -= count;
        }
        let mut elements = Vec::with_capacity(count.min(ARRAY_RESERVE_MAX));
        for _ in 0..count {
            elements.push(T::read(self, version)?);
        }
        Ok(Some(elements))
    }

    /// One field of a struct.
    pub(crate) fn field<T: Wire>(
        &mut self,
        what: &'static str,
        version: Version,
        nullable: bool,
    ) -> Result<T, DecodeError> {
        let start = self.position;
        let named =
            |error: DecodeError| if error.what.is_empty() { DecodeError { what, ..error } } else { error };
        let value = T::read(self, version).map_err(named)?;
        if !nullable && value.is_null() {
            return Err(DecodeError { what, at: self.base + start, why: Why::Null });
        }
        Ok(value)
    }

    /// The tagged fields at the end of a struct. `known` reads the fields it knows, each from its own bytes, and
    /// answers whether it did; the others are passed over, as the protocol demands.
    pub(crate) fn tags(
        &mut self,
        what: &'static str,
        mut known: impl FnMut(&mut Reader, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let named =
            |error: DecodeError| if error.what.is_empty() { DecodeError { what, ..error } } else { error };
        let start = self.error(Why::Null);
        let count = self.unsigned_varint().map_err(named)? as usize;
        // A tagged field takes at least a byte for its tag and one for its size.
        if count > TAGGED_FIELDS_MAX.min(self.remaining() / 2) {
            return Err(DecodeError { what, why: Why::TooManyTags(count), ..start });
        }
        for _ in 0..count {
            let tag = self.unsigned_varint().map_err(named)?;
            let size = self.unsigned_varint().map_err(named)? as usize;
            let base = self.base + self.position;
            let data = self.slice(size).map_err(named)?;
            let mut content = Reader { data, position: 0, base, elements_left: self.elements_left };
            if known(&mut content, tag)? && content.remaining() > 0 {
                let left = content.remaining();
                return Err(DecodeError { what, ..content.error(Why::TagSize { tag, left }) });
            }
            self.elements_left = content.elements_left;
        }
        Ok(())
    }
}
