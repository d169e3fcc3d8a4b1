//! Queues, exchanges and bindings: declaring them, finding them, and publishing through them.

mod appends;
mod arguments;
mod declare;
mod kinds;
mod list;
mod policies;
mod publish;
mod rules;
mod transient;
mod unique;

pub use arguments::{
    DeadLetters, EXPIRY_MS_MAX, InvalidArgument, Priorities, QueueArguments, Retention, interval_ms,
};
pub use declare::{QueueInfo, TopologyError};
pub use policies::{Applied, PolicyError, check_policy};
pub use publish::{Destinations, RoutedPublishing, Unrouted};
pub use rules::{
    ExchangeDeclaration, QueueDeclaration, Undeclarable, check_equivalent, check_equivalent_exchange,
    check_may_be_nameless, check_not_reserved, check_queue_name, locked, queue_in,
};
pub use unique::{DEDUPLICATION_HEADER, UniqueWindow};

pub(crate) use appends::{appends, appends_moved};
pub(crate) use policies::Policies;
pub(crate) use unique::moved_key;
