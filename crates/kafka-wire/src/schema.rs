//! The small language in which messages are written down.
//!
//! ```text
//! messages! {
//!     /// What the struct is.
//!     MetadataRequest {
//!         [0+ null 1+]  topics: Option<Vec<MetadataRequestTopic>>,
//!         [4+]          allow_auto_topic_creation: bool = true,
//!         [8-10]        include_cluster_authorized_operations: bool,
//!     }
//! }
//! ```
//!
//! In front of each field stand the versions that have it: `4+` from version 4 on, `8-10` in these. An `Option`
//! may be null in all of them, unless `null` names fewer. `tag 0` makes it a tagged field, which is written only
//! if it differs from its default. `=` gives a default other than the type's own. Structs are plain data, and one
//! struct describes all versions: reading leaves absent fields at their defaults, writing leaves them out.

macro_rules! messages {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$field_meta:meta])* [$($spec:tt)+] $field:ident : $type:ty $(= $default:expr)? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* #[allow(missing_docs)] pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $crate::schema::default_of!($type $(, $default)?), )* }
            }
        }

        impl $crate::wire::Wire for $name {
            fn min_size(version: $crate::wire::Version) -> usize {
                let mut size = usize::from(version.flexible);
                $(
                    if $crate::schema::tag_of!($($spec)+).is_none() && $crate::schema::has!(version; $($spec)+) {
                        size += <$type as $crate::wire::Wire>::min_size(version);
                    }
                )*
                size
            }

            fn read(
                reader: &mut $crate::reader::Reader,
                version: $crate::wire::Version,
            ) -> Result<Self, $crate::error::DecodeError> {
                let mut message = Self::default();
                $(
                    if $crate::schema::tag_of!($($spec)+).is_none() && $crate::schema::has!(version; $($spec)+) {
                        let what = concat!(stringify!($name), ".", stringify!($field));
                        let nullable = $crate::schema::nullable!(version; $($spec)+);
                        message.$field = reader.field(what, version, nullable)?;
                    }
                )*
                if version.flexible {
                    reader.tags(stringify!($name), |reader, tag| {
                        $(
                            if $crate::schema::tag_of!($($spec)+) == Some(tag)
                                && $crate::schema::has!(version; $($spec)+)
                            {
                                let what = concat!(stringify!($name), ".", stringify!($field));
                                message.$field = reader.field(what, version, true)?;
                                return Ok(true);
                            }
                        )*
                        let _ = (reader, tag);
                        Ok(false)
                    })?;
                }
                Ok(message)
            }

            fn write(&self, writer: &mut $crate::writer::Writer, version: $crate::wire::Version) {
                $(
                    if $crate::schema::tag_of!($($spec)+).is_none() && $crate::schema::has!(version; $($spec)+) {
                        let what = concat!(stringify!($name), ".", stringify!($field));
                        let nullable = $crate::schema::nullable!(version; $($spec)+);
                        writer.field(&self.$field, what, version, nullable);
                    }
                )*
                if version.flexible {
                    #[allow(unused_mut)]
                    let mut tags = Vec::new();
                    $(
                        if let Some(tag) = $crate::schema::tag_of!($($spec)+)
                            && $crate::schema::has!(version; $($spec)+)
                            && self.$field != $crate::schema::default_of!($type $(, $default)?)
                        {
                            let what = concat!(stringify!($name), ".", stringify!($field));
                            let mut content = $crate::writer::Writer::new();
                            content.field(&self.$field, what, version, true);
                            tags.push((tag, content));
                        }
                    )*
                    writer.tags(tags);
                }
            }

            #[cfg(any(test, feature = "generate"))]
            fn generate(source: &mut $crate::generate::Source, version: $crate::wire::Version) -> Self {
                let mut message = Self::default();
                $(
                    let tagged = $crate::schema::tag_of!($($spec)+).is_some();
                    if $crate::schema::has!(version; $($spec)+) && !(tagged && source.one_in(2)) {
                        let nullable = $crate::schema::nullable!(version; $($spec)+);
                        message.$field = source.field(version, nullable);
                    }
                )*
                message
            }
        }
    )* };
}

/// Whether a version has the field.
macro_rules! has {
    ($version:ident; $from:literal + $($rest:tt)*) => {
        $version.number >= $from
    };
    ($version:ident; $from:literal - $to:literal $($rest:tt)*) => {
        ($from..=$to).contains(&$version.number)
    };
}

/// The tag of a tagged field, `None` for an ordinary one.
macro_rules! tag_of {
    ($from:literal + tag $tag:literal) => {
        Some($tag)
    };
    ($($spec:tt)+) => {
        None::<u32>
    };
}

/// Whether the field may be null in a version that has it.
macro_rules! nullable {
    ($version:ident; $from:literal + null $($null:tt)+) => { $crate::schema::has!($version; $($null)+) };
    ($version:ident; $from:literal - $to:literal null $($null:tt)+) => { $crate::schema::has!($version; $($null)+) };
    ($version:ident; $($spec:tt)+) => { true };
}

/// The value of a field that is not there.
macro_rules! default_of {
    ($type:ty) => {
        <$type as Default>::default()
    };
    ($type:ty, $default:expr) => {
        $default
    };
}

pub(crate) use {default_of, has, messages, nullable, tag_of};
