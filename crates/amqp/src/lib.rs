//! The AMQP 0-9-1 front.
//!
//! The wire format itself is `weir-amqp-wire`'s business.
//!
//! * [`Message`]: how a message is a record, and comes back.

mod message;

pub use message::Message;
