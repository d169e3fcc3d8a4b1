//! A cursor over a payload. Everything it hands out is checked against the bytes that are really there.

use crate::error::{DecodeError, Why};
use crate::field::Field;
use bytes::Bytes;

/// Most fields and elements of a table, those of all tables and arrays within it included. An element takes one byte
/// on the wire and forty in memory, so that without a total a large frame could ask for forty times its size.
pub const TABLE_ENTRIES_MAX: usize = 65_536;

/// Reads fields one after the other from a shared buffer.
#[derive(Debug)]
pub struct Reader {
    data: Bytes,
    position: usize,
    /// Where what is being read ends: the payload, or the table that the cursor is in.
    end: usize,
    /// Fields and elements that tables may still have.
    entries_left: usize,
    /// The octet of flags that was read last.
    flags: u8,
    /// The flag in it that is next; 0 if the next flag begins an octet.
    next_flag: u8,
}

impl Reader {
    pub(crate) fn new(data: Bytes) -> Self {
        let end = data.len();
        Self { data, position: 0, end, entries_left: TABLE_ENTRIES_MAX, flags: 0, next_flag: 0 }
    }

    /// Bytes that are left.
    pub(crate) fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// An error about what starts here. The field's name is added by the struct it belongs to.
    pub(crate) fn error(&self, why: Why) -> DecodeError {
        DecodeError { what: "", at: self.position, why }
    }

    /// Fails if anything is left.
    pub(crate) fn end(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(self.error(Why::Trailing(left)).named(what)),
        }
    }

    /// A fixed number of bytes, copied out.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.next_flag = 0;
        match self.data[self.position..self.end].first_chunk::<N>() {
            Some(&bytes) => {
                self.position += N;
                Ok(bytes)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// The next `length` bytes, sharing the buffer.
    pub(crate) fn slice(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        self.next_flag = 0;
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

    /// One flag. Flags that follow each other share octets, the first in the lowest bit (section 4.2.5.2).
    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        if self.next_flag == 0 {
            [self.flags] = self.array()?;
            self.next_flag = 1;
        }
        let is_set = self.flags & self.next_flag != 0;
        self.next_flag <<= 1;
        Ok(is_set)
    }

    /// A length of 32 bits, and then what `read` makes of exactly that many bytes.
    pub(crate) fn within<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let length = u32::from_be_bytes(self.array()?) as usize;
        if length > self.remaining() {
            return Err(self.truncated(length));
        }
        let outer_end = std::mem::replace(&mut self.end, self.position + length);
        let content = read(self)?;
        self.end("")?;
        self.end = outer_end;
        Ok(content)
    }

    /// Counts one more field or element of a table.
    pub(crate) fn entry(&mut self) -> Result<(), DecodeError> {
        match self.entries_left.checked_sub(1) {
            Some(left) => self.entries_left = left,
            None => return Err(self.error(Why::TooManyEntries)),
        }
        Ok(())
    }

    /// One field of a method or one property. `text` asks for UTF-8 in short strings.
    pub(crate) fn field<T: Field>(&mut self, what: &'static str, text: bool) -> Result<T, DecodeError> {
        let start = self.position;
        let value = T::read(self).map_err(|error| error.named(what))?;
        if text && !value.is_text() {
            return Err(DecodeError { what, at: start, why: Why::NotUtf8 });
        }
        Ok(value)
    }
}
