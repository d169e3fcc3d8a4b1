//! What fronts accept connections on: TCP, or TLS over it. A front sees a [`Stream`] either way, so that no front knows
//! of certificates.
//!
//! * [`Listener`]: an address, and with what it is kept secret.
//! * [`Stream`]: one connection. TLS is agreed on as it is first read from or written to, by the task that does so, and
//!   not where connections are accepted: a client that takes its time keeps nobody waiting but itself.
//! * [`Tls`]: certificates and keys, from files, which can be read again while connections go on.
//! * [`ClientTls`]: the same for the side that connects, where servers of ours connect to each other.

mod client;
mod listener;
mod stream;
mod tls;

pub use client::{ClientTls, ClientTlsFiles};
pub use listener::Listener;
pub use stream::Stream;
pub use tls::{Tls, TlsError, TlsFiles};
