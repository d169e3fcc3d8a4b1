//! What was logged already, so that retries do not say it again and again.

use std::collections::BTreeSet;

/// Most that is remembered; beyond it everything is forgotten, and may be said once more.
const TOLD_MAX: usize = 64;

/// Who, and what.
#[derive(Debug)]
pub(crate) struct Told<K> {
    told: BTreeSet<(K, String)>,
}

impl<K> Default for Told<K> {
    fn default() -> Told<K> {
        Told { told: BTreeSet::new() }
    }
}

impl<K: Ord> Told<K> {
    /// Whether this was not said before.
    pub(crate) fn is_new(&mut self, who: K, what: &str) -> bool {
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        self.told.insert((who, what.to_owned()))
    }

    /// What is said of this one from here on is new.
    pub(crate) fn forget(&mut self, who: &K) {
        self.told.retain(|(other, _)| other != who);
    }
}
