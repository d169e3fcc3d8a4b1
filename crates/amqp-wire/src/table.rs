//! Field tables and arrays: named and unnamed values, each with an octet that tells its type.
//!
//! The tags are those that RabbitMQ reads and writes, which are not those of the specification: `s` is a number of 16
//! bits and not a short string, and `L` is read as `l`. Order, duplicates and tags are kept, so that what came in
//! goes out as it was; only a truth value other than 0 and 1 becomes 1.

use crate::error::{DecodeError, Why};
use crate::field::Field;
use crate::reader::Reader;
use crate::short_str::ShortStr;
use crate::writer::Writer;
use bytes::Bytes;

/// How deep tables and arrays may lie in each other, the outermost not counted. Reading them takes the stack.
pub const TABLE_DEPTH_MAX: usize = 64;

/// A value in a table or an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `t`, a truth value.
    Bool(bool),
    /// `b`, a signed number of 8 bits.
    Int8(i8),
    /// `B`, an unsigned number of 8 bits.
    UInt8(u8),
    /// `s`, a signed number of 16 bits.
    Int16(i16),
    /// `u`, an unsigned number of 16 bits.
    UInt16(u16),
    /// `I`, a signed number of 32 bits.
    Int32(i32),
    /// `i`, an unsigned number of 32 bits.
    UInt32(u32),
    /// `l`, a signed number of 64 bits.
    Int64(i64),
    /// `L`, which means the same as `l`.
    Int64CapitalL(i64),
    /// `f`, a number of 32 bits with a fraction.
    Float(f32),
    /// `d`, a number of 64 bits with a fraction.
    Double(f64),
    /// `D`, a decimal number.
    Decimal(Decimal),
    /// `S`, a long string: text, usually.
    LongStr(Bytes),
    /// `x`, bytes that are no text.
    Binary(Bytes),
    /// `T`, seconds since 1970, UTC.
    Timestamp(u64),
    /// `F`, a table.
    Table(Table),
    /// `A`, an array.
    Array(Vec<Value>),
    /// `V`, nothing.
    Void,
}

/// A number of so many digits behind the point: `value` divided by ten to the power of `scale`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decimal {
    /// Digits behind the point.
    pub scale: u8,
    /// All digits.
    pub value: u32,
}

impl Value {
    /// The octet that tells its type on the wire.
    pub fn tag(&self) -> u8 {
        match self {
            Value::Bool(_) => b't',
            Value::Int8(_) => b'b',
            Value::UInt8(_) => b'B',
            Value::Int16(_) => b's',
            Value::UInt16(_) => b'u',
            Value::Int32(_) => b'I',
            Value::UInt32(_) => b'i',
            Value::Int64(_) => b'l',
            Value::Int64CapitalL(_) => b'L',
            Value::Float(_) => b'f',
            Value::Double(_) => b'd',
            Value::Decimal(_) => b'D',
            Value::LongStr(_) => b'S',
            Value::Binary(_) => b'x',
            Value::Timestamp(_) => b'T',
            Value::Table(_) => b'F',
            Value::Array(_) => b'A',
            Value::Void => b'V',
        }
    }

    /// What RabbitMQ calls its type where it refuses it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::Int8(_) => "byte",
            Value::UInt8(_) => "unsignedbyte",
            Value::Int16(_) => "short",
            Value::UInt16(_) => "unsignedshort",
            Value::Int32(_) => "signedint",
            Value::UInt32(_) => "unsignedint",
            Value::Int64(_) | Value::Int64CapitalL(_) => "long",
            Value::Float(_) => "float",
            Value::Double(_) => "double",
            Value::Decimal(_) => "decimal",
            Value::LongStr(_) => "longstr",
            Value::Binary(_) => "binary",
            Value::Timestamp(_) => "timestamp",
            Value::Table(_) => "table",
            Value::Array(_) => "array",
            Value::Void => "void",
        }
    }

    /// A whole number of any width.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::Int8(number) => Some(number.into()),
            Value::UInt8(number) => Some(number.into()),
            Value::Int16(number) => Some(number.into()),
            Value::UInt16(number) => Some(number.into()),
            Value::Int32(number) => Some(number.into()),
            Value::UInt32(number) => Some(number.into()),
            Value::Int64(number) | Value::Int64CapitalL(number) => Some(number),
            _ => None,
        }
    }

    /// A number with a fraction, of either width.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Float(number) => Some(number.into()),
            Value::Double(number) => Some(number),
            _ => None,
        }
    }

    /// The bytes of a long string or of binary data.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Value::LongStr(bytes) | Value::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a long string or of binary data, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    /// A table.
    pub fn as_table(&self) -> Option<&Table> {
        match self {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Whether RabbitMQ takes both for the same argument when something is declared again: whole numbers of any
    /// width are compared by value, and so are fractions; all else has to be of the same type and equal.
    pub fn is_equivalent(&self, other: &Value) -> bool {
        match ((self.as_i64(), other.as_i64()), (self.as_f64(), other.as_f64())) {
            ((Some(this), Some(other)), _) => this == other,
            (_, (Some(this), Some(other))) => this == other,
            _ => self == other,
        }
    }

    fn read(reader: &mut Reader, depth: usize) -> Result<Self, DecodeError> {
        reader.entry()?;
        let start = reader.error(Why::TooDeep);
        let [tag] = reader.array()?;
        Ok(match tag {
            b't' => Value::Bool(reader.array::<1>()? != [0]),
            b'b' => Value::Int8(i8::from_be_bytes(reader.array()?)),
            b'B' => Value::UInt8(u8::from_be_bytes(reader.array()?)),
            b's' => Value::Int16(i16::from_be_bytes(reader.array()?)),
            b'u' => Value::UInt16(u16::from_be_bytes(reader.array()?)),
            b'I' => Value::Int32(i32::from_be_bytes(reader.array()?)),
            b'i' => Value::UInt32(u32::from_be_bytes(reader.array()?)),
            b'l' => Value::Int64(i64::from_be_bytes(reader.array()?)),
            b'L' => Value::Int64CapitalL(i64::from_be_bytes(reader.array()?)),
            b'f' => Value::Float(f32::from_be_bytes(reader.array()?)),
            b'd' => Value::Double(f64::from_be_bytes(reader.array()?)),
            b'D' => Value::Decimal(Decimal {
                scale: u8::from_be_bytes(reader.array()?),
                value: u32::from_be_bytes(reader.array()?),
            }),
            b'S' => Value::LongStr(Bytes::read(reader)?),
            b'x' => Value::Binary(Bytes::read(reader)?),
            b'T' => Value::Timestamp(u64::from_be_bytes(reader.array()?)),
            b'F' | b'A' if depth == TABLE_DEPTH_MAX => return Err(start),
            b'F' => Value::Table(reader.within(|reader| Table::read_fields(reader, depth + 1))?),
            b'A' => Value::Array(reader.within(|reader| read_elements(reader, depth + 1))?),
            b'V' => Value::Void,
            unknown => return Err(DecodeError { why: Why::UnknownTag(unknown), ..start }),
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.put(&[self.tag()]);
        match self {
            Value::Bool(truth) => writer.put(&[u8::from(*truth)]),
            Value::Int8(number) => writer.put(&number.to_be_bytes()),
            Value::UInt8(number) => writer.put(&number.to_be_bytes()),
            Value::Int16(number) => writer.put(&number.to_be_bytes()),
            Value::UInt16(number) => writer.put(&number.to_be_bytes()),
            Value::Int32(number) => writer.put(&number.to_be_bytes()),
            Value::UInt32(number) => writer.put(&number.to_be_bytes()),
            Value::Int64(number) | Value::Int64CapitalL(number) => writer.put(&number.to_be_bytes()),
            Value::Float(number) => writer.put(&number.to_be_bytes()),
            Value::Double(number) => writer.put(&number.to_be_bytes()),
            Value::Decimal(Decimal { scale, value }) => {
                writer.put(&[*scale]);
                writer.put(&value.to_be_bytes());
            }
            Value::LongStr(bytes) | Value::Binary(bytes) => bytes.write(writer),
            Value::Timestamp(seconds) => writer.put(&seconds.to_be_bytes()),
            Value::Table(table) => table.write(writer),
            Value::Array(elements) => writer.with_length(|writer| {
                for element in elements {
                    element.write(writer);
                }
            }),
            Value::Void => {}
        }
    }
}

fn read_elements(reader: &mut Reader, depth: usize) -> Result<Vec<Value>, DecodeError> {
    let mut elements = Vec::new();
    while reader.remaining() > 0 {
        elements.push(Value::read(reader, depth)?);
    }
    Ok(elements)
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Value::Int32(number)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int64(number)
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Value::LongStr(Bytes::from_static(text.as_bytes()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::LongStr(Bytes::from(text.into_bytes()))
    }
}

impl From<&ShortStr> for Value {
    fn from(text: &ShortStr) -> Self {
        Value::LongStr(text.as_bytes().clone())
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Self {
        Value::Table(table)
    }
}

impl From<Vec<Value>> for Value {
    fn from(elements: Vec<Value>) -> Self {
        Value::Array(elements)
    }
}

/// Named values in order (AMQP 0-9-1, section 4.2.5.5). Names may be any bytes and may come more than once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    fields: Vec<(ShortStr, Value)>,
}

impl Table {
    /// A table without fields.
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Adds a field with a name of the program's own, for tables written down in one expression.
    ///
    /// # Panics
    ///
    /// If the name is longer than 255 bytes.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.push(ShortStr::from_static(name), value.into());
        self
    }

    /// Adds a field behind the others.
    pub fn push(&mut self, name: ShortStr, value: Value) {
        self.fields.push((name, value));
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Value> {
        let name = name.as_ref();
        self.fields.iter().find(|(own, _)| own.as_bytes() == name).map(|(_, value)| value)
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether it has no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields in order.
    pub fn iter(&self) -> std::slice::Iter<'_, (ShortStr, Value)> {
        self.fields.iter()
    }

    /// Whether both tables agree on an argument: neither has it, or both have it and [`Value::is_equivalent`] holds.
    pub fn agrees_on(&self, other: &Table, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        match (self.get(name), other.get(name)) {
            (None, None) => true,
            (Some(this), Some(other)) => this.is_equivalent(other),
            _ => false,
        }
    }

    /// Reads a table from its fields alone, without the length that stands before them in a frame. This is how the
    /// SASL mechanism AMQPLAIN sends one, and how to keep one.
    pub fn decode(fields: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(fields);
        Table::read_fields(&mut reader, 0).map_err(|error| error.named("table"))
    }

    /// The fields as [`Table::decode`] reads them.
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new(0);
        self.write_fields(&mut writer);
        writer.into_contiguous()
    }

    /// Reads fields until there are no more bytes.
    pub(crate) fn read_fields(reader: &mut Reader, depth: usize) -> Result<Self, DecodeError> {
        let mut fields = Vec::new();
        while reader.remaining() > 0 {
            let name = ShortStr::read(reader)?;
            fields.push((name, Value::read(reader, depth)?));
        }
        Ok(Self { fields })
    }

    pub(crate) fn write_fields(&self, writer: &mut Writer) {
        for (name, value) in &self.fields {
            name.write(writer);
            value.write(writer);
        }
    }
}

impl IntoIterator for Table {
    type Item = (ShortStr, Value);
    type IntoIter = std::vec::IntoIter<(ShortStr, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.into_iter()
    }
}

impl<'a> IntoIterator for &'a Table {
    type Item = &'a (ShortStr, Value);
    type IntoIter = std::slice::Iter<'a, (ShortStr, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<(ShortStr, Value)> for Table {
    fn from_iter<I: IntoIterator<Item = (ShortStr, Value)>>(fields: I) -> Self {
        Self { fields: fields.into_iter().collect() }
    }
}

impl Extend<(ShortStr, Value)> for Table {
    fn extend<I: IntoIterator<Item = (ShortStr, Value)>>(&mut self, fields: I) {
        self.fields.extend(fields);
    }
}
