//! Topics as fronts see them: the catalog's entry and the settings that follow from it.

use std::sync::Arc;

use weir_model::TopicId;
use weir_model::command::TopicMeta;
use weir_model::settings::PartitionSettings;

/// A topic. A snapshot: one that is altered later is another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// As the meta shard knows it.
    pub meta: TopicMeta,
    /// Its effective settings: its overrides over the broker's defaults.
    pub settings: Arc<PartitionSettings>,
}

impl Topic {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.meta.name
    }

    /// Its identity, which a topic created later under the same name does not share.
    pub fn id(&self) -> TopicId {
        self.meta.id
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> usize {
        self.meta.partitions.len()
    }

    /// Whether clients should hide it; there are no such topics of our own.
    pub fn is_internal(&self) -> bool {
        false
    }
}
