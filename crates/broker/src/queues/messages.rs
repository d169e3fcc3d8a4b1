//! What the broker must know of a message that a front has made a record of, when it is routed once more: a record that
//! died, or was parked. How it reads that from the record is the front's knowledge.

use std::fmt::Debug;

use weir_model::batch::Record;

use crate::parking::RoutingProperties;

/// Whoever knows how messages are records.
pub trait MessageReader: Debug + Send + Sync {
    /// What exchanges may ask of it; none if there is nothing.
    fn routing_properties(&self, record: &Record) -> Option<Box<RoutingProperties>>;

    /// The priority that its publisher gave it.
    fn priority(&self, record: &Record) -> Option<u8>;
}
