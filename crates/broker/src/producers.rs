//! Ids for idempotent producers, taken from the meta shard in runs so that most of them cost nothing.

use tokio::sync::Mutex;
use weir_model::command::{Command, Outcome};

use crate::broker::Broker;
use crate::errors::{AdminError, refused};

/// Ids that are taken from the meta shard at a time. What is left of them at the end of the process
/// is never used: there are 2⁶³.
const RUN: u32 = 1000;

/// Ids that were taken and not given out.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds {
    left: Mutex<std::ops::Range<i64>>,
}

impl Broker {
    /// A producer id that nobody else has, and its epoch.
    pub async fn init_producer(&self) -> Result<(i64, i16), AdminError> {
        let mut left = self.producer_ids.left.lock().await;
        if left.is_empty() {
            let outcome = self.propose_meta(Command::AllocateProducerIds { count: RUN }).await?;
            let Outcome::ProducerIds { first } = outcome else { return Err(refused(outcome)) };
            *left = first..first + i64::from(RUN);
        }
        match left.next() {
            Some(id) => Ok((id, 0)),
            None => Err(AdminError::Limit { what: "producer ids", limit: i64::MAX as u64 }),
        }
    }
}
