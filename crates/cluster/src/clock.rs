//! Wall-clock time, which this crate never reads by itself.

use std::future::{Future, pending};
use std::pin::Pin;

use weir_model::TimestampMs;

/// Tells the time of day. The binary hands in the system's, the simulator one of its own.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC. May jump in both directions.
    fn now_ms(&self) -> TimestampMs;

    /// Resolves when the time of day has been set anew after this call, forward or back; never where that cannot be
    /// told. Whoever sleeps until a time of day then looks again.
    fn jumped(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(pending())
    }
}
