//! AMQP 0-9-1 messages as Weir keeps them: shared by the front that speaks AMQP and the one that speaks RabbitMQ's
//! management API, which publishes and gets messages too.
//!
//! * [`Message`]: how a message is a record and comes back.
//! * [`delivered`], [`message_of`]: a record that is handed out, with what RabbitMQ adds to a message on its way.
//! * [`arguments`], [`Asked`]: tables as they are stored, and what routing asks of a message.
//! * [`Reader`]: what the broker must know of a message that it routes once more.
//! * [`take_copies`], [`expires_after`]: what properties of a message say to the broker.
//!
//! What is deliberately absent: I/O, sessions, publishing itself.

mod delivered;
mod message;
mod properties;
mod reader;
mod values;

pub use delivered::{delivered, message_of};
pub use message::Message;
pub use properties::{
    EXPIRES_HEADER, EXPIRY_MS_MAX, InvalidExpiration, NotAList, expiration_ms, expires_after, take_copies,
};
pub use reader::Reader;
pub use values::{Asked, argument, arguments};
