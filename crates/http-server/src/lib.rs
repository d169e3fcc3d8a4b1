//! The server that fronts over HTTP share. What is served is the fronts' business; how many connections there are at
//! once, how long one may be silent, and how they end, is the same for all of them.
//!
//! * [`HttpServer`]: a listener that is bound, and then serves a router until it is told to stop.
//! * [`Peer`]: whom a request came from.
//! * [`refuse_other_sites`]: a middleware against pages of other sites in an operator's browser.
//!
//! What is deliberately absent: the broker, routes, authentication.

mod limits;
mod origin;
mod server;
#[cfg(test)]
mod tests;

pub use limits::Peer;
pub use origin::refuse_other_sites;
pub use server::{HttpServer, ServerOptions};
