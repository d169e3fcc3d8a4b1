//! One module per class, each with its methods.
//!
//! Fields carry the specification's own names, so that its documentation applies to them word for word. A method
//! `-ok` answers the one before it.

pub mod access;
pub mod basic;
pub mod channel;
pub mod confirm;
pub mod connection;
pub mod exchange;
pub mod queue;
pub mod tx;
