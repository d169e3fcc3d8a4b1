//! Passwords, patterns, bounds and snapshots. Who may do what is told in `tests/transcripts`.

mod checks;
mod passwords;
mod patterns;
mod snapshots;
