//! Parking: records that nobody is to see before a certain time.
//!
//! Such a record is appended to a **lot**, one partition in each data shard of a topic that no client can name, with its
//! deadline, and with what is to become of it in a header. It is durable there. On the node that leads a lot an
//! **attendant** sleeps until the first deadline, routes what is due as things are then, and moves it: where all its
//! queues lie in the lot's shard, one command appends it there and settles it here. Where they do not, it is appended
//! first, in each partition only if that does not know it, and settled then. So it arrives once in either case.
//!
//! Records are released in the order of their deadlines, and those with the same deadline in the order in which they
//! were parked.

mod attendant;
mod due;
mod fetch;
mod lots;
mod park;
mod release;

pub use due::{DUE_HEADER, Due, RoutingProperties, Target};
pub use park::{InvalidParkedName, ParkedAt, ParkedBatch, ParkedName, Parking};

pub(crate) use lots::Lots;
