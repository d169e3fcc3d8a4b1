//! OffsetForLeaderEpoch: where a leader's epoch ended, so that a reader can tell whether its position still holds.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Epochs whose ends are asked for. Consumers name themselves replica -1.
    OffsetForLeaderEpochRequest {
        [3+]    replica_id: i32 = -2,
        [0+]    topics: Vec<OffsetForLeaderTopic>,
    }

    /// One topic.
    OffsetForLeaderTopic {
        [0+]    topic: KafkaStr,
        [0+]    partitions: Vec<OffsetForLeaderPartition>,
    }

    /// One partition's epoch.
    OffsetForLeaderPartition {
        [0+]    partition: i32,
        [2+]    current_leader_epoch: i32 = -1,
        [0+]    leader_epoch: i32,
    }

    /// The ends.
    OffsetForLeaderEpochResponse {
        [2+]    throttle_time_ms: i32,
        [0+]    topics: Vec<OffsetForLeaderTopicResult>,
    }

    /// One topic.
    OffsetForLeaderTopicResult {
        [0+]    topic: KafkaStr,
        [0+]    partitions: Vec<EpochEndOffset>,
    }

    /// One partition: the largest epoch not above the one asked for, and the offset behind its last record.
    EpochEndOffset {
        [0+]    error_code: ErrorCode,
        [0+]    partition: i32,
        [1+]    leader_epoch: i32 = -1,
        [0+]    end_offset: i64 = -1,
    }
}
