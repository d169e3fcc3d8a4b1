//! Values of AMQP's tables: the arguments of exchanges and bindings, and the headers of messages that
//! headers exchanges compare with them.

use bytes::Bytes;

use crate::wire::{DecodeError, Reader, Writer};

/// Named values in the order in which a client gave them. A name may be there twice; the first counts.
pub type Arguments = Vec<(String, ArgumentValue)>;

/// Arguments of one exchange or binding.
pub const ARGUMENTS_MAX: usize = 256;

/// Longest name of an argument, in bytes: AMQP's short string.
pub const ARGUMENT_NAME_BYTES_MAX: usize = 255;

/// How deep lists and tables may lie in each other; a plain value has depth 1.
pub const ARGUMENT_DEPTH_MAX: usize = 16;

/// Bytes that the arguments of one exchange or binding may take as they are stored. They are in memory
/// on every node.
pub const ARGUMENTS_BYTES_MAX: usize = 32 << 10;

/// A value in a table of AMQP 0-9-1.
///
/// Equality, order and hash are those of type and content, which tell one binding from another.
/// [`ArgumentValue::same_value`] is the weaker equality by which headers are matched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgumentValue {
    /// No value (`V`).
    Void,
    /// A truth value (`t`).
    Bool(bool),
    /// A whole number of any width (`b B s u I i l`).
    Integer(i64),
    /// A floating-point number (`f d`), as the bits of an `f64`.
    Float(u64),
    /// A string or bytes (`S x`). Strings of AMQP need not be UTF-8.
    Bytes(Bytes),
    /// Seconds since 1970-01-01 UTC (`T`).
    Timestamp(u64),
    /// A decimal number (`D`): its digits, and how many of them are behind the point.
    Decimal {
        /// Digits behind the point.
        scale: u8,
        /// All digits.
        digits: u32,
    },
    /// Values without names (`A`).
    List(Vec<ArgumentValue>),
    /// Values with names (`F`).
    Table(Arguments),
}

/// Why arguments were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArguments {
    /// There are too many.
    #[error("{0} arguments were given; at most {max} are allowed", max = ARGUMENTS_MAX)]
    TooMany(usize),
    /// A name is too long.
    #[error("an argument's name is {0} bytes long; at most {max} are allowed", max = ARGUMENT_NAME_BYTES_MAX)]
    LongName(usize),
    /// Lists and tables lie too deep in each other.
    #[error("the argument '{0}' is nested too deep; at most {max} levels are allowed", max = ARGUMENT_DEPTH_MAX)]
    TooDeep(String),
    /// They take too much room.
    #[error("the arguments take {0} bytes; at most {max} are allowed", max = ARGUMENTS_BYTES_MAX)]
    TooLarge(usize),
}

/// The first argument of this name.
pub fn argument<'a>(arguments: &'a [(String, ArgumentValue)], name: &str) -> Option<&'a ArgumentValue> {
    arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Checks arguments that a client sent against every bound of this module.
pub fn check_arguments(arguments: &[(String, ArgumentValue)]) -> Result<(), InvalidArguments> {
    if arguments.len() > ARGUMENTS_MAX {
        return Err(InvalidArguments::TooMany(arguments.len()));
    }
    let mut bytes = 4;
    for (name, value) in arguments {
        if name.len() > ARGUMENT_NAME_BYTES_MAX {
            return Err(InvalidArguments::LongName(name.len()));
        }
        if !value.is_within_depth(ARGUMENT_DEPTH_MAX) {
            return Err(InvalidArguments::TooDeep(name.clone()));
        }
        bytes += 4 + name.len() + value.stored_bytes();
    }
    if bytes > ARGUMENTS_BYTES_MAX {
        return Err(InvalidArguments::TooLarge(bytes));
    }
    Ok(())
}

/// Writes arguments, for commands and checkpoints.
pub fn encode_arguments(arguments: &[(String, ArgumentValue)], out: &mut Writer) {
    out.list(arguments, |out, (name, value)| {
        out.str(name);
        value.encode(out);
    });
}

/// Reads what [`encode_arguments`] wrote. Strings are copied, so that a small one does not keep all the
/// bytes in memory among which it came.
pub fn decode_arguments(reader: &mut Reader) -> Result<Arguments, DecodeError> {
    decode_table(reader, ARGUMENT_DEPTH_MAX)
}

/// The least that a named value takes: an empty name and a void.
const NAMED_VALUE_BYTES_MIN: usize = 5;

fn decode_table(reader: &mut Reader, levels: usize) -> Result<Arguments, DecodeError> {
    reader.list(NAMED_VALUE_BYTES_MIN, |reader| Ok((reader.str()?, decode_value(reader, levels)?)))
}

fn decode_value(reader: &mut Reader, levels: usize) -> Result<ArgumentValue, DecodeError> {
    let Some(levels_below) = levels.checked_sub(1) else {
        return Err(reader.error("values are nested too deep"));
    };
    Ok(match reader.u8()? {
        0 => ArgumentValue::Void,
        1 => ArgumentValue::Bool(reader.bool()?),
        2 => ArgumentValue::Integer(reader.i64()?),
        3 => ArgumentValue::Float(reader.u64()?),
        4 => ArgumentValue::Bytes(Bytes::copy_from_slice(&reader.bytes()?)),
        5 => ArgumentValue::Timestamp(reader.u64()?),
        6 => ArgumentValue::List(reader.list(1, |reader| decode_value(reader, levels_below))?),
        7 => ArgumentValue::Table(decode_table(reader, levels_below)?),
        8 => ArgumentValue::Decimal { scale: reader.u8()?, digits: reader.u32()? },
        _ => return Err(reader.error("a value's type is not known to this binary")),
    })
}

/// Whether a floating-point number is exactly this whole one.
fn is_whole(number: f64, whole: i64) -> bool {
    // Every f64 of at least 2^53 is whole, and one below 2^63 is an i64 exactly.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    fits && number.fract() == 0.0 && number as i64 == whole
}

impl ArgumentValue {
    /// A floating-point number.
    pub fn float(value: f64) -> ArgumentValue {
        ArgumentValue::Float(value.to_bits())
    }

    /// A string.
    pub fn text(value: impl Into<String>) -> ArgumentValue {
        ArgumentValue::Bytes(Bytes::from(value.into()))
    }

    /// The string, if it is one and is UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            ArgumentValue::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Whether two values are equal to a headers exchange.
    ///
    /// RabbitMQ (`rabbit_exchange_type_headers` up to 3.12) compares contents with Erlang's `==` and leaves the type
    /// out: whole numbers of any width are equal if they are the same number, a whole number equals a floating-point
    /// one of the same value, and a string equals the same bytes. Inside lists and tables the type counts too. A
    /// timestamp equals its number of seconds. From 3.13 on the comparison is `=:=`, by which 1 is not 1.0, and not
    /// even equal timestamps match, because milliseconds are made of a message's and not of a binding's.
    pub fn same_value(&self, other: &ArgumentValue) -> bool {
        match (self, other) {
            (ArgumentValue::Integer(number), ArgumentValue::Timestamp(seconds))
            | (ArgumentValue::Timestamp(seconds), ArgumentValue::Integer(number)) => {
                u64::try_from(*number) == Ok(*seconds)
            }
            (ArgumentValue::Timestamp(seconds), ArgumentValue::Float(bits))
            | (ArgumentValue::Float(bits), ArgumentValue::Timestamp(seconds)) => {
                i64::try_from(*seconds).is_ok_and(|whole| is_whole(f64::from_bits(*bits), whole))
            }
            (ArgumentValue::Integer(whole), ArgumentValue::Float(bits))
            | (ArgumentValue::Float(bits), ArgumentValue::Integer(whole)) => {
                is_whole(f64::from_bits(*bits), *whole)
            }
            // As numbers: 0.0 is -0.0.
            (ArgumentValue::Float(a), ArgumentValue::Float(b)) => {
                f64::from_bits(*a) == f64::from_bits(*b) || a == b
            }
            _ => self == other,
        }
    }

    /// Whether two values are the same argument when something is declared again. RabbitMQ compares whole numbers of any
    /// width by value, and a timestamp with them; a number with a fraction is never equal to either.
    pub fn is_equivalent(&self, other: &ArgumentValue) -> bool {
        let has_fraction = |value: &ArgumentValue| matches!(value, ArgumentValue::Float(_));
        has_fraction(self) == has_fraction(other) && self.same_value(other)
    }

    /// Writes the value, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        match self {
            ArgumentValue::Void => out.u8(0),
            ArgumentValue::Bool(value) => {
                out.u8(1);
                out.u8(u8::from(*value));
            }
            ArgumentValue::Integer(value) => {
                out.u8(2);
                out.i64(*value);
            }
            ArgumentValue::Float(bits) => {
                out.u8(3);
                out.u64(*bits);
            }
            ArgumentValue::Bytes(bytes) => {
                out.u8(4);
                out.bytes(bytes);
            }
            ArgumentValue::Timestamp(seconds) => {
                out.u8(5);
                out.u64(*seconds);
            }
            ArgumentValue::List(values) => {
                out.u8(6);
                out.list(values, |out, value| value.encode(out));
            }
            ArgumentValue::Table(arguments) => {
                out.u8(7);
                encode_arguments(arguments, out);
            }
            ArgumentValue::Decimal { scale, digits } => {
                out.u8(8);
                out.u8(*scale);
                out.u32(*digits);
            }
        }
    }

    /// Whether the value and what is in it take no more than so many levels. It looks no deeper.
    fn is_within_depth(&self, levels: usize) -> bool {
        let Some(levels_below) = levels.checked_sub(1) else { return false };
        match self {
            ArgumentValue::List(values) => values.iter().all(|value| value.is_within_depth(levels_below)),
            ArgumentValue::Table(table) => table.iter().all(|(_, value)| value.is_within_depth(levels_below)),
            _ => true,
        }
    }

    /// How many bytes [`ArgumentValue::encode`] writes. The depth must have been checked.
    fn stored_bytes(&self) -> usize {
        1 + match self {
            ArgumentValue::Void => 0,
            ArgumentValue::Bool(_) => 1,
            ArgumentValue::Decimal { .. } => 5,
            ArgumentValue::Integer(_) | ArgumentValue::Float(_) | ArgumentValue::Timestamp(_) => 8,
            ArgumentValue::Bytes(bytes) => 4 + bytes.len(),
            ArgumentValue::List(values) => 4 + values.iter().map(ArgumentValue::stored_bytes).sum::<usize>(),
            ArgumentValue::Table(table) => {
                4 + table.iter().map(|(name, value)| 4 + name.len() + value.stored_bytes()).sum::<usize>()
            }
        }
    }
}
