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
///
/// Most sets have one element: a key that one queue is bound by. It lies in the table itself, so that a
/// message need not look for it elsewhere in memory.
#[derive(Clone, Debug, Default)]
pub(crate) enum Targets {
    #[default]
    None,
    /// One, and how many bindings lead to it.
    One(Target, u32),
    /// Others, each with the same.
    Many(SharedMap<Target, u32>),
}

impl Targets {
    pub(crate) fn add(&mut self, target: &Target) {
        match self {
            Targets::None => *self = Targets::One(target.clone(), 1),
            Targets::One(known, bindings) if known == target => *bindings += 1,
            Targets::One(known, bindings) => {
                let mut many = SharedMap::default();
                many.insert(known.clone(), *bindings);
                many.insert(target.clone(), 1);
                *self = Targets::Many(many);
            }
            Targets::Many(many) => many.change(target.clone(), |bindings| *bindings += 1),
        }
    }

    pub(crate) fn remove(&mut self, target: &Target) {
        match self {
            Targets::One(known, bindings) if known == target => {
                *bindings -= 1;
                if *bindings == 0 {
                    *self = Targets::None;
                }
            }
            Targets::None | Targets::One(..) => {}
            Targets::Many(many) => {
                match many.get_mut(target) {
                    Some(bindings) if *bindings > 1 => *bindings -= 1,
                    Some(_) => {
                        many.remove(target);
                    }
                    None => {}
                }
                if many.len() == 1
                    && let Some((last, bindings)) = many.nth(0)
                {
                    *self = Targets::One(last.clone(), *bindings);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Targets::None)
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(&Target)) {
        match self {
            Targets::None => {}
            Targets::One(target, _) => each(target),
            Targets::Many(many) => many.for_each(|target, _| each(target)),
        }
    }
}
