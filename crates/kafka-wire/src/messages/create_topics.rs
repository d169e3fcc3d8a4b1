//! CreateTopics.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Topics to create.
    CreateTopicsRequest {
        [0+]            topics: Vec<CreatableTopic>,
        [0+]            timeout_ms: i32 = 60_000,
        [1+]            validate_only: bool,
    }

    /// One topic. Partitions and replication factor of -1 stand for the broker's default.
    CreatableTopic {
        [0+]            name: KafkaStr,
        [0+]            num_partitions: i32,
        [0+]            replication_factor: i16,
        [0+]            assignments: Vec<CreatableReplicaAssignment>,
        [0+]            configs: Vec<CreatableTopicConfig>,
    }

    /// The brokers that are to keep a partition.
    CreatableReplicaAssignment {
        [0+]            partition_index: i32,
        [0+]            broker_ids: Vec<i32>,
    }

    /// One setting of a new topic.
    CreatableTopicConfig {
        [0+]            name: KafkaStr,
        [0+]            value: Option<KafkaStr>,
    }

    /// What became of the topics.
    CreateTopicsResponse {
        [2+]            throttle_time_ms: i32,
        [0+]            topics: Vec<CreatableTopicResult>,
    }

    /// What became of one topic.
    CreatableTopicResult {
        [0+]            name: KafkaStr,
        [7+]            topic_id: Uuid,
        [0+]            error_code: ErrorCode,
        [1+]            error_message: Option<KafkaStr>,
        [5+ tag 0]      topic_config_error_code: ErrorCode,
        [5+]            num_partitions: i32 = -1,
        [5+]            replication_factor: i16 = -1,
        [5+]            configs: Option<Vec<CreatableTopicConfigs>>,
    }

    /// One setting of the topic as it now holds.
    CreatableTopicConfigs {
        [5+]            name: KafkaStr,
        [5+]            value: Option<KafkaStr>,
        [5+]            read_only: bool,
        [5+]            config_source: i8 = -1,
        [5+]            is_sensitive: bool,
    }
}
