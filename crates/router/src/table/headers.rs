//! Headers exchanges: the message goes wherever a binding leads whose arguments its headers fit.
//!
//! The argument `x-match` says whether all of the others must fit (the default) or any, and whether those
//! whose names begin with `x-` count at all (`all-with-x`, `any-with-x`); `x-match` itself never does. An
//! argument without a value fits a header of that name with any value. So a binding without arguments
//! takes every message, and one with `x-match=any` and nothing else takes none.
//!
//! Every binding is looked at for every message, as in RabbitMQ: the time grows with their number.

use std::sync::Arc;

use weir_model::routing::{ArgumentValue, BindingMeta, argument};

use super::targets::Target;
use super::{Bound, InvalidBinding};
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;

const X_MATCH: &str = "x-match";

#[derive(Clone, Debug, Default)]
pub(crate) struct HeadersTable {
    rules: SharedMap<Arc<BindingMeta>, Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    needs_all: bool,
    with_x: bool,
    target: Target,
}

/// A message's headers by name, each once.
struct SortedHeaders<'m>(Vec<(&'m [u8], &'m ArgumentValue)>);

impl<'m> SortedHeaders<'m> {
    fn of(message: &Routed<'m>) -> SortedHeaders<'m> {
        let headers = message.properties.headers();
        let mut sorted: Vec<(&[u8], &ArgumentValue)> =
            headers.iter().map(|(name, value)| (&name[..], value)).collect();
        // The sort is stable; of those with the same name the last takes the place of the others.
        sorted.sort_by_key(|(name, _)| *name);
        sorted.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                *kept = *later;
            }
            is_same
        });
        SortedHeaders(sorted)
    }

    fn get(&self, name: &str) -> Option<&ArgumentValue> {
        let at = self.0.binary_search_by_key(&name.as_bytes(), |(name, _)| *name).ok()?;
        Some(self.0[at].1)
    }
}

impl HeadersTable {
    pub(super) fn add(&mut self, bound: &Bound<'_>) -> Result<(), InvalidBinding> {
        let (needs_all, with_x) = match argument(&bound.binding.arguments, X_MATCH) {
            None => (true, false),
            Some(value) => match value.as_text() {
                Some("all") => (true, false),
                Some("any") => (false, false),
                Some("all-with-x") => (true, true),
                Some("any-with-x") => (false, true),
                _ => return Err(InvalidBinding::XMatch),
            },
        };
        let rule = Rule { needs_all, with_x, target: bound.target.clone() };
        self.rules.insert(Arc::clone(bound.binding), rule);
        Ok(())
    }

    pub(super) fn remove(&mut self, binding: &BindingMeta) {
        self.rules.remove(binding);
    }

    pub(super) fn route(&self, message: &Routed<'_>, route: &mut Route) {
        let headers = SortedHeaders::of(message);
        self.rules.for_each(|binding, rule| {
            if rule.fits(binding, &headers) {
                route.add(&rule.target);
            }
        });
    }
}

impl Rule {
    fn fits(&self, binding: &BindingMeta, headers: &SortedHeaders<'_>) -> bool {
        let counts = |name: &str| name != X_MATCH && (self.with_x || !name.starts_with("x-"));
        let mut wanted = binding.arguments.iter().filter(|(name, _)| counts(name));
        let fits = |(name, wanted): &(String, ArgumentValue)| {
            headers.get(name).is_some_and(|value| *wanted == ArgumentValue::Void || wanted.same_value(value))
        };
        if self.needs_all { wanted.all(fits) } else { wanted.any(fits) }
    }
}
