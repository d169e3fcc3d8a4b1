//! Wall-clock time, which this crate never reads by itself.

use weir_model::TimestampMs;

/// Tells the time of day. The binary hands in the system's, the simulator one of its own.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC. May jump in both directions.
    fn now_ms(&self) -> TimestampMs;
}
