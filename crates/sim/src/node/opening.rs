//! Opening partitions where their shards are led.
//!
//! What the simulation declares has places of its own, so that it goes to the catalog alone and not through the broker,
//! which would open it at once; the broker's reconciliation looks only when a leadership begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use weir_broker::BrokerOptions;
use weir_cluster::Node;
use weir_model::ShardId;
use weir_model::command::Command;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);

/// Opens what the catalog has and its shard has not, for as long as the node runs.
pub async fn open_partitions(node: Arc<Node>) {
    let defaults = BrokerOptions::new("sim", [0; 32]).defaults;
    loop {
        sleep(LOOK).await;
        let Some(meta) = node.shard(ShardId::META) else { return };
        for topic in meta.view().catalog().topics() {
            let Ok(settings) = defaults.with_overrides(&topic.config, u32::MAX) else { continue };
            for partition in &topic.partitions {
                let Some(shard) = node.shard(partition.shard) else { continue };
                if !shard.leadership().ready || shard.view().partition(partition.id).is_some() {
                    continue;
                }
                let command = Command::OpenPartition {
                    partition: partition.id,
                    settings: settings.clone(),
                    epoch_base: 0,
                };
                // A repeat changes nothing, and what is not taken is tried again.
                if let Err(error) = shard.propose(command).await {
                    tracing::info!(partition = %partition.id, %error, "not opened");
                }
            }
        }
    }
}
