//! How each type of the protocol lies in bytes.

use crate::error::{DecodeError, EncodeError, Why};
use crate::error_code::ErrorCode;
#[cfg(any(test, feature = "generate"))]
use crate::generate::Source;
use crate::reader::{Reader, STRING_BYTES_MAX};
use crate::records::Records;
use crate::text::KafkaStr;
use crate::uuid::Uuid;
use crate::writer::Writer;
use bytes::Bytes;

/// The version of a message, and whether it is a flexible one: lengths as varints, tagged fields behind every
/// struct (KIP-482).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The API version.
    pub number: i16,
    /// Whether it is a flexible one.
    pub flexible: bool,
}

/// A type with a place on the wire.
pub trait Wire: Sized {
    /// The fewest bytes a value takes in this version. Bounds how many elements of a list can be there.
    fn min_size(version: Version) -> usize;

    /// Reads one value.
    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError>;

    /// Writes this value.
    fn write(&self, writer: &mut Writer, version: Version);

    /// Writes this value in a version that has no null for it: text and bytes become empty, which is what
    /// those versions mean by nothing; a list fails, because an empty one often means something else.
    fn write_not_null(&self, writer: &mut Writer, version: Version) {
        self.write(writer, version);
    }

    /// Whether this value is null.
    fn is_null(&self) -> bool {
        false
    }

    /// A random value with everything that this version can express.
    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, version: Version) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Wire for $number {
            fn min_size(_: Version) -> usize {
                size_of::<$number>()
            }

            fn read(reader: &mut Reader, _: Version) -> Result<Self, DecodeError> {
                reader.array().map(<$number>::from_be_bytes)
            }

            fn write(&self, writer: &mut Writer, _: Version) {
                writer.put(&self.to_be_bytes());
            }

            #[cfg(any(test, feature = "generate"))]
            fn generate(source: &mut Source, _: Version) -> Self {
                source.number() as $number
            }
        }
    )* };
}

numbers!(i8, i16, u16, i32, i64, f64);

impl Wire for bool {
    fn min_size(_: Version) -> usize {
        1
    }

    fn read(reader: &mut Reader, _: Version) -> Result<Self, DecodeError> {
        let [byte] = reader.array()?;
        Ok(byte != 0)
    }

    fn write(&self, writer: &mut Writer, _: Version) {
        writer.put(&[u8::from(*self)]);
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        source.one_in(2)
    }
}

impl Wire for Uuid {
    fn min_size(_: Version) -> usize {
        16
    }

    fn read(reader: &mut Reader, _: Version) -> Result<Self, DecodeError> {
        reader.array().map(Uuid)
    }

    fn write(&self, writer: &mut Writer, _: Version) {
        writer.put(&self.0);
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        Uuid::from(u128::from(source.number64()) << 64 | u128::from(source.number64()))
    }
}

impl Wire for ErrorCode {
    fn min_size(_: Version) -> usize {
        2
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        i16::read(reader, version).map(ErrorCode)
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        self.0.write(writer, version);
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        ErrorCode(source.number() as i16)
    }
}

impl Wire for Option<KafkaStr> {
    fn min_size(version: Version) -> usize {
        if version.flexible { 1 } else { 2 }
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        let start = reader.error(Why::NotUtf8);
        let Some(length) = reader.length(version, true)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError { why: Why::StringTooLong(length), ..start });
        }
        KafkaStr::from_utf8(reader.slice(length)?).map(Some).map_err(|_| start)
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        match self {
            Some(text) => text.write(writer, version),
            None => writer.length(None, version, true),
        }
    }

    fn write_not_null(&self, writer: &mut Writer, version: Version) {
        match self {
            Some(text) => text.write(writer, version),
            None => writer.length(Some(0), version, true),
        }
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, version: Version) -> Self {
        (!source.one_in(4)).then(|| KafkaStr::generate(source, version))
    }
}

impl Wire for KafkaStr {
    fn min_size(version: Version) -> usize {
        Option::<KafkaStr>::min_size(version)
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        not_null(reader, version)
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        writer.length(Some(self.len()), version, true);
        writer.put(self.as_bytes());
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        source.text()
    }
}

impl Wire for Option<Bytes> {
    fn min_size(version: Version) -> usize {
        if version.flexible { 1 } else { 4 }
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        match reader.length(version, false)? {
            Some(length) => reader.slice(length).map(Some),
            None => Ok(None),
        }
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        match self {
            Some(bytes) => bytes.write(writer, version),
            None => writer.length(None, version, false),
        }
    }

    fn write_not_null(&self, writer: &mut Writer, version: Version) {
        match self {
            Some(bytes) => bytes.write(writer, version),
            None => writer.length(Some(0), version, false),
        }
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        (!source.one_in(4)).then(|| source.bytes())
    }
}

impl Wire for Bytes {
    fn min_size(version: Version) -> usize {
        Option::<Bytes>::min_size(version)
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        not_null(reader, version)
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        writer.length(Some(self.len()), version, false);
        writer.splice(self);
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        source.bytes()
    }
}

impl Wire for Option<Records> {
    fn min_size(version: Version) -> usize {
        Option::<Bytes>::min_size(version)
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        Ok(Option::<Bytes>::read(reader, version)?.map(Records::from))
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        writer.length(self.as_ref().map(Records::len), version, false);
        for chunk in self.iter().flat_map(Records::chunks) {
            writer.splice(chunk);
        }
        if let Some(gap) = self.as_ref().and_then(Records::gap) {
            writer.leave(gap);
        }
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, _: Version) -> Self {
        (!source.one_in(4)).then(|| source.chunks().collect())
    }
}

impl<T: Wire> Wire for Option<Vec<T>> {
    fn min_size(version: Version) -> usize {
        if version.flexible { 1 } else { 4 }
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        reader.list(version)
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        match self {
            Some(elements) => elements.write(writer, version),
            None => writer.length(None, version, false),
        }
    }

    fn write_not_null(&self, writer: &mut Writer, version: Version) {
        match self {
            Some(elements) => elements.write(writer, version),
            None => writer.fail(EncodeError::Null { what: "" }),
        }
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, version: Version) -> Self {
        (!source.one_in(4)).then(|| Vec::generate(source, version))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn min_size(version: Version) -> usize {
        Option::<Vec<T>>::min_size(version)
    }

    fn read(reader: &mut Reader, version: Version) -> Result<Self, DecodeError> {
        not_null(reader, version)
    }

    fn write(&self, writer: &mut Writer, version: Version) {
        writer.length(Some(self.len()), version, false);
        for element in self {
            element.write(writer, version);
        }
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source, version: Version) -> Self {
        source.list(version)
    }
}

fn not_null<T>(reader: &mut Reader, version: Version) -> Result<T, DecodeError>
where
    Option<T>: Wire,
{
    let start = reader.error(Why::Null);
    Option::<T>::read(reader, version)?.ok_or(start)
}
