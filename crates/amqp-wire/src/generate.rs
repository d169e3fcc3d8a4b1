//! Random messages from a seed: whatever the protocol can express, small, and often at the edges.

use crate::field::Field;
use crate::short_str::ShortStr;
use crate::table::{Decimal, Table, Value};
use bytes::Bytes;

/// Most fields or elements of a generated table or array.
const ENTRIES_MAX: u64 = 4;
/// How deep generated tables and arrays lie in each other.
const DEPTH_MAX: u32 = 3;

/// A stream of random values that depends on nothing but its seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Source {
    state: u64,
    depth: u32,
    /// Whether short strings are UTF-8; set by each method for its own.
    pub(crate) text_only: bool,
    /// Whether only that is made which a codec keeps that has maps for tables and text for strings.
    plain: bool,
}

impl Source {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, depth: 0, text_only: false, plain: false }
    }

    /// The stream of a seed, restricted to strings that are UTF-8, table names in order and without duplicates, and
    /// one tag for each type.
    pub fn plain(seed: u64) -> Self {
        Self { plain: true, ..Self::new(seed) }
    }

    /// The next 64 bits.
    pub fn number64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number64() % bound
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A body.
    pub fn bytes(&mut self) -> Bytes {
        if self.plain {
            return Bytes::from(self.text());
        }
        let most = if self.one_in(8) { 2_000 } else { 20 };
        (0..self.below(most)).map(|_| self.number64() as u8).collect::<Vec<_>>().into()
    }

    pub(crate) fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1,
            3 => i64::MAX as u64,
            4 => self.below(300),
            _ => self.number64(),
        }
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 8] = ['a', 'Z', '0', '.', '-', 'ß', '水', '🦀'];
        let most = if self.one_in(16) { 63 } else { 9 };
        (0..self.below(most)).map(|_| LETTERS[self.below(8) as usize]).collect()
    }

    /// A short string.
    pub fn short_str(&mut self) -> ShortStr {
        if self.plain || self.text_only || !self.one_in(8) {
            return ShortStr::truncated(&self.text());
        }
        let bytes = (0..self.below(256)).map(|_| self.number64() as u8).collect::<Vec<_>>();
        ShortStr::from_bytes(bytes.into()).unwrap_or_default()
    }

    /// A table.
    pub fn table(&mut self) -> Table {
        let entries = self.below(ENTRIES_MAX + 1);
        let mut fields: Vec<_> = (0..entries).map(|_| (self.table_name(), self.value())).collect();
        if self.plain {
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            fields.dedup_by(|(a, _), (b, _)| a == b);
        }
        fields.into_iter().collect()
    }

    /// Names are not checked as the short strings of methods are.
    fn table_name(&mut self) -> ShortStr {
        let text_only = std::mem::replace(&mut self.text_only, false);
        let name = if self.one_in(8) { ShortStr::from_static("a") } else { self.short_str() };
        self.text_only = text_only;
        name
    }

    /// A value of any type.
    pub fn value(&mut self) -> Value {
        let number = self.number();
        match self.below(18) {
            0 => Value::Bool(self.one_in(2)),
            1 => Value::Int8(number as i8),
            2 => Value::UInt8(number as u8),
            3 => Value::Int16(number as i16),
            4 => Value::UInt16(number as u16),
            5 => Value::Int32(number as i32),
            6 => Value::UInt32(number as u32),
            7 if !self.plain => Value::Int64CapitalL(number as i64),
            7 | 8 => Value::Int64(number as i64),
            9 => Value::Float(f32::from_bits(number as u32)),
            10 => Value::Double(f64::from_bits(number)),
            11 => Value::Decimal(Decimal { scale: u8::generate(self), value: number as u32 }),
            12 => Value::Binary(self.bytes()),
            13 => Value::Timestamp(number),
            14 if self.depth < DEPTH_MAX => self.deeper(|source| Value::Table(source.table())),
            15 if self.depth < DEPTH_MAX => self.deeper(|source| {
                Value::Array((0..source.below(ENTRIES_MAX + 1)).map(|_| source.value()).collect())
            }),
            16 => Value::Void,
            _ => Value::LongStr(self.bytes()),
        }
    }

    fn deeper(&mut self, make: impl FnOnce(&mut Self) -> Value) -> Value {
        self.depth += 1;
        let value = make(self);
        self.depth -= 1;
        value
    }
}
