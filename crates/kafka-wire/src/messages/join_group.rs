//! JoinGroup: the first half of the classic rebalance.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use bytes::Bytes;

messages! {
    /// A member that wants to take part in a group's next generation.
    JoinGroupRequest {
        [0+]            group_id: KafkaStr,
        [0+]            session_timeout_ms: i32,
        [1+]            rebalance_timeout_ms: i32 = -1,
        [0+]            member_id: KafkaStr,
        [5+]            group_instance_id: Option<KafkaStr>,
        [0+]            protocol_type: KafkaStr,
        [0+]            protocols: Vec<JoinGroupRequestProtocol>,
        [8+]            reason: Option<KafkaStr>,
    }

    /// A way of assigning partitions that the member supports, best first.
    JoinGroupRequestProtocol {
        [0+]            name: KafkaStr,
        [0+]            metadata: Bytes,
    }

    /// The new generation. Only the leader is told the members.
    JoinGroupResponse {
        [2+]            throttle_time_ms: i32,
        [0+]            error_code: ErrorCode,
        [0+]            generation_id: i32 = -1,
        [7+]            protocol_type: Option<KafkaStr>,
        [0+ null 7+]    protocol_name: Option<KafkaStr>,
        [0+]            leader: KafkaStr,
        [9+]            skip_assignment: bool,
        [0+]            member_id: KafkaStr,
        [0+]            members: Vec<JoinGroupResponseMember>,
    }

    /// One member and what it said about the chosen protocol.
    JoinGroupResponseMember {
        [0+]            member_id: KafkaStr,
        [5+]            group_instance_id: Option<KafkaStr>,
        [0+]            metadata: Bytes,
    }
}
