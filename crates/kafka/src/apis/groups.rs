//! Classic groups: their coordinator, their members' requests, and what tools ask of them.

use std::net::IpAddr;

use weir_broker::groups::{self, GroupState};
use weir_broker::{Action, GroupError};
use weir_kafka_wire::messages::delete_groups::DeletableGroupResult;
use weir_kafka_wire::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use weir_kafka_wire::messages::find_coordinator::{Coordinator, key_type};
use weir_kafka_wire::messages::join_group::JoinGroupResponseMember;
use weir_kafka_wire::messages::leave_group::MemberResponse;
use weir_kafka_wire::messages::list_groups::ListedGroup;
use weir_kafka_wire::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ErrorCode,
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, KafkaStr, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, SyncGroupRequest, SyncGroupResponse,
};

use super::cluster::{self, Endpoint};
use crate::errors::Failure;
use crate::session::Call;

/// First version of JoinGroup in which a new member is given its id before it takes part (KIP-394).
const MEMBER_ID_FIRST_FROM_VERSION: i16 = 4;
/// First version of JoinGroup in which a leader can be told to leave assignments as they are.
const SKIP_ASSIGNMENT_FROM_VERSION: i16 = 9;
/// First version of FindCoordinator that asks for several at once.
const SEVERAL_KEYS_FROM_VERSION: i16 = 4;
/// First version of LeaveGroup that names several members.
const SEVERAL_MEMBERS_FROM_VERSION: i16 = 3;
/// First version of DescribeGroups in which a group that does not exist is an error.
const UNKNOWN_GROUP_FROM_VERSION: i16 = 6;
/// The only type of group that there is; as the filter of ListGroups spells it.
const CLASSIC: &str = "classic";

fn text(text: String) -> KafkaStr {
    KafkaStr::from(text)
}

fn owned(text: Option<KafkaStr>) -> Option<String> {
    text.map(String::from)
}

/// The code of a group's error, counted.
fn refused(call: &Call, error: &GroupError) -> ErrorCode {
    call.count_error();
    Failure::from(error).code
}

pub(crate) async fn find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    let one = |key: &KafkaStr| match coordinator_of(&call, request.key_type, key) {
        Ok(found) => Coordinator {
            key: key.clone(),
            node_id: found.node_id,
            host: found.host,
            port: found.port,
            ..Default::default()
        },
        Err(failure) => {
            call.count_error();
            Coordinator {
                key: key.clone(),
                node_id: -1,
                port: -1,
                error_code: failure.code,
                error_message: failure.message,
                ..Default::default()
            }
        }
    };
    if call.version >= SEVERAL_KEYS_FROM_VERSION {
        let coordinators = request.coordinator_keys.iter().map(one).collect();
        return FindCoordinatorResponse { coordinators, ..Default::default() };
    }
    let found = one(&request.key);
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..Default::default()
    }
}

fn coordinator_of(call: &Call, kind: i8, key: &KafkaStr) -> Result<Endpoint, Failure> {
    match kind {
        key_type::GROUP if call.may_know(key) => {}
        key_type::GROUP => call.check_group(Action::Read, key)?,
        key_type::TRANSACTION => {
            // The code that makes every client give up at once; the words say why.
            let code = ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
            let why = "transactions are not served; remove transactional.id from the producer";
            return Err(Failure::new(code, why));
        }
        other => {
            let why = format!("coordinators of type {other} are not served; those of groups (0) are");
            return Err(Failure::new(ErrorCode::INVALID_REQUEST, why));
        }
    }
    let node = call.front.broker.group_coordinator(key).map_err(|error| Failure::from(&error));
    let node = node.map_err(|failure| match failure.code {
        // The client asks where the coordinator is and would not understand that it is elsewhere.
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
            Failure { code: ErrorCode::COORDINATOR_NOT_AVAILABLE, ..failure }
        }
        _ => failure,
    })?;
    let cluster = call.front.broker.cluster();
    let info = cluster.nodes.iter().find(|info| info.id == node);
    info.and_then(|info| cluster::endpoint(call, info, cluster.node_id)).ok_or_else(|| {
        let why = format!("node {node} coordinates the group but does not say where it listens");
        Failure::new(ErrorCode::COORDINATOR_NOT_AVAILABLE, why)
    })
}

/// Refuses a group that the client may not be in.
fn check_member(call: &Call, group: &str) -> Result<(), ErrorCode> {
    call.check_group(Action::Read, group).map_err(|failure| {
        call.count_error();
        failure.code
    })
}

pub(crate) async fn join(call: Call, request: JoinGroupRequest) -> JoinGroupResponse {
    if let Err(error_code) = check_member(&call, &request.group_id) {
        return JoinGroupResponse { error_code, member_id: request.member_id, ..Default::default() };
    }
    let join = groups::JoinRequest {
        group: request.group_id.into(),
        member_id: request.member_id.to_string(),
        instance_id: owned(request.group_instance_id),
        client_id: call.client_id.as_deref().unwrap_or_default().to_owned(),
        client_host: host_as_kafka_writes_it(call.caller.peer.ip()),
        session_timeout_ms: request.session_timeout_ms,
        // Version 0 does not say it and means its session timeout.
        rebalance_timeout_ms: if call.version == 0 {
            request.session_timeout_ms
        } else {
            request.rebalance_timeout_ms
        },
        protocol_type: request.protocol_type.into(),
        protocols: request
            .protocols
            .into_iter()
            .map(|protocol| (protocol.name.into(), bytes::Bytes::copy_from_slice(&protocol.metadata)))
            .collect(),
        require_known_member_id: call.version >= MEMBER_ID_FIRST_FROM_VERSION,
        can_skip_assignment: call.version >= SKIP_ASSIGNMENT_FROM_VERSION,
        reason: owned(request.reason),
    };
    let joined = call.unless_draining(call.front.broker.join_group(join)).await;
    match joined.unwrap_or(Err(GroupError::Unavailable(weir_broker::Unavailable::ShuttingDown))) {
        Ok(joined) => JoinGroupResponse {
            generation_id: joined.generation,
            protocol_type: Some(text(joined.protocol_type)),
            protocol_name: Some(text(joined.protocol)),
            leader: text(joined.leader),
            skip_assignment: joined.skip_assignment,
            member_id: text(joined.member_id),
            members: joined
                .members
                .into_iter()
                .map(|member| JoinGroupResponseMember {
                    member_id: text(member.member_id),
                    group_instance_id: member.instance_id.map(text),
                    metadata: member.metadata,
                })
                .collect(),
            ..Default::default()
        },
        Err(error) => JoinGroupResponse {
            error_code: refused(&call, &error),
            member_id: match error {
                GroupError::MemberIdRequired { member_id } => text(member_id),
                _ => request.member_id,
            },
            ..Default::default()
        },
    }
}

/// Kafka writes a member's address with a slash before it, which tools cut off.
fn host_as_kafka_writes_it(address: IpAddr) -> String {
    format!("/{}", address.to_canonical())
}

pub(crate) async fn sync(call: Call, request: SyncGroupRequest) -> SyncGroupResponse {
    if let Err(error_code) = check_member(&call, &request.group_id) {
        return SyncGroupResponse { error_code, ..Default::default() };
    }
    let sync = groups::SyncRequest {
        group: request.group_id.into(),
        generation: request.generation_id,
        member_id: request.member_id.into(),
        instance_id: owned(request.group_instance_id),
        protocol_type: owned(request.protocol_type),
        protocol: owned(request.protocol_name),
        assignments: request
            .assignments
            .into_iter()
            .map(|one| (one.member_id.into(), bytes::Bytes::copy_from_slice(&one.assignment)))
            .collect(),
    };
    let synced = call.unless_draining(call.front.broker.sync_group(sync)).await;
    match synced.unwrap_or(Err(GroupError::Unavailable(weir_broker::Unavailable::ShuttingDown))) {
        Ok(synced) => SyncGroupResponse {
            protocol_type: Some(text(synced.protocol_type)),
            protocol_name: Some(text(synced.protocol)),
            assignment: synced.assignment,
            ..Default::default()
        },
        Err(error) => SyncGroupResponse { error_code: refused(&call, &error), ..Default::default() },
    }
}

pub(crate) async fn heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse {
    if let Err(error_code) = check_member(&call, &request.group_id) {
        return HeartbeatResponse { error_code, ..Default::default() };
    }
    let heartbeat = groups::HeartbeatRequest {
        group: request.group_id.into(),
        generation: request.generation_id,
        member_id: request.member_id.into(),
        instance_id: owned(request.group_instance_id),
    };
    let error_code = match call.front.broker.heartbeat(heartbeat).await {
        Ok(()) => ErrorCode::NONE,
        Err(error) => refused(&call, &error),
    };
    HeartbeatResponse { error_code, ..Default::default() }
}

pub(crate) async fn leave(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse {
    if let Err(error_code) = check_member(&call, &request.group_id) {
        return LeaveGroupResponse { error_code, ..Default::default() };
    }
    let several = call.version >= SEVERAL_MEMBERS_FROM_VERSION;
    let leaving: Vec<(KafkaStr, Option<KafkaStr>)> = match several {
        true => request.members.into_iter().map(|one| (one.member_id, one.group_instance_id)).collect(),
        false => vec![(request.member_id, None)],
    };
    let leave = groups::LeaveRequest {
        group: request.group_id.into(),
        members: leaving
            .iter()
            .map(|(member_id, instance_id)| groups::LeavingMember {
                member_id: member_id.to_string(),
                instance_id: instance_id.as_ref().map(KafkaStr::to_string),
            })
            .collect(),
    };
    let left = match call.front.broker.leave_group(leave).await {
        Ok(left) => left,
        Err(error) => {
            return LeaveGroupResponse { error_code: refused(&call, &error), ..Default::default() };
        }
    };
    let mut members = Vec::with_capacity(leaving.len());
    for ((member_id, group_instance_id), outcome) in leaving.into_iter().zip(left) {
        let error_code = outcome.map_or_else(|error| refused(&call, &error), |()| ErrorCode::NONE);
        members.push(MemberResponse { member_id, group_instance_id, error_code });
    }
    // Before several could leave at once, the one member's outcome was the whole answer.
    let error_code = match (several, members.first()) {
        (false, Some(only)) => only.error_code,
        _ => ErrorCode::NONE,
    };
    LeaveGroupResponse { error_code, members, ..Default::default() }
}

pub(crate) async fn list(call: Call, request: ListGroupsRequest) -> ListGroupsResponse {
    let any_of = |filter: &[KafkaStr], value: &str| {
        filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
    };
    let groups = call.front.broker.list_groups().into_iter();
    let groups = groups
        .filter(|group| call.may_know(&group.group))
        .filter(|group| any_of(&request.states_filter, group.state.name()))
        .filter(|_| any_of(&request.types_filter, CLASSIC))
        .map(|group| ListedGroup {
            group_id: text(group.group),
            protocol_type: text(group.protocol_type),
            group_state: KafkaStr::from_static(group.state.name()),
            group_type: KafkaStr::from_static(CLASSIC),
        });
    ListGroupsResponse { groups: groups.collect(), ..Default::default() }
}

pub(crate) async fn describe(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse {
    let groups = request.groups.into_iter().map(|group_id| {
        let authorized_operations =
            cluster::operations(request.include_authorized_operations, || call.group_operations(&group_id));
        if !call.may_know(&group_id) {
            call.count_error();
            return DescribedGroup {
                error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
                group_id,
                authorized_operations,
                ..Default::default()
            };
        }
        let described = match call.front.broker.describe_group(&group_id) {
            Ok(described) => described,
            Err(error) => {
                return DescribedGroup {
                    error_code: refused(&call, &error),
                    error_message: Some(text(error.to_string())),
                    group_id,
                    authorized_operations,
                    ..Default::default()
                };
            }
        };
        let unknown = described.state == GroupState::Dead && call.version >= UNKNOWN_GROUP_FROM_VERSION;
        let error = unknown.then(|| Failure::from(&GroupError::UnknownGroup));
        DescribedGroup {
            error_code: error.as_ref().map_or(ErrorCode::NONE, |error| error.code),
            error_message: error.and_then(|error| error.message),
            group_id,
            group_state: KafkaStr::from_static(described.state.name()),
            protocol_type: text(described.protocol_type),
            protocol_data: text(described.protocol),
            members: described
                .members
                .into_iter()
                .map(|member| DescribedGroupMember {
                    member_id: text(member.member_id),
                    group_instance_id: member.instance_id.map(text),
                    client_id: text(member.client_id),
                    client_host: text(member.client_host),
                    member_metadata: member.metadata,
                    member_assignment: member.assignment,
                })
                .collect(),
            authorized_operations,
        }
    });
    DescribeGroupsResponse { groups: groups.collect(), ..Default::default() }
}

pub(crate) async fn delete(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group_id in request.groups_names {
        let error_code = match call.check_group(Action::Configure, &group_id) {
            Err(failure) => {
                call.count_error();
                failure.code
            }
            Ok(()) => match call.front.broker.delete_group(&group_id).await {
                Ok(()) => ErrorCode::NONE,
                Err(error) => refused(&call, &error),
            },
        };
        results.push(DeletableGroupResult { group_id, error_code });
    }
    DeleteGroupsResponse { results, ..Default::default() }
}
