//! Whole clusters under a simulated network, disk and clock, replayable by seed.
