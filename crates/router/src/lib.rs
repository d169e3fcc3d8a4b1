//! The pure part of routing: which queues a message that is published to an exchange goes to.
//!
//! A [`Router`] is the table of one namespace: its exchanges and bindings, and the names of its queues.
//! It never changes. Each change gives another one that shares with the first whatever it did not
//! touch, so that a publisher reads one without a lock while the next is made.
//! [`Router::route`] answers for one message, told by a [`Routed`], into a [`Route`] that is kept and
//! used again.
//!
//! * `table`: one module per way in which exchanges choose among their bindings.
//! * `shared_map`: the map that copies share.
//! * [`limits`]: every bound.
//!
//! Kinds of exchanges and their rules are RabbitMQ's. Where it does otherwise, the documentation of the
//! kind's module says what and why.
//!
//! What is deliberately absent: I/O, a clock, randomness (the caller hands in a number), permission to
//! publish, and what becomes of a message that goes nowhere.

mod exchange;
mod hash;
pub mod limits;
mod message;
mod route;
mod router;
mod shared_map;
mod table;

pub use message::{Properties, Routed};
pub use route::Route;
pub use router::{NoSuchExchange, Removal, Router, RouterError};
pub use table::InvalidBinding;
