//! Where bindings lead.

use std::sync::Arc;

use crate::hash::Fields;
use crate::shared_map::{Key, SharedMap};

/// A queue of the router.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Queue {
    /// Its number in the order in which the router came to know its queues. Unlike an address it is the
    /// same in every run, so that routes are.
    pub order: u64,
    pub name: Arc<str>,
}

/// Where a binding leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Queue(Queue),
    /// The exchange of this name.
    Exchange(Arc<str>),
}

impl Key for Target {
    fn hashed(&self) -> u64 {
        match self {
            Target::Queue(queue) => Fields::new().field(b"queue").field(queue.name.as_bytes()).finish(),
            Target::Exchange(name) => Fields::new().field(b"exchange").field(name.as_bytes()).finish(),
        }
    }
}

/// A set of targets. Several bindings may lead to one; it is there until the last of them goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    bindings: SharedMap<Target, u32>,
}

impl Targets {
    pub(crate) fn add(&mut self, target: &Target) {
        self.bindings.change(target.clone(), |bindings| *bindings += 1);
    }

    pub(crate) fn remove(&mut self, target: &Target) {
        match self.bindings.get_mut(target) {
            Some(bindings) if *bindings > 1 => *bindings -= 1,
            Some(_) => {
                self.bindings.remove(target);
            }
            None => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(&Target)) {
        self.bindings.for_each(|target, _| each(target));
    }
}
