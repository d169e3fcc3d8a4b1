//! What routing may ask of a message.

use std::fmt;

use bytes::Bytes;
use weir_model::routing::ArgumentValue;

/// One message on its way into an exchange.
#[derive(Clone, Copy)]
pub struct Routed<'m> {
    /// The exchange that it is published to; empty for the default exchange.
    pub exchange: &'m str,
    /// Its routing key, then those of its `CC` and `BCC` headers. Exchanges that look at keys route it by
    /// each of them; a consistent-hash exchange takes the first alone, as in RabbitMQ.
    pub keys: &'m [&'m [u8]],
    /// The rest of it.
    pub properties: &'m dyn Properties,
    /// Whether it asks for a delay that has not passed yet. Exchanges that delay then hold it, see
    /// [`Route::held_by`](crate::Route::held_by).
    pub is_delayed: bool,
    /// A random number, for exchanges that choose at random.
    pub random: u64,
    /// Whether the queue of this name is served by this node, for exchanges that choose among those.
    pub is_local: &'m dyn Fn(&str) -> bool,
}

impl fmt::Debug for Routed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routed")
            .field("exchange", &self.exchange)
            .field("keys", &self.keys)
            .field("is_delayed", &self.is_delayed)
            .field("random", &self.random)
            .finish_non_exhaustive()
    }
}

impl<'m> Routed<'m> {
    /// A message of which no more is known than where it is published and by which keys.
    pub fn new(exchange: &'m str, keys: &'m [&'m [u8]]) -> Routed<'m> {
        Routed { exchange, keys, properties: &(), is_delayed: false, random: 0, is_local: &|_| true }
    }
}

/// A message's headers and those of its properties that can be hashed. Each is asked for only when an
/// exchange needs it.
pub trait Properties {
    /// All headers; of two with the same name the last counts, as in RabbitMQ. A name that is not UTF-8 matches no
    /// binding and may be left out. Asked for at most once per headers exchange on the way, so that an
    /// implementation may decode them when it is first asked, and keep them.
    fn headers(&self) -> &[(Bytes, ArgumentValue)];

    /// The property `message_id`.
    fn message_id(&self) -> Option<&[u8]>;

    /// The property `correlation_id`.
    fn correlation_id(&self) -> Option<&[u8]>;

    /// The property `timestamp`, in seconds since 1970-01-01 UTC.
    fn timestamp(&self) -> Option<u64>;
}

/// A message without headers and properties.
impl Properties for () {
    fn headers(&self) -> &[(Bytes, ArgumentValue)] {
        &[]
    }

    fn message_id(&self) -> Option<&[u8]> {
        None
    }

    fn correlation_id(&self) -> Option<&[u8]> {
        None
    }

    fn timestamp(&self) -> Option<u64> {
        None
    }
}
