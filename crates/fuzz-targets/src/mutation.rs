//! Inputs that are wrong in the ways that parsers get wrong: cut, joined, flipped, and with lying lengths.

use weir_kafka_wire::Source;

/// Longest input that mutation makes.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// Most changes to one input.
const CHANGES_MAX: u64 = 4;
/// Longest piece that is inserted, repeated or taken out at once.
const PIECE_BYTES_MAX: u64 = 64;
/// Numbers that parsers stumble over.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
    1 << 63,
];

/// Makes inputs out of seeds. The same seed number gives the same inputs.
#[derive(Debug, Clone)]
pub struct Mutator {
    source: Source,
}

impl Mutator {
    /// The inputs of a seed number.
    pub fn new(seed: u64) -> Self {
        Self { source: Source::new(seed) }
    }

    /// One more input: now and then pure noise, mostly one of the seeds with a few changes.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        if seeds.is_empty() || self.source.one_in(64) {
            let length = self.source.below(4 * PIECE_BYTES_MAX);
            return (0..length).map(|_| self.source.number64() as u8).collect();
        }
        let mut input = self.pick(seeds).clone();
        for _ in 0..=self.source.below(CHANGES_MAX) {
            self.change(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.source.below(from.len() as u64) as usize]
    }

    /// A position in the input, from which at least one byte follows.
    fn position(&mut self, input: &[u8]) -> usize {
        self.source.below(input.len() as u64) as usize
    }

    /// A range of the input, short and not empty.
    fn piece(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let start = self.position(input);
        let length = 1 + self.source.below(PIECE_BYTES_MAX) as usize;
        start..input.len().min(start + length)
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        if input.is_empty() {
            input.push(self.source.number64() as u8);
            return;
        }
        match self.source.below(9) {
            0 => {
                let at = self.position(input);
                input[at] ^= 1 << self.source.below(8);
            }
            1 => {
                let at = self.position(input);
                input[at] = self.source.number64() as u8;
            }
            2 => {
                let length = self.position(input);
                input.truncate(length);
            }
            3 => {
                let piece = self.piece(input);
                input.drain(piece);
            }
            4 => {
                let piece = self.piece(input);
                let repeated = input[piece.clone()].to_vec();
                input.splice(piece.start..piece.start, repeated);
            }
            5 => {
                // The head of this one, the tail of another.
                let head = self.position(input);
                input.truncate(head);
                let other = self.pick(seeds);
                if !other.is_empty() {
                    let tail = self.position(other);
                    input.extend_from_slice(&other[tail..]);
                }
            }
            6 => self.lie_about_a_length(input),
            7 => self.lie_about_a_varint(input),
            _ => self.nudge_a_number(input),
        }
    }

    /// Writes a number from the edges, or near the length of what follows, in either byte order.
    fn lie_about_a_length(&mut self, input: &mut [u8]) {
        let at = self.position(input);
        let left = (input.len() - at) as u64;
        let number = if self.source.one_in(2) {
            *self.pick(&EDGES)
        } else {
            left.wrapping_add(self.source.below(9)).wrapping_sub(4)
        };
        let width = *self.pick(&[1usize, 2, 4, 8]);
        let big = number.to_be_bytes();
        let little = number.to_le_bytes();
        let bytes = if self.source.one_in(4) { &little[..width] } else { &big[8 - width..] };
        for (place, &byte) in input[at..].iter_mut().zip(bytes) {
            *place = byte;
        }
    }

    /// Writes a long number in seven bits to the byte, or one that does not end.
    fn lie_about_a_varint(&mut self, input: &mut [u8]) {
        let at = self.position(input);
        let length = 1 + self.source.below(10) as usize;
        for place in input[at..].iter_mut().take(length) {
            *place = self.source.number64() as u8 | 0x80;
        }
        if let Some(last) = input[at..].get_mut(length) {
            *last &= 0x7f;
        }
    }

    /// Adds or takes a little, which turns a right length into one that is nearly right.
    fn nudge_a_number(&mut self, input: &mut [u8]) {
        let at = self.position(input);
        let by = 1 + self.source.below(4) as u8;
        input[at] =
            if self.source.one_in(2) { input[at].wrapping_add(by) } else { input[at].wrapping_sub(by) };
    }
}
