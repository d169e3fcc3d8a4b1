//! Queues, exchanges and bindings: declaring them, finding them, and publishing through them.

mod arguments;
mod declare;
mod publish;
mod transient;

pub use arguments::{DeadLetters, InvalidArgument, Priorities, QueueArguments, Retention, interval_ms};
pub use declare::{QueueInfo, TopologyError};
pub use publish::{Destinations, RoutedPublishing, Unrouted};
