//! Exchanges that choose one binding whatever its key: by a hash modulo their number, at random, or at
//! random among the queues of this node.
//!
//! As in RabbitMQ every binding counts: a queue that is bound twice is chosen twice as often. Which
//! binding a number stands for depends on what is bound and on nothing else, neither the order of binding
//! nor a restart. What differs from RabbitMQ is the hash (there Erlang's `phash2` of the list of keys) and
//! the order of bindings (there by name), so that a key goes to another queue than there.

use std::sync::Arc;

use weir_model::routing::{BindingMeta, RoutingKind};

use super::targets::Target;
use super::{Bound, InvalidBinding};
use crate::hash::Fields;
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;

#[derive(Clone, Debug)]
pub(crate) struct PickTable {
    by: By,
    bindings: SharedMap<Arc<BindingMeta>, Target>,
}

#[derive(Clone, Copy, Debug)]
enum By {
    HashOfKeys,
    Chance,
    ChanceAmongLocal,
}

impl PickTable {
    /// A table for a kind of exchange that chooses one binding; for any other it chooses at random.
    pub(super) fn new(kind: RoutingKind) -> PickTable {
        let by = match kind {
            RoutingKind::ModulusHash => By::HashOfKeys,
            RoutingKind::LocalRandom => By::ChanceAmongLocal,
            _ => By::Chance,
        };
        PickTable { by, bindings: SharedMap::default() }
    }

    /// RabbitMQ's local random exchange takes queues without a key only; so does this one.
    pub(super) fn add(&mut self, bound: &Bound<'_>) -> Result<(), InvalidBinding> {
        if let By::ChanceAmongLocal = self.by {
            if !bound.binding.key.is_empty() {
                let key = String::from_utf8_lossy(&bound.binding.key).into_owned();
                return Err(InvalidBinding::KeyNotEmpty(key));
            }
            if let Target::Exchange(_) = bound.target {
                return Err(InvalidBinding::NotAQueue);
            }
        }
        self.bindings.insert(Arc::clone(bound.binding), bound.target.clone());
        Ok(())
    }

    pub(super) fn remove(&mut self, binding: &BindingMeta) {
        self.bindings.remove(binding);
    }

    pub(super) fn route(&self, message: &Routed<'_>, route: &mut Route) {
        let chosen = match self.by {
            _ if self.bindings.is_empty() => None,
            By::HashOfKeys => {
                let keys = message.keys.iter().fold(Fields::new(), |fields, key| fields.field(key));
                self.nth(keys.finish())
            }
            By::Chance => self.nth(route.draw()),
            By::ChanceAmongLocal => self.local(message, route.draw()),
        };
        if let Some(target) = chosen {
            route.add(target);
        }
    }

    /// The target of the binding that a number stands for, of a table that is not empty.
    fn nth(&self, number: u64) -> Option<&Target> {
        let index = (number % self.bindings.len() as u64) as usize;
        self.bindings.nth(index).map(|(_, target)| target)
    }

    /// One of the local queues, found by looking at all of them.
    fn local(&self, message: &Routed<'_>, number: u64) -> Option<&Target> {
        let is_local =
            |target: &Target| matches!(target, Target::Queue(queue) if (message.is_local)(&queue.name));
        let mut count = 0;
        self.bindings.for_each(|_, target| count += u64::from(is_local(target)));
        let mut left = number.checked_rem(count)?;
        let mut chosen = None;
        self.bindings.for_each(|_, target| {
            if chosen.is_none() && is_local(target) {
                match left.checked_sub(1) {
                    Some(fewer) => left = fewer,
                    None => chosen = Some(target),
                }
            }
        });
        chosen
    }
}
