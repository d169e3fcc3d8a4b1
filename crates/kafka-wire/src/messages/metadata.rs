//! Metadata: brokers, topics, partitions and their leaders.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Asks for topics, or with `None` for all. In version 0, which has no null, an empty list means all.
    MetadataRequest {
        [0+ null 1+]    topics: Option<Vec<MetadataRequestTopic>>,
        [4+]            allow_auto_topic_creation: bool = true,
        [8-10]          include_cluster_authorized_operations: bool,
        [8+]            include_topic_authorized_operations: bool,
    }

    /// A topic by id or by name.
    MetadataRequestTopic {
        [10+]           topic_id: Uuid,
        [0+ null 10+]   name: Option<KafkaStr>,
    }

    /// The cluster as the broker sees it.
    MetadataResponse {
        [3+]            throttle_time_ms: i32,
        [0+]            brokers: Vec<MetadataResponseBroker>,
        [2+]            cluster_id: Option<KafkaStr>,
        [1+]            controller_id: i32 = -1,
        [0+]            topics: Vec<MetadataResponseTopic>,
        [8-10]          cluster_authorized_operations: i32 = i32::MIN,
        [13+]           error_code: ErrorCode,
    }

    /// A broker and where it listens.
    MetadataResponseBroker {
        [0+]            node_id: i32,
        [0+]            host: KafkaStr,
        [0+]            port: i32,
        [1+]            rack: Option<KafkaStr>,
    }

    /// A topic, or why it is not to be had.
    MetadataResponseTopic {
        [0+]            error_code: ErrorCode,
        [0+ null 12+]   name: Option<KafkaStr>,
        [10+]           topic_id: Uuid,
        [1+]            is_internal: bool,
        [0+]            partitions: Vec<MetadataResponsePartition>,
        [8+]            topic_authorized_operations: i32 = i32::MIN,
    }

    /// A partition, its leader and its replicas.
    MetadataResponsePartition {
        [0+]            error_code: ErrorCode,
        [0+]            partition_index: i32,
        [0+]            leader_id: i32,
        [7+]            leader_epoch: i32 = -1,
        [0+]            replica_nodes: Vec<i32>,
        [0+]            isr_nodes: Vec<i32>,
        [5+]            offline_replicas: Vec<i32>,
    }
}
