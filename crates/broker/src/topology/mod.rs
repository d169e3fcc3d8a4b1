//! Queues, exchanges and bindings: declaring them, finding them, and publishing through them.

mod appends;
mod arguments;
mod declare;
mod publish;
mod transient;
mod unique;

pub use arguments::{DeadLetters, InvalidArgument, Overflow, QueueArguments};
pub use declare::{QueueInfo, TopologyError};
pub use publish::{Destinations, RoutedPublishing, Unrouted};
pub use unique::{DEDUPLICATION_HEADER, UniqueWindow};

pub(crate) use appends::{appends, appends_moved};
pub(crate) use unique::moved_key;
