//! OffsetCommit.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Positions of a group to remember.
    OffsetCommitRequest {
        [0+]    group_id: KafkaStr,
        [1+]    generation_id_or_member_epoch: i32 = -1,
        [1+]    member_id: KafkaStr,
        [7+]    group_instance_id: Option<KafkaStr>,
        [2-4]   retention_time_ms: i64 = -1,
        [0+]    topics: Vec<OffsetCommitRequestTopic>,
    }

    /// One topic's positions.
    OffsetCommitRequestTopic {
        [0-9]   name: KafkaStr,
        [10+]   topic_id: Uuid,
        [0+]    partitions: Vec<OffsetCommitRequestPartition>,
    }

    /// One partition's position: the offset of the next record to read.
    OffsetCommitRequestPartition {
        [0+]    partition_index: i32,
        [0+]    committed_offset: i64,
        [6+]    committed_leader_epoch: i32 = -1,
        [0+]    committed_metadata: Option<KafkaStr>,
    }

    /// What became of them.
    OffsetCommitResponse {
        [3+]    throttle_time_ms: i32,
        [0+]    topics: Vec<OffsetCommitResponseTopic>,
    }

    /// What became of one topic's.
    OffsetCommitResponseTopic {
        [0-9]   name: KafkaStr,
        [10+]   topic_id: Uuid,
        [0+]    partitions: Vec<OffsetCommitResponsePartition>,
    }

    /// What became of one partition's.
    OffsetCommitResponsePartition {
        [0+]    partition_index: i32,
        [0+]    error_code: ErrorCode,
    }
}
