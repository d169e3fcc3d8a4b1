//! ListGroups.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Asks for groups in these states and of these types; an empty list means any.
    ListGroupsRequest {
        [4+]    states_filter: Vec<KafkaStr>,
        [5+]    types_filter: Vec<KafkaStr>,
    }

    /// The groups.
    ListGroupsResponse {
        [1+]    throttle_time_ms: i32,
        [0+]    error_code: ErrorCode,
        [0+]    groups: Vec<ListedGroup>,
    }

    /// One group.
    ListedGroup {
        [0+]    group_id: KafkaStr,
        [0+]    protocol_type: KafkaStr,
        [4+]    group_state: KafkaStr,
        [5+]    group_type: KafkaStr,
    }
}
