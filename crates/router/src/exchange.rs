//! One exchange with the bindings that lead from it.

use std::sync::Arc;

use weir_model::routing::{BindingMeta, ExchangeMeta};

use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;
use crate::table::targets::Target;
use crate::table::{Bound, InvalidBinding, Table};

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub name: Arc<str>,
    pub meta: Arc<ExchangeMeta>,
    alternate: Option<Arc<str>>,
    /// The bindings by where they lead, so that those to a deleted queue are found.
    bindings: SharedMap<Target, SharedMap<Arc<BindingMeta>, ()>>,
    binding_count: usize,
    /// The same bindings in the form in which messages are routed.
    table: Table,
}

impl Exchange {
    pub(crate) fn new(meta: Arc<ExchangeMeta>) -> Exchange {
        Exchange {
            name: Arc::from(meta.name.as_str()),
            alternate: meta.alternate_exchange.as_deref().map(Arc::from),
            bindings: SharedMap::default(),
            binding_count: 0,
            table: Table::new(meta.kind.routing()),
            meta,
        }
    }

    /// Replaces what is known of it but its kind.
    pub(crate) fn update(&mut self, meta: Arc<ExchangeMeta>) {
        self.alternate = meta.alternate_exchange.as_deref().map(Arc::from);
        self.meta = meta;
    }

    pub(crate) fn binding_count(&self) -> usize {
        self.binding_count
    }

    /// Whether its last binding has gone and it is to go as well.
    pub(crate) fn is_unused(&self) -> bool {
        self.meta.auto_delete && self.binding_count == 0
    }

    pub(crate) fn contains(&self, binding: &BindingMeta, target: &Target) -> bool {
        self.bindings.get(target).is_some_and(|bindings| bindings.contains(binding))
    }

    pub(crate) fn leads_to(&self, target: &Target) -> bool {
        self.bindings.contains(target)
    }

    /// Where its bindings lead.
    pub(crate) fn targets(&self) -> Vec<&Target> {
        self.bindings.keys()
    }

    /// Those of its bindings that lead to `target`.
    pub(crate) fn bindings_to(&self, target: &Target) -> Vec<Arc<BindingMeta>> {
        let bindings = self.bindings.get(target).map(SharedMap::keys).unwrap_or_default();
        bindings.into_iter().cloned().collect()
    }

    /// All its bindings.
    pub(crate) fn bindings(&self) -> Vec<Arc<BindingMeta>> {
        let mut all = Vec::with_capacity(self.binding_count);
        self.bindings.for_each(|_, bindings| all.extend(bindings.keys().into_iter().cloned()));
        all
    }

    /// Adds a binding that is not there yet.
    pub(crate) fn add(&mut self, bound: &Bound<'_>) -> Result<(), InvalidBinding> {
        self.table.add(bound)?;
        self.bindings.change(bound.target.clone(), |bindings| {
            bindings.insert(Arc::clone(bound.binding), ());
        });
        self.binding_count += 1;
        Ok(())
    }

    /// Removes a binding that is there.
    pub(crate) fn remove(&mut self, binding: &BindingMeta, target: &Target) {
        let Some(bindings) = self.bindings.get_mut(target) else { return };
        if bindings.remove(binding).is_none() {
            return;
        }
        if bindings.is_empty() {
            self.bindings.remove(target);
        }
        self.binding_count -= 1;
        self.table.remove(binding, target);
    }

    /// Visits the exchange with a message: adds to the route where it goes from here.
    pub(crate) fn route(&self, message: &Routed<'_>, route: &mut Route) {
        if message.is_delayed && self.meta.kind.is_delayed() {
            return route.hold(&self.name);
        }
        let met = route.met();
        self.table.route(&self.meta, message, route);
        if let Some(alternate) = &self.alternate
            && route.met() == met
        {
            route.pass_on(alternate);
        }
    }
}
