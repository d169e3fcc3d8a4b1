//! DeleteGroups.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Groups to delete.
    DeleteGroupsRequest {
        [0+]    groups_names: Vec<KafkaStr>,
    }

    /// What became of them.
    DeleteGroupsResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    results: Vec<DeletableGroupResult>,
    }

    /// What became of one.
    DeletableGroupResult {
        [0+]    group_id: KafkaStr,
        [0+]    error_code: ErrorCode,
    }
}
