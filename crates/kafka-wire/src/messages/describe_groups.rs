//! DescribeGroups: classic groups and their members.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use bytes::Bytes;

messages! {
    /// Groups to describe.
    DescribeGroupsRequest {
        [0+]    groups: Vec<KafkaStr>,
        [3+]    include_authorized_operations: bool,
    }

    /// The groups.
    DescribeGroupsResponse {
        [1+]    throttle_time_ms: i32,
        [0+]    groups: Vec<DescribedGroup>,
    }

    /// One group.
    DescribedGroup {
        [0+]    error_code: ErrorCode,
        [6+]    error_message: Option<KafkaStr>,
        [0+]    group_id: KafkaStr,
        [0+]    group_state: KafkaStr,
        [0+]    protocol_type: KafkaStr,
        [0+]    protocol_data: KafkaStr,
        [0+]    members: Vec<DescribedGroupMember>,
        [3+]    authorized_operations: i32 = i32::MIN,
    }

    /// One member.
    DescribedGroupMember {
        [0+]    member_id: KafkaStr,
        [4+]    group_instance_id: Option<KafkaStr>,
        [0+]    client_id: KafkaStr,
        [0+]    client_host: KafkaStr,
        [0+]    member_metadata: Bytes,
        [0+]    member_assignment: Bytes,
    }
}
