//! Routing as a caller sees it: scenarios as transcripts, and random tables against naive models.

mod bounds;
mod headers;
mod incremental;
mod ring;
mod scene;
mod topics;
mod transcripts;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::routing::{ArgumentValue, Arguments, BindingMeta, Destination, ExchangeMeta};
use weir_router::{Properties, Route, Routed, Router};

/// An exchange of a kind, by the name that clients know it by.
fn exchange(name: &str, kind: &str, arguments: Arguments) -> Arc<ExchangeMeta> {
    let declared = ExchangeMeta::declared("/".into(), name.into(), kind, arguments);
    Arc::new(declared.unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

fn binding(source: &str, destination: Destination, key: &str, arguments: Arguments) -> Arc<BindingMeta> {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Arc::new(BindingMeta::new("/".into(), source.into(), destination, key, arguments))
}

/// The queues of a route.
fn queues(route: &Route) -> BTreeSet<String> {
    let queues: BTreeSet<String> = route.queues().map(|queue| queue.to_string()).collect();
    assert_eq!(queues.len(), route.queues().len(), "a queue is there twice");
    assert_eq!(queues.is_empty(), route.is_empty());
    queues
}

/// Where a message with nothing but a key goes.
fn routed(router: &Router, exchange: &str, key: &str) -> BTreeSet<String> {
    let mut route = Route::new();
    router.route(&Routed::new(exchange, &[key.as_bytes()]), &mut route).expect("the exchange is there");
    queues(&route)
}

/// What a message carries.
#[derive(Clone, Debug, Default)]
struct Carried {
    headers: Vec<(Bytes, ArgumentValue)>,
    message_id: Option<Bytes>,
    correlation_id: Option<Bytes>,
    timestamp: Option<u64>,
}

impl Properties for Carried {
    fn headers(&self) -> &[(Bytes, ArgumentValue)] {
        &self.headers
    }

    fn message_id(&self) -> Option<&[u8]> {
        self.message_id.as_deref()
    }

    fn correlation_id(&self) -> Option<&[u8]> {
        self.correlation_id.as_deref()
    }

    fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }
}
