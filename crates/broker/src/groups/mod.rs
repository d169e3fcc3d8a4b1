//! Groups: who reads what (the classic protocol), and how far they are.
//!
//! * `request`: what members ask and are answered, free of any wire format.
//! * `coordinator`: one group as a state machine; `join`, `sync` and `rebalance` are its rules by
//!   request, `member` is one member's state.
//! * `subscription`: which topics a consumer's own data names.
//! * `service`: what fronts ask; `driver` runs the coordinators; `expiry` lets go of old positions.

mod coordinator;
mod driver;
mod expiry;
mod join;
mod member;
mod rebalance;
mod request;
mod service;
mod subscription;
mod sync;

pub(crate) use driver::Groups;

pub use coordinator::{Action, Answer, Coordinator, Input, Moment, StoreId, Ticket};
pub use request::*;
pub use subscription::subscribed_topics;
