//! Keeping files from being unlinked while a checkpoint is sent to another node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many transfers want that nothing is unlinked. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds(Arc<AtomicUsize>);

impl Holds {
    pub(crate) fn take(&self) -> Hold {
        self.0.fetch_add(1, Ordering::AcqRel);
        Hold(Arc::clone(&self.0))
    }

    pub(crate) fn are_held(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// As long as this lives, files that are not needed any more stay.
#[derive(Debug)]
pub(crate) struct Hold(Arc<AtomicUsize>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
