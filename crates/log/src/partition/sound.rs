//! Which parts of a segment file are known to hold what was written to them.
//!
//! A record that is sent from where it lies is not looked at on its way. So only what this process has
//! written itself, or has read and found sound, is sent like that, and only as long as it is seen in the page
//! cache each time: what had to come from the disk again is read and checked again.

/// Parts that are remembered for one segment. Readers go forwards, so that one part or two is the rule;
/// beyond this many the smallest is forgotten, and read and checked again.
const PARTS_MAX: usize = 32;

/// Parts of a file between the edges of batches.
#[derive(Debug, Default)]
pub(super) struct Sound {
    /// From and to, rising, with gaps between them.
    parts: Vec<(u64, u64)>,
}

impl Sound {
    /// Where the part ends that holds a position.
    pub(super) fn end_of(&self, position: u64) -> Option<u64> {
        let behind = self.parts.partition_point(|(from, _)| *from <= position);
        let (_, to) = self.parts[behind.checked_sub(1)?];
        (to > position).then_some(to)
    }

    /// Notes that all between two edges is sound.
    pub(super) fn note(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let first = self.parts.partition_point(|(_, end)| *end < from);
        let last = self.parts.partition_point(|(begin, _)| *begin <= to);
        let joined = self.parts[first..last].iter();
        let part = joined.fold((from, to), |(from, to), part| (from.min(part.0), to.max(part.1)));
        self.parts.splice(first..last, [part]);
        if self.parts.len() > PARTS_MAX
            && let Some((smallest, _)) = self.parts.iter().enumerate().min_by_key(|(_, part)| part.1 - part.0)
        {
            self.parts.remove(smallest);
        }
    }

    /// Forgets the part that holds a position.
    pub(super) fn doubt(&mut self, position: u64) {
        self.parts.retain(|(from, to)| !(*from..*to).contains(&position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_meet_are_one_and_what_is_in_doubt_is_none() {
        let mut sound = Sound::default();
        sound.note(10, 20);
        sound.note(40, 50);
        sound.note(60, 60);
        assert_eq!(
            (sound.end_of(9), sound.end_of(10), sound.end_of(19), sound.end_of(20)),
            (None, Some(20), Some(20), None)
        );
        sound.note(20, 40);
        assert_eq!(sound.parts, [(10, 50)]);
        sound.note(5, 70);
        sound.note(90, 95);
        assert_eq!(sound.parts, [(5, 70), (90, 95)]);
        sound.doubt(69);
        assert_eq!(sound.parts, [(90, 95)]);
    }

    #[test]
    fn only_so_many_parts_are_remembered_and_the_smallest_goes_first() {
        let mut sound = Sound::default();
        for part in 0..2 * PARTS_MAX as u64 {
            sound.note(part * 100, part * 100 + 10 + part);
        }
        assert_eq!(sound.parts.len(), PARTS_MAX);
        assert_eq!(sound.end_of(0), None);
        let last = 2 * PARTS_MAX as u64 - 1;
        assert_eq!(sound.end_of(last * 100), Some(last * 100 + 10 + last));
    }
}
