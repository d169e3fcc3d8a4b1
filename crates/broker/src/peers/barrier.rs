//! Declaring and binding are answered when all nodes that are connected have applied them: whoever is told that a queue is
//! there finds it on whatever node it looks next, and can publish to it there.

use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::Instant;
use weir_model::command::PartitionMeta;
use weir_model::{PartitionId, ShardId};

use super::answers::Answer;
use super::messages::Call;
use crate::broker::Broker;

/// How long it is waited for a node. One that takes longer is about to be taken for gone, or is far behind.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How often it is looked whether something is applied.
const STEP: Duration = Duration::from_millis(1);

impl Broker {
    /// Waits until every node that is connected has applied what the meta shard has applied here, and has these partitions,
    /// for a short while.
    pub(crate) async fn until_everywhere(&self, partitions: &[PartitionMeta]) {
        let Ok(meta) = self.meta() else { return };
        let index = meta.view().applied_index();
        // What only one node has is there already.
        let replicated = partitions.iter().filter(|partition| partition.shard.temporary_of().is_none());
        let open: Vec<_> = replicated.map(|partition| (partition.shard, partition.id)).collect();
        join(self.until_applied(index, &open), self.tell_all(Call::Applied(index, open.clone()))).await;
    }

    /// Tells every node that is connected that policies have changed: each has actors that go by them.
    pub(crate) async fn tell_of_policies(&self) {
        let Ok(meta) = self.meta() else { return };
        self.tell_all(Call::Policies(meta.view().applied_index())).await;
    }

    /// Asks every node that is connected, and waits for each a short while.
    async fn tell_all(&self, call: Call) {
        let call = &call;
        let asked = self.others_connected().into_iter().map(|node| async move {
            let answered = tokio::time::timeout(WAIT_MAX, self.call(node, call)).await;
            if !matches!(answered, Ok(Ok(Answer::Done))) {
                tracing::debug!(%node, ?call, "a node is not waited for that has not applied a declaration");
            }
        });
        join_all(asked).await;
    }

    /// Waits until this node has applied the meta shard up to an index and has these partitions, for a short while.
    pub(super) async fn until_applied(&self, index: u64, open: &[(ShardId, PartitionId)]) -> Answer {
        let until = Instant::now() + WAIT_MAX;
        let is_open = |(shard, partition): &(ShardId, PartitionId)| {
            // A shard that is not here is not waited for.
            self.node.shard(*shard).is_none_or(|handle| handle.view().partition(*partition).is_some())
        };
        loop {
            match self.meta() {
                Ok(meta) if meta.view().applied_index() >= index && open.iter().all(is_open) => {
                    return Answer::Done;
                }
                Ok(_) if Instant::now() < until => tokio::time::sleep(STEP).await,
                _ => return Answer::Starting,
            }
        }
    }
}
