//! The one value that fronts hold.

use std::sync::Arc;

use weir_model::TopicId;

use crate::errors::{AdminError, LookupError, Unavailable};
use crate::info::{ClusterInfo, PartitionInfo};
use crate::metrics::Metrics;
use crate::options::BrokerOptions;
use crate::read::PartitionRef;
use crate::topics::Topic;

/// What a front may ask for. Held as an `Arc` by every front.
#[derive(Debug)]
pub struct Broker {
    options: BrokerOptions,
    metrics: Arc<Metrics>,
}

impl Broker {
    /// Stops the tasks and answers everything that is parked.
    pub async fn shutdown(&self) {}

    /// What an operator has set.
    pub fn options(&self) -> &BrokerOptions {
        &self.options
    }

    /// Counters and gauges.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Whether this node can serve: every shard has a leader, and the catalog's partitions are open.
    pub fn is_ready(&self) -> bool {
        false
    }

    /// Why this node cannot serve yet, in words; none if it can.
    pub fn not_ready_because(&self) -> Option<String> {
        Some("the broker is starting".into())
    }

    /// The cluster as this node sees it.
    pub fn cluster(&self) -> ClusterInfo {
        ClusterInfo {
            cluster_id: self.options.cluster_id.clone(),
            node_id: Default::default(),
            nodes: Vec::new(),
            controller: None,
        }
    }

    /// The topic of this name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let _ = name;
        None
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        let _ = id;
        None
    }

    /// All topics in the order of their names.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        Vec::new()
    }

    /// A partition of a topic. Being led by another node is no error here: asking the partition is.
    pub fn partition(&self, topic: &Topic, index: i32) -> Result<PartitionRef, LookupError> {
        let _ = (topic, index);
        Err(Unavailable::Starting.into())
    }

    /// Who serves a partition of a topic.
    pub fn partition_info(&self, topic: &Topic, index: i32) -> Result<PartitionInfo, LookupError> {
        let _ = (topic, index);
        Err(Unavailable::Starting.into())
    }

    /// A producer id that nobody else has, and its epoch.
    pub async fn init_producer(&self) -> Result<(i64, i16), AdminError> {
        Err(Unavailable::Starting.into())
    }
}
