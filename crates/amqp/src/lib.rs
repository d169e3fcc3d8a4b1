//! The AMQP 0-9-1 front: RabbitMQ's clients on Weir's queues.
//!
//! * `front`: the listener, and what all connections share.
//! * `handshake`: the beginning of a connection, without I/O.
//! * `connection`: reads frames, carries methods out, sends what comes of them.
//! * `channel`: what one channel has delivered, published and not been told of.
//! * `outbox`: the task that writes.
//!
//! How a message is a record and comes back is in `weir-amqp-message`.
//!
//! What is deliberately absent: files, Raft, and other fronts.

mod channel;
mod connection;
mod errors;
mod front;
mod handshake;
mod held;
mod outbox;
mod replies;

pub use front::{AmqpFront, AmqpFrontOptions};
