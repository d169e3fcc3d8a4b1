//! The content header: how long a message's body is, and its properties.
//!
//! ```text
//! | class u16 = 60 | weight u16 = 0 | body bytes u64 | flags u16 | the properties that flags names ... |
//! ```
//!
//! Of the flags the highest bit is the first property's, and the lowest says that another sixteen follow. The basic
//! class has fourteen properties; RabbitMQ sends and expects one word of flags and does not look at its two lowest
//! bits. Here words that follow are read, and refused only if they name a property.

use crate::error::{DecodeError, Why};
use crate::field::Field;
#[cfg(any(test, feature = "generate"))]
use crate::generate::Source;
use crate::method::MethodFields;
use crate::methods::basic;
use crate::reader::Reader;
use crate::short_str::ShortStr;
use crate::table::Table;
use crate::writer::Writer;
use bytes::Bytes;

/// The class whose methods have content.
const CLASS_ID: u16 = <basic::Publish as MethodFields>::CLASS_ID;
/// The flag that says that another sixteen flags follow.
const CONTINUATION: u16 = 1;

/// What stands in front of a body (AMQP 0-9-1, section 4.2.6.1).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContentHeader {
    /// Length of the body in bytes, over all body frames; without any if it is 0.
    pub body_bytes: u64,
    /// The message's properties.
    pub properties: BasicProperties,
}

impl ContentHeader {
    /// Reads the payload of a content header frame, which must end where the bytes end.
    pub fn decode(payload: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        match reader.field::<u16>("content header.class id", false)? {
            CLASS_ID => {}
            other => return Err(DecodeError { what: "content header", at: 0, why: Why::Class(other) }),
        }
        let start = reader.error(Why::Weight(0)).named("content header");
        match reader.field::<u16>("content header.weight", false)? {
            0 => {}
            weight => return Err(DecodeError { why: Why::Weight(weight), ..start }),
        }
        let body_bytes = reader.field("content header.body size", false)?;
        let properties = BasicProperties::read(&mut reader)?;
        reader.end("content header")?;
        Ok(Self { body_bytes, properties })
    }
}

macro_rules! properties {
    ($( $(#[$meta:meta])* $bit:literal $name:ident: $type:ty, )*) => {
        /// The properties of a message, each there or not (AMQP 0-9-1, section 1.8.1). Short strings may be any bytes.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct BasicProperties {
            $( $(#[$meta])* pub $name: Option<$type>, )*
        }

        impl BasicProperties {
            /// The flags of the properties that are there.
            fn flags(&self) -> u16 {
                let mut flags = 0;
                $( flags |= u16::from(self.$name.is_some()) << $bit; )*
                flags
            }

            fn read_flagged(reader: &mut Reader, flags: u16) -> Result<Self, DecodeError> {
                Ok(Self { $(
                    $name: match flags & (1 << $bit) {
                        0 => None,
                        _ => Some(reader.field(concat!("content header.", stringify!($name)), false)?),
                    },
                )* })
            }

            fn write(&self, writer: &mut Writer) {
                self.flags().write(writer);
                $(
                    if let Some(value) = &self.$name {
                        value.write(writer);
                    }
                )*
            }

            /// Random properties.
            #[cfg(any(test, feature = "generate"))]
            pub fn generate(source: &mut Source) -> Self {
                source.text_only = false;
                let mut properties = Self::default();
                $(
                    if source.one_in(3) {
                        properties.$name = Some(Field::generate(source));
                    }
                )*
                properties
            }
        }
    };
}

properties! {
    /// MIME type of the body.
    15 content_type: ShortStr,
    /// MIME encoding of the body.
    14 content_encoding: ShortStr,
    /// The publisher's own fields, and what brokers add.
    13 headers: Table,
    /// 1 for a message that need not survive, 2 for one that must.
    12 delivery_mode: u8,
    /// From 0, the lowest.
    11 priority: u8,
    /// Ties an answer to its question.
    10 correlation_id: ShortStr,
    /// Where answers go.
    9 reply_to: ShortStr,
    /// For RabbitMQ: milliseconds to live, as text.
    8 expiration: ShortStr,
    /// The publisher's name for the message.
    7 message_id: ShortStr,
    /// Seconds since 1970, UTC.
    6 timestamp: u64,
    /// The property `type`: what kind of message the publisher says it is.
    5 message_type: ShortStr,
    /// Who published it; RabbitMQ insists that it be true.
    4 user_id: ShortStr,
    /// Which application published it.
    3 app_id: ShortStr,
    /// Not used since 0-9-1, and passed on.
    2 cluster_id: ShortStr,
}

impl BasicProperties {
    /// Reads properties from their flags on.
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let flags: u16 = reader.field("content header.flags", false)?;
        let mut last = flags;
        while last & CONTINUATION != 0 {
            let start = reader.error(Why::UnknownProperties(0)).named("content header.flags");
            last = reader.field::<u16>("content header.flags", false)?;
            if last & !CONTINUATION != 0 {
                return Err(DecodeError { why: Why::UnknownProperties(last), ..start });
            }
        }
        Self::read_flagged(reader, flags)
    }

    /// The payload of a content header frame.
    pub(crate) fn write_header(&self, body_bytes: u64, writer: &mut Writer) {
        CLASS_ID.write(writer);
        0u16.write(writer);
        body_bytes.write(writer);
        self.write(writer);
    }
}
