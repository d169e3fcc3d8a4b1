//! The wall clock: the time that records carry. A client is where a record's time begins, so here it is
//! read; nothing else in this crate depends on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[allow(clippy::disallowed_methods, reason = "records carry the time at which their producer made them")]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Milliseconds since 1970, UTC.
pub(crate) fn wall_clock_ms() -> i64 {
    i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
}

/// Nanoseconds within the current second and more, to tell clients apart.
pub(crate) fn wall_clock_nanos() -> u64 {
    since_1970().as_nanos() as u64
}
