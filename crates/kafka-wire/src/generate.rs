//! Random messages from a seed: whatever a version can express, small, and often at the edges.

use crate::text::KafkaStr;
use crate::wire::{Version, Wire};
use bytes::Bytes;

/// Most elements of a generated list.
const ELEMENTS_MAX: u64 = 3;

/// A stream of random values that depends on nothing but its seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Source {
    state: u64,
}

impl Source {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
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

    /// A message in this version.
    pub fn message<M: crate::Message>(&mut self, version: i16) -> Option<M> {
        M::API.version(version).map(|version| M::generate(self, version))
    }

    pub(crate) fn number(&mut self) -> i64 {
        match self.below(8) {
            0 => 0,
            1 => -1,
            2 => 1,
            3 => i64::MAX,
            4 => self.below(300) as i64,
            _ => self.number64() as i64,
        }
    }

    pub(crate) fn text(&mut self) -> KafkaStr {
        const LETTERS: [char; 8] = ['a', 'Z', '0', '.', '-', 'ß', '水', '🦀'];
        let most = if self.one_in(16) { 200 } else { 9 };
        let letters = (0..self.below(most)).map(|_| LETTERS[self.below(8) as usize]);
        KafkaStr::from(letters.collect::<String>())
    }

    pub(crate) fn bytes(&mut self) -> Bytes {
        let most = if self.one_in(8) { 2_000 } else { 20 };
        (0..self.below(most)).map(|_| self.number64() as u8).collect::<Vec<_>>().into()
    }

    pub(crate) fn chunks(&mut self) -> impl Iterator<Item = Bytes> {
        let chunks = self.below(4);
        (0..chunks).map(|_| self.bytes())
    }

    pub(crate) fn list<T: Wire>(&mut self, version: Version) -> Vec<T> {
        (0..self.below(ELEMENTS_MAX + 1)).map(|_| T::generate(self, version)).collect()
    }

    pub(crate) fn field<T: Wire>(&mut self, version: Version, nullable: bool) -> T {
        loop {
            let value = T::generate(self, version);
            if nullable || !value.is_null() {
                return value;
            }
        }
    }
}
