//! A set of positions within a block of 65,536, as small as it comes: a list of spans while there are few of
//! them, a bit for each position otherwise.

/// Positions of a block.
pub(crate) const BLOCK: usize = 1 << 16;

/// Spans beyond which a bit for each position takes less memory and less time: 4 KiB of spans against 8.
const LIST_MAX: usize = 1024;

const WORDS: usize = BLOCK / 64;

/// A set of positions.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    form: Form,
    len: u32,
}

#[derive(Clone, Debug)]
enum Form {
    /// First and last of each span, rising, with gaps between them.
    List(Vec<(u16, u16)>),
    Bits(Box<[u64; WORDS]>),
}

impl Default for Spans {
    fn default() -> Spans {
        Spans { form: Form::List(Vec::new()), len: 0 }
    }
}

impl PartialEq for Spans {
    fn eq(&self, other: &Spans) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Spans {}

impl Spans {
    /// How many positions are in it.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn contains(&self, position: u16) -> bool {
        match &self.form {
            Form::List(list) => {
                let index = list.partition_point(|(_, to)| *to < position);
                list.get(index).is_some_and(|(from, _)| *from <= position)
            }
            Form::Bits(bits) => bits[word(position)] & bit(position) != 0,
        }
    }

    /// The first position from `from` on that is not in it.
    pub(crate) fn next_absent(&self, from: u16) -> Option<u16> {
        match &self.form {
            Form::List(list) => {
                let index = list.partition_point(|(_, to)| *to < from);
                match list.get(index) {
                    Some((first, last)) if *first <= from => last.checked_add(1),
                    _ => Some(from),
                }
            }
            Form::Bits(bits) => next_bit(bits, from, u64::MAX),
        }
    }

    /// The first span that ends at or behind `from`; it may begin before it.
    pub(crate) fn span_from(&self, from: u16) -> Option<(u16, u16)> {
        match &self.form {
            Form::List(list) => list.get(list.partition_point(|(_, to)| *to < from)).copied(),
            Form::Bits(bits) => {
                let first = next_bit(bits, from, 0)?;
                let end = next_bit(bits, first, u64::MAX);
                Some((first, end.map_or(u16::MAX, |end| end - 1)))
            }
        }
    }

    /// All spans, rising.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let mut from = Some(0);
        std::iter::from_fn(move || {
            let span = self.span_from(from?)?;
            from = span.1.checked_add(1);
            Some(span)
        })
    }

    /// How many positions of a span are in it.
    pub(crate) fn count(&self, from: u16, to: u16) -> u32 {
        match &self.form {
            Form::List(list) => {
                let first = list.partition_point(|(_, last)| *last < from);
                let within = list[first..].iter().take_while(|(first, _)| *first <= to);
                within
                    .map(|(first, last)| u32::from((*last).min(to)) - u32::from((*first).max(from)) + 1)
                    .sum()
            }
            Form::Bits(bits) => words_of(from, to).map(|(word, mask)| (bits[word] & mask).count_ones()).sum(),
        }
    }

    /// Puts a span in. Returns how many of its positions were not in it.
    pub(crate) fn insert(&mut self, from: u16, to: u16) -> u32 {
        let fresh = u32::from(to) - u32::from(from) + 1 - self.count(from, to);
        if fresh == 0 {
            return 0;
        }
        self.len += fresh;
        match &mut self.form {
            Form::List(list) => {
                insert_span(list, from, to);
                if list.len() > LIST_MAX {
                    self.form = Form::Bits(bits_of(list));
                }
            }
            Form::Bits(bits) => words_of(from, to).for_each(|(word, mask)| bits[word] |= mask),
        }
        if self.len as usize == BLOCK {
            self.form = Form::List(vec![(0, u16::MAX)]);
        }
        fresh
    }
}

/// Puts a span into a list, and joins it with those that it meets.
fn insert_span(list: &mut Vec<(u16, u16)>, from: u16, to: u16) {
    let first = list.partition_point(|(_, last)| last.checked_add(1).is_some_and(|end| end < from));
    let end = list.partition_point(|(begin, _)| begin.checked_sub(1).is_none_or(|before| before <= to));
    let joined = &list[first..end.max(first)];
    let from = joined.first().map_or(from, |span| span.0.min(from));
    let to = joined.last().map_or(to, |span| span.1.max(to));
    list.splice(first..end.max(first), [(from, to)]);
}

fn bits_of(list: &[(u16, u16)]) -> Box<[u64; WORDS]> {
    let mut bits = Box::new([0; WORDS]);
    for &(from, to) in list {
        words_of(from, to).for_each(|(word, mask)| bits[word] |= mask);
    }
    bits
}

fn word(position: u16) -> usize {
    usize::from(position) / 64
}

fn bit(position: u16) -> u64 {
    1 << (position % 64)
}

/// The words that a span lies in, each with the span's bits in it.
fn words_of(from: u16, to: u16) -> impl Iterator<Item = (usize, u64)> {
    (word(from)..=word(to)).map(move |index| {
        let low = if index == word(from) { u64::MAX << (from % 64) } else { u64::MAX };
        let high = if index == word(to) { u64::MAX >> (63 - to % 64) } else { u64::MAX };
        (index, low & high)
    })
}

/// The first position from `from` on whose bit is set after turning over those of `flip`.
fn next_bit(bits: &[u64; WORDS], from: u16, flip: u64) -> Option<u16> {
    let mut mask = u64::MAX << (from % 64);
    for (index, word) in bits.iter().enumerate().skip(word(from)) {
        let found = (word ^ flip) & mask;
        if found != 0 {
            return Some((index * 64) as u16 + found.trailing_zeros() as u16);
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(spans: &Spans, model: &BTreeSet<u16>) {
        assert_eq!(spans.len() as usize, model.len());
        let all: BTreeSet<u16> = spans.iter().flat_map(|(from, to)| from..=to).collect();
        assert_eq!(&all, model);
        let gaps = spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| u32::from(a.1) + 1 < u32::from(b.0));
        assert!(gaps, "spans that meet are one");
    }

    #[test]
    fn the_ends_of_a_block_are_positions_like_others() {
        let mut spans = Spans::default();
        assert_eq!(spans.insert(u16::MAX, u16::MAX), 1);
        assert_eq!(spans.insert(0, 0), 1);
        assert_eq!((spans.next_absent(0), spans.next_absent(u16::MAX)), (Some(1), None));
        assert_eq!(spans.insert(0, u16::MAX), 65_534);
        assert_eq!(spans.iter().collect::<Vec<_>>(), [(0, u16::MAX)]);
        assert_eq!(spans.next_absent(0), None);
    }

    #[test]
    fn many_spans_become_bits_and_a_full_block_one_span() {
        let mut spans = Spans::default();
        (0..=u16::MAX).step_by(2).for_each(|position| assert_eq!(spans.insert(position, position), 1));
        assert!(matches!(spans.form, Form::Bits(_)));
        assert_eq!((spans.len(), spans.count(10, 20), spans.next_absent(10)), (32_768, 6, Some(11)));
        assert_eq!(spans.span_from(11), Some((12, 12)));
        (1..=u16::MAX).step_by(2).for_each(|position| assert_eq!(spans.insert(position, position), 1));
        assert!(matches!(&spans.form, Form::List(list) if list.len() == 1));
    }

    proptest! {
        #[test]
        fn a_set_is_a_set_in_either_form(
            inserts in proptest::collection::vec((0u16..400, 0u16..6, any::<bool>()), 0..80),
            asks in proptest::collection::vec((0u16..420, 0u16..30), 20),
            as_bits in any::<bool>(),
        ) {
            let (mut spans, mut model) = (Spans::default(), BTreeSet::new());
            if as_bits {
                spans.form = Form::Bits(Box::new([0; WORDS]));
            }
            for (from, more, high) in inserts {
                let from = if high { u16::MAX - 405 + from } else { from };
                let to = from + more;
                let fresh = (from..=to).filter(|position| model.insert(*position)).count();
                prop_assert_eq!(spans.insert(from, to) as usize, fresh);
            }
            check(&spans, &model);
            for (from, more) in asks {
                for from in [from, u16::MAX - 450 + from] {
                    let to = from + more;
                    prop_assert_eq!(spans.contains(from), model.contains(&from));
                    prop_assert_eq!(spans.count(from, to) as usize, model.range(from..=to).count());
                    prop_assert_eq!(spans.next_absent(from), (from..=u16::MAX).find(|at| !model.contains(at)));
                }
            }
        }
    }
}
