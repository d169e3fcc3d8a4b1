//! Groups: who reads what (the classic protocol), and how far they are.
//!
//! * [`request`]: what members ask and are answered, free of any wire format.

mod request;
mod service;

pub use request::*;
