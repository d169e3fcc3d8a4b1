//! Where work that may block is done: on the runtime's threads for that, or, in the simulator, in
//! place, so that a run depends on nothing but its seed.

use weir_cluster::Drive;

use crate::broker::Broker;
use crate::errors::ReadError;

/// Cheap to copy; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking {
    in_place: bool,
}

impl Blocking {
    /// Runs `work`, which may block. Fails only if it panicked or the runtime is going down.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        if self.in_place {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work).await.map_err(|error| ReadError::Io(error.to_string()))
    }
}

impl Broker {
    pub(crate) fn blocking(&self) -> Blocking {
        Blocking { in_place: matches!(self.node.drive(), Drive::Tasks { .. }) }
    }
}
