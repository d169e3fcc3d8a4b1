//! How each type of field lies in bytes (AMQP 0-9-1, section 4.2.5).

use crate::error::DecodeError;
#[cfg(any(test, feature = "generate"))]
use crate::generate::Source;
use crate::reader::Reader;
use crate::secret::Secret;
use crate::short_str::ShortStr;
use crate::table::Table;
use crate::writer::Writer;
use bytes::Bytes;

/// A type with a place on the wire.
pub(crate) trait Field: Sized {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError>;

    fn write(&self, writer: &mut Writer);

    /// Whether it is text, if its type can be.
    fn is_text(&self) -> bool {
        true
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Field for $number {
            fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
                reader.array().map(<$number>::from_be_bytes)
            }

            fn write(&self, writer: &mut Writer) {
                writer.put(&self.to_be_bytes());
            }

            #[cfg(any(test, feature = "generate"))]
            fn generate(source: &mut Source) -> Self {
                source.number() as $number
            }
        }
    )* };
}

numbers!(u8, u16, u32, u64);

impl Field for bool {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.flag()
    }

    fn write(&self, writer: &mut Writer) {
        writer.flag(*self);
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source) -> Self {
        source.one_in(2)
    }
}

impl Field for ShortStr {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let [length] = reader.array()?;
        // An octet cannot exceed what a short string holds.
        Ok(ShortStr::from_bytes(reader.slice(usize::from(length))?).unwrap_or_default())
    }

    fn write(&self, writer: &mut Writer) {
        writer.put(&[self.len() as u8]);
        writer.put(self.as_bytes());
    }

    fn is_text(&self) -> bool {
        self.as_str().is_some()
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source) -> Self {
        source.short_str()
    }
}

/// A long string: bytes behind a length of 32 bits.
impl Field for Bytes {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let length = u32::from_be_bytes(reader.array()?);
        reader.slice(length as usize)
    }

    fn write(&self, writer: &mut Writer) {
        writer.with_length(|writer| writer.put(self));
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source) -> Self {
        source.bytes()
    }
}

impl Field for Secret {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        Bytes::read(reader).map(Secret::from)
    }

    fn write(&self, writer: &mut Writer) {
        self.expose().write(writer);
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source) -> Self {
        Secret::from(source.bytes())
    }
}

impl Field for Table {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.within(|reader| Table::read_fields(reader, 0))
    }

    fn write(&self, writer: &mut Writer) {
        writer.with_length(|writer| self.write_fields(writer));
    }

    #[cfg(any(test, feature = "generate"))]
    fn generate(source: &mut Source) -> Self {
        source.table()
    }
}
