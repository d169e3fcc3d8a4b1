//! OffsetDelete: forgets a group's positions.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Positions to forget.
    OffsetDeleteRequest {
        [0+]    group_id: KafkaStr,
        [0+]    topics: Vec<OffsetDeleteRequestTopic>,
    }

    /// One topic's positions.
    OffsetDeleteRequestTopic {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<OffsetDeleteRequestPartition>,
    }

    /// One partition's position.
    OffsetDeleteRequestPartition {
        [0+]    partition_index: i32,
    }

    /// What became of them.
    OffsetDeleteResponse {
        [0+]    error_code: ErrorCode,
        [0+]    throttle_time_ms: i32,
        [0+]    topics: Vec<OffsetDeleteResponseTopic>,
    }

    /// What became of one topic's.
    OffsetDeleteResponseTopic {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<OffsetDeleteResponsePartition>,
    }

    /// What became of one partition's.
    OffsetDeleteResponsePartition {
        [0+]    partition_index: i32,
        [0+]    error_code: ErrorCode,
    }
}
