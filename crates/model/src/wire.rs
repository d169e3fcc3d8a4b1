//! The encoding that journal entries and checkpoints share: little-endian integers, and lengths in
//! front of everything that varies. A reader never reserves memory on the word of a length that the
//! bytes at hand do not bear out.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes that are not what their kind and version say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What was being read.
    pub what: &'static str,
    /// Why it could not be.
    pub why: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot decode {}: {}", self.what, self.why)
    }
}

impl std::error::Error for DecodeError {}

impl DecodeError {
    /// An error about `what`.
    pub fn new(what: &'static str, why: &'static str) -> DecodeError {
        DecodeError { what, why }
    }
}

/// Writes values behind each other.
#[derive(Debug, Default)]
pub struct Writer {
    out: BytesMut,
}

impl Writer {
    /// Nothing written yet.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.out.put_u8(value);
    }

    /// Two bytes.
    pub fn i16(&mut self, value: i16) {
        self.out.put_i16_le(value);
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.out.put_u32_le(value);
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.out.put_i32_le(value);
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.out.put_u64_le(value);
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.out.put_i64_le(value);
    }

    /// A length, then the bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.out.put_u32_le(value.len() as u32);
        self.out.put_slice(value);
    }

    /// A length, then UTF-8.
    pub fn str(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// A flag, then the string if there is one.
    pub fn opt_str(&mut self, value: Option<&str>) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            self.str(value);
        }
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, value: &[u8]) {
        self.out.put_slice(value);
    }

    /// A number of elements, then each of them.
    pub fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Writer, &T)) {
        self.out.put_u32_le(items.len() as u32);
        for item in items {
            each(self, item);
        }
    }

    /// Takes what is written so far and leaves the writer empty, its spare capacity kept.
    pub fn take(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    /// All that was written.
    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

/// Reads values behind each other. Slices are shared with the input, not copied.
#[derive(Debug)]
pub struct Reader {
    bytes: Bytes,
    what: &'static str,
}

impl Reader {
    /// Reads `bytes`; `what` names them in errors.
    pub fn new(what: &'static str, bytes: Bytes) -> Reader {
        Reader { bytes, what }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// An error about what is being read.
    pub fn error(&self, why: &'static str) -> DecodeError {
        DecodeError::new(self.what, why)
    }

    fn need(&self, count: usize) -> Result<(), DecodeError> {
        if self.bytes.len() < count { Err(self.error("cut short")) } else { Ok(()) }
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.need(1)?;
        Ok(self.bytes.get_u8())
    }

    /// A byte that is 0 or 1.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("a flag is neither 0 nor 1")),
        }
    }

    /// Two bytes.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.need(2)?;
        Ok(self.bytes.get_i16_le())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.need(4)?;
        Ok(self.bytes.get_u32_le())
    }

    /// Four bytes.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.need(4)?;
        Ok(self.bytes.get_i32_le())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.need(8)?;
        Ok(self.bytes.get_u64_le())
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.need(8)?;
        Ok(self.bytes.get_i64_le())
    }

    /// A length, then the bytes, shared with the input.
    pub fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()? as usize;
        self.raw(length)
    }

    /// `length` bytes as they are.
    pub fn raw(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        self.need(length)?;
        Ok(self.bytes.split_to(length))
    }

    /// A fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.need(N)?;
        let mut array = [0; N];
        self.bytes.copy_to_slice(&mut array);
        Ok(array)
    }

    /// A length, then UTF-8.
    pub fn str(&mut self) -> Result<String, DecodeError> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.error("a string is not UTF-8")),
        }
    }

    /// A flag, then the string if there is one.
    pub fn opt_str(&mut self) -> Result<Option<String>, DecodeError> {
        if self.bool()? { self.str().map(Some) } else { Ok(None) }
    }

    /// A number of elements, then each of them. `min_bytes` (at least 1) is the least that one
    /// element takes, which bounds what a false number can make us reserve.
    pub fn list<T>(
        &mut self,
        min_bytes: usize,
        mut each: impl FnMut(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.u32()? as usize;
        if count > self.bytes.len() / min_bytes.max(1) {
            return Err(self.error("more elements than bytes"));
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// Succeeds if nothing is left.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.error("bytes left over")) }
    }
}
