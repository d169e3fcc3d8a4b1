//! OffsetFetch. Before version 8 a request is about one group, since then about several.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Asks for committed positions; `topics` of `None` asks for all of a group's.
    OffsetFetchRequest {
        [0-7]           group_id: KafkaStr,
        [0-7 null 2-7]  topics: Option<Vec<OffsetFetchRequestTopic>>,
        [8+]            groups: Vec<OffsetFetchRequestGroup>,
        [7+]            require_stable: bool,
    }

    /// One topic's partitions, before version 8.
    OffsetFetchRequestTopic {
        [0-7]           name: KafkaStr,
        [0-7]           partition_indexes: Vec<i32>,
    }

    /// One group.
    OffsetFetchRequestGroup {
        [8+]            group_id: KafkaStr,
        [9+]            member_id: Option<KafkaStr>,
        [9+]            member_epoch: i32 = -1,
        [8+]            topics: Option<Vec<OffsetFetchRequestTopics>>,
    }

    /// One topic's partitions, from version 8 on.
    OffsetFetchRequestTopics {
        [8-9]           name: KafkaStr,
        [10+]           topic_id: Uuid,
        [8+]            partition_indexes: Vec<i32>,
    }

    /// The positions.
    OffsetFetchResponse {
        [3+]            throttle_time_ms: i32,
        [0-7]           topics: Vec<OffsetFetchResponseTopic>,
        [2-7]           error_code: ErrorCode,
        [8+]            groups: Vec<OffsetFetchResponseGroup>,
    }

    /// One topic's positions, before version 8.
    OffsetFetchResponseTopic {
        [0-7]           name: KafkaStr,
        [0-7]           partitions: Vec<OffsetFetchResponsePartition>,
    }

    /// One partition's position, in every version; -1 if there is none.
    OffsetFetchResponsePartition {
        [0+]            partition_index: i32,
        [0+]            committed_offset: i64,
        [5+]            committed_leader_epoch: i32 = -1,
        [0+]            metadata: Option<KafkaStr>,
        [0+]            error_code: ErrorCode,
    }

    /// One group's positions.
    OffsetFetchResponseGroup {
        [8+]            group_id: KafkaStr,
        [8+]            topics: Vec<OffsetFetchResponseTopics>,
        [8+]            error_code: ErrorCode,
    }

    /// One topic's positions, from version 8 on.
    OffsetFetchResponseTopics {
        [8-9]           name: KafkaStr,
        [10+]           topic_id: Uuid,
        [8+]            partitions: Vec<OffsetFetchResponsePartition>,
    }
}
