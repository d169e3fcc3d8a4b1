//! The small language in which methods are written down.
//!
//! ```text
//! methods! {
//!     "queue" = 50;
//!
//!     /// What the method is.
//!     Declare = 10 "declare" {
//!         _: u16,
//!         queue: ShortStr,
//!         passive: bool,
//!         arguments: Table,
//!     }
//! }
//! ```
//!
//! A class has a name and an id, a method an id and a name. Fields lie on the wire in this order. `_` before the
//! others and `..` behind them are fields that the protocol reserves: read and not looked at, written as zero or
//! empty. `+ content` marks a method that a content header follows; its short strings may be any bytes, while those
//! of other methods must be UTF-8, as in RabbitMQ. Consecutive `bool`s share octets.

macro_rules! methods {
    (
        $class:literal = $class_id:literal;
        $(
            $(#[$meta:meta])*
            $name:ident = $method_id:literal $method:literal $(+ $content:ident)? {
                $( _: $before:ty, )*
                $( $(#[$field_meta:meta])* $field:ident : $type:ty, )*
                $( .. $( $after:ty, )+ )?
            }
        )*
    ) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* #[allow(missing_docs)] pub $field: $type, )*
        }

        impl $crate::method::MethodFields for $name {
            const CLASS_ID: u16 = $class_id;
            const METHOD_ID: u16 = $method_id;
            const NAME: &'static str = concat!($class, ".", $method);
            const HAS_CONTENT: bool = $crate::schema::has_content!($($content)?);

            #[allow(unused_variables)]
            fn read_fields(reader: &mut $crate::reader::Reader) -> Result<Self, $crate::error::DecodeError> {
                $( reader.field::<$before>(concat!($class, ".", $method, ".reserved"), false)?; )*
                $(
                    let what = concat!($class, ".", $method, ".", stringify!($field));
                    let $field = reader.field(what, !Self::HAS_CONTENT)?;
                )*
                $( $( reader.field::<$after>(concat!($class, ".", $method, ".reserved"), false)?; )+ )?
                Ok(Self { $( $field, )* })
            }

            #[allow(unused_variables)]
            fn write_fields(&self, writer: &mut $crate::writer::Writer) {
                $( $crate::field::Field::write(&<$before>::default(), writer); )*
                $( $crate::field::Field::write(&self.$field, writer); )*
                $( $( $crate::field::Field::write(&<$after>::default(), writer); )+ )?
            }

            #[cfg(any(test, feature = "generate"))]
            #[allow(unused_variables)]
            fn generate(source: &mut $crate::generate::Source) -> Self {
                source.text_only = !Self::HAS_CONTENT;
                Self { $( $field: $crate::field::Field::generate(source), )* }
            }
        }

        $( $crate::schema::content_method!($content $name); )?
    )* };
}

/// Whether a method is marked as one with content.
macro_rules! has_content {
    () => {
        false
    };
    (content) => {
        true
    };
}

/// Marks the type of a method with content.
macro_rules! content_method {
    (content $name:ident) => {
        impl $crate::method::ContentMethod for $name {}
    };
}

pub(crate) use {content_method, has_content, methods};
