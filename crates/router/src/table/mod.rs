//! How exchanges choose among their bindings: one module per way, and what is common to them.

mod direct;
mod fanout;
mod headers;
mod pick;
mod ring;
pub(crate) mod targets;
pub(crate) mod topic;

use std::sync::Arc;

use weir_model::routing::{BindingMeta, Destination, ExchangeMeta, RoutingKind, encode_arguments};
use weir_model::wire::Writer;

use crate::hash::Fields;
use crate::limits::HASH_WEIGHT_MAX;
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::Key;
use direct::DirectTable;
use fanout::FanoutTable;
use headers::HeadersTable;
use pick::PickTable;
use ring::RingTable;
use targets::Target;
use topic::TopicTable;

/// Why a kind of exchange does not take a binding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBinding {
    /// The key is not a weight.
    #[error("the binding key '{0}' is not a weight; give a whole number from 1 to {max}", max = HASH_WEIGHT_MAX)]
    Weight(String),
    /// The argument is not one of those that are known.
    #[error("x-match must be one of the strings all, any, all-with-x and any-with-x")]
    XMatch,
    /// A key is given where none has a meaning.
    #[error("the binding key '{0}' has no meaning here; leave it empty")]
    KeyNotEmpty(String),
    /// It leads to an exchange.
    #[error("only queues can be bound here")]
    NotAQueue,
}

/// A binding that comes into a table.
pub(crate) struct Bound<'a> {
    pub binding: &'a Arc<BindingMeta>,
    /// Where it leads.
    pub target: &'a Target,
    /// Its place among the bindings of its exchange.
    pub serial: u64,
}

/// The bindings of one exchange, in the form that its kind needs.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    Direct(DirectTable),
    Fanout(FanoutTable),
    Topic(TopicTable),
    Headers(HeadersTable),
    Pick(PickTable),
    Ring(RingTable),
}

impl Table {
    pub(crate) fn new(kind: RoutingKind) -> Table {
        match kind {
            RoutingKind::Direct => Table::Direct(DirectTable::default()),
            RoutingKind::Fanout => Table::Fanout(FanoutTable::default()),
            RoutingKind::Topic => Table::Topic(TopicTable::default()),
            RoutingKind::Headers => Table::Headers(HeadersTable::default()),
            RoutingKind::ConsistentHash => Table::Ring(RingTable::default()),
            RoutingKind::ModulusHash | RoutingKind::Random | RoutingKind::LocalRandom => {
                Table::Pick(PickTable::new(kind))
            }
        }
    }

    /// Adds a binding that is not there yet.
    pub(crate) fn add(&mut self, bound: &Bound<'_>) -> Result<(), InvalidBinding> {
        match self {
            Table::Direct(table) => table.add(bound),
            Table::Fanout(table) => table.add(bound),
            Table::Topic(table) => table.add(bound),
            Table::Headers(table) => table.add(bound)?,
            Table::Pick(table) => table.add(bound)?,
            Table::Ring(table) => table.add(bound)?,
        }
        Ok(())
    }

    /// Removes a binding that is there.
    pub(crate) fn remove(&mut self, binding: &BindingMeta, target: &Target) {
        match self {
            Table::Direct(table) => table.remove(binding, target),
            Table::Fanout(table) => table.remove(target),
            Table::Topic(table) => table.remove(binding, target),
            Table::Headers(table) => table.remove(binding),
            Table::Pick(table) => table.remove(binding),
            Table::Ring(table) => table.remove(binding),
        }
    }

    /// Adds to the route wherever the message goes from `exchange`, whose table this is.
    pub(crate) fn route(&self, exchange: &ExchangeMeta, message: &Routed<'_>, route: &mut Route) {
        match self {
            Table::Direct(table) => table.route(message, route),
            Table::Fanout(table) => table.route(route),
            Table::Topic(table) => table.route(message, route),
            Table::Headers(table) => table.route(message, route),
            Table::Pick(table) => table.route(message, route),
            Table::Ring(table) => table.route(&exchange.hash_source, message, route),
        }
    }
}

/// Bindings stand in maps by what tells one from another of the same exchange.
impl Key for BindingMeta {
    fn hashed(&self) -> u64 {
        let kind: &[u8] = match self.destination {
            Destination::Queue(_) => b"queue",
            Destination::Exchange(_) => b"exchange",
        };
        let name = self.destination.name().as_bytes();
        let fields = Fields::new().field(kind).field(name).field(&self.key);
        if self.arguments.is_empty() {
            return fields.finish();
        }
        let mut arguments = Writer::new();
        encode_arguments(&self.arguments, &mut arguments);
        fields.field(&arguments.finish()).finish()
    }
}
