//! Declaring and binding are answered when all nodes that are connected have applied them: whoever is told that a queue is
//! there finds it on whatever node it looks next.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use weir_model::NodeId;

use super::answers::Answer;
use super::messages::Call;
use crate::broker::Broker;

/// How long it is waited for a node. One that takes longer is about to be taken for gone, or is far behind.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How often it is looked whether something is applied.
const STEP: Duration = Duration::from_millis(1);

impl Broker {
    /// Waits until every node that is connected has applied what the meta shard has applied here, for a short while.
    pub(crate) async fn until_everywhere(&self) {
        let Ok(meta) = self.meta() else { return };
        let index = meta.view().applied_index();
        let here = self.node.node_id();
        let others: Vec<NodeId> =
            self.connected.borrow().iter().copied().filter(|node| *node != here).collect();
        let asked = others.into_iter().map(|node| async move {
            let call = Call::Applied(index);
            let answered = tokio::time::timeout(WAIT_MAX, self.call(node, &call)).await;
            if !matches!(answered, Ok(Ok(Answer::Done))) {
                tracing::debug!(%node, index, "a node is not waited for that has not applied a declaration");
            }
        });
        join_all(asked).await;
    }

    /// Waits until this node has applied the meta shard up to an index, for a short while.
    pub(super) async fn until_applied(&self, index: u64) -> Answer {
        let until = Instant::now() + WAIT_MAX;
        loop {
            match self.meta() {
                Ok(meta) if meta.view().applied_index() >= index => return Answer::Done,
                Ok(_) if Instant::now() < until => tokio::time::sleep(STEP).await,
                _ => return Answer::Starting,
            }
        }
    }
}
