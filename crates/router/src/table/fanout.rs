//! Fanout exchanges: the message goes wherever any binding leads.

use super::Bound;
use super::targets::{Target, Targets};
use crate::route::Route;

#[derive(Clone, Debug, Default)]
pub(crate) struct FanoutTable {
    targets: Targets,
}

impl FanoutTable {
    pub(super) fn add(&mut self, bound: &Bound<'_>) {
        self.targets.add(bound.target);
    }

    pub(super) fn remove(&mut self, target: &Target) {
        self.targets.remove(target);
    }

    pub(super) fn route(&self, route: &mut Route) {
        route.add_all(&self.targets);
    }
}
