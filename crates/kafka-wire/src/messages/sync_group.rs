//! SyncGroup: the second half of the classic rebalance.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use bytes::Bytes;

messages! {
    /// A member that asks for its assignment; the leader brings everybody's.
    SyncGroupRequest {
        [0+]    group_id: KafkaStr,
        [0+]    generation_id: i32,
        [0+]    member_id: KafkaStr,
        [3+]    group_instance_id: Option<KafkaStr>,
        [5+]    protocol_type: Option<KafkaStr>,
        [5+]    protocol_name: Option<KafkaStr>,
        [0+]    assignments: Vec<SyncGroupRequestAssignment>,
    }

    /// One member's assignment.
    SyncGroupRequestAssignment {
        [0+]    member_id: KafkaStr,
        [0+]    assignment: Bytes,
    }

    /// The asker's assignment.
    SyncGroupResponse {
        [1+]    throttle_time_ms: i32,
        [0+]    error_code: ErrorCode,
        [5+]    protocol_type: Option<KafkaStr>,
        [5+]    protocol_name: Option<KafkaStr>,
        [0+]    assignment: Bytes,
    }
}
