//! ListOffsets: offsets by time, and the two ends of a log.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Asks for the first offset at or after a time.
    ListOffsetsRequest {
        [0+]    replica_id: i32 = -1,
        [2+]    isolation_level: i8,
        [0+]    topics: Vec<ListOffsetsTopic>,
        [10+]   timeout_ms: i32,
    }

    /// One topic to look into.
    ListOffsetsTopic {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<ListOffsetsPartition>,
    }

    /// One partition and a time in milliseconds, or below zero one of the [`timestamp`] constants.
    ListOffsetsPartition {
        [0+]    partition_index: i32,
        [4+]    current_leader_epoch: i32 = -1,
        [0+]    timestamp: i64,
    }

    /// The offsets found.
    ListOffsetsResponse {
        [2+]    throttle_time_ms: i32,
        [0+]    topics: Vec<ListOffsetsTopicResponse>,
    }

    /// One topic's offsets.
    ListOffsetsTopicResponse {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<ListOffsetsPartitionResponse>,
    }

    /// One partition's offset. `leader_epoch` is that of the record found, not the present one.
    ListOffsetsPartitionResponse {
        [0+]    partition_index: i32,
        [0+]    error_code: ErrorCode,
        [1+]    timestamp: i64 = -1,
        [1+]    offset: i64 = -1,
        [4+]    leader_epoch: i32 = -1,
    }
}

/// Times below zero that stand for places in the log.
pub mod timestamp {
    /// Behind the last record (or the last stable one, by isolation level).
    pub const LATEST: i64 = -1;
    /// The first record.
    pub const EARLIEST: i64 = -2;
    /// The record with the largest timestamp; from version 7 on.
    pub const MAX_TIMESTAMP: i64 = -3;
    /// The first record on the local tier; from version 8 on.
    pub const EARLIEST_LOCAL: i64 = -4;
    /// Behind the last record of the remote tier; from version 9 on.
    pub const LATEST_TIERED: i64 = -5;
    /// The first record not yet uploaded to the remote tier; from version 11 on.
    pub const EARLIEST_PENDING_UPLOAD: i64 = -6;
}
