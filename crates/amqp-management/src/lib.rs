//! RabbitMQ's management HTTP API, as far as clients and tools need it to set up a broker and to look at it.
//!
//! It asks the broker and keeps nothing of its own. What is not measured is absent from an answer, never zero.
//!
//! * `front`: the listener, and the way of a request: path, method, user, body, answer.
//! * `resource`: which paths there are, and what may be done with each.
//! * `login`: who asks, and what the user may do here. The one place that knows how users are known.
//! * `ask`: a request whose user is known, with its query and its body.
//! * `failure`: errors as `{error, reason}`, with RabbitMQ's status codes.
//! * `listing`: sorting, filtering, pages and columns.
//! * `json`: tables, properties and bodies as JSON, and back.
//! * `properties_key`: the name of a binding in a path.
//! * `rooms`: what is answered, one module for each noun.
//!
//! What is deliberately absent: files, Raft, other fronts, rates and averages.

mod ask;
mod erlang_hash;
mod failure;
mod front;
mod json;
mod listing;
mod login;
mod properties_key;
mod resource;
mod rooms;

pub use front::{ManagementFront, ManagementOptions};
