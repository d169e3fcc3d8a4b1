//! Queues, exchanges and bindings: declaring them, finding them, and publishing through them.

mod arguments;
mod declare;
mod publish;
mod transient;

pub use arguments::{DeadLetters, InvalidArgument, Overflow, QueueArguments};
pub use declare::{QueueInfo, TopologyError};
pub use publish::{Destinations, RoutedPublishing, Unrouted};
