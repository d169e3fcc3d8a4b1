//! The admin API, metrics and health over HTTP.
//!
//! Everything is JSON but the metrics, which are in OpenMetrics' text format. It asks the broker and keeps
//! nothing of its own.
//!
//! * [`HttpFront`]: the listener, on the server that all fronts over HTTP share.
//! * `access`: who asks, and whether that may be.
//! * `health`: `/health/live`, `/health/ready`, `/metrics`.
//! * `api`: `/api/v1/...`, one module for each noun.
//! * `error`: `{error, message, remedy}`.

mod access;
mod api;
mod error;
mod front;
mod health;

pub use front::{HttpFront, HttpOptions};
