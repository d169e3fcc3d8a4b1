//! Queues, exchanges and bindings: declaring them, finding them, and publishing through them.

mod arguments;
mod declare;
mod list;
mod publish;
mod rules;
mod transient;

pub use arguments::{DeadLetters, InvalidArgument, Priorities, QueueArguments, Retention, interval_ms};
pub use declare::{QueueInfo, TopologyError};
pub use publish::{Destinations, RoutedPublishing, Unrouted};
pub use rules::{
    ExchangeDeclaration, QueueDeclaration, Undeclarable, check_equivalent, check_equivalent_exchange,
    check_not_reserved, check_queue_name, locked, queue_in,
};
