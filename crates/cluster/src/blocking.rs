//! Running what blocks: on the runtime's threads for that, or, in the simulator, in place.

use crate::options::Drive;

/// Where blocking work is done; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking {
    drive: Drive,
}

impl Blocking {
    pub(crate) fn new(drive: Drive) -> Blocking {
        Blocking { drive }
    }

    /// Runs something that blocks. Fails if it panicked or the runtime is going down.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        match self.drive {
            Drive::Tasks { .. } => Ok(work()),
            Drive::Threads => tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string()),
        }
    }
}
