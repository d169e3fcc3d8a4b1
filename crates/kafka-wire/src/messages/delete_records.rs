//! DeleteRecords: forgets everything before an offset.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Where to cut.
    DeleteRecordsRequest {
        [0+]    topics: Vec<DeleteRecordsTopic>,
        [0+]    timeout_ms: i32,
    }

    /// One topic.
    DeleteRecordsTopic {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<DeleteRecordsPartition>,
    }

    /// One partition; an `offset` of -1 stands for the high watermark.
    DeleteRecordsPartition {
        [0+]    partition_index: i32,
        [0+]    offset: i64,
    }

    /// Where it was cut.
    DeleteRecordsResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    topics: Vec<DeleteRecordsTopicResult>,
    }

    /// One topic.
    DeleteRecordsTopicResult {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<DeleteRecordsPartitionResult>,
    }

    /// One partition's first offset now.
    DeleteRecordsPartitionResult {
        [0+]    partition_index: i32,
        [0+]    low_watermark: i64,
        [0+]    error_code: ErrorCode,
    }
}
