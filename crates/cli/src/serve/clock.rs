//! The wall clock, which nothing below this crate reads by itself.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_cluster::Clock;
use weir_model::TimestampMs;

/// The system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one clock that is handed to everybody else")]
    fn now_ms(&self) -> TimestampMs {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
    }
}
