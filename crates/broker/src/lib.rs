//! What a front may ask for: publish, read, groups, offsets, producers, administration.
