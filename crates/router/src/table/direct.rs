//! Direct exchanges: the message goes wherever a binding with one of its keys leads.

use std::sync::Arc;

use weir_model::routing::BindingMeta;

use super::Bound;
use super::targets::{Target, Targets};
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct DirectTable {
    keys: SharedMap<Arc<[u8]>, Targets>,
}

impl DirectTable {
    pub(super) fn add(&mut self, bound: &Bound<'_>) {
        self.keys.change(Arc::from(&bound.binding.key[..]), |targets| targets.add(bound.target));
    }

    pub(super) fn remove(&mut self, binding: &BindingMeta, target: &Target) {
        let key = &binding.key[..];
        let Some(targets) = self.keys.get_mut(key) else { return };
        targets.remove(target);
        if targets.is_empty() {
            self.keys.remove(key);
        }
    }

    pub(super) fn route(&self, message: &Routed<'_>, route: &mut Route) {
        for targets in message.keys.iter().filter_map(|key| self.keys.get(*key)) {
            route.add_all(targets);
        }
    }
}
