//! LeaveGroup.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Members that leave: one `member_id` before version 3, several `members` since.
    LeaveGroupRequest {
        [0+]    group_id: KafkaStr,
        [0-2]   member_id: KafkaStr,
        [3+]    members: Vec<MemberIdentity>,
    }

    /// A member by its id, or by its instance id with an empty member id.
    MemberIdentity {
        [3+]    member_id: KafkaStr,
        [3+]    group_instance_id: Option<KafkaStr>,
        [5+]    reason: Option<KafkaStr>,
    }

    /// What became of them.
    LeaveGroupResponse {
        [1+]    throttle_time_ms: i32,
        [0+]    error_code: ErrorCode,
        [3+]    members: Vec<MemberResponse>,
    }

    /// What became of one.
    MemberResponse {
        [3+]    member_id: KafkaStr,
        [3+]    group_instance_id: Option<KafkaStr>,
        [3+]    error_code: ErrorCode,
    }
}
