//! CreatePartitions.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Topics that are to have more partitions.
    CreatePartitionsRequest {
        [0+]    topics: Vec<CreatePartitionsTopic>,
        [0+]    timeout_ms: i32,
        [0+]    validate_only: bool,
    }

    /// One topic; `count` is the number it shall have in the end.
    CreatePartitionsTopic {
        [0+]    name: KafkaStr,
        [0+]    count: i32,
        [0+]    assignments: Option<Vec<CreatePartitionsAssignment>>,
    }

    /// The brokers of one new partition.
    CreatePartitionsAssignment {
        [0+]    broker_ids: Vec<i32>,
    }

    /// What became of them.
    CreatePartitionsResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    results: Vec<CreatePartitionsTopicResult>,
    }

    /// What became of one topic.
    CreatePartitionsTopicResult {
        [0+]    name: KafkaStr,
        [0+]    error_code: ErrorCode,
        [0+]    error_message: Option<KafkaStr>,
    }
}
