//! The simulated disk's only source of chance: SplitMix64, so that a seed means the same for ever.

#[derive(Clone, Debug)]
pub(super) struct Seed(u64);

impl Seed {
    pub(super) fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `times` times in `of`.
    pub(super) fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// A number from the one to the other, both included, in whichever order; either end is likely.
    pub(super) fn between(&mut self, a: u64, b: u64) -> u64 {
        let (low, high) = (a.min(b), a.max(b));
        match self.below(3) {
            0 => low,
            1 => high,
            _ => low + self.below(high - low + 1),
        }
    }
}
