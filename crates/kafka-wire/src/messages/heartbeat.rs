//! Heartbeat of the classic group protocol.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// A member that is still there.
    HeartbeatRequest {
        [0+]    group_id: KafkaStr,
        [0+]    generation_id: i32,
        [0+]    member_id: KafkaStr,
        [3+]    group_instance_id: Option<KafkaStr>,
    }

    /// Whether the generation still holds.
    HeartbeatResponse {
        [1+]    throttle_time_ms: i32,
        [0+]    error_code: ErrorCode,
    }
}
